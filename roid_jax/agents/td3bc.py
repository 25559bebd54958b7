"""TD3+BC (Fujimoto and Gu, 2021): twin critics, and an actor that also clones the behaviour.

K' members at once, each on a batch of its own; with one member and no mask it is the original.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from roid_jax import losses, networks, replay
from roid_jax.agents import base, ensemble
from roid_jax.agents.ensemble import EnsembleConfig, EnsembleState, Parts
from roid_jax.envs.base import Spec
from roid_jax.types import Array, Key, Transitions


def td3bc(config: EnsembleConfig, spec: Spec) -> base.Agent:
    """Returns the agent; online it goes on with the same losses, on what it lives through."""
    parts = ensemble.make_parts(config, spec)
    return base.Agent(
        init=functools.partial(ensemble.init, parts),
        offline_update=functools.partial(offline_update, parts),
        online_update=functools.partial(_online_update, parts),
        act=functools.partial(_act, parts),
    )


def _act(parts: Parts, key: Key, state: EnsembleState, memory: Any, obs: Array, *, explore: bool):
    action = parts.actor.apply(state.anchor, ensemble.normalise(parts, state, obs))
    if explore:
        noise = parts.config.exploration_noise * jax.random.normal(key, action.shape)
        action = jnp.clip(action + noise, -1.0, 1.0)
    return action, memory, {}


def offline_update(
    parts: Parts, key: Key, step: Array, state: EnsembleState, dataset: replay.Dataset
) -> tuple[EnsembleState, dict[str, Array]]:
    """Moves every member once, each by a batch of its own."""
    config = parts.config
    key_rows, key_update = jax.random.split(key)
    shape = config.num_members, config.batch_size
    rows, numbers = replay.sample_dataset(key_rows, dataset, *shape, holdout=config.holdout)
    return _update(parts, key_update, step, state, rows, numbers)


def _online_update(
    parts: Parts,
    key: Key,
    step: Array,
    state: EnsembleState,
    memory: replay.Replay,
    dataset: replay.Dataset,
) -> tuple[EnsembleState, dict[str, Array]]:
    del dataset
    key_rows, key_update = jax.random.split(key)
    shape = parts.config.num_members, parts.config.batch_size
    rows, numbers = replay.sample(key_rows, memory, *shape)
    return _update(parts, key_update, step, state, rows, numbers)


def _update(
    parts: Parts, key: Key, step: Array, state: EnsembleState, rows: Array, numbers: Array
) -> tuple[EnsembleState, dict[str, Array]]:
    """Moves every member by its `[K', B, R]` rows: critics always, actors and targets at times."""
    config = parts.config
    key_smoothing, key_mask = jax.random.split(key)
    batch = ensemble.unpack(parts, state, rows)
    members = jnp.broadcast_to(jnp.arange(config.num_members)[:, None], numbers.shape)
    mask = ensemble.member_mask(key_mask, state.salt, numbers, members, parts)
    target = critic_target(key_smoothing, state, batch, parts)

    def value_loss(params: networks.Params) -> Array:
        return jnp.sum(critic_loss(params, batch, target, mask, parts))

    td_loss, gradient = jax.value_and_grad(value_loss)(state.critics.params)
    state = state.replace(critics=base.descend(parts.optimiser, state.critics, gradient))
    state = jax.lax.cond(
        (step + 1) % config.policy_delay == 0,
        lambda state: _move_actors(parts, state, batch, mask),
        lambda state: state,
        state,
    )
    return state, {"td_loss": td_loss / (2 * config.num_members), "value": jnp.mean(target)}


def _move_actors(
    parts: Parts, state: EnsembleState, batch: Transitions, mask: Array
) -> EnsembleState:
    """Moves the actors, and every target a little."""

    def policy_loss(params: networks.Params) -> Array:
        return jnp.sum(actor_loss(params, state.critics.params, batch, mask, parts))

    gradient = jax.grad(policy_loss)(state.actors.params)
    actors = base.descend(parts.optimiser, state.actors, gradient)
    move = functools.partial(networks.polyak, rate=parts.config.polyak)
    return state.replace(
        actors=actors,
        target_actors=move(actors.params, state.target_actors),
        target_critics=move(state.critics.params, state.target_critics),
    )


def twin_values(params: networks.Params, obs: Array, action: Array, parts: Parts) -> Array:
    """Returns `[K', 2, B]` what each member's twins say of its own `[K', B, ...]` rows."""
    return jax.vmap(functools.partial(networks.apply_members, parts.critic))(params, obs, action)


def actions(params: networks.Params, obs: Array, parts: Parts) -> Array:
    """Returns `[K', B, U]` what each member does at its own `[K', B, O]` observations."""
    return jax.vmap(parts.actor.apply)(params, obs)


def critic_target(key: Key, state: EnsembleState, batch: Transitions, parts: Parts) -> Array:
    """Returns `[K', B]` r + gamma (1 - d) min_i Qtarget_i(s', a'), by each member's own targets.

    a' is the target policy's action with clipped noise.
    """
    next_action = actions(state.target_actors, batch.next_obs, parts)
    next_action = ensemble.smoothed(key, next_action, parts.config)
    values = twin_values(state.target_critics, batch.next_obs, next_action, parts)
    next_value, gamma = jnp.min(values, axis=1), parts.config.discount
    return losses.td_target(batch.reward, batch.discount, next_value, gamma=gamma)


def critic_loss(
    params: networks.Params, batch: Transitions, target: Array, mask: Array, parts: Parts
) -> Array:
    """Returns `[K', 2]` the mean of (Q_i(s, a) - y)^2 over the rows that a member learns from."""
    values = twin_values(params, batch.obs, batch.action, parts)
    errors = jnp.square(values - target[:, None])
    return losses.masked_mean(errors, jnp.broadcast_to(mask[:, None], errors.shape))


def actor_loss(
    params: networks.Params,
    critics: networks.Params,
    batch: Transitions,
    mask: Array,
    parts: Parts,
) -> Array:
    """Returns `[K']` the mean of (pi(s) - a)^2 - lambda Q_1(s, pi(s)), lambda = alpha / mean |Q_1|.

    The square is a mean over the action's dimensions; lambda has no gradient.
    """
    chosen = actions(params, batch.obs, parts)
    first = jax.tree.map(lambda leaf: leaf[:, 0], critics)
    values = jax.vmap(parts.critic.apply)(first, batch.obs, chosen)
    worth = parts.config.bc_alpha * losses.normalised(values, mask)
    cloning = jnp.mean(jnp.square(chosen - batch.action), axis=-1)
    return losses.masked_mean(cloning, mask) - worth
