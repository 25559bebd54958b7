"""BOORL (Hu et al., 2024): the bootstrapped TD3+BC ensemble, and one member's action at each step.

Every member proposes its action and says, by the lesser of its own twins, what that is worth; one
is drawn with probabilities that rise with it. Online all members learn from the same batches,
without cloning.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from roid_jax import config as cfg
from roid_jax import networks, replay
from roid_jax.agents import base, ensemble, td3bc
from roid_jax.agents.ensemble import EnsembleConfig, EnsembleState
from roid_jax.envs.base import Spec
from roid_jax.types import Array, Key, Transitions

SELECTIONS = ("softmax", "uniform_step", "uniform_episode")


@dataclasses.dataclass(frozen=True)
class BoorlConfig:
    """What the algorithm is made of; the defaults are those of its authors' code.

    Two things differ. There the rows of the warm-up are also added to the logged ones; here they
    are only among the lived ones, from which half of each batch is drawn. And there each member
    draws from the rows that it keeps; here a batch is drawn from all and masked, so that a member
    learns from nine tenths of it.
    """

    offline: EnsembleConfig = dataclasses.field(default=EnsembleConfig(holdout=0))
    selection: str = "softmax"  # of the member, by its own twins' values; or one of SELECTIONS
    inverse_temperature: float = 1.0  # on raw values, so that the best is nearly always drawn
    updates: int = 5  # of the critics, a step of the environment; the actors move once
    offline_fraction: float = 0.5  # of an online batch
    warmup_steps: int = 25_000  # without updates, counted in the budget

    def __post_init__(self):
        cfg.check_one_of("selection", self.selection, SELECTIONS)
        cfg.check_number(self, "inverse_temperature", least=0)
        cfg.check_whole(self, "updates")
        cfg.check_whole(self, "warmup_steps", least=0, most=100_000_000)
        cfg.check_share("offline_fraction", self.offline_fraction)


class Parts(NamedTuple):
    """What never changes: the configuration, and the networks of the ensemble."""

    config: BoorlConfig
    offline: ensemble.Parts

    @property
    def members(self) -> int:
        """K', the number of members."""
        return self.config.offline.num_members


def boorl(config: BoorlConfig, spec: Spec) -> base.Agent:
    """Returns the agent for an environment."""
    parts = Parts(config=config, offline=ensemble.make_parts(config.offline, spec))
    return base.Agent(
        init=functools.partial(ensemble.init, parts.offline),
        offline_update=functools.partial(td3bc.offline_update, parts.offline),
        handover=functools.partial(handover, parts),
        online_update=functools.partial(online_update, parts),
        act=functools.partial(_act, parts),
        begin_episode=lambda key: jax.random.randint(key, (), 0, parts.members),
        warmup_steps=config.warmup_steps,
    )


def handover(
    parts: Parts, key: Key, state: EnsembleState, dataset: replay.Dataset
) -> EnsembleState:
    """Returns the ensemble with fresh targets: copies of what they follow, as its authors have."""
    del parts, key, dataset
    return state.replace(target_actors=state.actors.params, target_critics=state.critics.params)


def _act(parts: Parts, key: Key, state: EnsembleState, memory: Array, obs: Array, *, explore: bool):
    seen = ensemble.normalise(parts.offline, state, obs)
    seen = jnp.broadcast_to(seen[None], (parts.members, *seen.shape))
    proposals = td3bc.actions(state.actors.params, seen, parts.offline)
    if not explore:
        return jnp.mean(proposals, axis=0), memory, {}
    key_member, key_noise = jax.random.split(key)
    twins = td3bc.twin_values(state.critics.params, seen, proposals, parts.offline)
    worth = jnp.min(twins, axis=1)
    chosen = choose(key_member, worth, memory, parts.config)
    action = jnp.take_along_axis(proposals, chosen[None, :, None], axis=0)[0]
    noise = parts.config.offline.exploration_noise * jax.random.normal(key_noise, action.shape)
    best = jnp.argmax(worth, axis=0)
    metrics = {
        "spread": jnp.mean(jnp.std(worth, axis=0)),
        "off_best": jnp.mean((chosen != best).astype(jnp.float32)),
    }
    return jnp.clip(action + noise, -1.0, 1.0), memory, metrics


