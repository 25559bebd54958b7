"""Environments by name: `hopper`, `probe:both`, `gymnasium:Pendulum-v1`."""

from roid_jax.envs import base, gymnasium_host, mujoco_c, probes, tasks


def make(name: str, *, physics: str = "d4rl", threads: int = 1) -> base.Environment:
    """Returns the environment of that name.

    Args:
      name: a locomotion task, `probe:<name>`, or `gymnasium:<id>` for any that is registered.
      physics: of the locomotion tasks, `d4rl` or `stock`.
      threads: of the locomotion tasks, how many step a batch.
    """
    kind, _, rest = name.partition(":")
    if kind == "gymnasium" and rest:
        return gymnasium_host.make(rest)
    if kind == "probe" and rest:
        return probes.make(rest)
    if name not in tasks.TASKS:
        known = ", ".join([*tasks.TASKS, "probe:<name>", "gymnasium:<id>"])
        raise ValueError(f"unknown environment {name!r}; choose from {known}.")
    return mujoco_c.make(name, physics=physics, threads=threads)
