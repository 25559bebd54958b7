"""One loop for the whole linear path: beliefs, rule, outcome, over and over.

A `World` says what its state lets us believe about the candidates and what happens when one is
taken. The hidden-mode bandit, the biased linear bandit and the episodic model are three worlds.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from roid_jax import selection
from roid_jax.types import Array, Beliefs, Key


class Method(NamedTuple):
    """A selection rule by name; `eta` only where the rule has one."""

    name: str
    eta: float | None = None


class World(NamedTuple):
    """A problem as two pure functions of its state, which is any pytree of arrays."""

    beliefs: Callable[[Key, Any], Beliefs]  # (key, state) -> what it says about the candidates
    take: Callable[[Key, Any, Beliefs, Array], tuple[Any, Any]]  # (..., index) -> state, outcome


def methods_for(etas: Sequence[float]) -> tuple[Method, ...]:
    """Returns every method of the paper's tables, with both IDS rules at each eta."""
    plain = tuple(Method(name) for name in ("greedy", "ucb", "thompson"))
    return plain + tuple(Method(name, eta) for name in ("ids", "ids_randomised") for eta in etas)


def rule_for(method: Method, *, ucb_scale: float) -> selection.Rule:
    """Returns the rule of a method with its constants bound."""
    if method.name == "ucb":
        return selection.make_rule("ucb", scale=ucb_scale)
    if method.eta is not None:
        return selection.make_rule(method.name, eta=method.eta)
    return selection.make_rule(method.name)


def play(
    run_key: Key, state: Any, world: World, rules: Sequence[selection.Rule], *, horizon: int
) -> tuple[Any, Any]:
    """Plays every rule from the same state and returns where it got and what happened.

    At step t all rules share the random numbers of `fold_in(run_key, t)`: the same posterior draws
    and the same noise, so that what differs between them is the rule.

    Args:
      run_key: key of this run.
      state: where every rule starts.
      world: the problem.
      rules: A rules, `(key, beliefs) -> index`.
      horizon: number of steps, T.

    Returns:
      The last states, stacked to `[A, ...]`, and what `world.take` reported, to `[A, T, ...]`.
    """

    def step(states: Any, t: Array) -> tuple[Any, Any]:
        key_draw, key_rule, key_take = jax.random.split(jax.random.fold_in(run_key, t), 3)
        beliefs = jax.vmap(world.beliefs, in_axes=(None, 0))(key_draw, states)
        chosen = jnp.stack(
            [
                rule(key_rule, jax.tree.map(lambda x, i=i: x[i], beliefs))
                for i, rule in enumerate(rules)
            ]
        )
        return jax.vmap(world.take, in_axes=(None, 0, 0, 0))(key_take, states, beliefs, chosen)

    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(rules), *jnp.shape(x))), state)
    states, outcomes = jax.lax.scan(step, states, jnp.arange(horizon))
    return states, jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), outcomes)
