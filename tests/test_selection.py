import functools
import itertools

import chex
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from roid_jax import selection
from roid_jax.selection import ids_mixture, ids_score
from roid_jax.types import Beliefs

KEY = jax.random.key(0)
FINITE = st.just(0.0) | st.floats(2.0**-20, 8.0, width=32)


def make_beliefs(values, information, weights=None):
    values = jnp.asarray(values, float)
    draws = values.shape[0]
    weights = jnp.full(draws, 1.0 / draws) if weights is None else jnp.asarray(weights, float)
    information = jnp.asarray(information, float)
    return selection.beliefs_from_draws(values, jnp.max(values, axis=1), weights, information)


def two_mode(p):
    """The hidden-mode bandit's beliefs, written out."""
    entropy = -p * np.log(p) - (1 - p) * np.log1p(-p)
    values = [[1.0, 0.2, 0.85], [1.0, 2.0, 1.85]]
    return make_beliefs(values, [0.0, entropy, entropy], [1 - p, p])


# --- the score


def test_score_is_squared_regret_over_information_plus_eta():
    score = ids_score(jnp.array([0.2, 0.3]), jnp.array([0.1, 0.4]), eta=0.1)
    np.testing.assert_allclose(score, [0.04 / 0.2, 0.09 / 0.5], rtol=1e-6)


def test_ids_0_probes_where_the_default_teaches_nothing():
    regret, information = jnp.array([0.0066, 0.15]), jnp.array([0.0, 0.0397])
    assert jnp.argmin(ids_score(regret, information, eta=0.0)) == 1
    assert jnp.argmin(ids_score(regret, information, eta=0.01)) == 0


def test_at_eta_0_no_information_is_infinite_or_zero_as_the_regret_is():
    score = ids_score(jnp.array([0.1, 0.0, 0.1, 0.0]), jnp.array([0.0, 0.0, 1.0, 1.0]), eta=0.0)
    np.testing.assert_allclose(score, [np.inf, 0.0, 0.01, 0.0], rtol=1e-6)


@pytest.mark.parametrize("noise", [1e-13, -1e-13, -1e-7, -1e-30])
def test_noise_within_the_tolerance_or_below_zero_is_none(noise):
    score = functools.partial(ids_score, eta=0.0)
    assert score(jnp.array([noise]), jnp.array([0.0]))[0] == 0.0
    assert score(jnp.array([0.1]), jnp.array([noise]))[0] == jnp.inf
    assert score(jnp.array([noise]), jnp.array([noise]))[0] == 0.0


def test_more_than_the_tolerance_is_not_noise():
    assert ids_score(jnp.array([1e-9]), jnp.array([0.0]), eta=0.0)[0] == jnp.inf
    assert jnp.isfinite(ids_score(jnp.array([0.1]), jnp.array([1e-9]), eta=0.0)[0])


def test_score_takes_scalars_and_batches():
    assert ids_score(jnp.array(0.2), jnp.array(0.1), eta=0.1).shape == ()
    assert ids_score(jnp.ones((2, 3, 4)), jnp.ones((2, 3, 4)), eta=0.1).shape == (2, 3, 4)


def test_score_refuses_unequal_shapes():
    with pytest.raises(AssertionError):
        ids_score(jnp.ones(3), jnp.ones((3, 1)), eta=0.1)


@hypothesis.given(
    st.lists(FINITE, min_size=4, max_size=4), st.lists(FINITE, min_size=4, max_size=4)
)
def test_score_falls_with_eta(regret, information):
    regret, information = jnp.array(regret), jnp.array(information)
    etas = (0.0, 1e-3, 0.1, 1.0)
    scores = np.stack([ids_score(regret, information, eta=eta) for eta in etas])
    assert np.all(scores[:-1] >= scores[1:])


# --- expected regret


