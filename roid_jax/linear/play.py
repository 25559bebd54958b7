"""One loop for the whole linear path: beliefs, rule, outcome, over and over.

A `World` says what its state lets us believe about the candidates and what happens when one is
taken. The hidden-mode bandit, the biased linear bandit and the episodic model are three worlds.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from roid_jax import selection
from roid_jax.types import Array, Beliefs, Key

Chooser = Callable[[Key, Beliefs], Array]


class Method(NamedTuple):
    """A selection rule by name; `eta` only where the rule has one."""

    name: str
    eta: float | None = None


class World(NamedTuple):
    """A problem as pure functions of its state, which is any pytree of arrays.

    `draw` makes the random numbers that all beliefs of a step share; where it is not given they are
    the step's key itself. `one` leaves of them what a rule needs that looks at a single draw.
    """

    beliefs: Callable[[Any, Any], Beliefs]  # (drawn, state) -> what it says about the candidates
    take: Callable[[Key, Any, Beliefs, Array], tuple[Any, Any]]  # (..., index) -> state, outcome
    draw: Callable[[Key], Any] = lambda key: key
    one: Callable[[Any], Any] = lambda drawn: drawn


def methods_for(etas: Sequence[float]) -> tuple[Method, ...]:
    """Returns every method of the paper's tables, with both IDS rules at each eta."""
    plain = tuple(Method(name) for name in ("greedy", "ucb", "thompson"))
    return plain + tuple(Method(name, eta) for name in ("ids", "ids_randomised") for eta in etas)


def make_chooser(methods: Sequence[Method], *, ucb_scale: float) -> Chooser:
    """Returns `(key, beliefs) -> [A]`: each method's choice from its own `[A, ...]` beliefs.

    The methods are of one name and differ only in eta; all get the same key.
    """
    name, etas = methods[0].name, [method.eta for method in methods]
    if etas[0] is None:
        rule = selection.make_rule(name, **({"scale": ucb_scale} if name == "ucb" else {}))
        return jax.vmap(rule, in_axes=(None, 0))

    def regularised(key: Key, beliefs: Beliefs, eta: Array) -> Array:
        return selection.make_rule(name, eta=eta)(key, beliefs)

    return lambda key, beliefs: jax.vmap(regularised, in_axes=(None, 0, 0))(
        key, beliefs, jnp.array(etas)
    )


def _neighbours(methods: Sequence[Method]) -> list[list[Method]]:
    """Returns the methods in groups of one name each, in their order."""
    return [list(group) for _, group in itertools.groupby(methods, lambda method: method.name)]


def play(
    run_key: Key,
    state: Any,
    world: World,
    methods: Sequence[Method],
    *,
    horizon: int,
    ucb_scale: float = 1.0,
) -> tuple[Any, Any]:
    """Plays every method from the same state and returns where it got and what happened.

    At step t all methods share the random numbers of `fold_in(run_key, t)`: the same posterior
    draws and the same noise, so that what differs between them is the rule.

    Args:
      run_key: key of this run.
      state: where every method starts.
      world: the problem.
      methods: A of them.
      horizon: number of steps, T.
      ucb_scale: standard deviations that `ucb` adds.

    Returns:
      The last states, stacked to `[A, ...]`, and what `world.take` reported, to `[A, T, ...]`.
    """
    groups = _neighbours(methods)
    choosers = [make_chooser(group, ucb_scale=ucb_scale) for group in groups]

    def step(states: list[Any], t: Array) -> tuple[list[Any], list[Any]]:
        """Takes a step of each group, whose states are apart so that none is copied to another."""
        key_draw, key_rule, key_take = jax.random.split(jax.random.fold_in(run_key, t), 3)
        drawn = world.draw(key_draw)
        after = []
        for group, choose, own in zip(groups, choosers, states, strict=True):
            looked_at = world.one(drawn) if group[0].name == "thompson" else drawn
            beliefs = jax.vmap(world.beliefs, in_axes=(None, 0))(looked_at, own)
            chosen = choose(key_rule, beliefs)
            take = jax.vmap(world.take, in_axes=(None, 0, 0, 0))
            after.append(take(key_take, own, beliefs, chosen))
        states, outcomes = zip(*after, strict=True)
        return list(states), list(outcomes)

    def begin(group: list[Method]) -> Any:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (len(group), *jnp.shape(x))), state)

    states, outcomes = jax.lax.scan(step, [begin(group) for group in groups], jnp.arange(horizon))
    states = jax.tree.map(lambda *parts: jnp.concatenate(parts), *states)
    outcomes = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *outcomes)
    return states, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), outcomes)
