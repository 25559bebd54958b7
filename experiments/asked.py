"""What a training's command line asks for: its configuration, its world, its data, its name."""

import re
from typing import Any

from absl import flags

from experiments import cli, profiles
from roid_jax import config as cfg
from roid_jax.data import registry

EMBEDDED = "embedded:hopper-medium"  # of the same kind as hopper-medium-v2, and much smaller


def configured() -> profiles.TrainConfig:
    """Returns the configuration that the flags ask for."""
    values = flags.FLAGS
    config = profiles.find(values.agent, values.task, values.profile)
    _require_returns(config.agent)
    if values.selector is None:
        return cli.configured(config)
    if not hasattr(config.agent, "selector"):
        raise ValueError(f"--selector: {values.agent} has none; it is for --agent=roid.")
    config = cli.configured(cfg.override(config, {"agent.selector.name": values.selector}))
    if config.agent.selector.name != values.selector:
        raise ValueError("--selector and --config.agent.selector.name differ; give one of them.")
    return config


def _require_returns(agent: Any) -> None:
    """Raises a ValueError of one line where an agent would ask a world for another's returns."""
    fields = [name for name in vars(agent) if name.endswith("_return")]
    is_told = all(f"config.agent.{name}" in flags.FLAGS for name in fields)  # flags that were given
    if fields and env_name() != flags.FLAGS.task.split("-")[0] and not is_told:
        wanted = " and ".join(f"--config.agent.{name}" for name in fields)
        raise ValueError(f"{flags.FLAGS.agent} must be told what to ask for there: {wanted}.")


def env_name() -> str:
    """Returns the name of the world."""
    return flags.FLAGS.env or flags.FLAGS.task.split("-")[0]


def dataset_name() -> str:
    """Returns the name of the data: the task's; for a short look what the package has will do."""
    values = flags.FLAGS
    if values.dataset:
        return values.dataset
    if values.env and values.env.split(":")[-1] != values.task.split("-")[0]:
        raise ValueError(f"--env={values.env} needs --dataset, the data that was logged there.")
    of_task = f"d4rl:{values.task}"
    is_short = values.profile in ("demo", "smoke") and values.task == "hopper-medium-v2"
    if not is_short:
        return of_task
    return of_task if flags.FLAGS["task"].present and registry.is_here(of_task) else EMBEDDED


def run_name() -> str:
    """Returns what the run is called after: all that was named."""
    values = flags.FLAGS
    named_data = [name.split("/")[-1] for name in (values.env, values.dataset) if name]
    words = [values.agent, values.selector, *(named_data or [values.task]), values.profile]
    return "-".join(re.sub(r"[^\w.]+", "-", word) for word in words if word)