@hypothesis.given(st.integers(0, 2**31 - 1), st.floats(1e-3, 1e4))
def test_a_candidate_best_under_every_draw_has_exactly_no_regret(seed, scale):
    values = scale * jax.random.normal(jax.random.key(seed), (7, 5))
    values = values.at[:, 2].set(jnp.max(values, axis=1) + 0.1 * scale)
    weights = jax.nn.softmax(jax.random.normal(jax.random.key(seed + 1), (7,)))
    assert selection.expected_regret(make_beliefs(values, jnp.zeros(5), weights))[2] == 0.0


def test_expected_regret_weighs_the_draws():
    regret = selection.expected_regret(two_mode(0.25))
    np.testing.assert_allclose(regret, [0.25, 0.8 * 0.75, 0.15], rtol=1e-6)


def test_draws_that_reach_beyond_the_candidates_count_in_full():
    beliefs = make_beliefs([[1.0, 2.0]], [0.0, 0.0]).replace(best=jnp.array([5.0]))
    np.testing.assert_allclose(selection.expected_regret(beliefs), [4.0, 3.0])


# --- the mixture


find_mixture = jax.jit(ids_mixture)


def brute_force_ratio(regret, information, eta, grid=2001):
    """The smallest ratio over all pairs and a fine grid of weights, in double precision."""
    best = np.inf
    weights = np.linspace(0.0, 1.0, grid)
    for i, j in itertools.product(range(len(regret)), repeat=2):
        delta = regret[i] + weights * (regret[j] - regret[i])
        gain = information[i] + weights * (information[j] - information[i]) + eta
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(gain > 0, delta**2 / gain, np.where(delta > 0, np.inf, 0.0))
        best = min(best, ratio.min())
    return best


def mixture_ratio(regret, information, eta):
    first, second, weight = map(np.asarray, find_mixture(regret, information, eta=eta))
    regret, information = np.asarray(regret, np.float64), np.asarray(information, np.float64)
    delta = (1 - weight) * regret[first] + weight * regret[second]
    gain = (1 - weight) * information[first] + weight * information[second] + eta
    return delta**2 / gain if gain > 0 else (np.inf if delta > 0 else 0.0)


@hypothesis.given(
    st.lists(FINITE, min_size=6, max_size=6),
    st.lists(FINITE, min_size=6, max_size=6),
    st.sampled_from([0.0, 0.01, 0.5]),
)
def test_no_mixture_beats_the_one_found(regret, information, eta):
    ours = mixture_ratio(jnp.array(regret), jnp.array(information), eta)
    theirs = brute_force_ratio(np.array(regret), np.array(information), eta)
    assert ours <= theirs * (1 + 1e-4) + 1e-9


@hypothesis.given(st.integers(0, 2**31 - 1))
def test_no_mixture_of_many_candidates_beats_the_one_found(seed):
    rng = np.random.default_rng(seed)
    angles = np.sort(rng.uniform(0, np.pi / 2, 40))  # on an arc: every candidate is on the hull
    regret, information = 1.1 - np.cos(angles), np.sin(angles)
    ours = mixture_ratio(jnp.array(regret), jnp.array(information), 0.0)
    assert ours <= brute_force_ratio(regret, information, 0.0, grid=401) * (1 + 1e-4)


def test_the_mixture_probes_as_often_as_the_closed_form_says():
    p = 0.00661
    beliefs = two_mode(p)
    regret = selection.expected_regret(beliefs)
    first, second, weight = ids_mixture(regret, beliefs.information, eta=0.0)
    assert (int(first), int(second)) == (0, 2)
    np.testing.assert_allclose(weight, p / (0.15 - p), rtol=1e-5)


def test_a_mixture_of_equals_is_the_first_of_them():
    first, second, _ = ids_mixture(jnp.full(4, 0.3), jnp.full(4, 0.2), eta=0.1)
    assert (int(first), int(second)) == (0, 0)


