"""The random feature map of the paper's appendix (Path A)."""

import dataclasses

import jax
import jax.numpy as jnp

from roid_jax import config as cfg
from roid_jax.types import Array, Key

TERMS = ("squares", "products")


@dataclasses.dataclass(frozen=True)
class FeatureConfig:
    """What the feature map looks like; the paper fixes only the dimensions and the tanh."""

    state_dim: int = 16
    action_dim: int = 4
    feature_dim: int = 128
    terms: str = "squares"  # squares: [s, a, s^2, a^2, s x a]; products: [s, a, a x a, s x a]
    projection_scale: float = 0.3  # spread of the projected inputs before the tanh

    def __post_init__(self):
        cfg.check_whole(self, "state_dim", "action_dim", most=1000)
        cfg.check_whole(self, "feature_dim", most=10_000)
        cfg.check_number(self, "projection_scale", above=0)
        cfg.check_one_of("terms", self.terms, TERMS)


def expand(state: Array, action: Array, *, terms: str) -> Array:
    """Returns `[P]` state and action with their quadratic and interaction terms.

    Args:
      state: `[O]`.
      action: `[U]`.
      terms: `squares` appends s^2, a^2 and s x a; `products` appends a_i a_j (i <= j) and s x a.
    """
    interactions = jnp.outer(state, action).ravel()
    if terms == "squares":
        quadratic = jnp.concatenate([jnp.square(state), jnp.square(action)])
    else:
        rows, columns = jnp.triu_indices(action.shape[0])
        quadratic = action[rows] * action[columns]
    return jnp.concatenate([state, action, quadratic, interactions])


def draw_projection(key: Key, config: FeatureConfig) -> Array:
    """Returns `[P, D]` the Gaussian projection, scaled so that its spread ignores P."""
    sample = expand(jnp.zeros(config.state_dim), jnp.zeros(config.action_dim), terms=config.terms)
    inputs = sample.shape[0]
    scale = config.projection_scale / jnp.sqrt(inputs)
    return scale * jax.random.normal(key, (inputs, config.feature_dim))


def featurise(projection: Array, state: Array, action: Array, *, terms: str) -> Array:
    """Returns `[D]` the unit-norm features of one state and action.

    Paper, Appendix (Path A):  phi(s, a) = tanh(x W) / |tanh(x W)|,
    with x the expanded pair and W the random projection.
    """
    squashed = jnp.tanh(expand(state, action, terms=terms) @ projection)
    norm = jnp.linalg.norm(squashed)
    return squashed / jnp.where(norm > 0.0, norm, 1.0)
