"""Many runs at once: a leading seed axis S, shared by this process's devices, vmapped on each.

A run is a function of its key, so its neighbours do not change what it computes. A run alone is the
same program with S = 1.
"""

import functools
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from roid_jax import compiler

# A prefix of a pytree: 0 where leaves have the seed axis, None where all seeds share them.
Axes = Any

_NAME = "seed"


def make_mesh(number: int) -> Mesh:
    """Returns the devices for that many seeds: as many of this process's as share them evenly."""
    devices = jax.local_devices()
    used = max(n for n in range(1, len(devices) + 1) if number % n == 0)
    return Mesh(np.array(devices[:used]), (_NAME,))


def over(
    function: Callable,
    mesh: Mesh,
    in_axes: tuple[Axes, ...],
    out_axes: Axes,
    *,
    donate: int | None = None,
) -> Callable:
    """Returns the function of one run, compiled for all seeds and one set of shapes.

    Every device runs the program that it would run alone, on its own seeds. One program for all of
    them (`shard_map`) would be compiled once instead of once a device, but XLA's passes for several
    partitions order sums differently, and a seed's numbers would depend on how many devices there
    were. On a CPU a device takes its seeds one by one, which costs about as much as side by side;
    there a seed's numbers do not depend on its neighbours either.

    Args:
      function: of one run.
      mesh: the devices that share the seeds.
      in_axes: of each argument; out_axes: of what it returns.
      donate: position of the argument that is given away, or none.
    """
    side_by_side = beside(function, in_axes, out_axes, donate=donate)
    one_by_one = mesh.devices.flat[0].platform == "cpu"
    programs: list[Callable] = []

    def run(*inputs: Any) -> Any:
        pairs = zip(in_axes, inputs, strict=True)
        laid_out = [_map(lambda axis, leaf: _lay_out(leaf, axis, mesh), *pair) for pair in pairs]
        parts = [[_part(tree, i) for tree in laid_out] for i in range(mesh.size)]
        turns = _turns(parts[0], in_axes) if one_by_one else 1
        pick = functools.partial(_pick, in_axes=in_axes, turns=turns, donate=donate)
        if not programs:
            firsts = [pick(part, 0) for part in parts]
            with futures.ThreadPoolExecutor() as pool:
                compiled = pool.map(lambda first: side_by_side.lower(*first).compile(), firsts)
                programs.extend(compiled)
        found = [
            [program(*pick(part, j)) for program, part in zip(programs, parts, strict=True)]
            for j in range(turns)
        ]
        whole = [_map(_line_up, out_axes, *turns) for turns in zip(*found, strict=True)]
        return _map(lambda axis, *leaves: _join(leaves, axis, mesh), out_axes, *whole)

    return run


def beside(
    function: Callable, in_axes: tuple[Axes, ...], out_axes: Axes, *, donate: int | None = None
) -> Callable:
    """Returns the function of one run, compiled for several on one device, side by side.

    A step counter that all share stays one number, so that a `lax.cond` on it is still a branch,
    and a ring is still written in place.
    """
    of_all = jax.vmap(compiler.plain(function), in_axes=in_axes, out_axes=out_axes)
    return compiler.jit(of_all, donate=donate)


def alone(
    function: Callable, in_axes: tuple[Axes, ...], out_axes: Axes, *, donate: int | None = None
) -> Callable:
    """Returns what `over` does, for one seed and without vmap, which some callbacks do not bear."""

    inner = compiler.plain(function)

    def of_one(*inputs: Any) -> Any:
        pairs = zip(inputs, in_axes, strict=True)
        first = lambda axis, leaf: leaf if axis is None else leaf[0]  # noqa: E731
        found = inner(*(_map(first, axes, one) for one, axes in pairs))
        return _map(lambda axis, leaf: leaf if axis is None else leaf[None], out_axes, found)

    return compiler.jit(of_one, donate=donate)


