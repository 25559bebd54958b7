"""How the large programs are compiled: as `jax.jit` does, with what suits networks of this size."""

import functools
from collections.abc import Callable
from typing import Any

import jax

# XLA has two libraries for matrix products on a CPU, and takes the one called YNN where it can.
# That is the faster one for large products, and the slower for products of 256 x 256: without it an
# update of one member takes 0.89 of the time, one of ten critics 0.87 (benchmarks/README.md).
_SMALL_PRODUCTS = {"xla_cpu_experimental_ynn_fusion_type": ""}


def jit(function: Callable, *, donate: int | None = None) -> Callable:
    """Returns the function compiled; the argument at `donate` is given away.

    JAX does not let a program with options of its own be a part of another: there, use `plain`.
    """
    return jax.jit(
        function,
        donate_argnums=() if donate is None else donate,
        compiler_options=options(),
    )


def plain(function: Callable) -> Callable:
    """Returns what was given to `jit`, to be compiled as a part of something else."""
    return function.__wrapped__ if hasattr(function, "lower") else function


@functools.cache
def options() -> dict[str, Any]:
    """Returns what the compiler is told beside its defaults: nothing, unless it is for a CPU."""
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda: 0, compiler_options=_SMALL_PRODUCTS).lower().compile()
    except (jax.errors.JaxRuntimeError, ValueError):  # an XLA that does not know it
        return {}
    return _SMALL_PRODUCTS
