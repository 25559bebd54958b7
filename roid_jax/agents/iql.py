"""IQL (Kostrikov et al., 2022): values by expectiles, and a policy that imitates what did better.

No action is ever valued that was not taken. It is the offline half of PEX.
"""

import dataclasses
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from roid_jax import config as cfg
from roid_jax import losses, networks, replay
from roid_jax.agents import base
from roid_jax.envs.base import Spec
from roid_jax.types import Array, Key, Transitions

LARGEST_WEIGHT = 100.0  # of an action that is imitated


@dataclasses.dataclass(frozen=True)
class IqlConfig:
    """What the algorithm is made of; the defaults are its authors' for locomotion.

    The policy's start and the range of its deviations are PEX's. PEX's code has rewards as they are
    and an advantage_scale of 10, and its example for locomotion an expectile of 0.9. With rewards
    as they are, weights on hopper and halfcheetah are so uneven that a few rows of a batch count,
    and the policy is lost again.
    """

    hidden: tuple[int, ...] = (256, 256)
    layer_norm: bool = False  # in the critics
    normalise_states: bool = False
    learning_rate: float = 3e-4
    decay_steps: int = 1_000_000  # over which the policy's rate falls to 0, 0 for never
    discount: float = 0.99
    polyak: float = 0.005
    batch_size: int = 256
    expectile: float = 0.7
    advantage_scale: float = 3.0  # beta, in the weights of actions that are imitated
    scaled_rewards: bool = True  # so that the returns of logged episodes span 1000

    def __post_init__(self):
        cfg.check_layers("hidden", self.hidden)
        cfg.check_number(self, "learning_rate", "polyak", above=0)
        cfg.check_number(self, "advantage_scale", least=0)
        cfg.check_between("discount", self.discount, 0, 1)
        cfg.check_between("expectile", self.expectile, 0, 1)
        cfg.check_whole(self, "batch_size")
        cfg.check_whole(self, "decay_steps", least=0, most=100_000_000)


@chex.dataclass(frozen=True)
class IqlState:
    """Everything that learning changes; critics have a leading axis of 2.

    reward_scale: `[]` what rewards are multiplied by.
    mean, scale: `[O]` what observations are normalised by, None where they are not.
    """

    actor: base.Learner
    critics: base.Learner
    target_critics: networks.Params
    value: base.Learner
    reward_scale: Array
    mean: Array | None = None
    scale: Array | None = None


class Parts(NamedTuple):
    """What never changes: the configuration, the networks and the optimisers."""

    config: IqlConfig
    layout: replay.Layout
    actor: networks.NormalActor
    critic: networks.Critic
    value: networks.Value
    optimiser: optax.GradientTransformation
    actor_optimiser: optax.GradientTransformation  # offline; its rate falls


def make_parts(config: IqlConfig, spec: Spec) -> Parts:
    """Returns the parts for an environment."""
    rate = config.learning_rate
    falling = optax.cosine_decay_schedule(rate, config.decay_steps) if config.decay_steps else rate
    return Parts(
        config=config,
        layout=replay.Layout(spec.obs_dim, spec.action_dim),
        actor=networks.NormalActor(config.hidden, spec.action_dim),
        critic=networks.Critic(config.hidden, layer_norm=config.layer_norm),
        value=networks.Value(config.hidden),
        optimiser=optax.adam(rate),
        actor_optimiser=optax.adam(falling),
    )


def init(parts: Parts, key: Key, dataset: replay.Dataset) -> IqlState:
    """Returns an agent that learned nothing yet."""
    key_actor, key_critics, key_value = jax.random.split(key, 3)
    obs, action = jnp.zeros(parts.layout.obs_dim), jnp.zeros(parts.layout.action_dim)
    critics = networks.init_members(key_critics, parts.critic, 2, obs, action)
    return IqlState(
        actor=base.learner(parts.actor_optimiser, parts.actor.init(key_actor, obs)),
        critics=base.learner(parts.optimiser, critics),
        target_critics=critics,
        value=base.learner(parts.optimiser, parts.value.init(key_value, obs)),
        reward_scale=_reward_scale(parts, dataset),
        **(base.state_moments(parts.layout, dataset) if parts.config.normalise_states else {}),
    )