def take(tree: Any, axes: Axes, i: int) -> Any:
    """Returns the pytree of one seed, by its place on the axis, on the device that has it."""
    number = _turns([tree], (axes,))

    def of_device(leaf: Any) -> Any:
        parts = leaf.addressable_shards if isinstance(leaf, jax.Array) else []
        return leaf if len(parts) < 2 else parts[i // (number // len(parts))].data

    mine = jax.tree.map(of_device, tree)
    leaves, structure = jax.tree.flatten(mine)
    place = i % _turns([mine], (axes,))
    return jax.tree.unflatten(structure, _rows(leaves, _have_axis(axes, mine), place))


@functools.partial(jax.jit, static_argnums=1)  # a program for all arrays, not one for each shape
def _rows(leaves: list[Any], has_axis: tuple[bool, ...], place: int) -> list[Any]:
    return [leaf[place] if has else leaf for leaf, has in zip(leaves, has_axis, strict=True)]


def stack(trees: Sequence[Any], axes: Axes, mesh: Mesh) -> Any:
    """Returns the pytrees of several seeds as one, laid out over the devices."""
    joined = _stacked([jax.tree.leaves(tree) for tree in trees], _have_axis(axes, trees[0]))
    whole = jax.tree.unflatten(jax.tree.structure(trees[0]), joined)
    return _map(lambda axis, leaf: _lay_out(leaf, axis, mesh), axes, whole)


@functools.partial(jax.jit, static_argnums=1)
def _stacked(trees: list[list[Any]], has_axis: tuple[bool, ...]) -> list[Any]:
    pairs = zip(zip(*trees, strict=True), has_axis, strict=True)
    return [jnp.stack(leaves) if has else leaves[0] for leaves, has in pairs]


def _have_axis(axes: Axes, tree: Any) -> tuple[bool, ...]:
    """Returns of each array whether seeds have their own."""
    return tuple(jax.tree.leaves(_map(lambda axis, leaf: axis is not None, axes, tree)))


def _map(function: Callable, axes: Axes, *trees: Any) -> Any:
    """Returns `function(axis, *leaves)` of every leaf, `axes` being a prefix of the trees."""

    def of_part(axis: int | None, *parts: Any) -> Any:
        return jax.tree.map(lambda *leaves: function(axis, *leaves), *parts)

    return jax.tree.map(of_part, axes, *trees, is_leaf=lambda axis: axis is None)


def _lay_out(leaf: Any, axis: int | None, mesh: Mesh) -> Any:
    """Returns an array with its seeds shared by the devices, or whole on each of them."""
    return jax.device_put(leaf, _sharding(axis, mesh))


def _part(tree: Any, i: int) -> Any:
    """Returns what the device at place i has of a pytree."""
    return jax.tree.map(lambda leaf: leaf.addressable_shards[i].data, tree)


def _turns(part: Sequence[Any], in_axes: tuple[Axes, ...]) -> int:
    """Returns how many seeds these inputs have."""
    sizes: list[int] = []
    for axes, tree in zip(in_axes, part, strict=True):
        _map(lambda axis, leaf: axis is None or sizes.append(len(leaf)), axes, tree)
    return max(sizes, default=1)


def _pick(
    part: Sequence[Any], j: int, *, in_axes: tuple[Axes, ...], turns: int, donate: int | None
) -> list[Any]:
    """Returns the inputs of the turn j of a device: one seed's, or with one turn all that it has.

    What all seeds share is copied where it is given away, since each gives away its own.
    """
    if turns == 1:
        return list(part)

    def of_leaf(axis: int | None, leaf: Any, is_given: bool) -> Any:
        if axis is None:
            return jnp.copy(leaf) if is_given else leaf
        return leaf[j : j + 1]

    return [
        _map(lambda axis, leaf, given=place == donate: of_leaf(axis, leaf, given), axes, tree)
        for place, (axes, tree) in enumerate(zip(in_axes, part, strict=True))
    ]


def _line_up(axis: int | None, *leaves: Any) -> Any:
    """Returns what seeds of one device found, taken one by one, as one array."""
    return leaves[0] if axis is None or len(leaves) == 1 else jnp.concatenate(leaves)


def _join(leaves: Sequence[Any], axis: int | None, mesh: Mesh) -> Any:
    """Returns what each device has as one array, where it lies."""
    shape = leaves[0].shape
    if axis is not None:
        shape = (len(leaves) * shape[0], *shape[1:])
    return jax.make_array_from_single_device_arrays(shape, _sharding(axis, mesh), list(leaves))


def _sharding(axis: int | None, mesh: Mesh) -> Sharding:
    if mesh.size == 1:  # as what a program returns, so that a run that goes on needs no other one
        return SingleDeviceSharding(mesh.devices.flat[0])
    return NamedSharding(mesh, PartitionSpec() if axis is None else PartitionSpec(_NAME))
