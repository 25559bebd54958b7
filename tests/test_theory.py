import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import selection
from roid_jax.linear import mdp as mdps
from roid_jax.linear import posterior, theory

HORIZON, DIM, EPISODES = 3, 5, 40


@pytest.fixture
def history():
    """Offline rows, online rows and Gram matrices of an invented run, in double precision."""
    rng = np.random.default_rng(0)
    rows = np.array([4, 7, 30])
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
    online = unit(rng.normal(size=(HORIZON, EPISODES, DIM)) * np.linspace(1, 0.2, DIM))
    offline = [unit(rng.normal(size=(n, DIM))) for n in rows]
    before = np.stack([np.eye(DIM) + x.T @ x for x in offline])
    after = before + np.einsum("htd,hte->hde", online, online)
    return rows, online, before, after


def test_the_reference_constant_is_4_h_d_over_log_2():
    assert theory.reference_ratio_constant(horizon=2, dim=3) == pytest.approx(24 / np.log(2))


def test_step_4_of_the_constants_proof_holds_where_the_theory_wants_it():
    """x <= (2 / log 2) 1/2 log(1 + x) on [0, 1], and not beyond: noise 0.05 is outside."""
    inside = np.linspace(0, 1, 1001)
    assert np.all(inside <= np.log1p(inside) / np.log(2) + 1e-12)
    assert np.log1p(400) / np.log(2) < 400


@pytest.mark.parametrize("double", [False, True])
def test_gains_telescope_to_the_log_determinant(history, double):
    _, online, before, after = history
    with jax.enable_x64(double):
        tolerance = 1e-10 if double else 1e-5
        gained = 0.0
        for h in range(HORIZON):
            # The offline part enters as a square root of its Gram matrix: rows L' of L L'.
            rows = jnp.asarray(np.linalg.cholesky(before[h] - np.eye(DIM) * 0.999).T, float)
            state = posterior.warm_start(rows, jnp.zeros(DIM), precision=0.999, noise=1.0)
            for feature in jnp.asarray(online[h], float):
                seen = posterior.project(state, feature[None])
                gained += posterior.information_gain(seen)[0]
                state = posterior.condition(state, seen.root[0], jnp.zeros(()))
        expected = theory.residual_information(jnp.asarray(before), jnp.asarray(after))
        np.testing.assert_allclose(gained, expected, rtol=tolerance)
        exact = 0.5 * np.sum(np.linalg.slogdet(after)[1] - np.linalg.slogdet(before)[1])
        np.testing.assert_allclose(expected, exact, rtol=tolerance)


@pytest.mark.parametrize("double", [False, True])
def test_the_trace_bound_is_the_sum_of_leverages(history, double):
    _, online, before, _ = history
    leverage = np.einsum("htd,hde,hte->h", online, np.linalg.inv(before), online)
    with jax.enable_x64(double):
        visitation = jnp.asarray(np.einsum("htd,hte->hde", online, online) / EPISODES)
        ours = theory.trace_bound(jnp.asarray(before), visitation, episodes=EPISODES)
        np.testing.assert_allclose(ours, leverage, rtol=1e-10 if double else 1e-5)


@pytest.mark.parametrize("double", [False, True])
def test_two_draws_are_twice_the_dimension_apart(history, double):
    _, _, before, _ = history
    with jax.enable_x64(double):
        gram = jnp.asarray(before[0])
        moment = theory.second_moment(gram, jnp.linalg.inv(gram))
        np.testing.assert_allclose(moment, 2 * DIM, rtol=1e-10 if double else 1e-5)
    rng = np.random.default_rng(1)
    root = np.linalg.cholesky(np.linalg.inv(before[0]))
    difference = (rng.normal(size=(200_000, DIM)) - rng.normal(size=(200_000, DIM))) @ root.T
    sampled = np.einsum("nd,de,ne->n", difference, before[0], difference)
    assert abs(sampled.mean() - 2 * DIM) < 4 * sampled.std() / np.sqrt(len(sampled))


def test_both_branches_lie_above_the_log_determinant(history):
    rows, online, before, after = (jnp.asarray(x) for x in history)
    visitation = jnp.einsum("htd,hte->hde", online, online) / EPISODES
    exact = theory.log_determinant_ratio(before, after)
    assert np.all(exact <= theory.elliptical_potential(before, episodes=EPISODES))
    trace = theory.trace_bound(before, visitation, episodes=EPISODES)
    assert np.all(exact <= trace)
    per_stage, dagger = theory.coverage(before, visitation, rows)
    assert np.all(trace <= EPISODES * DIM * per_stage / rows * (1 + 1e-5))
    np.testing.assert_allclose(
        jnp.sum(EPISODES * DIM * per_stage / rows),
        EPISODES * DIM * HORIZON * dagger / jnp.sum(rows),
        rtol=1e-5,
    )


