"""Cal-QL (Nakamoto et al., 2023): conservative Q-learning whose values stay above returns seen.

Critics are pushed down on what the policy would do and up on what was done. Cal-QL does not push
below the return that was seen from the same state; without that floor it is CQL (Kumar et al.,
2020). Online the same losses go on, on batches of which half are logged.
"""

import dataclasses
import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from roid_jax import config as cfg
from roid_jax import episodes, losses, networks, replay
from roid_jax.agents import base, sac
from roid_jax.agents.sac import SacState
from roid_jax.envs.base import Spec
from roid_jax.types import Array, Key, Transitions

LARGEST_ACTION = 0.99999


@dataclasses.dataclass(frozen=True)
class CalqlConfig:
    """What the algorithm is made of.

    Its authors have no setting for locomotion. Rates, starts and the backup are theirs; `hidden`
    and `conservatism`, with no Lagrange multiplier, are what others use for CQL there. They act for
    a whole episode and then learn as many times; here a step of each follows the other. With the
    floor lived rows are drawn from episodes that have ended, whose returns are known. A policy that
    first clones, as some have it, is not theirs, and off.
    """

    hidden: tuple[int, ...] = (256, 256)
    actor_rate: float = 1e-4  # and the temperature's
    critic_rate: float = 3e-4
    discount: float = 0.99
    polyak: float = 0.005
    batch_size: int = 256
    num_critics: int = 2
    initial_temperature: float = 1.0
    entropy_per_dimension: float = -1.0  # the temperature aims at this times the action's size
    calibrated: bool = True  # a floor under the policy's values; else it is CQL
    conservatism: float = 5.0  # weight of the pushing
    num_actions: int = 10  # of each of three kinds, to push on
    max_backup: bool = True  # the best of as many actions at the successor; else one
    layer_norm: bool = False  # in the critics
    normalise_states: bool = False
    reward_scale: float = 1.0  # of rewards and returns
    cloning_steps: int = 0  # of the offline phase's first, in which the policy clones
    updates: int = 1  # a step of the environment
    offline_fraction: float = 0.5  # of an online batch
    warmup_steps: int = 1001  # without updates: until one episode has ended

    def __post_init__(self):
        cfg.check_layers("hidden", self.hidden)
        cfg.check_number(self, "actor_rate", "critic_rate", "polyak", above=0)
        cfg.check_number(self, "initial_temperature", "reward_scale", above=0)
        cfg.check_number(self, "entropy_per_dimension")
        cfg.check_number(self, "conservatism", least=0)
        cfg.check_between("discount", self.discount, 0, 1)
        cfg.check_whole(self, "batch_size", "num_critics", "num_actions", "updates")
        cfg.check_whole(self, "warmup_steps", "cloning_steps", least=0, most=100_000_000)
        cfg.check_share("offline_fraction", self.offline_fraction)


@chex.dataclass(frozen=True)
class CalqlState(SacState):
    """Everything that learning changes, and `[O]` what observations are normalised by, if so."""

    mean: Array | None = None
    scale: Array | None = None


class Parts(NamedTuple):
    """What never changes: the configuration, the networks and the optimisers."""

    config: CalqlConfig
    spec: Spec
    actor: networks.GaussianActor
    critic: networks.Critic
    optimiser: optax.GradientTransformation  # of the actor and the temperature
    critic_optimiser: optax.GradientTransformation


def make_parts(config: CalqlConfig, spec: Spec) -> Parts:
    """Returns the parts for an environment."""
    start = "orthogonal"
    return Parts(
        config=config,
        spec=spec,
        actor=networks.GaussianActor(config.hidden, spec.action_dim, start=start, scaled=True),
        critic=networks.Critic(config.hidden, start, config.layer_norm),
        optimiser=optax.adam(config.actor_rate),
        critic_optimiser=optax.adam(config.critic_rate),
    )


def calql(config: CalqlConfig, spec: Spec) -> base.Agent:
    """Returns the agent for an environment."""
    parts = make_parts(config, spec)
    return base.Agent(
        init=functools.partial(init, parts),
        offline_update=functools.partial(offline_update, parts),
        online_update=functools.partial(online_update, parts),
        act=functools.partial(sac.act, parts),
        warmup_steps=config.warmup_steps,
        return_discount=config.discount if config.calibrated else None,
        credits=config.calibrated,
    )


def init(parts: Parts, key: Key, dataset: replay.Dataset) -> CalqlState:
    """Returns an agent that learned nothing yet but, where it is asked to, how states vary."""
    state = CalqlState(**sac.init(parts, key, dataset))
    if not parts.config.normalise_states:
        return state
    layout = replay.Layout(parts.spec.obs_dim, parts.spec.action_dim)
    return state.replace(**base.state_moments(layout, dataset))


def offline_update(
    parts: Parts, key: Key, step: Array, state: CalqlState, dataset: replay.Dataset
) -> tuple[CalqlState, dict[str, Array]]:
    """Moves everything once, on a batch of logged rows."""
    key_rows, key_update = jax.random.split(key)
    rows, _ = replay.sample_dataset(key_rows, dataset, parts.config.batch_size)
    return _update(parts, state, key_update, rows, clones=step < parts.config.cloning_steps)


def online_update(
    parts: Parts,
    key: Key,
    step: Array,
    state: CalqlState,
    memory: replay.Replay,
    dataset: replay.Dataset,
) -> tuple[CalqlState, dict[str, Array]]:
    """Moves everything U times, on batches of which a part is logged."""
    del step
    config = parts.config
    update = functools.partial(_update, parts)
    draw = functools.partial(episodes.sample_known, dataset) if config.calibrated else replay.sample
    how = {"fraction": config.offline_fraction, "draw": draw}
    shape = config.updates, config.batch_size
    state, metrics, _ = base.learn_mixed(key, state, update, memory, dataset, shape=shape, **how)
    return state, metrics


