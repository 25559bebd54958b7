"""Many small arrays as a few long ones, for what costs by the array, and back.

A training state has a hundred arrays, most of them of a few numbers, and Orbax opens a store for
each.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Bytes: such an array stands alone, so that reading does not take it twice. Checkpoints depend on
# it: with another number, those of before cannot be read.
_LARGE = 2**20

Packed = dict[str, Any]  # by the type of those packed, or by the place of one that is alone


@jax.jit  # one program, not one for every shape
def pack(tree: Any) -> Packed:
    """Returns copies of all arrays: small ones end to end with those of their type, large alone."""
    leaves = jax.tree.leaves(tree)
    return {
        name: jnp.copy(leaves[members[0]])
        if name.isdigit()
        else jnp.copy(jnp.concatenate([leaves[i].ravel() for i in members]))
        for name, members in _groups(leaves).items()
    }


def unpack(packed: Packed, like: Any) -> Any:
    """Returns what was packed, in the structure and shapes of `like`; `layout` must be the same."""
    leaves, structure = jax.tree.flatten(like)
    found: dict[int, Any] = {}
    for name, members in _groups(leaves).items():
        if name.isdigit():
            found[members[0]] = packed[name]
            continue
        shapes = [leaves[i].shape for i in members]
        parts = np.split(np.asarray(packed[name]), np.cumsum([*map(math.prod, shapes)])[:-1])
        for i, part, shape in zip(members, parts, shapes, strict=True):
            found[i] = jax.device_put(part.reshape(shape).copy())  # compiles nothing
    return structure.unflatten([found[i] for i in range(len(leaves))])


def layout(tree: Any) -> list[str]:
    """Returns the name, type and shape of every array, in their order."""
    return [
        f"{jax.tree_util.keystr(path, simple=True, separator='.')}: {leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


def _groups(leaves: Sequence[Any]) -> dict[str, list[int]]:
    """Returns which arrays go together, by the name of what they become."""
    found: dict[str, list[int]] = {}
    for i, leaf in enumerate(leaves):
        is_large = math.prod(leaf.shape) * leaf.dtype.itemsize >= _LARGE
        found.setdefault(str(i) if is_large else leaf.dtype.name, []).append(i)
    return found
