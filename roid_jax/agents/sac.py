"""Soft actor-critic (Haarnoja et al., 2018), with the temperature learned.

The behaviour policies of D4RL were trained with it, and `experiments.collect` does the same.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from roid_jax import config as cfg
from roid_jax import losses, networks, replay
from roid_jax.agents import base
from roid_jax.envs.base import Spec
from roid_jax.types import Array, Key, Transitions


@dataclasses.dataclass(frozen=True)
class SacConfig:
    """What the algorithm is made of, as in its second paper; an online step costs one update."""

    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    discount: float = 0.99
    polyak: float = 0.005
    batch_size: int = 256
    num_critics: int = 2
    initial_temperature: float = 1.0
    entropy_per_dimension: float = -1.0  # the temperature aims at this times the action's size
    warmup_steps: int = 1000  # with random actions

    def __post_init__(self):
        cfg.check_layers("hidden", self.hidden)
        cfg.check_number(self, "learning_rate", "polyak", "initial_temperature", above=0)
        cfg.check_number(self, "entropy_per_dimension")
        cfg.check_between("discount", self.discount, 0, 1)
        cfg.check_whole(self, "batch_size", "num_critics")
        cfg.check_whole(self, "warmup_steps", least=1)


@chex.dataclass(frozen=True)
class SacState:
    """Everything that learning changes; critics have a leading axis K."""

    actor: base.Learner
    critics: base.Learner
    target_critics: networks.Params
    log_temperature: base.Learner


class Parts(NamedTuple):
    """What never changes: the configuration, the networks and the optimiser."""

    config: SacConfig
    spec: Spec
    actor: networks.GaussianActor
    critic: networks.Critic
    optimiser: optax.GradientTransformation


def make_parts(config: SacConfig, spec: Spec) -> Parts:
    """Returns the parts for an environment."""
    return Parts(
        config=config,
        spec=spec,
        actor=networks.GaussianActor(config.hidden, spec.action_dim),
        critic=networks.Critic(config.hidden),
        optimiser=optax.adam(config.learning_rate),
    )


def sac(config: SacConfig, spec: Spec) -> base.Agent:
    """Returns the agent for an environment."""
    parts = make_parts(config, spec)
    return base.Agent(
        init=functools.partial(init, parts),
        act=functools.partial(act, parts),
        online_update=functools.partial(_online_update, parts),
        warmup_steps=config.warmup_steps,
        warmup_act=base.random_act(spec.action_dim),
    )


def init(parts: Any, key: Key, dataset: Any) -> SacState:
    """Returns an agent that learned nothing yet; parts may be another algorithm's of this kind."""
    del dataset
    key_actor, key_critics = jax.random.split(key)
    obs, action = jnp.zeros(parts.spec.obs_dim), jnp.zeros(parts.spec.action_dim)
    number = parts.config.num_critics
    critics = networks.init_members(key_critics, parts.critic, number, obs, action)
    log_temperature = jnp.log(parts.config.initial_temperature)
    return SacState(
        actor=base.learner(parts.optimiser, parts.actor.init(key_actor, obs)),
        critics=base.learner(parts.optimiser, critics),
        target_critics=critics,
        log_temperature=base.learner(parts.optimiser, log_temperature),
    )


def unpack(parts: Any, rows: Array, *, largest_action: float) -> Transitions:
    """Returns `[B, R]` rows as transitions, their actions clipped to a little inside the box."""
    batch = replay.Layout(parts.spec.obs_dim, parts.spec.action_dim).unpack(rows)
    return batch._replace(action=jnp.clip(batch.action, -largest_action, largest_action))


def act(parts: Any, key: Key, state: SacState, memory: Any, obs: Array, *, explore: bool):
    """Returns the policy's actions: drawn, or where it does not explore its squashed mean."""
    policy = parts.actor.apply(state.actor.params, base.normalise(state, obs))
    return policy.sample(seed=key) if explore else networks.mode(policy), memory, {}


def _online_update(
    parts: Parts, key: Key, step: Array, state: SacState, memory: replay.Replay, dataset: Any
) -> tuple[SacState, dict[str, Array]]:
    del step, dataset
    config, optimiser = parts.config, parts.optimiser
    layout = replay.Layout(parts.spec.obs_dim, parts.spec.action_dim)
    key_batch, key_target, key_actor = jax.random.split(key, 3)
    batch = layout.unpack(replay.sample(key_batch, memory, config.batch_size)[0])

    def value_loss(params: Any) -> Array:
        return critic_loss(key_target, params, state, batch, parts)

    def policy_loss(params: Any) -> tuple[Array, Array]:
        return actor_loss(key_actor, params, state, batch.obs, parts)

    td_loss, gradient = jax.value_and_grad(value_loss)(state.critics.params)
    state = state.replace(critics=base.descend(optimiser, state.critics, gradient))
    gradient, entropy = jax.grad(policy_loss, has_aux=True)(state.actor.params)
    surplus = entropy - config.entropy_per_dimension * parts.spec.action_dim
    state = SacState(
        actor=base.descend(optimiser, state.actor, gradient),
        critics=state.critics,
        target_critics=networks.polyak(
            state.critics.params, state.target_critics, rate=config.polyak
        ),
        log_temperature=base.descend(
            optimiser, state.log_temperature, temperature_gradient(state, surplus)
        ),
    )
    temperature = jnp.exp(state.log_temperature.params)
    return state, {"td_loss": td_loss, "entropy": entropy, "temperature": temperature}


def critic_loss(
    key: Key, params: networks.Params, state: SacState, batch: Transitions, parts: Parts
) -> Array:
    """Returns the mean of (Q_k(s, a) - y)^2, summed over the critics.

    y = r + gamma (1 - d) (min_k Qtarget_k(s', a') - temperature log pi(a'|s')),  a' ~ pi(.|s').
    """
    policy = parts.actor.apply(state.actor.params, batch.next_obs)
    action, log_prob = policy.sample_and_log_prob(seed=key)
    next_value = _soft_minimum(state.target_critics, state, batch.next_obs, action, log_prob, parts)
    target = losses.td_target(batch.reward, batch.discount, next_value, gamma=parts.config.discount)
    values = networks.apply_members(parts.critic, params, batch.obs, batch.action)
    return jnp.sum(jnp.mean(jnp.square(values - target[None]), axis=1))


def actor_loss(
    key: Key, params: networks.Params, state: SacState, obs: Array, parts: Parts
) -> tuple[Array, Array]:
    """Returns the mean of temperature log pi(a|s) - min_k Q_k(s, a), a ~ pi; and the entropy."""
    action, log_prob = parts.actor.apply(params, obs).sample_and_log_prob(seed=key)
    worth = _soft_minimum(state.critics.params, state, obs, action, log_prob, parts)
    return -jnp.mean(worth), -jnp.mean(log_prob)


def _soft_minimum(
    critics: networks.Params,
    state: SacState,
    obs: Array,
    action: Array,
    log_prob: Array,
    parts: Parts,
) -> Array:
    """Returns `[B]` the least of the critics' values, with the entropy's worth added."""
    values = networks.apply_members(parts.critic, critics, obs, action)
    temperature = jnp.exp(state.log_temperature.params)
    return losses.soft_value(jnp.min(values, axis=0), log_prob, temperature=temperature)


def temperature_gradient(state: SacState, surplus: Array) -> Array:
    """Returns the gradient of temperature times surplus entropy, in the temperature's log."""
    return jnp.exp(state.log_temperature.params) * surplus
