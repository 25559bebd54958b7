"""roid_jax: information-directed offline-to-online reinforcement learning in JAX."""

import importlib
from typing import Any

__version__ = "0.1.0"

# What `import roid_jax` offers, and where it lives; imported when first asked for.
_NAMES = {
    "Agent": "agents.base",
    "Checkpoints": "checkpoint",
    "Environment": "envs.base",
    "Recording": "data.d4rl",
    "diagnose": "api",
    "evaluate": "api",
    "finetune": "api",
    "load": "data.load",
    "make_agent": "api",
    "make_dataset": "api",
    "make_env": "envs.named",
    "make_rule": "selection",
    "normalised_score": "evaluation",
    "pretrain": "api",
    "warm_start": "linear.posterior",
}
_ELSEWHERE = {"make_env": "make"}  # where it has another name

__all__ = list(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'roid_jax' has no attribute {name!r}")
    module = importlib.import_module(f"roid_jax.{_NAMES[name]}")
    return getattr(module, _ELSEWHERE.get(name, name))


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
