"""Budgets and settings of a training: the paper's, one for two CPU cores, a demo, and a smoke test.

A profile says how long and how large; the task says what the paper tuned for it.
"""

import dataclasses
from typing import Any

from roid_jax import config as cfg
from roid_jax.agents import named
from roid_jax.agents.boorl import BoorlConfig
from roid_jax.agents.calql import CalqlConfig
from roid_jax.agents.ensemble import EnsembleConfig
from roid_jax.agents.odt_learner import OdtConfig
from roid_jax.agents.pex import PexConfig
from roid_jax.agents.rlpd import RlpdConfig
from roid_jax.agents.roid_learner import RoidConfig
from roid_jax.data import published

PROFILES = ("paper", "cpu", "demo", "smoke")
TASKS = tuple(entry.name for entry in published.entries())


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """One run: offline, then online, evaluated on the way."""

    offline_steps: int = 500_000
    online_steps: int = 1_000_000
    eval_interval: int = 5000  # steps, of either phase
    eval_episodes: int = 10
    chunk: int = 500  # steps in one compiled call; it changes no number (one would: it is no loop)
    replay_capacity: int = 1_000_000
    physics: str = "d4rl"
    agent: Any = dataclasses.field(default=RoidConfig())

    def __post_init__(self):
        cfg.check_whole(self, "offline_steps", "online_steps", least=0, most=100_000_000)
        cfg.check_whole(self, "eval_interval", "replay_capacity", most=100_000_000)
        cfg.check_whole(self, "chunk", least=2, most=100_000_000)
        cfg.check_whole(self, "eval_episodes", most=1000)
        cfg.check_one_of("physics", self.physics, ("d4rl", "stock"))
        total = self.offline_steps + self.online_steps
        cfg.check(total > 0, "offline_steps and online_steps", "above 0 together", total)
        falls = getattr(getattr(self.agent, "offline", None), "decay_steps", 0)
        is_right = falls == 0 or falls >= self.offline_steps
        expected = f"0 or at least offline_steps, {self.offline_steps}: the rate is 0 from there on"
        cfg.check(is_right, "agent.offline.decay_steps", expected, falls)


# What authors tuned for a world, or for one set of it; the rest is shared.
_CHEETAH_RETURNS = {"evaluation_return": 6000.0, "exploration_return": 12_000.0}
_WALKER = {"learning_rate": 1e-3, "weight_decay": 1e-3}
_TUNED = {
    RoidConfig: {  # the paper's table of per-environment settings
        "halfcheetah": {"selector.q_max": 1e3, "offline_fraction": 0.5},
        "halfcheetah-medium-replay-v2": {"selector.eta": 0.5},
    },
    OdtConfig: {  # Online Decision Transformer's table
        "hopper-medium-replay-v2": {"learning_rate": 2e-3, "weight_decay": 1e-4},
        "walker2d": {**_WALKER, "evaluation_return": 5000.0, "exploration_return": 10_000.0},
        "halfcheetah": _CHEETAH_RETURNS,
    },
}

# Where steps are few the policy must survive the handover, and the critics must be worth following
# by then: cloning fades out over the budget instead of stopping, half of each batch is logged,
# states are normalised, critics have LayerNorm, and targets follow twice as fast.
_GENTLE = {
    "updates": 1,
    "warmup_steps": 1000,
    "offline_fraction": 0.5,
    "offline.hidden": (128, 128),
    "offline.layer_norm": True,
    "offline.normalise_states": True,
    "offline.polyak": 0.01,
}


def find(agent: str, task: str, profile: str) -> TrainConfig:
    """Returns the configuration of an agent on a task, in a profile."""
    cfg.check_one_of("profile", profile, PROFILES)
    settings = named.find(agent)
    tuned = _TUNED.get(type(settings), {})
    world = task.split("-")[0]
    settings = cfg.override(settings, {**tuned.get(world, {}), **tuned.get(task, {})})
    config = _PROFILES[profile](settings)
    if isinstance(settings, OdtConfig) and profile == "paper" and world == "walker2d":
        return cfg.override(config, {"offline_steps": 10_000})
    return config


# As long as its authors train it offline, where that is not what the paper says for ROID.
_PAPER_OFFLINE = {
    EnsembleConfig: 1_000_000,
    BoorlConfig: 1_000_000,
    RlpdConfig: 0,
    CalqlConfig: 1_000_000,
    PexConfig: 1_000_000,
    OdtConfig: 5000,
}

_SMALL = {"hidden": (128, 128), "batch_size": 128}
_TINY = {"hidden": (16,), "batch_size": 8}


def _offline(changes: dict[str, Any]) -> dict[str, Any]:
    return {f"offline.{name}": value for name, value in changes.items()}


# A small transformer learns as much in fewer updates, at a higher rate that is reached sooner. It
# acts with five steps in sight, so learning from ten of them, at half the cost, leaves little out.
_SHORT = {"width": 128, "layers": 3, "context": 10, "learning_rate": 1e-3, "ramp_updates": 1000}

