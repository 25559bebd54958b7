"""How ROID learns online: K critics towards one target, and the anchor's actor up their mean."""

import dataclasses
import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from roid_jax import config as cfg
from roid_jax import losses, networks, replay
from roid_jax.agents import base, ensemble
from roid_jax.agents.ensemble import EnsembleConfig
from roid_jax.agents.selector import SelectorConfig
from roid_jax.types import Array, Key, Transitions

TARGETS = ("mean", "twin_min", "min", "redq2")


@dataclasses.dataclass(frozen=True)
class RoidConfig:
    """What the algorithm is made of; the defaults are the paper's for hopper and walker2d."""

    offline: EnsembleConfig = dataclasses.field(default=EnsembleConfig())
    selector: SelectorConfig = dataclasses.field(default=SelectorConfig())
    updates: int = 5  # U, a step of the environment
    offline_fraction: float = 0.0  # of an online batch
    warmup_steps: int = 25_000  # without updates, counted in the budget
    warmup: str = "frozen"  # acts as the policy it was given, or at `random`
    target: str = "mean"  # how K target critics make one target
    smoothing: bool = True  # noise on the target policy's action
    calibration: str = "match"  # of alpha; or `one`, or `fit` by least squares
    bc_anneal_steps: int = 0  # environment steps over which cloning fades out, 0 for none of it
    cloned: str = "logged"  # whose actions are: only logged rows', or `all`, noise and all

    def __post_init__(self):
        cfg.check_whole(self, "updates")
        cfg.check_whole(self, "warmup_steps", "bc_anneal_steps", least=0, most=100_000_000)
        cfg.check_share("offline_fraction", self.offline_fraction)
        cfg.check_one_of("warmup", self.warmup, ("frozen", "random"))
        cfg.check_one_of("target", self.target, TARGETS)
        cfg.check_one_of("cloned", self.cloned, ("logged", "all"))
        cfg.check_one_of("calibration", self.calibration, ("match", "one", "fit"))
        logged = round(self.offline_fraction * self.offline.batch_size)
        has_logged = logged > 0 or self.cloned == "all" or not self.bc_anneal_steps
        expected = "above 0 where logged rows are cloned"
        cfg.check(has_logged, "offline_fraction", expected, self.offline_fraction)
        given = self.offline.holdout
        cfg.check(given >= 2, "offline.holdout", "at least 2, to calibrate on", given)


@chex.dataclass(frozen=True)
class RoidState:
    """Everything that changes online.

    actor: the anchor, and `target_anchor` its slow copy.
    critics, target_critics: leaves `[K, ...]`.
    alpha, noise: `[]` what the critics' variance is multiplied by, and sigma^2.
    salt, mean, scale: as in the ensemble.
    """

    actor: base.Learner
    target_anchor: networks.Params
    critics: base.Learner
    target_critics: networks.Params
    alpha: Array
    noise: Array
    salt: Array
    mean: Array
    scale: Array


class Parts(NamedTuple):
    """What never changes: the configuration, and the networks of the ensemble."""

    config: RoidConfig
    offline: ensemble.Parts

    @property
    def members(self) -> int:
        """K, the number of critics online."""
        return 2 * self.config.offline.num_members


def values(parts: Parts, params: networks.Params, obs: Array, action: Array) -> Array:
    """Returns `[K, ...]` what each critic says of the same rows."""
    return networks.apply_members(parts.offline.critic, params, obs, action)


def online_update(
    parts: Parts,
    key: Key,
    step: Array,
    state: RoidState,
    memory: replay.Replay,
    dataset: replay.Dataset,
) -> tuple[RoidState, dict[str, Array]]:
    """Moves the critics U times, the actor and the targets every `policy_delay`-th of them."""
    number, fraction = parts.config.updates, parts.config.offline_fraction
    key_rows, key_updates = jax.random.split(key)
    # Rows that were held out offline are in the pool again.
    shape = number, parts.config.offline.batch_size
    rows, numbers = replay.sample_mixed(key_rows, memory, dataset, *shape, fraction=fraction)

    def update(state: RoidState, inputs: tuple) -> tuple[RoidState, dict[str, Array]]:
        i, key, rows, numbers = inputs
        is_time = (step * number + i + 1) % parts.config.offline.policy_delay == 0
        return _update(parts, key, step, is_time, state, rows, numbers)

    inputs = jnp.arange(number), jax.random.split(key_updates, number), rows, numbers
    state, metrics = jax.lax.scan(update, state, inputs)
    return state, jax.tree.map(jnp.mean, metrics)


