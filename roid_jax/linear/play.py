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
    the step's key itself.
    """

    beliefs: Callable[[Any, Any], Beliefs]  # (drawn, state) -> what it says about the candidates
    take: Callable[[Key, Any, Beliefs, Array], tuple[Any, Any]]  # (..., index) -> state, outcome
    draw: Callable[[Key], Any] = lambda key: key


def methods_for(etas: Sequence[float]) -> tuple[Method, ...]:
    """Returns every method of the paper's tables, with both IDS rules at each eta."""
    plain = tuple(Method(name) for name in ("greedy", "ucb", "thompson"))
    return plain + tuple(Method(name, eta) for name in ("ids", "ids_randomised") for eta in etas)


def make_chooser(methods: Sequence[Method], *, ucb_scale: float) -> Chooser:
    """Returns `(key, beliefs) -> [A]`: each method's choice from its own `[A, ...]` beliefs.

    All get the same key. Neighbours that differ only in eta are one vmapped rule.
    """
    groups = _neighbours(methods)

    def choose_group(key: Key, group: list[Method], beliefs: Beliefs) -> Array:
        name = group[0].name
        if group[0].eta is None:
            rule = selection.make_rule(name, **({"scale": ucb_scale} if name == "ucb" else {}))
            return jax.vmap(rule, in_axes=(None, 0))(key, beliefs)

        def regularised(beliefs: Beliefs, eta: Array) -> Array:
            return selection.make_rule(name, eta=eta)(key, beliefs)

        return jax.vmap(regularised)(beliefs, jnp.array([method.eta for method in group]))

    def choose(key: Key, beliefs: Beliefs) -> Array:
        chosen, start = [], 0
        for group in groups:
            rows = slice(start, start + len(group))
            chosen.append(choose_group(key, group, jax.tree.map(lambda x, r=rows: x[r], beliefs)))
            start = rows.stop
        return jnp.concatenate(chosen)

    return choose


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
    stops = list(itertools.accumulate(map(len, groups)))

    def step(states: Any, t: Array) -> tuple[Any, Any]:
        key_draw, key_rule, key_take = jax.random.split(jax.random.fold_in(run_key, t), 3)
        drawn, seen, chosen = world.draw(key_draw), [], []
        # Beliefs rule by rule, so that what a rule does not look at is not computed for it.
        for choose, start, stop in zip(choosers, [0, *stops], stops, strict=False):
            own = jax.tree.map(lambda x, rows=slice(start, stop): x[rows], states)
            seen.append(jax.vmap(world.beliefs, in_axes=(None, 0))(drawn, own))
            chosen.append(choose(key_rule, seen[-1]))
        beliefs = jax.tree.map(lambda *parts: jnp.concatenate(parts), *seen)
        take = jax.vmap(world.take, in_axes=(None, 0, 0, 0))
        return take(key_take, states, beliefs, jnp.concatenate(chosen))

    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(methods), *jnp.shape(x))), state)
    states, outcomes = jax.lax.scan(step, states, jnp.arange(horizon))
    return states, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), outcomes)
