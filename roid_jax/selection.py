"""Which candidate to take: the regret-information ratio, and the rules built on beliefs.

Every path of the package ends here: the hidden-mode bandit, the linear bandit, the episodic
linear model and the deep ensemble all describe M candidates as `Beliefs`, and a rule
`(key, beliefs) -> index` picks one. Ties go to the lowest index, which is the anchor.
"""

import functools
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from roid_jax.types import Array, Beliefs, Key

Rule = Callable[[Key, Beliefs], Array]

# Up to here an information gain in nats, or a regret, counts as none at all; the rules measure
# regret in units of the largest one. Beliefs are built so that rounding cannot exceed it: regret is
# a mean of differences that are exactly 0 where a draw is at its best, and information is exactly 0
# where all draws agree.
TOLERANCE = 1e-12


def ids_score(
    regret: Array, information: Array, *, eta: float | Array, tolerance: float = TOLERANCE
) -> Array:
    """Returns the regret-information ratio of each candidate; the smallest is the one to take.

    Paper, Section 3:  Psi^eta(a) = Delta(a)^2 / (g(a) + eta),
    and for eta = 0:   Psi = +inf where g = 0 < Delta,  Psi = 0 where g = Delta = 0.

    Args:
      regret: `[..., M]` expected instantaneous regret, Delta. Below zero (rounding) counts as zero.
      information: `[..., M]` information gain, g, in nats. Below zero counts as zero.
      eta: regulariser, at least 0.
      tolerance: where g + eta is at most this, a regret of at most this counts as none.
    """
    chex.assert_equal_shape([regret, information])
    regret = jnp.maximum(regret, 0.0)
    cost = jnp.maximum(information, 0.0) + eta
    teaches_nothing = cost <= tolerance
    ratio = jnp.square(regret) / jnp.where(teaches_nothing, 1.0, cost)
    return jnp.where(teaches_nothing, jnp.where(regret <= tolerance, 0.0, jnp.inf), ratio)


def expected_regret(beliefs: Beliefs) -> Array:
    """Returns `[M]` the expected regret of each candidate: Delta(a) = E_k[best_k - value_k(a)].

    A mean of differences, never a difference of means: a candidate that is best under every draw
    has a regret of exactly zero, in any precision.
    """
    shortfall = beliefs.best[:, None] - beliefs.values
    return beliefs.weights @ jnp.maximum(shortfall, 0.0)


