"""Random keys as plain numbers, for what cannot hold them, and back."""

from typing import Any

import jax
import jax.numpy as jnp


def without_types(tree: Any) -> Any:
    """Returns a pytree whose random keys are plain numbers."""
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, tree)


def with_types(plain: Any, like: Any) -> Any:
    """Returns a pytree with the numbers of random keys as keys again, where `like` has them."""
    wrap = jax.random.wrap_key_data
    return jax.tree.map(lambda leaf, one: wrap(leaf) if _is_key(one) else leaf, plain, like)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
