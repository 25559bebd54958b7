"""Losses that several agents share, unreduced: one number for each row, the caller averages."""

import chex
import jax
import jax.numpy as jnp

from roid_jax.types import Array


def td_target(reward: Array, discount: Array, next_value: Array, *, gamma: float) -> Array:
    """Returns `[B]` what a value should be: r + gamma (1 - d) V(s'), and no gradient.

    Args:
      reward: `[B]`.
      discount: `[B]` 0 where the world ended, else 1.
      next_value: `[B]` value of the successor.
      gamma: the discount of one step.
    """
    chex.assert_equal_shape([reward, discount, next_value])
    return jax.lax.stop_gradient(reward + gamma * discount * next_value)


def soft_value(value: Array, log_prob: Array, *, temperature: Array) -> Array:
    """Returns `[B]` a value with the entropy's worth added: Q(s, a) - temperature log pi(a|s)."""
    chex.assert_equal_shape([value, log_prob])
    return value - temperature * log_prob


def expectile(advantage: Array, *, share: float) -> Array:
    """Returns `[B]` |share - 1(A < 0)| A^2, least on average where V is that expectile of Q."""
    weight = jnp.where(advantage < 0, 1.0 - share, share)
    return weight * jnp.square(advantage)


def masked_mean(values: Array, mask: Array) -> Array:
    """Returns `[...]` the mean over the last axis of what the mask keeps; 0 where it keeps none."""
    chex.assert_equal_shape([values, mask])
    return jnp.sum(mask * values, axis=-1) / jnp.maximum(jnp.sum(mask, axis=-1), 1.0)


def normalised(values: Array, mask: Array) -> Array:
    """Returns `[...]` the masked mean of values over that of their sizes, which has no gradient.

    0 where the mask keeps nothing, or every value is 0.
    """
    size = jax.lax.stop_gradient(masked_mean(jnp.abs(values), mask))
    return masked_mean(values, mask) / jnp.maximum(size, jnp.finfo(values.dtype).tiny)