def ids_mixture(
    regret: Array, information: Array, *, eta: float | Array
) -> tuple[Array, Array, Array]:
    """Returns the mixture of candidates with the smallest regret-information ratio.

    Over q in the simplex, Psi(q) = (q . Delta)^2 / (q . g + eta) is convex, falls with g and rises
    with Delta, so its minimum lies on one edge of the lower right hull of the points
    (g_i, Delta_i): at most two candidates. The hull is searched from its two ends, the least regret
    and the most information: the point furthest below their chord replaces one of them, until none
    is below. On the edge from i to j the minimum is at the weight of j
        Delta_i / (Delta_j - Delta_i) - 2 (g_i + eta) / (g_j - g_i),   clipped to [0, 1].

    Args:
      regret: `[M]` expected regret, Delta.
      information: `[M]` information gain, g, in nats.
      eta: regulariser, at least 0.

    Returns:
      first, second: the two candidates; and the probability of taking the second.
    """
    chex.assert_rank([regret, information], 1)
    regret, information = _unit_scale(regret), jnp.maximum(information, 0.0)
    gain = information + eta

    def narrow(ends: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        left, right, _ = ends
        slope = (regret[right] - regret[left]) / (gain[right] - gain[left])
        height = regret - slope * gain
        is_between = (gain > gain[left]) & (gain < gain[right])
        vertex = jnp.argmin(jnp.where(is_between, height, jnp.inf))
        is_below = is_between[vertex] & (height[vertex] < height[left])
        # Right of the vertex the hull climbs at `slope` or more, and the level line of Psi at
        # Delta / 2 (g + eta): where the hull is the steeper, the minimum lies to the left.
        is_past = 2.0 * slope * gain[vertex] > regret[vertex]
        return (
            jnp.where(is_below & ~is_past, vertex, left),
            jnp.where(is_below & is_past, vertex, right),
            ~is_below,
        )

    least_regret = jnp.argmax(jnp.where(regret == jnp.min(regret), gain, -jnp.inf))
    most_gain = jnp.argmin(jnp.where(gain == jnp.max(gain), regret, jnp.inf))
    ends = least_regret, most_gain, jnp.array(False)
    left, right, _ = jax.lax.while_loop(lambda ends: ~ends[2], narrow, ends)

    rise, run = regret[right] - regret[left], gain[right] - gain[left]
    is_point = (rise <= 0.0) | (run <= 0.0)  # one candidate has the least regret and the most gain
    weight = regret[left] / jnp.where(is_point, 1.0, rise)
    weight -= 2.0 * gain[left] / jnp.where(is_point, 1.0, run)
    weight = jnp.where(is_point, 0.0, jnp.clip(weight, 0.0, 1.0))

    # Mixing must beat the best single candidate, else that one is taken, ties to index 0.
    scores = ids_score(regret, information, eta=eta)
    single = jnp.argmin(scores)
    mixed = [x[left] + weight * (x[right] - x[left]) for x in (regret, information)]
    is_better = ids_score(*mixed, eta=eta) < scores[single]
    return jnp.where(is_better, left, single), jnp.where(is_better, right, single), weight


def ids_probabilities(regret: Array, information: Array, *, eta: float | Array) -> Array:
    """Returns `[M]` how likely `ids_randomised` takes each candidate."""
    first, second, weight = ids_mixture(regret, information, eta=eta)
    return jnp.zeros_like(regret).at[first].add(1.0 - weight).at[second].add(weight)


def ids(key: Key, beliefs: Beliefs, *, eta: float | Array) -> Array:
    """Takes the single candidate with the smallest ratio; the paper's algorithm."""
    del key
    regret = _unit_scale(expected_regret(beliefs))
    return jnp.argmin(ids_score(regret, beliefs.information, eta=eta))


def ids_randomised(key: Key, beliefs: Beliefs, *, eta: float | Array) -> Array:
    """Draws from the mixture with the smallest ratio; the rule the regret bound covers."""
    first, second, weight = ids_mixture(expected_regret(beliefs), beliefs.information, eta=eta)
    return jnp.where(jax.random.bernoulli(key, weight), second, first)


def thompson(key: Key, beliefs: Beliefs) -> Array:
    """Takes the best candidate of one draw: probability matching."""
    draw = jax.random.categorical(key, jnp.log(beliefs.weights))
    return jnp.argmax(beliefs.values[draw])


def thompson_mixture(beliefs: Beliefs) -> Array:
    """Returns `[M]` the probability that `thompson` takes each candidate."""
    favourites = jnp.argmax(beliefs.values, axis=1)
    return jnp.zeros_like(beliefs.mean).at[favourites].add(beliefs.weights)


def ucb(key: Key, beliefs: Beliefs, *, scale: float | Array) -> Array:
    """Takes the largest mean plus `scale` standard deviations."""
    del key
    return jnp.argmax(beliefs.mean + scale * beliefs.deviation)


def greedy(key: Key, beliefs: Beliefs) -> Array:
    """Takes the largest mean."""
    del key
    return jnp.argmax(beliefs.mean)


def boltzmann(key: Key, beliefs: Beliefs, *, temperature: float | Array) -> Array:
    """Draws in proportion to exp(mean / temperature)."""
    return jax.random.categorical(key, beliefs.mean / temperature)


RULES = {
    "boltzmann": boltzmann,
    "greedy": greedy,
    "ids": ids,
    "ids_randomised": ids_randomised,
    "thompson": thompson,
    "ucb": ucb,
}


def make_rule(name: str, **constants: float) -> Rule:
    """Returns the named rule with its constants bound, as `(key, beliefs) -> index`."""
    if name not in RULES:
        raise ValueError(f"unknown selector {name!r}; choose from {', '.join(RULES)}.")
    return functools.partial(RULES[name], **constants)


def beliefs_from_draws(values: Array, best: Array, weights: Array, information: Array) -> Beliefs:
    """Returns beliefs whose mean and deviation are those of the draws themselves.

    Args:
      values: `[K, M]` value of each candidate under each draw.
      best: `[K]` best value of each draw.
      weights: `[K]` probability of each draw.
      information: `[M]` information gain, in nats.
    """
    mean = weights @ values
    variance = weights @ jnp.square(values - mean[None, :])
    return Beliefs(
        values=values,
        best=best,
        weights=weights,
        mean=mean,
        deviation=jnp.sqrt(variance),
        information=information,
    )


def _unit_scale(regret: Array) -> Array:
    """Divides by the largest regret: no ratio changes its rank, and no square can overflow."""
    largest = jnp.max(regret)
    return regret / jnp.where(largest > 0.0, largest, 1.0)
