import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import selection
from roid_jax.linear import certificates, episodic, play, theory

CONFIG = episodic.EpisodicConfig(
    horizon=2, feature_dim=4, offline_rows=(5, 20), episodes=25, runs=6, posterior_draws=32
)
METHODS = (
    play.Method("thompson"),
    play.Method("ids", 0.0),
    play.Method("ids_randomised", 0.0),
    play.Method("ids_randomised", 0.1),
)
ETAS = jnp.array([method.eta or 0.0 for method in METHODS])


@pytest.fixture(scope="module")
def outcome():
    return episodic.simulate(jnp.arange(3), config=CONFIG, methods=METHODS)


@pytest.fixture(scope="module")
def problem():
    return episodic.draw_problem(jax.random.key(0), jnp.array(20), CONFIG)


def test_axes_are_problems_sizes_runs_methods_episodes(outcome):
    problems, learners, episodes = outcome
    assert problems.rows.shape == (3, 2)
    assert learners.truth.shape == (3, 2, 6, 4, 2, 4)
    assert episodes.regret.shape == (3, 2, 6, 4, 25)
    np.testing.assert_array_equal(problems.rows[0], [5, 20])


def test_offline_rows_are_counted(outcome):
    problems, learners, _ = outcome
    np.testing.assert_array_equal(
        jnp.sum(problems.offline.counts[0], axis=(2, 3)), [[5, 5], [20, 20]]
    )
    gained = jnp.sum(learners.counts[0], axis=(-1, -2))
    np.testing.assert_array_equal(gained[0], np.full((6, 4, 2), 5 + 25))


def test_randomised_ids_satisfies_the_certificate_in_every_step(outcome):
    ratios = outcome[2].certificate
    assert np.all(np.asarray(ratios.mixed) <= np.asarray(ratios.reference) * (1 + 1e-5))
    assert np.all(np.asarray(ratios.mixed) <= np.asarray(ratios.single) * (1 + 1e-5))
    assert np.all(np.asarray(ratios.reference) <= theory.reference_ratio_constant(horizon=2, dim=4))


@pytest.mark.parametrize("horizon, dim", [(3, 8)])
def test_and_so_it_does_at_the_largest_size(horizon, dim):
    config = episodic.EpisodicConfig(
        horizon=horizon, feature_dim=dim, episodes=20, runs=4, posterior_draws=32
    )
    outcome = episodic.simulate(jnp.arange(2), config=config, methods=METHODS[2:3])
    ratios = outcome[2].certificate
    assert np.all(np.asarray(ratios.mixed) <= np.asarray(ratios.reference) * (1 + 1e-5))
    errors = certificates.check_identities(*outcome, precision=1.0)
    assert all(float(error) < 1e-5 for error in errors.values()), errors


def test_more_offline_rows_keep_the_fewer():
    few, many = (
        episodic.EpisodicConfig(offline_rows=sizes, num_states=2) for sizes in ((5,), (5, 9))
    )
    draws = [episodic.draw_problem(jax.random.key(0), jnp.array(5), size) for size in (few, many)]
    for first, second in zip(*map(jax.tree.leaves, draws), strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)


def test_identities_hold_to_float32(outcome):
    errors = certificates.check_identities(*outcome, precision=1.0)
    assert all(float(error) < 1e-5 for error in errors.values()), errors


def test_identities_hold_to_float64(double_precision):
    config = episodic.EpisodicConfig(episodes=10, runs=2, posterior_draws=8, offline_rows=(5,))
    outcome = episodic.simulate(jnp.arange(1), config=config, methods=METHODS[:2])
    assert outcome[2].regret.dtype == jnp.float64
    errors = certificates.check_identities(*outcome, precision=1.0)
    assert all(float(error) < 1e-10 for error in errors.values()), errors


def test_regret_lies_below_every_bound_and_bounds_above_what_they_bound(outcome):
    measured = certificates.measure(*outcome, ETAS, precision=1.0)
    for bound in (measured.master, measured.elliptical, measured.covered):
        assert np.all(np.asarray(measured.regret) < np.asarray(bound))
    assert np.all(np.asarray(measured.master) <= np.minimum(measured.elliptical, measured.covered))


def test_regret_is_never_negative_and_the_best_policy_has_none(outcome):
    regret = np.asarray(outcome[2].regret)
    assert regret.min() >= 0.0
    assert np.any(regret == 0.0)


def test_thompson_regrets_more_than_ids(outcome):
    regret = np.asarray(outcome[2].regret).sum(axis=-1).mean(axis=(0, 1, 2))
    assert regret[0] > regret[1]


def test_beliefs_about_policies_by_plain_enumeration(problem):
    beliefs = episodic.policy_beliefs(jax.random.key(1), problem.offline.stages, problem, draws=64)
    roots = np.asarray(problem.offline.stages.root, np.float64)
    means = np.einsum("hde,he->hd", roots, problem.offline.stages.centre)
    covariance = roots @ np.swapaxes(roots, 1, 2)
    moments, visits = (np.asarray(x, np.float64) for x in (problem.moments, problem.visits))
    features = np.asarray(problem.mdp.features, np.float64)
    np.testing.assert_allclose(beliefs.mean, np.einsum("phd,hd->p", moments, means), atol=1e-5)
    variance = np.einsum("phd,hde,phe->p", moments, covariance, moments)
    np.testing.assert_allclose(jnp.square(beliefs.deviation), variance, rtol=1e-4)
    leverage = np.einsum("oud,hde,oue->hou", features, covariance, features)
    information = np.einsum("phou,hou->p", visits, 0.5 * np.log1p(leverage))
    np.testing.assert_allclose(beliefs.information, information, rtol=1e-5)


def test_a_draws_best_value_is_the_best_over_all_policies(problem):
    beliefs = episodic.policy_beliefs(jax.random.key(1), problem.offline.stages, problem, draws=64)
    np.testing.assert_allclose(beliefs.best, jnp.max(beliefs.values, axis=1), atol=1e-6)


def test_antithetic_draws_have_the_exact_mean(problem):
    beliefs = episodic.policy_beliefs(jax.random.key(1), problem.offline.stages, problem, draws=8)
    np.testing.assert_allclose(beliefs.weights @ beliefs.values, beliefs.mean, atol=1e-5)
    assert np.all(selection.expected_regret(beliefs) >= 0.0)


def test_the_chain_rule_holds_on_average(outcome):
    """Gains summed over episodes have the residual information as their mean."""
    measured = certificates.measure(*outcome, ETAS, precision=1.0)
    gains = np.asarray(outcome[2].gain).sum(axis=(-1, -2)).mean(axis=2)
    np.testing.assert_allclose(gains, measured.information, rtol=1e-4)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"posterior_draws": 7}, "posterior_draws must be even, got 7"),
        ({"prior_precision": 0.5}, "prior_precision must be a finite number at least 1, got 0.5"),
        ({"offline_rows": (0,)}, "different whole numbers from 1 to"),
        ({"horizon": 5, "num_states": 5}, "at most 4096, got 33554432"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_line(changes, message):
    with pytest.raises(ValueError, match=message):
        episodic.EpisodicConfig(**changes)
