import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import selection
from roid_jax.agents import selector
from roid_jax.agents.selector import SelectorConfig


def reference(values, wide, scale, eta, q_max):
    """The paper's Section 6 in NumPy: which candidate, its regret and its information."""
    values, wide = np.clip(values, -q_max, q_max), np.clip(wide, -q_max, q_max)
    best = [max(row) for row in wide]
    regret = np.array(
        [
            sum(best[k] - values[k][m] for k in range(len(values))) / len(values)
            for m in range(values.shape[1])
        ]
    )
    information = np.array(
        [0.5 * np.log(1 + scale * np.mean((column - np.mean(column)) ** 2)) for column in values.T]
    )
    scores = []
    for delta, gain in zip(regret, information, strict=True):
        if gain + eta <= 1e-12:
            scores.append(0.0 if delta <= 1e-12 else np.inf)
        else:
            scores.append(delta**2 / (gain + eta))
    return int(np.argmin(scores)), regret, information


def take(values, wide, scale, config, seed=0):
    beliefs = selector.make_beliefs(jnp.asarray(values), jnp.asarray(wide), scale, config)
    return selector._take(jax.random.key(seed), beliefs, jnp.array(0), config), beliefs


@pytest.mark.parametrize("eta", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("q_max", [0.7, 1e4])
def test_ids_is_the_papers_rule(eta, q_max, double_precision):
    rng = np.random.default_rng(0)
    config = SelectorConfig(eta=eta, q_max=q_max, candidates=6, wide_candidates=12)
    for _ in range(50):
        wide = rng.normal(size=(4, 12))
        scale = float(rng.uniform(0.1, 3.0))
        index, beliefs = take(wide[:, :6], wide, scale, config)
        expected, regret, information = reference(wide[:, :6], wide, scale, eta, q_max)
        np.testing.assert_allclose(selection.expected_regret(beliefs), regret, atol=1e-12)
        np.testing.assert_allclose(beliefs.information, information, atol=1e-12)
        assert int(index) == expected


def test_where_every_value_is_clipped_the_anchor_is_taken():
    config = SelectorConfig(eta=0.05, q_max=10.0)
    wide = 100.0 + jax.random.uniform(jax.random.key(0), (10, 256))
    index, beliefs = take(wide[:, :64], wide, 1.0, config)
    assert index == 0
    assert float(selection.expected_regret(beliefs).max()) == 0.0


def test_with_eta_0_a_candidate_that_teaches_nothing_and_costs_something_is_never_taken():
    config = SelectorConfig(eta=0.0, candidates=2, wide_candidates=2)
    values = jnp.array([[1.0, 0.0], [1.0, 3.0]])  # the first is certain, the second is not
    index, _ = take(values, values, 1.0, config)
    assert index == 1


def test_the_first_candidate_is_the_anchor_and_all_lie_in_the_box():
    config = SelectorConfig(candidate_noise=0.5)
    anchor = jnp.array([0.9, -0.2])
    found = selector.propose(jax.random.key(0), anchor, 500, config)
    np.testing.assert_array_equal(found[0], anchor)
    assert np.abs(found).max() == 1.0
    np.testing.assert_allclose(np.std(found[:, 1]), 0.5, atol=0.05)


@pytest.mark.parametrize("kind", ["match", "one", "fit"])
def test_calibration(kind, double_precision):
    rng = np.random.default_rng(1)
    values, residual = rng.normal(size=(5, 400)) * rng.uniform(0.5, 2, 400), rng.normal(size=400)
    alpha, noise = selector.calibrate(jnp.asarray(values), jnp.asarray(residual), kind=kind)
    variance = values.var(axis=0)
    np.testing.assert_allclose(noise, residual.var())
    if kind == "match":
        np.testing.assert_allclose(np.mean(alpha * variance / noise), 1.0)
    elif kind == "one":
        assert alpha == 1.0
    else:
        slope, *_ = np.linalg.lstsq(variance[:, None], residual**2)
        np.testing.assert_allclose(alpha, slope[0])


def choose(config, seed=0, member=0):
    table = jax.random.normal(jax.random.key(9), (4, 2))

    def evaluate(actions):
        return table @ actions.T

    return selector.choose(
        jax.random.key(seed), jnp.array([0.1, 0.2]), jnp.array(member), evaluate, 1.0, config
    )


def test_greedy_is_the_anchor_with_noise():
    config = SelectorConfig(name="greedy", execution_noise=0.0)
    choice = choose(config)
    np.testing.assert_allclose(choice.action, [0.1, 0.2], rtol=1e-6)
    assert choice.metrics["off_anchor"] == 0.0
    noisy = jnp.stack([choose(SelectorConfig(name="greedy"), seed).action for seed in range(200)])
    np.testing.assert_allclose(noisy.std(axis=0), 0.1, atol=0.02)


def test_thompson_of_an_episode_follows_its_member():
    config = SelectorConfig(name="thompson_episode", execution_noise=0.0)
    table = jax.random.normal(jax.random.key(9), (4, 2))
    for member in range(4):
        choice = choose(config, member=member)
        wide = selector.propose(
            jax.random.split(jax.random.key(0), 4)[0], jnp.array([0.1, 0.2]), 256, config
        )[:64]
        best = wide[jnp.argmax(wide @ table[member])]
        np.testing.assert_allclose(choice.action, best, rtol=1e-6)


@pytest.mark.parametrize("name", selector.SELECTORS)
@pytest.mark.parametrize("nested", [True, False])
def test_every_selector_gives_an_action_in_the_box_and_what_to_watch(name, nested):
    choice = choose(SelectorConfig(name=name, nested=nested))
    assert np.all(np.abs(choice.action) <= 1.0)
    for number in choice.metrics.values():
        assert np.isfinite(number)


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "best"), ("eta", -1.0), ("candidates", 0), ("candidates", 300), ("q_max", 0.0)],
)
def test_a_wrong_setting_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        SelectorConfig(**{field: value})


@pytest.mark.parametrize("kind", ["match", "one", "fit"])
def test_members_that_agree_everywhere_leave_nothing_to_learn(kind):
    values, residual = jnp.full((4, 6), 1e3), jnp.linspace(-1.0, 1.0, 6)
    alpha, noise = selector.calibrate(values, residual, kind=kind)
    scale = selector.information_scale(alpha, noise)
    assert np.isfinite(alpha) and np.isfinite(scale)
    np.testing.assert_array_equal(selector.information_gain(values, scale), 0.0)
    assert selector.information_scale(jnp.ones(()), jnp.zeros(())) == 0.0