def test_randomised_ids_draws_with_the_mixtures_probability():
    beliefs = two_mode(0.05)  # probes with probability .05 / (.15 - .05) = 1/2
    rule = selection.make_rule("ids_randomised", eta=0.0)
    chosen = jax.vmap(rule, (0, None))(jax.random.split(KEY, 4000), beliefs)
    assert set(np.unique(chosen)) == {0, 2}
    np.testing.assert_allclose(np.mean(np.asarray(chosen) == 2), 0.5, atol=4 * 0.5 / 4000**0.5)


# --- the rules

CONSTANTS = {
    "boltzmann": {"temperature": 1.0},
    "greedy": {},
    "ids": {"eta": 0.1},
    "ids_randomised": {"eta": 0.1},
    "thompson": {},
    "ucb": {"scale": 1.0},
}


@functools.cache
def compiled(name, **constants):
    return jax.jit(selection.make_rule(name, **(constants or CONSTANTS[name])))


def test_every_rule_is_tested_here():
    assert set(CONSTANTS) == set(selection.RULES)


@pytest.mark.parametrize(
    "p, greedy, ucb, ids", [(0.377, 2, 1, 2), (0.182, 2, 2, 2), (0.0066, 0, 0, 2)]
)
def test_rules_on_the_hidden_mode_bandit(p, greedy, ucb, ids):
    beliefs = two_mode(p)
    assert selection.greedy(KEY, beliefs) == greedy
    assert selection.ucb(KEY, beliefs, scale=1.0) == ucb
    assert selection.ids(KEY, beliefs, eta=0.0) == ids


def test_thompson_takes_each_draws_favourite_as_often_as_the_draw_is_likely():
    beliefs = two_mode(0.3)
    chosen = jax.vmap(selection.thompson, (0, None))(jax.random.split(KEY, 4000), beliefs)
    assert not np.any(np.asarray(chosen) == 2)
    np.testing.assert_allclose(np.mean(chosen), 0.3, atol=4 * (0.21 / 4000) ** 0.5)
    np.testing.assert_allclose(selection.thompson_mixture(beliefs), [0.7, 0.3, 0.0], rtol=1e-6)


def test_boltzmann_draws_in_proportion_to_the_exponential_of_the_mean():
    beliefs = make_beliefs([[0.0, np.log(3.0)]], [0.0, 0.0])
    rule = selection.make_rule("boltzmann", temperature=1.0)
    chosen = jax.vmap(rule, (0, None))(jax.random.split(KEY, 4000), beliefs)
    np.testing.assert_allclose(np.mean(chosen), 0.75, atol=4 * (0.1875 / 4000) ** 0.5)


@pytest.mark.parametrize("name", ["greedy", "ids", "ids_randomised", "thompson", "ucb"])
def test_ties_go_to_the_anchor(name):
    beliefs = make_beliefs(jnp.ones((3, 5)), jnp.full(5, 0.2))
    assert selection.make_rule(name, **CONSTANTS[name])(KEY, beliefs) == 0


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_one_candidate_leaves_no_choice(name):
    beliefs = make_beliefs([[1.0], [2.0]], [0.3])
    assert selection.make_rule(name, **CONSTANTS[name])(KEY, beliefs) == 0


@pytest.mark.parametrize("eta", [0.0, 0.1])
def test_a_dominated_candidate_is_never_taken(eta):
    """Less information and more regret than candidate 0 in every respect."""
    values = jnp.array([[3.0, 1.0, 2.5], [2.0, 0.5, 2.1]])
    beliefs = make_beliefs(values, [0.3, 0.1, 0.4])
    for name in ("ids", "ids_randomised"):
        rule = selection.make_rule(name, eta=eta)
        assert not np.any(
            np.asarray(jax.vmap(rule, (0, None))(jax.random.split(KEY, 50), beliefs)) == 1
        )


def test_with_no_information_anywhere_ids_takes_the_least_regret():
    values = jnp.array([[1.0, 3.0, 2.0], [1.0, 3.0, 2.5]])
    beliefs = make_beliefs(values, jnp.zeros(3))
    assert selection.ids(KEY, beliefs, eta=0.5) == 1
    assert selection.ids(KEY, beliefs, eta=0.0) == 1  # its regret is exactly 0, the others infinite


