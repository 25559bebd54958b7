"""Five tiny worlds with known answers, for testing any agent.

Observations and actions have one dimension. Each world isolates one thing an agent must be able to
learn; `best_action` says what it should do.

| name | episode | reward | tests |
| --- | --- | --- | --- |
| constant | 1 step | 1 | a value can be fitted at all |
| observation | 1 step | the observation, -1 or 1 | the value depends on the observation |
| delayed | 2 steps | 1 on the second | the discount and bootstrapping |
| action | 1 step | 1 - (action - 0.5)^2 | the policy climbs its value |
| both | 1 step | 1 - (action - observation / 2)^2 | the policy depends on the observation |
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from roid_jax.envs import base
from roid_jax.types import Array


class Probe(NamedTuple):
    """What makes one probe: its length, whether observations vary, and its reward."""

    length: int
    varies: bool
    reward: Callable[..., Array]  # (obs, action, number of the step) -> reward, each `[B]`
    best_action: Callable[
        [Array], Array | None
    ]  # (obs) -> the best action, or None where all are alike


PROBES = {
    "constant": Probe(1, False, lambda obs, action, t: jnp.ones_like(obs), lambda obs: None),
    "observation": Probe(1, True, lambda obs, action, t: obs, lambda obs: None),
    "delayed": Probe(2, False, lambda obs, action, t: (t == 1).astype(obs.dtype), lambda obs: None),
    "action": Probe(
        1,
        False,
        lambda obs, action, t: 1.0 - jnp.square(action - 0.5),
        lambda obs: jnp.full_like(obs, 0.5),
    ),
    "both": Probe(
        1,
        True,
        lambda obs, action, t: 1.0 - jnp.square(action - 0.5 * obs),
        lambda obs: 0.5 * obs,
    ),
}


def make(name: str) -> base.Environment:
    """Returns the probe of that name.

    Which one it is lies in the state, so that a program that steps one steps them all; all have the
    limit of the longest for the same reason.
    """
    if name not in PROBES:
        raise ValueError(f"unknown probe {name!r}; choose from {', '.join(PROBES)}.")
    number, longest = list(PROBES).index(name), max(probe.length for probe in PROBES.values())
    spec = base.Spec(f"probe:{name}", obs_dim=1, action_dim=1, max_steps=longest)

    def reset(seed: Array) -> tuple[tuple[Array, Array], Array]:
        which = jnp.full(seed.shape, number, jnp.int32)
        obs = _first_obs(which, seed)
        return (obs, which), obs

    return base.make(base.Backend(spec=spec, reset=reset, step=_step))


def _first_obs(which: Array, seed: Array) -> Array:
    keys = jax.vmap(jax.random.key)(seed)
    signs = jax.vmap(lambda key: jax.random.rademacher(key, (), jnp.float32))(keys)
    varies = jnp.array([probe.varies for probe in PROBES.values()])
    return jnp.where(varies[which], signs, 0.0)[:, None]


def _step(physics: tuple[Array, Array], action: Array, length: Array, seed: Array) -> tuple:
    obs, which = physics
    rewards = [probe.reward(obs[:, 0], action[:, 0], length) for probe in PROBES.values()]
    reward = jnp.take_along_axis(jnp.stack(rewards), which[None], axis=0)[0]
    lengths = jnp.array([probe.length for probe in PROBES.values()])
    terminated = length + 1 >= lengths[which]
    # In the delayed probe the second step looks different from the first.
    last_obs = jnp.where(terminated[:, None], obs, jnp.ones_like(obs))
    following = jnp.where(terminated[:, None], _first_obs(which, seed), last_obs)
    truncated = jnp.zeros_like(terminated)
    return (following, which), following, last_obs, reward, terminated, truncated