def _update(
    parts: Parts,
    key: Key,
    step: Array,
    is_time: Array,
    state: RoidState,
    rows: Array,
    numbers: Array,
) -> tuple[RoidState, dict[str, Array]]:
    """Moves the critics by `[B, R]` rows, and where it is time the actor and the targets."""
    key_target, key_mask = jax.random.split(key)
    batch = ensemble.unpack(parts.offline, state, rows)
    shape = parts.members, len(rows)
    members = jnp.broadcast_to(jnp.arange(parts.members)[:, None], shape)
    of_rows = jnp.broadcast_to(numbers[None], shape)
    mask = ensemble.member_mask(key_mask, state.salt, of_rows, members, parts.offline)
    target = critic_target(key_target, state, batch, parts)

    def value_loss(params: networks.Params) -> tuple[Array, dict[str, Array]]:
        found = values(parts, params, batch.obs, batch.action)
        errors = losses.masked_mean(jnp.square(found - target), mask)
        return jnp.sum(errors), {"td_loss": jnp.mean(errors), **ensemble.spreads(found)}

    gradient, metrics = jax.grad(value_loss, has_aux=True)(state.critics.params)
    optimiser = parts.offline.optimiser
    state = state.replace(critics=base.descend(optimiser, state.critics, gradient))
    weight = cloning_weight(step, numbers, parts.config)
    state = jax.lax.cond(
        is_time, lambda state: _move_actor(parts, state, batch, weight), lambda state: state, state
    )
    return state, {**metrics, "value": jnp.mean(target), "cloning": jnp.mean(weight)}


def _move_actor(parts: Parts, state: RoidState, batch: Transitions, weight: Array) -> RoidState:
    """Moves the actor, and every target a little."""

    def policy_loss(params: networks.Params) -> Array:
        return actor_loss(params, state.critics.params, batch, weight, parts)

    gradient = jax.grad(policy_loss)(state.actor.params)
    actor = base.descend(parts.offline.optimiser, state.actor, gradient)
    move = functools.partial(networks.polyak, rate=parts.config.offline.polyak)
    return state.replace(
        actor=actor,
        target_anchor=move(actor.params, state.target_anchor),
        target_critics=move(state.critics.params, state.target_critics),
    )


def critic_target(key: Key, state: RoidState, batch: Transitions, parts: Parts) -> Array:
    """Returns `[K, B]` r + gamma (1 - d) Qtarget(s', pitarget(s')) for each critic.

    Paper, Appendix: Qtarget is the mean of the K target critics, one target for all. Unlike there
    the world's end is minded, and the action has TD3's clipped noise unless that is turned off.
    `twin_min` takes each pair's own minimum, `min` that of all, `redq2` of two drawn at random.
    """
    key_smoothing, key_pair = jax.random.split(key)
    next_action = parts.offline.actor.apply(state.target_anchor, batch.next_obs)
    if parts.config.smoothing:
        next_action = ensemble.smoothed(key_smoothing, next_action, parts.config.offline)
    found = values(parts, state.target_critics, batch.next_obs, next_action)
    shape = found.shape
    if parts.config.target == "twin_min":
        pairs = jnp.min(found.reshape(-1, 2, shape[1]), axis=1)
        next_values = jnp.repeat(pairs, 2, axis=0)
    else:
        if parts.config.target == "redq2":
            found = found[jax.random.choice(key_pair, parts.members, (2,), replace=False)]
        combine = jnp.mean if parts.config.target == "mean" else jnp.min
        next_values = jnp.broadcast_to(combine(found, axis=0)[None], shape)
    reward, discount = (jnp.broadcast_to(x[None], shape) for x in (batch.reward, batch.discount))
    return losses.td_target(reward, discount, next_values, gamma=parts.config.offline.discount)


def cloning_weight(step: Array, numbers: Array, config: RoidConfig) -> Array:
    """Returns `[B]` how much the action of each row is cloned: from 1 linearly to 0, or always 0.

    Of a batch's mean it is that; with cloning of logged rows alone, each of them weighs more.
    """
    if not config.bc_anneal_steps:
        return jnp.zeros(numbers.shape)
    is_cloned = (numbers < 0) | (config.cloned == "all")
    share = jnp.maximum(jnp.mean(is_cloned.astype(jnp.float32)), 1e-6)
    left = jnp.maximum(1.0 - step / config.bc_anneal_steps, 0.0)
    return jnp.where(is_cloned, left / share, 0.0)


def actor_loss(
    params: networks.Params,
    critics: networks.Params,
    batch: Transitions,
    weight: Array,
    parts: Parts,
) -> Array:
    """Returns the mean of -Qbar(s, pi(s)) / mean |Qbar|, Qbar the critics' mean.

    Unlike the paper, where cloning is annealed: alpha times that, plus weight (pi(s) - a)^2 with
    the `[B]` weights of the rows, which at the handover is the loss that the actor was trained
    with. Going to the paper's at once loses the policy within some thousand updates.
    """
    chosen = parts.offline.actor.apply(params, batch.obs)
    value = jnp.mean(values(parts, critics, batch.obs, chosen), axis=0)
    worth = losses.normalised(value, jnp.ones_like(value))
    if not parts.config.bc_anneal_steps:
        return -worth
    cloning = jnp.mean(jnp.square(chosen - batch.action), axis=-1)
    return jnp.mean(weight * cloning) - parts.config.offline.bc_alpha * worth