def draw_beliefs(seed, candidates=5):
    key_values, key_information = jax.random.split(jax.random.key(seed))
    values = jax.random.normal(key_values, (6, candidates))
    return make_beliefs(values, jax.random.exponential(key_information, (candidates,)))


def scaled(beliefs, factor):
    return beliefs.replace(
        values=factor * beliefs.values,
        best=factor * beliefs.best,
        mean=factor * beliefs.mean,
        deviation=factor * beliefs.deviation,
    )


@hypothesis.given(st.integers(0, 2**31 - 1), st.sampled_from([1e-30, 1e-15, 1e-3, 1e3, 1e15, 1e30]))
def test_the_unit_of_reward_does_not_change_the_choice(seed, factor):
    beliefs = draw_beliefs(seed)
    for name in ("greedy", "ids", "ids_randomised", "thompson", "ucb"):
        rule = compiled(name)
        assert rule(KEY, beliefs) == rule(KEY, scaled(beliefs, factor)), name


@hypothesis.given(st.integers(0, 2**31 - 1), st.sampled_from([1e-6, 0.1, 7.0, 1e6]))
def test_at_eta_0_the_unit_of_information_does_not_change_the_choice(seed, factor):
    beliefs = draw_beliefs(seed)
    other = beliefs.replace(information=factor * beliefs.information)
    rule = compiled("ids", eta=0.0)
    assert rule(KEY, beliefs) == rule(KEY, other)


@hypothesis.given(st.integers(0, 2**31 - 1), st.permutations(range(5)))
def test_renaming_the_candidates_renames_the_choice(seed, order):
    beliefs = draw_beliefs(seed)
    order = np.array(order)
    renamed = beliefs.replace(
        values=beliefs.values[:, order],
        mean=beliefs.mean[order],
        deviation=beliefs.deviation[order],
        information=beliefs.information[order],
    )
    for name in ("greedy", "ids", "ucb", "thompson"):
        rule = compiled(name)
        assert order[rule(KEY, renamed)] == rule(KEY, beliefs), name


@hypothesis.given(st.integers(0, 2**31 - 1))
def test_a_larger_eta_never_takes_a_larger_regret(seed):
    beliefs = draw_beliefs(seed)
    regret = selection.expected_regret(beliefs)
    taken = [float(regret[compiled("ids", eta=eta)(KEY, beliefs)]) for eta in (0.0, 0.1, 1.0, 1e4)]
    assert taken == sorted(taken, reverse=True)
    assert taken[-1] == float(jnp.min(regret))


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_a_rule_is_traced_once_and_a_batch_chooses_as_each_alone(name):
    rule = selection.make_rule(name, **CONSTANTS[name])
    chex.clear_trace_counter()

    @jax.jit
    @chex.assert_max_traces(n=1)
    def together(keys, beliefs):
        return jax.vmap(rule)(keys, beliefs)

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(draw_beliefs, range(3)))
    keys = jax.random.split(KEY, 3)
    together(keys[::-1], stacked)
    alone = [compiled(name)(key, draw_beliefs(i)) for i, key in enumerate(keys)]
    np.testing.assert_array_equal(together(keys, stacked), alone)


def test_an_unknown_selector_is_named_with_the_known_ones():
    with pytest.raises(
        ValueError, match="unknown selector 'idz'; choose from boltzmann, greedy, ids"
    ):
        selection.make_rule("idz")


def test_beliefs_hold_what_the_draws_say():
    beliefs = make_beliefs([[1.0, 2.0], [3.0, 2.0]], [0.0, 0.1], [0.25, 0.75])
    assert isinstance(beliefs, Beliefs)
    np.testing.assert_allclose(beliefs.mean, [2.5, 2.0])
    np.testing.assert_allclose(beliefs.deviation, [np.sqrt(0.25 * 2.25 + 0.75 * 0.25), 0.0])
