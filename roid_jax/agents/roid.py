"""ROID: a bootstrapped TD3+BC ensemble offline, information-directed sampling online.

At the handover the twins of K' members become K = 2 K' critics, and the spread of their values is
calibrated on rows that were held out. Online the first member's actor is the anchor: candidates
around it are scored by regret and information, and actor and critics learn on.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from roid_jax import losses, replay
from roid_jax.agents import base, ensemble, selector, td3bc
from roid_jax.agents.ensemble import EnsembleState
from roid_jax.agents.roid_learner import Parts, RoidConfig, RoidState, online_update, values
from roid_jax.envs.base import Spec
from roid_jax.types import Array, Key, Transitions


def roid(config: RoidConfig, spec: Spec) -> base.Agent:
    """Returns the agent for an environment."""
    parts = Parts(config=config, offline=ensemble.make_parts(config.offline, spec))
    is_random = config.warmup == "random"
    return base.Agent(
        init=functools.partial(ensemble.init, parts.offline),
        offline_update=functools.partial(td3bc.offline_update, parts.offline),
        handover=functools.partial(handover, parts),
        online_update=functools.partial(online_update, parts),
        act=functools.partial(_act, parts),
        explain=functools.partial(explain, parts),
        begin_episode=functools.partial(selector.begin_episode, members=parts.members),
        warmup_steps=config.warmup_steps,
        warmup_act=base.random_act(spec.action_dim) if is_random else None,
    )


def handover(parts: Parts, key: Key, state: EnsembleState, dataset: replay.Dataset) -> RoidState:
    """Returns the start of the online phase: twins repacked, the spread of values calibrated.

    Twin i of member j becomes critic 2 j + i, its optimiser's moments and its target with it; the
    anchor is the first member's actor.
    """
    del key

    def repack(leaf: Array) -> Array:  # the optimiser's count of steps has no members
        return leaf.reshape(parts.members, *leaf.shape[2:]) if leaf.ndim else leaf

    def first(leaf: Array) -> Array:
        return leaf[0] if leaf.ndim else leaf

    start = RoidState(
        actor=jax.tree.map(first, state.actors),
        target_anchor=state.target_anchor,
        critics=jax.tree.map(repack, state.critics),
        target_critics=jax.tree.map(repack, state.target_critics),
        alpha=jnp.ones(()),
        noise=jnp.ones(()),
        salt=state.salt,
        mean=state.mean,
        scale=state.scale,
    )
    rows = replay.held_out(dataset, parts.config.offline.holdout)
    batch = ensemble.unpack(parts.offline, start, rows)
    q_max = parts.config.selector.q_max
    found = jnp.clip(values(parts, start.critics.params, batch.obs, batch.action), -q_max, q_max)
    residual = td_residual(parts, start, batch)
    alpha, noise = selector.calibrate(found, residual, kind=parts.config.calibration)
    return start.replace(alpha=alpha, noise=noise)


def td_residual(parts: Parts, state: RoidState, batch: Transitions) -> Array:
    """Returns `[N]` r + gamma (1 - d) Qbar(s', pibar(s')) - Qbar(s, a), Qbar the critics' mean."""
    next_action = parts.offline.actor.apply(state.target_anchor, batch.next_obs)
    next_value = jnp.mean(values(parts, state.critics.params, batch.next_obs, next_action), axis=0)
    value = jnp.mean(values(parts, state.critics.params, batch.obs, batch.action), axis=0)
    gamma = parts.config.offline.discount
    return losses.td_target(batch.reward, batch.discount, next_value, gamma=gamma) - value


def _act(parts: Parts, key: Key, state: Any, memory: Array, obs: Array, *, explore: bool):
    if not explore:
        seen = ensemble.normalise(parts.offline, state, obs)
        return parts.offline.actor.apply(state.target_anchor, seen), memory, {}
    choice = _with_selector(selector.choose, parts, key, state, memory, obs)
    return choice.action, memory, jax.tree.map(jnp.mean, choice.metrics)


def explain(parts: Parts, key: Key, state: RoidState, obs: Array) -> dict[str, Array]:
    """Returns `[B, M]` what is believed about the candidates at some states, `[B]` the chosen.

    `uncalibrated` is the information with alpha 1: unlike the calibrated one, which is as large on
    average for every ensemble, it says how much there is.
    """
    members = jnp.zeros(len(obs), jnp.int32)
    found = _with_selector(selector.explain, parts, key, state, members, obs)
    scale = selector.information_scale(jnp.ones(()), state.noise)
    return {
        **found,
        "uncalibrated": selector.information_of(jnp.square(found["spread"]), scale),
    }


def _with_selector(
    function: Callable, parts: Parts, key: Key, state: RoidState, memory: Array, obs: Array
) -> Any:
    """Returns a function of the selector at each of `[B, O]` observations."""
    scale = selector.information_scale(state.alpha, state.noise)

    def at(key: Key, member: Array, obs: Array) -> Any:
        def evaluate(actions: Array) -> Array:
            repeated = jnp.broadcast_to(obs[None], (len(actions), len(obs)))
            return values(parts, state.critics.params, repeated, actions)

        anchor = parts.offline.actor.apply(state.actor.params, obs)
        return function(key, anchor, member, evaluate, scale, parts.config.selector)

    seen = ensemble.normalise(parts.offline, state, obs)
    return jax.vmap(at)(jax.random.split(key, len(obs)), memory, seen)
