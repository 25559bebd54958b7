"""Arrays packed end to end: what comes back is what went in, to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import packing


def make_tree() -> dict:
    key = jax.random.key(0)
    return {
        "weights": (jax.random.normal(key, (3, 2)), jnp.float32(jnp.nan)),
        "counts": [jnp.arange(4), jnp.int32(7), jnp.zeros((0, 5), jnp.int32)],
        "flags": jnp.array([True, False]),
        "bits": jax.random.bits(key, (2, 2)),
        "half": jnp.ones(3, jnp.bfloat16),
        "large": jax.random.normal(key, (600, 500)),
    }


def test_what_is_unpacked_is_what_was_packed():
    tree = make_tree()
    back = packing.unpack(packing.pack(tree), jax.eval_shape(lambda: tree))
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    assert packing.layout(back) == packing.layout(tree)
    for one, other in zip(jax.tree.leaves(tree), jax.tree.leaves(back), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_small_arrays_share_one_of_their_type_and_large_ones_are_alone():
    packed = packing.pack(make_tree())
    assert {name: array.shape for name, array in packed.items()} == {
        "bfloat16": (3,),
        "bool": (2,),
        "float32": (7,),
        "int32": (5,),
        "uint32": (4,),
        "6": (600, 500),
    }


def test_what_is_packed_is_a_copy():
    tree = {"one": jnp.arange(3.0), "large": jnp.ones(2**19)}
    packed = packing.pack(tree)
    jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), donate_argnums=0)(tree)
    assert tree["large"].is_deleted()
    assert packed["float32"].tolist() == [0.0, 1.0, 2.0]
    assert float(packed["0"].sum()) == 2**19


def test_a_layout_names_every_array_with_its_type_and_shape():
    assert packing.layout({"b": (jnp.zeros((2, 3)),), "a": jnp.int32(1)}) == [
        "a: int32[]",
        "b.0: float32[2, 3]",
    ]


@pytest.mark.parametrize("tree", [{}, {"none": jnp.zeros((0,))}])
def test_nothing_is_packed_too(tree):
    back = packing.unpack(packing.pack(tree), tree)
    assert packing.layout(back) == packing.layout(tree)