def unpack(parts: Parts, state: IqlState, rows: Array) -> Transitions:
    """Returns `[B, R]` rows as transitions, with observations as the networks see them."""
    return base.normalise_rows(state, parts.layout.unpack(rows))


def _reward_scale(parts: Parts, dataset: replay.Dataset) -> Array:
    """Returns 1000 over the span of the logged episodes' returns; 1 where they are all alike."""
    if not parts.config.scaled_rewards:
        return jnp.ones(())
    batch = parts.layout.unpack(dataset.rows)
    is_first = batch.place == 0
    most = jnp.max(jnp.where(is_first, batch.return_to_go, -jnp.inf))
    fewest = jnp.min(jnp.where(is_first, batch.return_to_go, jnp.inf))
    return jnp.where(most > fewest, 1000.0 / jnp.maximum(most - fewest, 1e-6), 1.0)


def least(parts: Parts, params: networks.Params, obs: Array, action: Array) -> Array:
    """Returns `[B]` the lesser of two critics' values."""
    return jnp.min(networks.apply_members(parts.critic, params, obs, action), axis=0)


def offline_update(
    parts: Parts, key: Key, step: Array, state: IqlState, dataset: replay.Dataset
) -> tuple[IqlState, dict[str, Array]]:
    """Moves the value, the critics, and the policy towards actions that did better than it."""
    del step
    rows, _ = replay.sample_dataset(key, dataset, parts.config.batch_size)
    batch = unpack(parts, state, rows)
    state, advantage, metrics = learn_values(parts, state, batch)
    actor = imitate(parts, parts.actor_optimiser, state, batch.obs, batch.action, advantage)
    return state.replace(actor=actor), metrics


def learn_values(
    parts: Parts, state: IqlState, batch: Transitions
) -> tuple[IqlState, Array, dict[str, Array]]:
    """Moves the value and the critics; returns also `[B]` the advantages from before that.

    A(s, a) = min_i Qtarget_i(s, a) - V(s);  critics go towards c r + gamma (1 - d) V(s'), where c
    is what rewards are scaled by.
    """
    config = parts.config
    next_value = parts.value.apply(state.value.params, batch.next_obs)
    reward = state.reward_scale * batch.reward
    target = losses.td_target(reward, batch.discount, next_value, gamma=config.discount)
    worth = least(parts, state.target_critics, batch.obs, batch.action)

    def value_loss(params: networks.Params) -> tuple[Array, Array]:
        advantage = worth - parts.value.apply(params, batch.obs)
        return jnp.mean(losses.expectile(advantage, share=config.expectile)), advantage

    def critic_loss(params: networks.Params) -> Array:
        found = networks.apply_members(parts.critic, params, batch.obs, batch.action)
        return jnp.mean(jnp.square(found - target[None]))

    gradient, advantage = jax.grad(value_loss, has_aux=True)(state.value.params)
    value = base.descend(parts.optimiser, state.value, gradient)
    td_loss, gradient = jax.value_and_grad(critic_loss)(state.critics.params)
    critics = base.descend(parts.optimiser, state.critics, gradient)
    slow = networks.polyak(critics.params, state.target_critics, rate=config.polyak)
    state = state.replace(value=value, critics=critics, target_critics=slow)
    return state, advantage, {"td_loss": td_loss, "value": jnp.mean(target)}


def imitation_weight(advantage: Array, config: IqlConfig) -> Array:
    """Returns `[B]` how much each action is imitated: min(exp(beta A), 100), and no gradient."""
    weight = jnp.exp(config.advantage_scale * jax.lax.stop_gradient(advantage))
    return jnp.minimum(weight, LARGEST_WEIGHT)


def imitate(
    parts: Parts,
    optimiser: optax.GradientTransformation,
    state: IqlState,
    obs: Array,
    action: Array,
    advantage: Array,
) -> base.Learner:
    """Returns the policy moved up the mean of min(exp(beta A), 100) log pi(a|s)."""
    weight = imitation_weight(advantage, parts.config)

    def loss(params: networks.Params) -> Array:
        return -jnp.mean(weight * parts.actor.apply(params, obs).log_prob(action))

    return base.descend(optimiser, state.actor, jax.grad(loss)(state.actor.params))