def choose(key: Key, worth: Array, memory: Array, config: BoorlConfig) -> Array:
    """Returns `[B]` the member whose action is taken.

    Args:
      key: of the draw.
      worth: `[K', B]` what each member's action is worth to itself.
      memory: `[B]` the member of this episode.
      config: says how one is drawn: with probabilities proportional to exp(c worth), uniformly at
        every step, or uniformly for a whole episode.
    """
    if config.selection == "uniform_episode":
        return memory
    if config.selection == "uniform_step":
        return jax.random.randint(key, worth.shape[1:], 0, len(worth))
    return jax.random.categorical(key, config.inverse_temperature * worth, axis=0)


def online_update(
    parts: Parts,
    key: Key,
    step: Array,
    state: EnsembleState,
    memory: replay.Replay,
    dataset: replay.Dataset,
) -> tuple[EnsembleState, dict[str, Array]]:
    """Moves every member's critics U times, then its actor once, on the last of the batches."""
    del step
    config = parts.config
    shape, fraction = (config.updates, config.offline.batch_size), config.offline_fraction

    def update(state: EnsembleState, key: Key, rows: Array):
        return _move_critics(parts, key, state, _unpack(parts, state, rows))

    state, metrics, rows = base.learn_mixed(
        key, state, update, memory, dataset, shape=shape, fraction=fraction
    )
    return _move_actors(parts, state, _unpack(parts, state, rows[-1])), metrics


def _unpack(parts: Parts, state: EnsembleState, rows: Array) -> Transitions:
    """Returns `[K', B, ...]` the same transitions for every member, normalised."""
    same = jnp.broadcast_to(rows[None], (parts.members, *rows.shape))
    return ensemble.unpack(parts.offline, state, same)


def _move_critics(
    parts: Parts, key: Key, state: EnsembleState, batch: Transitions
) -> tuple[EnsembleState, dict[str, Array]]:
    """Moves the critics towards each member's own target, and the target critics a little."""
    target = td3bc.critic_target(key, state, batch, parts.offline)
    everyone = jnp.ones(target.shape)

    def value_loss(params: networks.Params) -> Array:
        return jnp.sum(td3bc.critic_loss(params, batch, target, everyone, parts.offline))

    td_loss, gradient = jax.value_and_grad(value_loss)(state.critics.params)
    critics = base.descend(parts.offline.optimiser, state.critics, gradient)
    rate = parts.config.offline.polyak
    state = state.replace(
        critics=critics,
        target_critics=networks.polyak(critics.params, state.target_critics, rate=rate),
    )
    return state, {"td_loss": td_loss / (2 * parts.members), "value": jnp.mean(target)}


def _move_actors(parts: Parts, state: EnsembleState, batch: Transitions) -> EnsembleState:
    """Moves the actors up their own first critics, and the target actors a little."""

    def policy_loss(params: networks.Params) -> Array:
        return jnp.sum(actor_loss(params, state.critics.params, batch, parts))

    gradient = jax.grad(policy_loss)(state.actors.params)
    actors = base.descend(parts.offline.optimiser, state.actors, gradient)
    rate = parts.config.offline.polyak
    return state.replace(
        actors=actors,
        target_actors=networks.polyak(actors.params, state.target_actors, rate=rate),
    )


def actor_loss(
    params: networks.Params, critics: networks.Params, batch: Transitions, parts: Parts
) -> Array:
    """Returns `[K']` the mean of -Q_1(s, pi(s)): neither cloning nor a normaliser."""
    chosen = td3bc.actions(params, batch.obs, parts.offline)
    first = jax.tree.map(lambda leaf: leaf[:, 0], critics)
    values = jax.vmap(parts.offline.critic.apply)(first, batch.obs, chosen)
    return -jnp.mean(values, axis=1)
