"""What an agent is: a few pure functions over a state that is any pytree of arrays.

Everything that makes an algorithm itself lies behind them, batch size, update ratio and the mixing
of data included, so the loop never learns which algorithm it runs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from roid_jax import replay
from roid_jax.types import Array, Key, Transitions


class Agent(NamedTuple):
    """An algorithm as pure functions; `B` is the number of environments it acts in at once.

    `step` counts the updates offline and the environment steps online. `warmup_act` acts in the
    first `warmup_steps` online steps, in which nothing is learned. Metrics are numbers by name.
    """

    init: Callable  # (key, dataset) -> state
    act: Callable  # (key, state, memory, [B, O] obs, *, explore) -> [B, U] action, memory, metrics
    online_update: Callable  # (key, step, state, replay, dataset) -> state, metrics
    offline_update: Callable | None = None  # (key, step, state, dataset) -> state, metrics
    handover: Callable = lambda key, state, dataset: state  # once, between offline and online
    begin_episode: Callable = lambda key: ()  # what act remembers within an episode
    remember: Callable = lambda memory, reward: memory  # [B] what the action brought
    explain: Callable | None = None  # (key, state, [B, O] obs) -> beliefs about candidates there
    return_discount: float | None = None  # of the returns to go beside logged rows, None for none
    credits: bool = False  # whether lived rows are told theirs too, as their episodes go on
    warmup_steps: int = 0
    warmup_act: Callable | None = None  # as `act`, and None is `act` itself


@chex.dataclass(frozen=True)
class Learner:
    """Parameters beside the state of the optimiser that moves them."""

    params: Any
    moments: Any


def learner(optimiser: optax.GradientTransformation, params: Any) -> Learner:
    """Returns parameters that were not moved yet."""
    return Learner(params=params, moments=optimiser.init(params))


def descend(optimiser: optax.GradientTransformation, start: Learner, gradient: Any) -> Learner:
    """Returns the parameters one step down the gradient."""
    change, moments = optimiser.update(gradient, start.moments, start.params)
    return Learner(params=optax.apply_updates(start.params, change), moments=moments)


def learn_mixed(
    key: Key,
    state: Any,
    update: Callable,
    memory: replay.Replay,
    dataset: replay.Dataset,
    *,
    shape: tuple[int, int],
    **how: Any,
) -> tuple[Any, dict[str, Array], Array]:
    """Returns the state after updates on batches of which a part is logged, and their metrics.

    And `[U, B, R]` the rows, for whoever learns from the last of them once more.

    Args:
      key: of the rows and of the updates.
      state: what the updates change.
      update: `(state, key, [B, R] rows) -> state, metrics`.
      memory: what was lived; dataset: what was logged.
      shape: U and B.
      how: as `replay.sample_mixed` draws them.
    """
    key_rows, key_updates = jax.random.split(key)
    rows, _ = replay.sample_mixed(key_rows, memory, dataset, *shape, **how)
    inputs = jax.random.split(key_updates, shape[0]), rows
    state, metrics = jax.lax.scan(lambda state, given: update(state, *given), state, inputs)
    return state, jax.tree.map(jnp.mean, metrics), rows


def state_moments(layout: replay.Layout, dataset: replay.Dataset) -> dict[str, Array]:
    """Returns the `mean` of logged observations and the `scale` that `normalise` divides by."""
    mean, deviation = layout.moments(dataset.rows)
    return {"mean": mean, "scale": deviation + 1e-3}


def normalise(state: Any, obs: Array) -> Array:
    """Returns the observations as the networks of a state see them.

    A state without a `mean` and a `scale` of `[O]`, or with None, has networks that see them as
    they are.
    """
    if getattr(state, "mean", None) is None:
        return obs
    mean, scale = (jnp.broadcast_to(x, obs.shape) for x in (state.mean, state.scale))
    return (obs - mean) / scale


def normalise_rows(state: Any, batch: Transitions) -> Transitions:
    """Returns transitions with their observations as the networks of a state see them."""
    return batch._replace(
        obs=normalise(state, batch.obs), next_obs=normalise(state, batch.next_obs)
    )


def random_act(action_dim: int) -> Callable:
    """Returns an `act` that draws every action uniformly from the box."""

    def act(key: Key, state: Any, memory: Any, obs: Array, *, explore: bool):
        del state, explore
        shape = (*obs.shape[:-1], action_dim)
        return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0), memory, {}

    return act
