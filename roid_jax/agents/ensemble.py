"""An ensemble of actors with twin critics, whose members learn from different rows.

K' members are one program: every array of a member has a leading axis, critics a second one for the
twins. Each member has its own start, its own batches, and rows that it never learns from.
"""

import dataclasses
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from roid_jax import config as cfg
from roid_jax import networks, replay
from roid_jax.agents import base
from roid_jax.envs.base import Spec
from roid_jax.types import Array, Key, Transitions


@dataclasses.dataclass(frozen=True)
class EnsembleConfig:
    """What TD3+BC is made of; the defaults are its authors' and, of the ensemble, the paper's."""

    hidden: tuple[int, ...] = (256, 256)
    layer_norm: bool = False  # in the critics
    learning_rate: float = 3e-4
    discount: float = 0.99
    polyak: float = 0.005
    batch_size: int = 256
    bc_alpha: float = 2.5  # weight of the value against the cloning of behaviour
    smoothing_noise: float = 0.2  # on the target policy's actions
    smoothing_clip: float = 0.5
    policy_delay: int = 2  # critic updates for one of the actor and the targets
    num_members: int = 5
    mask_probability: float = 0.9  # that a member learns from a row
    mask: str = "row"  # decided once a row, or afresh in every batch
    holdout: int = 5000  # rows kept for calibration
    normalise_states: bool = False
    exploration_noise: float = 0.1

    def __post_init__(self):
        cfg.check_layers("hidden", self.hidden)
        cfg.check_number(self, "learning_rate", "polyak", "bc_alpha", above=0)
        cfg.check_number(self, "smoothing_noise", "smoothing_clip", "exploration_noise", least=0)
        cfg.check_between("discount", self.discount, 0, 1)
        cfg.check_whole(self, "batch_size", "policy_delay", "num_members")
        cfg.check_whole(self, "holdout", least=0)
        is_right = 0 < self.mask_probability <= 1
        cfg.check(is_right, "mask_probability", "above 0 and at most 1", self.mask_probability)
        cfg.check_one_of("mask", self.mask, ("row", "batch"))


@chex.dataclass(frozen=True)
class EnsembleState:
    """Everything that learning changes.

    actors, target_actors: leaves `[K', ...]`; critics, target_critics: leaves `[K', 2, ...]`.
    salt: `[]` uint32 that the permanent masks are drawn from.
    mean, scale: `[O]` what observations are normalised by.
    """

    actors: base.Learner
    target_actors: networks.Params
    critics: base.Learner
    target_critics: networks.Params
    salt: Array
    mean: Array
    scale: Array

    @property
    def anchor(self) -> networks.Params:
        """The first member's policy."""
        return jax.tree.map(lambda leaf: leaf[0], self.actors.params)

    @property
    def target_anchor(self) -> networks.Params:
        """The slow copy of the first member's policy."""
        return jax.tree.map(lambda leaf: leaf[0], self.target_actors)


class Parts(NamedTuple):
    """What never changes: the configuration, the networks and the optimiser."""

    config: EnsembleConfig
    layout: replay.Layout
    actor: networks.Actor
    critic: networks.Critic
    optimiser: optax.GradientTransformation


def make_parts(config: EnsembleConfig, spec: Spec) -> Parts:
    """Returns the parts for an environment."""
    return Parts(
        config=config,
        layout=replay.Layout(spec.obs_dim, spec.action_dim),
        actor=networks.Actor(config.hidden, spec.action_dim),
        critic=networks.Critic(config.hidden, layer_norm=config.layer_norm),
        optimiser=optax.adam(config.learning_rate),
    )


def init(parts: Parts, key: Key, dataset: replay.Dataset) -> EnsembleState:
    """Returns members that learned nothing yet."""
    config, layout = parts.config, parts.layout
    replay.check_holdout(dataset, config.holdout)
    key_actors, key_critics, key_salt = jax.random.split(key, 3)
    obs, action = jnp.zeros(layout.obs_dim), jnp.zeros(layout.action_dim)
    actors = networks.init_members(key_actors, parts.actor, config.num_members, obs)
    critics = jax.vmap(lambda key: networks.init_members(key, parts.critic, 2, obs, action))(
        jax.random.split(key_critics, config.num_members)
    )
    moments = {"mean": jnp.zeros(layout.obs_dim), "scale": jnp.ones(layout.obs_dim)}
    if config.normalise_states:
        moments = base.state_moments(layout, dataset)
    return EnsembleState(
        actors=base.learner(parts.optimiser, actors),
        target_actors=actors,
        critics=base.learner(parts.optimiser, critics),
        target_critics=critics,
        salt=jax.random.bits(key_salt),
        **moments,
    )


def normalise(parts: Parts, state: Any, obs: Array) -> Array:
    """Returns the observations as the networks see them."""
    return base.normalise(state, obs) if parts.config.normalise_states else obs


def unpack(parts: Parts, state: Any, rows: Array) -> Transitions:
    """Returns `[..., R]` rows as transitions with normalised observations."""
    batch = parts.layout.unpack(rows)
    return batch._replace(
        obs=normalise(parts, state, batch.obs), next_obs=normalise(parts, state, batch.next_obs)
    )


def smoothed(key: Key, action: Array, config: EnsembleConfig) -> Array:
    """Returns the target policy's action with clipped noise: clip(a + clip(noise, c), 1)."""
    noise = config.smoothing_noise * jax.random.normal(key, action.shape)
    noise = jnp.clip(noise, -config.smoothing_clip, config.smoothing_clip)
    return jnp.clip(action + noise, -1.0, 1.0)


def member_mask(key: Key, salt: Array, numbers: Array, members: Array, parts: Parts) -> Array:
    """Returns `[...]` 1 where a member learns from a row, else 0.

    Args:
      key: of masks that are drawn afresh in every batch.
      salt: `[]` uint32 of permanent ones.
      numbers: `[...]` of the rows; members: `[...]` of the ensemble.
      parts: the configuration says which kind of mask, and how likely.
    """
    probability = parts.config.mask_probability
    if parts.config.mask == "batch":
        return jax.random.bernoulli(key, probability, numbers.shape).astype(jnp.float32)
    return replay.bootstrap_mask(salt, numbers, members, probability=probability)


def spreads(found: Array) -> dict[str, Array]:
    """Returns how far `[K, B]` values differ: all of them, and the means of twins.

    Twins had the same rows and one target, so K of them are fewer than K opinions; by how much is
    seen from the second number.
    """
    pairs = jnp.mean(found.reshape(-1, 2, found.shape[1]), axis=1)
    spread, pair_spread = (jnp.mean(jnp.std(x, axis=0)) for x in (found, pairs))
    return {"batch_spread": spread, "pair_spread": pair_spread}
