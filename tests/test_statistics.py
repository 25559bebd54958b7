"""Intervals and statistics against other ways to work them out."""

import numpy as np
import pytest
from rliable import metrics

from roid_jax.report import statistics

SCORES = np.random.default_rng(0).normal(50.0, 10.0, (7, 3))
OTHERS = np.random.default_rng(1).normal(45.0, 10.0, (5, 3))


def test_statistics_equal_rliables_own():
    assert statistics.interquartile_mean(SCORES) == pytest.approx(metrics.aggregate_iqm(SCORES))
    assert statistics.mean(SCORES) == pytest.approx(metrics.aggregate_mean(SCORES))
    found = statistics.probability_of_improvement(SCORES, OTHERS)
    assert found == pytest.approx(metrics.probability_of_improvement(SCORES, OTHERS))


def test_ties_count_half():
    same = np.ones((3, 2))
    assert statistics.probability_of_improvement(same, same) == 0.5
    assert statistics.probability_of_improvement(same + 1, same) == 1.0


def test_the_interquartile_mean_leaves_out_a_quarter_on_each_side():
    scores = np.array([[0.0], [1.0], [3.0], [1000.0]])
    assert statistics.interquartile_mean(scores) == 2.0


def test_the_interval_is_the_bootstrap_of_each_tasks_seeds():
    found = statistics.estimate(statistics.mean, SCORES, seed=3)
    random = np.random.default_rng(0)
    draws = [
        np.mean([random.choice(column, len(column)) for column in SCORES.T]) for _ in range(20_000)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    assert found.value == pytest.approx(np.mean(SCORES))
    assert found.low == pytest.approx(low, abs=0.3)
    assert found.high == pytest.approx(high, abs=0.3)


def test_the_same_seed_gives_the_same_interval_and_another_does_not():
    first, second, third = (
        statistics.estimate(statistics.interquartile_mean, SCORES, seed=seed) for seed in (1, 1, 2)
    )
    assert first == second
    assert (first.low, first.high) != (third.low, third.high)


def test_several_numbers_at_once_equal_each_alone():
    both = np.stack([SCORES, 2 * SCORES], axis=-1)
    found = statistics.estimate(statistics.mean, both)
    alone = statistics.estimate(statistics.mean, SCORES)
    assert found.value == pytest.approx([np.mean(SCORES), 2 * np.mean(SCORES)])
    assert found.low[0] == pytest.approx(float(alone.low), abs=0.5)


def test_one_seed_has_no_interval():
    assert statistics.estimate(statistics.mean, SCORES[:1]).low is None


def test_a_profile_falls_from_one_to_nothing():
    share = statistics.profile(SCORES, np.array([-1e3, np.median(SCORES), 1e3]))
    assert share[0] == 1.0 and share[2] == 0.0 and share[1] == pytest.approx(10 / 21)