# Without these, critics that had so few updates hardly tell actions apart: Cal-QL and IQL do not
# learn hopper, or lose it again.
_STEADY = {"layer_norm": True, "normalise_states": True, "polyak": 0.01}
_STEADY_OFFLINE = _offline(_STEADY)

# What a profile changes in the configuration of each kind of agent.
_CPU = {
    RoidConfig: {**_GENTLE, "bc_anneal_steps": 30_000},
    EnsembleConfig: {},
    BoorlConfig: {
        **_STEADY_OFFLINE,
        "offline.hidden": (128, 128),
        "updates": 1,
        "warmup_steps": 1000,
    },
    RlpdConfig: {"hidden": (128, 128), "updates": 2, "warmup_steps": 1000},
    CalqlConfig: {**_SMALL, **_STEADY, "num_actions": 4},
    PexConfig: {
        **_offline({**_STEADY, "hidden": (128, 128), "decay_steps": 50_000}),
        "warmup_steps": 1000,
    },
    OdtConfig: {**_SHORT, "batch_size": 64, "update_rate": 0.1},
}
_DEMO = {
    RoidConfig: {
        # The least of all target critics: with so few of them and so little data their mean rises
        # faster, and falls by half on the way; so it does with smaller batches.
        **_GENTLE,
        **_offline({"num_members": 3, "holdout": 2000, "bc_alpha": 1.0}),
        "target": "min",
        "bc_anneal_steps": 20_000,
    },
    EnsembleConfig: _SMALL,
    BoorlConfig: {
        **_STEADY_OFFLINE,
        **_offline({**_SMALL, "num_members": 3}),
        "updates": 1,
        "warmup_steps": 1000,
    },
    RlpdConfig: {**_SMALL, "updates": 2, "warmup_steps": 1000},
    CalqlConfig: {**_SMALL, **_STEADY, "num_actions": 4},
    PexConfig: {
        **_offline({**_SMALL, **_STEADY, "decay_steps": 12_500}),
        "warmup_steps": 1000,
    },
    OdtConfig: {**_SHORT, "layers": 2, "batch_size": 32, "update_rate": 0.1},
}
_SMOKE = {
    RoidConfig: {
        **_offline({**_TINY, "holdout": 50, "num_members": 2}),
        **_offline({"layer_norm": True, "normalise_states": True}),
        "selector.candidates": 4,
        "selector.wide_candidates": 8,
        "updates": 2,
        "warmup_steps": 25,
        "offline_fraction": 0.5,
        "bc_anneal_steps": 100,
    },
    EnsembleConfig: {**_TINY, "holdout": 50},
    BoorlConfig: {**_offline({**_TINY, "num_members": 2}), "updates": 2, "warmup_steps": 25},
    RlpdConfig: {**_TINY, "num_critics": 3, "updates": 2, "warmup_steps": 25},
    CalqlConfig: {**_TINY, **_STEADY, "num_actions": 2, "warmup_steps": 25},
    PexConfig: {**_offline({**_TINY, **_STEADY, "decay_steps": 100}), "warmup_steps": 25},
    OdtConfig: {
        "width": 16,
        "layers": 1,
        "heads": 2,
        "context": 6,
        "acting_context": 3,
        "batch_size": 4,
        "kept_episodes": 5,
        "ramp_updates": 10,
    },
}


def _paper(settings: Any) -> TrainConfig:
    offline_steps = _PAPER_OFFLINE.get(type(settings), TrainConfig.offline_steps)
    return TrainConfig(agent=settings, offline_steps=offline_steps)


def _cpu(settings: Any) -> TrainConfig:
    """At most about 40 minutes a seed on two cores."""
    return TrainConfig(
        offline_steps=_offline_steps(settings, 50_000, sequences=5000),
        online_steps=30_000,
        eval_interval=2500,
        replay_capacity=30_000,
        agent=cfg.override(settings, _CPU[type(settings)]),
    )


def _demo(settings: Any) -> TrainConfig:
    """Some minutes on two cores: smaller networks, fewer of them."""
    return TrainConfig(
        offline_steps=_offline_steps(settings, 12_500, sequences=2500),
        online_steps=20_000,
        eval_interval=2500,
        replay_capacity=20_000,
        agent=cfg.override(settings, _DEMO[type(settings)]),
    )


def _smoke(settings: Any) -> TrainConfig:
    """Seconds, for tests."""
    return TrainConfig(
        offline_steps=_offline_steps(settings, 100, sequences=100),
        online_steps=100,
        eval_interval=50,
        eval_episodes=2,
        chunk=25,
        replay_capacity=100,
        agent=cfg.override(settings, _SMOKE[type(settings)]),
    )


def _offline_steps(settings: Any, steps: int, *, sequences: int) -> int:
    """Returns the steps of the offline phase; 0 for an agent that has none."""
    if isinstance(settings, OdtConfig):
        return sequences
    return 0 if isinstance(settings, RlpdConfig) else steps


_PROFILES = {"paper": _paper, "cpu": _cpu, "demo": _demo, "smoke": _smoke}