def test_coverage_is_the_definition(history):
    rows, online, before, _ = history
    visitation = np.einsum("htd,hte->hde", online, online) / EPISODES
    per_stage = []
    for h in range(HORIZON):
        values, vectors = np.linalg.eigh(before[h] / rows[h])
        half = vectors @ np.diag(values**-0.5) @ vectors.T
        per_stage.append(np.linalg.eigvalsh(half @ visitation[h] @ half)[-1])
    ours, dagger = theory.coverage(jnp.asarray(before), jnp.asarray(visitation), jnp.asarray(rows))
    np.testing.assert_allclose(ours, per_stage, rtol=1e-4)
    expected = rows.sum() / HORIZON * np.sum(np.array(per_stage) / rows)
    np.testing.assert_allclose(dagger, expected, rtol=1e-4)


def test_the_master_bound_by_hand():
    bound = theory.master_bound(2.0, episodes=10, ratio=3.0, eta=0.1, horizon=4, failure=0.01)
    assert bound == pytest.approx(np.sqrt(10 * 3 * (2 + 1)) + 4 * 10 * 0.01)


def test_the_slack_covers_what_eta_adds_to_the_master_bound():
    for eta in (0.0, 0.01, 1.0):
        whole = theory.master_bound(2.0, episodes=10, ratio=3.0, eta=eta)
        apart = theory.master_bound(2.0, episodes=10, ratio=3.0)
        slack = theory.eta_slack(episodes=10, ratio=3.0, eta=eta)
        assert whole <= apart + slack + 1e-5
        assert slack == pytest.approx(10 * np.sqrt(3 * eta), rel=1e-6)


def test_the_two_branches_by_hand(history):
    rows, online, before, _ = history
    visitation = np.einsum("htd,hte->hde", online, online) / EPISODES
    arguments = jnp.asarray(before), jnp.asarray(visitation), jnp.asarray(rows)
    elliptical, covered = theory.two_branch_bound(*arguments, episodes=EPISODES, eta=0.2)
    constant = 4 * HORIZON * DIM / np.log(2)
    smallest = np.linalg.eigvalsh(before)[:, 0]
    rate = np.mean(np.log1p(EPISODES / (DIM * smallest)))
    slack = EPISODES * np.sqrt(constant * 0.2)
    expected = np.sqrt(EPISODES * constant * HORIZON * DIM * rate / 2) + slack
    np.testing.assert_allclose(elliptical, expected, rtol=1e-4)
    dagger = float(theory.coverage(*arguments)[1])
    expected = np.sqrt(EPISODES**2 * constant * HORIZON * DIM * dagger / (2 * rows.sum())) + slack
    np.testing.assert_allclose(covered, expected, rtol=1e-4)


def test_values_differ_by_no_more_than_the_value_difference_bound():
    mdp = mdps.draw_mdp(jax.random.key(0), horizon=3, states=3, actions=2, dim=4)
    rng = np.random.default_rng(2)
    for policy in mdps.list_policies(horizon=3, states=3, actions=2)[::50]:
        visits = mdps.visits(mdp, jax.nn.one_hot(jnp.array(policy), 2))
        difference = jnp.asarray(rng.normal(size=(3, 4)), float)
        gap = jnp.einsum("hou,oud,hd->", visits, mdp.features, difference)
        bound = theory.value_difference_bound(visits, mdp.features, difference)
        assert abs(gap) <= bound * (1 + 1e-6)


def test_the_certificate_compares_the_three_ratios():
    regret, information = jnp.array([0.0066, 0.8, 0.15]), jnp.array([0.0, 0.04, 0.04])
    matching = jnp.array([0.9934, 0.0066, 0.0])
    certificate = theory.ratio_certificate(
        regret, information, matching, etas=jnp.array([0.0, 0.1])
    )
    expected = [(matching @ regret) ** 2 / (matching @ information + eta) for eta in (0.0, 0.1)]
    np.testing.assert_allclose(certificate.reference, jnp.stack(expected), rtol=1e-5)
    for i, eta in enumerate((0.0, 0.1)):
        scores = selection.ids_score(regret, information, eta=eta)
        np.testing.assert_allclose(certificate.single[i], jnp.min(scores), rtol=1e-6)
    assert np.all(certificate.mixed <= np.minimum(certificate.single, certificate.reference) + 1e-9)
