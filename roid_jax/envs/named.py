"""Environments by name: `hopper`, `mjx:hopper`, `probe:both`, `gymnasium:Pendulum-v1`."""

from roid_jax.envs import base, gymnasium_host, mjx, mujoco_c, probes, tasks


def make(name: str, *, physics: str = "d4rl", threads: int = 1) -> base.Environment:
    """Returns the environment of that name.

    Args:
      name: a locomotion task, on MuJoCo's C engine or as `mjx:<task>` on MJX; `probe:<name>`; or
        `gymnasium:<id>` for any that is registered there.
      physics: of the locomotion tasks, `d4rl` or `stock`.
      threads: of the locomotion tasks, how many step a batch.
    """
    kind, _, rest = name.partition(":")
    if kind == "gymnasium" and rest:
        return gymnasium_host.make(rest)
    if kind == "probe" and rest:
        return probes.make(rest)
    if kind == "mjx" and rest:
        return mjx.make(rest, physics=physics)
    if name not in tasks.TASKS:
        known = ", ".join([*tasks.TASKS, "mjx:<task>", "probe:<name>", "gymnasium:<id>"])
        raise ValueError(f"unknown environment {name!r}; choose from {known}.")
    return mujoco_c.make(name, physics=physics, threads=threads)
