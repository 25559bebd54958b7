import math

import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax.linear import hidden_mode, play, separation
from roid_jax.linear.separation import Gaps

PAPER = Gaps(default_in_rare=1.0, rare_in_common=0.8, probe_in_common=0.15, probe_in_rare=0.15)
N_STAR = {
    0.005: {0.05: 41, 0.15: 124, 0.3: 277, 0.45: 588},
    0.05: {0.05: 4, 0.15: 13, 0.3: 28, 0.45: 58},
    0.2: {0.05: 1, 0.15: 3, 0.3: 7, 0.45: 14},
}
CELLS = [(rate, cost) for rate, costs in N_STAR.items() for cost in costs]


def concrete(rate, cost, sizes, horizon=1):
    return hidden_mode.HiddenModeConfig(
        rewards=separation.concrete_rewards(cost),
        reveal_rate=rate,
        offline_rows=tuple(sizes),
        horizon=horizon,
    )


def test_the_residual_probability_starts_at_the_prior_and_falls():
    at = lambda n: separation.residual_probability(n, reveal_rate=0.1, prior=0.3)  # noqa: E731
    assert at(0) == pytest.approx(0.3)
    assert at(1) == pytest.approx(0.3 * 0.9 / (0.7 + 0.27))
    assert separation.residual_probability(10**6, reveal_rate=0.1) == 0.0


def test_the_hidden_mode_bandit_has_the_gaps_its_rewards_say():
    gaps = separation.gaps_of(((1.0, 0.2, 0.85), (1.0, 2.0, 1.85)))
    np.testing.assert_allclose(gaps, PAPER)


def test_the_theorem_by_hand():
    p = 0.1
    says = separation.separation(p, PAPER, episodes=7)
    assert says.ids_probes and says.separates
    assert says.ids_bound == pytest.approx(0.15)
    assert says.horizon == 10
    assert says.thompson_bound == pytest.approx(0.9 * (1 - 0.9**7) * 1.8)
    assert says.thompson_floor == pytest.approx(0.9 * (1 - math.exp(-1)) * 1.8)


def test_probe_and_separation_hold_below_0_8125_on_the_hidden_mode_bandit():
    assert separation.separation(0.8124, PAPER, episodes=1).ids_probes
    assert not separation.separation(0.8126, PAPER, episodes=1).ids_probes


@pytest.mark.parametrize("rate, cost", CELLS)
def test_n_star_is_the_first_n_whose_probability_is_below_the_threshold(rate, cost):
    star = separation.concrete_threshold(cost, reveal_rate=rate)
    assert star == N_STAR[rate][cost]
    gaps = separation.gaps_of(separation.concrete_rewards(cost))
    assert star == separation.warm_start_threshold(gaps, reveal_rate=rate)


@pytest.mark.parametrize("rate, cost", CELLS)
def test_ids_takes_the_probe_exactly_from_n_star_on(rate, cost):
    star = N_STAR[rate][cost]
    config = concrete(rate, cost, range(max(0, star - 20), star + 20))
    chosen = hidden_mode.choices(config=config, methods=(play.Method("ids", 0.0),))
    probes = np.asarray(chosen)[:, 0, 2] == 1
    np.testing.assert_array_equal(probes, np.array(config.offline_rows) >= star)


def test_and_pays_c_plus_half_p_at_once_and_nothing_after():
    config = concrete(0.05, 0.15, (13, 20, 50), horizon=30)
    regret = hidden_mode.regret(jnp.arange(2), config=config, methods=(play.Method("ids", 0.0),))
    expected = 0.15 + config.residual_probability() / 2
    np.testing.assert_allclose(regret[0, :, 0, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(regret[:, :, :, 1:], 0.0)


@pytest.mark.parametrize("p", [0.3, 0.05, 0.001])
def test_thompson_meets_its_lower_bound_and_ids_beats_it_from_1_over_p_on(p):
    says = separation.separation(p, PAPER, episodes=math.ceil(1 / p))
    regret = np.array([p, 0.8 * (1 - p), 0.15])
    thompson = separation.stationary_regret(
        np.array([1 - p, p, 0]), regret, np.array([0, 1, 1]), horizon=says.horizon
    )
    assert thompson == pytest.approx(says.thompson_bound)
    assert thompson >= says.thompson_floor > says.ids_bound


def test_a_rule_that_never_probes_pays_every_step():
    regret = np.array([0.01, 0.5, 0.1])
    never = separation.stationary_regret(np.eye(3)[0], regret, np.array([0, 1, 1]), horizon=50)
    assert never == pytest.approx(0.5)


def test_randomised_ids_can_lose_to_thompson():
    """q = .005, c = .45, N = 588, T = 21: .6281 against .6256."""
    config = concrete(0.005, 0.45, (588,), horizon=21)
    methods = (play.Method("ids_randomised", 0.0), play.Method("thompson"))
    randomised, thompson = hidden_mode.analytic_regret(config, methods)[0]
    assert randomised == pytest.approx(0.6281, abs=1e-4)
    assert thompson == pytest.approx(0.6256, abs=1e-4)


def test_the_ratio_of_regrets_approaches_its_limit():
    limit = separation.asymptotic_ratio(PAPER)
    assert limit == pytest.approx((1 - math.exp(-1)) * 1.8 / 0.15)
    p = separation.residual_probability(5000, reveal_rate=0.005)
    says = separation.separation(p, PAPER, episodes=math.ceil(1 / p))
    assert says.thompson_bound / says.ids_bound == pytest.approx(limit, rel=1e-3)


def test_what_cannot_separate_is_refused_in_one_line():
    dear = Gaps(1.0, 0.8, 0.9, 0.9)
    with pytest.raises(ValueError, match=r"c_0 must be below 0.8, got 0.9"):
        separation.warm_start_threshold(dear, reveal_rate=0.1)
    with pytest.raises(ValueError, match=r"between 0 and 1/2, got 0\.7"):
        separation.concrete_threshold(0.7, reveal_rate=0.1)
    with pytest.raises(ValueError, match="default must be best in mode 0"):
        separation.gaps_of(((0.0, 1.0, 0.5), (0.0, 1.0, 0.5)))
