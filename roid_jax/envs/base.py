"""What an environment is: two pure functions over a batch of B environments.

`reset(keys)` starts one environment for each key; `step(state, action)` moves them all. Where an
episode ends, the next begins in the same call. Randomness comes from each environment's own key and
the number of its episode, so it depends neither on its neighbours nor on how steps are cut into
chunks.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from roid_jax.types import Array, Key


@chex.dataclass(frozen=True)
class EnvState:
    """B environments between two steps.

    physics: whatever the backend needs to go on, exactly; each leaf `[B, ...]`.
    obs: `[B, O]` what to act on next; where an episode just ended, the first of the new one.
    last_obs: `[B, O]` what the last action led to; where an episode just ended, its true last.
    reward: `[B]` of the last step.
    terminated: `[B]` whether the last step ended the world.
    truncated: `[B]` whether the last step met the time limit, and did not end the world.
    episode_return: `[B]` sum of rewards up to and with the last step, of the episode it was in.
    episode_length: `[B]` number of steps, likewise.
    key: `[B]` key of each environment, the same for all its episodes.
    episode: `[B]` number of episodes begun before the one that `obs` belongs to.
    """

    physics: Any
    obs: Array
    last_obs: Array
    reward: Array
    terminated: Array
    truncated: Array
    episode_return: Array
    episode_length: Array
    key: Key
    episode: Array

    @property
    def is_last(self) -> Array:
        """`[B]` whether the last step was the last of its episode."""
        return self.terminated | self.truncated


class Spec(NamedTuple):
    """What an agent must know of an environment; actions lie in [-1, 1]."""

    name: str
    obs_dim: int
    action_dim: int
    max_steps: int


class Environment(NamedTuple):
    """An environment as two pure functions, and what a restored state needs before it goes on."""

    spec: Spec
    reset: Callable[[Key], EnvState]  # ([B] keys) -> state
    step: Callable[[EnvState, Array], EnvState]  # (state, [B, U] action) -> state
    resume: Callable[[EnvState], EnvState]  # (restored state) -> state to go on from
    keeps_state: bool = False  # where no checkpoint reaches it; only one run can step it at a time
    fault: Callable[[], str | None] = lambda: None  # what failed outside since it was asked last


class Backend(NamedTuple):
    """The two functions a world must write; `make` adds the bookkeeping that all share.

    A seed is a `[B]` uint32 drawn from each environment's key and episode number.
    """

    spec: Spec
    reset: Callable[[Array], tuple[Any, Array]]  # (seed) -> physics, obs
    step: Callable[..., tuple[Any, Array, Array, Array, Array, Array]]
    # (physics, action, length, seed) -> physics, obs, last_obs, reward, terminated, truncated,
    # where `length` counts the episode's steps before this one and `seed` is for its successor.
    keeps_state: bool = False  # beside `physics`, where no checkpoint reaches it
    fault: Callable[[], str | None] = lambda: None  # where it failed, its rewards are NaN


def make(backend: Backend) -> Environment:
    """Returns the environment of a backend: episodes counted, returns summed, seeds drawn."""

    def reset(keys: Key) -> EnvState:
        chex.assert_rank(keys, 1)
        nothing = jnp.zeros(keys.shape)
        episode = jnp.zeros(keys.shape, jnp.int32)
        physics, obs = backend.reset(_seeds(keys, episode))
        return EnvState(
            physics=physics,
            obs=obs,
            last_obs=obs,
            reward=nothing,
            terminated=jnp.zeros(keys.shape, bool),
            truncated=jnp.zeros(keys.shape, bool),
            episode_return=nothing,
            episode_length=jnp.zeros(keys.shape, jnp.int32),
            key=keys,
            episode=episode,
        )

    def step(state: EnvState, action: Array) -> EnvState:
        chex.assert_shape(action, (*state.reward.shape, backend.spec.action_dim))
        length = jnp.where(state.is_last, 0, state.episode_length)
        so_far = jnp.where(state.is_last, 0.0, state.episode_return)
        seed = _seeds(state.key, state.episode + 1)
        physics, obs, last_obs, reward, terminated, truncated = backend.step(
            state.physics, action, length, seed
        )
        return state.replace(
            physics=physics,
            obs=obs,
            last_obs=last_obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            episode_return=so_far + reward,
            episode_length=length + 1,
            episode=state.episode + (terminated | truncated),
        )

    resume = functools.partial(_resume, backend)
    return Environment(backend.spec, reset, step, resume, backend.keeps_state, backend.fault)


class Failed(RuntimeError):
    """A world cannot be stepped any further, for the reason that it says."""


def require_sound(env: Environment, numbers: Array) -> None:
    """Raises `Failed` in the world's own words where a number that it gave is not finite."""
    if not np.all(np.isfinite(numbers)):
        raise Failed(f"{env.spec.name} failed: {env.fault() or 'it gave a number that is none'}")


def _resume(backend: Backend, state: EnvState) -> EnvState:
    """Cuts the episodes that were lost with the backend's own state, and begins the next ones."""
    if not backend.keeps_state:
        return state
    physics, obs = backend.reset(_seeds(state.key, state.episode + 1))
    return state.replace(
        physics=physics,
        obs=obs,
        truncated=jnp.ones_like(state.truncated),
        terminated=jnp.zeros_like(state.terminated),
        episode=state.episode + 1,
    )


def _seeds(keys: Key, episode: Array) -> Array:
    """Returns `[B]` uint32 seeds, one for each environment's episode."""
    return jax.vmap(lambda key, i: jax.random.bits(jax.random.fold_in(key, i)))(keys, episode)
