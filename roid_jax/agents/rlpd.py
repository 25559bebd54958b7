"""RLPD (Ball et al., 2023): soft actor-critic from nothing, with half of every batch logged.

Ten critics with LayerNorm learn many times a step, each time towards the least of two of their
targets drawn at random; there is no offline phase.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from roid_jax import config as cfg
from roid_jax import losses, networks, replay
from roid_jax.agents import base, sac
from roid_jax.agents.sac import SacState
from roid_jax.envs.base import Spec
from roid_jax.types import Array, Key, Transitions

LARGEST_ACTION = 1.0 - 1e-5


@dataclasses.dataclass(frozen=True)
class RlpdConfig:
    """What the algorithm is made of; the defaults are its authors' for locomotion."""

    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float = 3e-4
    discount: float = 0.99
    polyak: float = 0.005
    batch_size: int = 256
    num_critics: int = 10
    num_in_minimum: int = 2  # target critics drawn for each update
    layer_norm: bool = True
    entropy_backup: bool = True
    initial_temperature: float = 1.0
    entropy_per_dimension: float = -0.5  # the temperature aims at this times the action's size
    updates: int = 20  # of the critics, a step of the environment; the actor moves once
    offline_fraction: float = 0.5
    warmup_steps: int = 5000  # with random actions

    def __post_init__(self):
        cfg.check_layers("hidden", self.hidden)
        cfg.check_number(self, "learning_rate", "polyak", "initial_temperature", above=0)
        cfg.check_number(self, "entropy_per_dimension")
        cfg.check_between("discount", self.discount, 0, 1)
        cfg.check_whole(self, "batch_size", "num_critics", "num_in_minimum", "updates")
        cfg.check_whole(self, "warmup_steps", least=1, most=100_000_000)
        is_right = self.num_in_minimum <= self.num_critics
        expected = f"at most num_critics, {self.num_critics}"
        cfg.check(is_right, "num_in_minimum", expected, self.num_in_minimum)
        cfg.check_share("offline_fraction", self.offline_fraction)


class Parts(NamedTuple):
    """What never changes: the configuration, the networks and the optimiser."""

    config: RlpdConfig
    spec: Spec
    actor: networks.GaussianActor
    critic: networks.Critic
    optimiser: optax.GradientTransformation


def make_parts(config: RlpdConfig, spec: Spec) -> Parts:
    """Returns the parts for an environment."""
    return Parts(
        config=config,
        spec=spec,
        actor=networks.GaussianActor(config.hidden, spec.action_dim, start="xavier"),
        critic=networks.Critic(config.hidden, start="xavier", layer_norm=config.layer_norm),
        optimiser=optax.adam(config.learning_rate),
    )


def rlpd(config: RlpdConfig, spec: Spec) -> base.Agent:
    """Returns the agent for an environment."""
    parts = make_parts(config, spec)
    return base.Agent(
        init=functools.partial(sac.init, parts),
        act=functools.partial(sac.act, parts),
        online_update=functools.partial(online_update, parts),
        warmup_steps=config.warmup_steps,
        warmup_act=base.random_act(spec.action_dim),
    )


def online_update(
    parts: Parts,
    key: Key,
    step: Array,
    state: SacState,
    memory: replay.Replay,
    dataset: replay.Dataset,
) -> tuple[SacState, dict[str, Array]]:
    """Moves the critics U times, then the actor and the temperature once, on the last batch."""
    del step
    config = parts.config
    key_critics, key_actor = jax.random.split(key)
    shape, fraction = (config.updates, config.batch_size), config.offline_fraction

    def seen(rows: Array) -> Transitions:
        return sac.unpack(parts, rows, largest_action=LARGEST_ACTION)

    def update(state: SacState, key: Key, rows: Array):
        return _move_critics(parts, key, state, seen(rows))

    state, metrics, rows = base.learn_mixed(
        key_critics, state, update, memory, dataset, shape=shape, fraction=fraction
    )
    state, entropy = _move_actor(parts, key_actor, state, seen(rows[-1]))
    temperature = jnp.exp(state.log_temperature.params)
    return state, metrics | {"entropy": entropy, "temperature": temperature}


def _move_critics(
    parts: Parts, key: Key, state: SacState, batch: Transitions
) -> tuple[SacState, dict[str, Array]]:
    """Moves the critics, and their targets a little."""
    target = critic_target(key, state, batch, parts)

    def value_loss(params: networks.Params) -> Array:
        return critic_loss(params, batch, target, parts)

    td_loss, gradient = jax.value_and_grad(value_loss)(state.critics.params)
    critics = base.descend(parts.optimiser, state.critics, gradient)
    rate = parts.config.polyak
    moved = networks.polyak(critics.params, state.target_critics, rate=rate)
    return state.replace(critics=critics, target_critics=moved), {"td_loss": td_loss}


def critic_target(key: Key, state: SacState, batch: Transitions, parts: Parts) -> Array:
    """Returns `[B]` r + gamma (1 - d) (min Qtarget(s', a') - temperature log pi(a'|s')), a' ~ pi.

    The minimum is over a few target critics, drawn afresh without replacement; the entropy's worth
    is there unless that is turned off.
    """
    config = parts.config
    key_action, key_critics = jax.random.split(key)
    policy = parts.actor.apply(state.actor.params, batch.next_obs)
    action, log_prob = policy.sample_and_log_prob(seed=key_action)
    drawn = jax.random.choice(
        key_critics, config.num_critics, (config.num_in_minimum,), replace=False
    )
    some = jax.tree.map(lambda leaf: leaf[drawn], state.target_critics)
    values = networks.apply_members(parts.critic, some, batch.next_obs, action)
    temperature = jnp.exp(state.log_temperature.params) * config.entropy_backup
    next_value = losses.soft_value(jnp.min(values, axis=0), log_prob, temperature=temperature)
    return losses.td_target(batch.reward, batch.discount, next_value, gamma=config.discount)


def critic_loss(params: networks.Params, batch: Transitions, target: Array, parts: Parts) -> Array:
    """Returns the mean of (Q_k(s, a) - y)^2 over critics and rows."""
    values = networks.apply_members(parts.critic, params, batch.obs, batch.action)
    return jnp.mean(jnp.square(values - target[None]))


def _move_actor(
    parts: Parts, key: Key, state: SacState, batch: Transitions
) -> tuple[SacState, Array]:
    """Moves the actor and the temperature, and returns the policy's entropy beside them."""

    def policy_loss(params: networks.Params) -> tuple[Array, Array]:
        return actor_loss(key, params, state, batch.obs, parts)

    gradient, entropy = jax.grad(policy_loss, has_aux=True)(state.actor.params)
    surplus = entropy - parts.config.entropy_per_dimension * parts.spec.action_dim
    change = sac.temperature_gradient(state, surplus)
    state = state.replace(
        actor=base.descend(parts.optimiser, state.actor, gradient),
        log_temperature=base.descend(parts.optimiser, state.log_temperature, change),
    )
    return state, entropy


def actor_loss(
    key: Key, params: networks.Params, state: SacState, obs: Array, parts: Parts
) -> tuple[Array, Array]:
    """Returns the mean of temperature log pi(a|s) - mean_k Q_k(s, a), a ~ pi; and the entropy."""
    action, log_prob = parts.actor.apply(params, obs).sample_and_log_prob(seed=key)
    values = networks.apply_members(parts.critic, state.critics.params, obs, action)
    temperature = jnp.exp(state.log_temperature.params)
    worth = losses.soft_value(jnp.mean(values, axis=0), log_prob, temperature=temperature)
    return -jnp.mean(worth), -jnp.mean(log_prob)
