"""The separation of the paper's Section 5: when a dominated probe beats probability matching.

A hidden mode is 1 with probability p, else 0. The default is best in mode 0, the rare action in
mode 1, the probe in neither; the rare action and the probe reveal the mode, the default never does.
What Section 5 covers is the *deterministic* rule. All of it is scalar arithmetic in double
precision.
"""

import math
from typing import NamedTuple

import numpy as np


class Gaps(NamedTuple):
    """The expected regret of each wrong choice, given the mode (Assumption B2)."""

    default_in_rare: float  # Delta_+: what the default loses in mode 1
    rare_in_common: float  # Delta_-: what the rare action loses in mode 0
    probe_in_common: float  # c_0
    probe_in_rare: float  # c_1


class Separation(NamedTuple):
    """What Theorem 8 says about one p and one set of gaps."""

    ids_probes: bool  # vanilla IDS takes the probe first
    ids_bound: float  # upper bound on its regret, for every T
    thompson_bound: float  # lower bound on Thompson sampling's regret after T episodes
    horizon: int  # from this T on, the next bound holds
    thompson_floor: float  # lower bound on Thompson sampling's regret from `horizon` on
    separates: bool  # IDS is strictly better from `horizon` on


def residual_probability(rows: int, *, reveal_rate: float, prior: float = 0.5) -> float:
    """Returns the chance that the rare mode is still there after N rows that did not show it.

    Paper, Appendix C:  p_N = (1 - q)^N / (1 + (1 - q)^N)   (for a prior of 1/2).
    """
    unseen = prior * np.exp(np.asarray(rows, np.float64) * math.log1p(-reveal_rate))
    return (unseen / (1.0 - prior + unseen))[()]


def separation(p: float, gaps: Gaps, *, episodes: int) -> Separation:
    """Returns the quantities of the separation theorem.

    Paper, Theorem 8.  IDS_0 probes if  (1-p) c_0 + p c_1 < (1-p) Delta_-,  and then
        BR_T(IDS_0) <= (1-p) c_0 + p c_1                                   for every T;
        BR_T(TS) >= (1-p) (1 - (1-p)^T) (Delta_+ + Delta_-)                (in its proof)
                 >= (1-p) (1 - 1/e) (Delta_+ + Delta_-)                    for T >= ceil(1/p);
    it separates if the first bound is also below the last.
    """
    probe = (1.0 - p) * gaps.probe_in_common + p * gaps.probe_in_rare
    both = (1.0 - p) * (gaps.default_in_rare + gaps.rare_in_common)
    floor = both * (1.0 - math.exp(-1.0))
    ids_probes = bool(probe < (1.0 - p) * gaps.rare_in_common)
    return Separation(
        ids_probes=ids_probes,
        ids_bound=probe,
        thompson_bound=both * -math.expm1(episodes * math.log1p(-p)),
        horizon=math.ceil(1.0 / p),
        thompson_floor=floor,
        separates=ids_probes and bool(probe < floor),
    )


def warm_start_threshold(gaps: Gaps, *, reveal_rate: float, prior: float = 0.5) -> int:
    """Returns N_star: from this many offline rows on, IDS probes and separates from Thompson.

    Paper, Corollary 17:  there is one if c_0 < Delta_- and c_0 < (1 - 1/e) (Delta_+ + Delta_-).
    Both conditions of Theorem 8 read  p < (x - c_0) / (x - c_0 + c_1),  with x = Delta_- and with
    x = (1 - 1/e) (Delta_+ + Delta_-).
    """
    limits = (
        gaps.rare_in_common,
        (1.0 - math.exp(-1.0)) * (gaps.default_in_rare + gaps.rare_in_common),
    )
    if gaps.probe_in_common >= min(limits):
        raise ValueError(
            f"no number of rows separates: c_0 must be below {min(limits):.4g}, "
            f"got {gaps.probe_in_common}."
        )
    slack = min(limits) - gaps.probe_in_common
    return smallest_rows(slack / (slack + gaps.probe_in_rare), reveal_rate=reveal_rate, prior=prior)


def smallest_rows(below: float, *, reveal_rate: float, prior: float = 0.5) -> int:
    """Returns min{N : p_N < below}."""
    odds = below * (1.0 - prior) / ((1.0 - below) * prior)
    rows = max(0, math.floor(math.log(odds) / math.log1p(-reveal_rate)) - 1)
    while residual_probability(rows, reveal_rate=reveal_rate, prior=prior) >= below:
        rows += 1
    return rows


def asymptotic_ratio(gaps: Gaps) -> float:
    """Returns how many times Thompson sampling's regret exceeds that of IDS as p_N falls to 0.

    Paper, Section 5:  liminf BR(TS) / BR(IDS_0) >= (1 - 1/e) (Delta_+ + Delta_-) / c_0.
    """
    both = gaps.default_in_rare + gaps.rare_in_common
    return (1.0 - math.exp(-1.0)) * both / gaps.probe_in_common


def concrete_rewards(cost: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the mean reward of S, R and P in mode 0 and in mode 1, in the H = 2 instance.

    Paper, Appendix C:  theta_1 = (1/2, theta, 1/2 - c, 0) for the actions S, R, P (and O).
    """
    return (0.5, 0.0, 0.5 - cost), (0.5, 1.0, 0.5 - cost)


def concrete_threshold(cost: float, *, reveal_rate: float) -> int:
    """Returns N_star of the H = 2 instance: from here on IDS_0 takes P, and pays c + p_N / 2.

    Paper, Appendix C:  N_star(q, c) = min{N : p_N < 1/2 - c}.
    """
    if not 0.0 < cost < 0.5:
        raise ValueError(f"the probe's cost c must be between 0 and 1/2, got {cost}.")
    return smallest_rows(0.5 - cost, reveal_rate=reveal_rate)


def gaps_of(rewards: tuple[tuple[float, ...], tuple[float, ...]]) -> Gaps:
    """Returns the gaps of three actions (default, rare, probe) given their rewards in each mode."""
    common, rare = (max(mode) - np.asarray(mode) for mode in rewards)
    is_right = common[0] == rare[1] == 0.0 and min(*common[1:], rare[0], rare[2]) > 0.0
    if not (is_right and np.all(np.isfinite(rewards))):
        raise ValueError(
            "the default must be best in mode 0 and the rare action in mode 1, "
            f"each alone; got rewards {rewards}."
        )
    return Gaps(float(rare[0]), float(common[1]), float(common[2]), float(rare[2]))


def stationary_regret(
    choice: np.ndarray, regret: np.ndarray, reveals: np.ndarray, *, horizon: int
) -> float:
    """Returns the exact expected regret over T steps of a rule that is fixed until the mode shows.

    Each step costs d = q . Delta and reveals with probability r = q . reveals; after that nothing
    is lost, so the total is d (1 - (1 - r)^T) / r, or T d where r = 0. For Thompson sampling,
    q = (1-p, p, 0), that is (1-p) (1 - (1-p)^T) (Delta_+ + Delta_-).

    Args:
      choice: `[3]` probability q of each action while the mode is hidden.
      regret: `[3]` expected regret Delta of each.
      reveals: `[3]` whether each shows the mode.
      horizon: T.
    """
    cost, rate = float(np.dot(choice, regret)), float(np.dot(choice, reveals))
    if rate <= 0.0:
        return horizon * cost
    if rate >= 1.0:
        return cost
    return cost * -math.expm1(horizon * math.log1p(-rate)) / rate