def _update(
    parts: Parts, state: CalqlState, key: Key, rows: Array, *, clones: Array | bool = False
) -> tuple[CalqlState, dict[str, Array]]:
    """Moves actor, temperature and critics by gradients at the same point, and targets a little."""
    batch = _unpack(parts, state, rows)
    key_target, key_push, key_actor = jax.random.split(key, 3)
    target = critic_target(key_target, state, batch, parts)

    def value_loss(params: networks.Params) -> tuple[Array, dict[str, Array]]:
        values = networks.apply_members(parts.critic, params, batch.obs, batch.action)
        td_loss = jnp.mean(jnp.square(values - target[None]), axis=1)
        gap = jnp.mean(push(key_push, params, state, batch, parts) - values, axis=1)
        loss = jnp.sum(td_loss + parts.config.conservatism * gap)
        return loss, {"td_loss": jnp.mean(td_loss), "gap": jnp.mean(gap)}

    def policy_loss(params: networks.Params) -> tuple[Array, Array]:
        loss, entropy = sac.actor_loss(key_actor, params, state, batch.obs, parts)
        return jnp.where(clones, cloning_loss(params, batch, parts), loss), entropy

    gradient, metrics = jax.grad(value_loss, has_aux=True)(state.critics.params)
    critics = base.descend(parts.critic_optimiser, state.critics, gradient)
    gradient, entropy = jax.grad(policy_loss, has_aux=True)(state.actor.params)
    # The gradient of log temperature times surplus: unlike SAC's it has no temperature in it.
    surplus = entropy - parts.config.entropy_per_dimension * parts.spec.action_dim
    state = state.replace(
        actor=base.descend(parts.optimiser, state.actor, gradient),
        critics=critics,
        target_critics=networks.polyak(
            critics.params, state.target_critics, rate=parts.config.polyak
        ),
        log_temperature=base.descend(parts.optimiser, state.log_temperature, surplus),
    )
    temperature = jnp.exp(state.log_temperature.params)
    metrics |= {"value": jnp.mean(target), "entropy": entropy, "temperature": temperature}
    return state, metrics


def _unpack(parts: Parts, state: CalqlState, rows: Array) -> Transitions:
    """Returns `[B, R]` rows as transitions: states normalised, rewards and returns scaled."""
    batch = sac.unpack(parts, rows, largest_action=LARGEST_ACTION)
    scale = parts.config.reward_scale
    batch = batch._replace(reward=scale * batch.reward, return_to_go=scale * batch.return_to_go)
    return base.normalise_rows(state, batch)


def cloning_loss(params: networks.Params, batch: Transitions, parts: Parts) -> Array:
    """Returns the mean of -log pi(a|s) of what was done."""
    return -jnp.mean(parts.actor.apply(params, batch.obs).log_prob(batch.action))


def critic_target(key: Key, state: CalqlState, batch: Transitions, parts: Parts) -> Array:
    """Returns `[B]` r + gamma (1 - d) max_j min_k Qtarget_k(s', a_j), a_j ~ pi, without entropy."""
    number = parts.config.num_actions if parts.config.max_backup else 1
    actions, _ = draw(key, state, batch.next_obs, parts, number=number)
    values = values_of(state.target_critics, batch.next_obs, actions, parts)
    next_value, gamma = jnp.max(jnp.min(values, axis=0), axis=0), parts.config.discount
    return losses.td_target(batch.reward, batch.discount, next_value, gamma=gamma)


def draw(
    key: Key, state: CalqlState, obs: Array, parts: Parts, *, number: int
) -> tuple[Array, Array]:
    """Returns `[J, B, U]` actions of the policy and `[J, B]` their log densities; no gradient."""
    policy = parts.actor.apply(state.actor.params, obs)
    return jax.lax.stop_gradient(policy.sample_and_log_prob(seed=key, sample_shape=(number,)))


def values_of(params: networks.Params, obs: Array, actions: Array, parts: Parts) -> Array:
    """Returns `[K, J, B]` what each critic says of `[J, B, U]` actions at `[B, O]` observations."""
    repeated = jnp.broadcast_to(obs[None], (*actions.shape[:2], obs.shape[1]))
    return networks.apply_members(parts.critic, params, repeated, actions)


def push(
    key: Key, params: networks.Params, state: CalqlState, batch: Transitions, parts: Parts
) -> Array:
    """Returns `[K, B]` log sum_j exp(Q_k(s, a_j) - log density of a_j), what is pushed down.

    The a_j are drawn uniformly, by the policy at s, and by the policy at s'. Calibrated, values of
    the policy's actions (not of the uniform ones) count as at least the return to go.
    """
    number = parts.config.num_actions
    key_uniform, key_here, key_next = jax.random.split(key, 3)
    shape = number, len(batch.obs), parts.spec.action_dim
    uniform = jax.random.uniform(key_uniform, shape, minval=-1.0, maxval=1.0)
    here, log_here = draw(key_here, state, batch.obs, parts, number=number)
    there, log_there = draw(key_next, state, batch.next_obs, parts, number=number)
    log_uniform = jnp.full(shape[:2], parts.spec.action_dim * jnp.log(0.5))
    actions = jnp.concatenate([uniform, here, there])
    values = values_of(params, batch.obs, actions, parts)
    if parts.config.calibrated:
        floor = jnp.maximum(values, batch.return_to_go[None, None])
        is_policy = (jnp.arange(3 * number) >= number)[None, :, None]
        values = jnp.where(is_policy, floor, values)
    log_density = jnp.concatenate([log_uniform, log_here, log_there])
    return jax.nn.logsumexp(values - log_density[None], axis=1)
