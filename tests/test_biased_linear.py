import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import processes
import pytest

from experiments import suites
from roid_jax.linear import biased_linear, play, posterior

# Means over 40 seeds of an independent implementation, N = 20, 50, 100.
REFERENCE = {
    "default": {
        "greedy": (50.5, 27.6, 0.95),
        "ucb": (6.39, 1.98, 0.26),
        "thompson": (13.9, 6.5, 0.97),
        0.0: (9.08, 3.74, 0.30),
        0.01: (7.63, 2.84, 0.24),
        0.05: (6.05, 2.06, 0.20),
        0.1: (5.75, 3.02, 0.23),
        0.5: (6.79, 6.63, 0.86),
    },
    "one_state": {
        "greedy": (28.0, 7.2, 1.34),
        "ucb": (3.65, 1.16, 0.30),
        "thompson": (6.97, 2.95, 0.58),
        0.0: (4.37, 1.94, 0.24),
        0.01: (3.62, 1.53, 0.20),
        0.05: (2.91, 1.44, 0.30),
        0.1: (2.71, 1.65, 0.52),
        0.5: (4.25, 1.22, 0.53),
    },
}
METHODS = tuple(
    m for m in play.methods_for((0.0, 0.01, 0.05, 0.1, 0.5)) if m.name != "ids_randomised"
)
TINY = suites.BANDITS["smoke"].biased_linear


def totals(seeds, config, methods):
    regret = biased_linear.regret(jnp.asarray(seeds), config=config, methods=tuple(methods))
    return np.asarray(regret).sum(axis=-1, dtype=np.float64)


@pytest.fixture(scope="module", params=["default", "one_state"])
def table(request):
    """Regret [40 seeds, N, method] of a preset."""
    config = suites.BANDITS[request.param].biased_linear
    return request.param, processes.optimised(totals, range(40), config, METHODS)


def cell_name(method):
    return method.name if method.eta is None else method.eta


def test_the_table_has_the_reference_values(table):
    preset, regret = table
    error = regret.std(axis=0, ddof=1) / np.sqrt(len(regret))
    reference = np.array([REFERENCE[preset][cell_name(method)] for method in METHODS]).T
    assert np.sum(np.abs(regret.mean(axis=0) - reference) < 3 * error) >= 21


def test_the_table_has_the_papers_shape(table):
    _, regret = table
    mean, spread = regret.mean(axis=0), regret.std(axis=0, ddof=1)
    at = {cell_name(method): mean[:, j] for j, method in enumerate(METHODS)}
    others = np.delete(mean, 0, axis=1)
    assert np.all(at["greedy"][:2] > 1.5 * others[:2].max(axis=1)), "greedy is worst by far"
    assert np.all(spread[:2, 0] > 0.8 * mean[:2, 0]), "and as wide as it is high"
    assert np.all(at["thompson"][:2] > at[0.0][:2]), "Thompson is worse than vanilla IDS"
    assert np.all(at[0.0][:2] > at[0.05][:2]), "which is worse than a moderate eta"
    assert np.all(mean[2] < 0.5 * mean[0]), "and all is much easier with 100 rows"


def test_the_regret_is_that_of_a_plain_loop_in_double_precision():
    """The same random numbers, the textbook posterior, the rules written out once more."""
    config = dataclasses.replace(TINY, offline_rows=(5, 10), horizon=12)
    methods = (
        play.Method("greedy"),
        play.Method("ucb"),
        play.Method("thompson"),
        play.Method("ids", 0.0),
        play.Method("ids", 0.5),
    )
    seeds = jnp.arange(3, 6)
    ours = np.asarray(biased_linear.regret(seeds, config=config, methods=methods))
    assert np.all(np.any(ours > 0, axis=(0, 1, 3)))  # none of them is right by being always right
    for s, seed in enumerate(seeds):
        key_problem, key_run = jax.random.split(jax.random.key(seed))
        problem = jax.tree.map(
            lambda x: np.asarray(x, np.float64), biased_linear.draw_problem(key_problem, config)
        )
        for i, rows in enumerate(config.offline_rows):
            for j, method in enumerate(methods):
                theirs = plain_loop(key_run, problem, rows, method, config)
                about = f"{seed} {rows} {method}"
                np.testing.assert_allclose(ours[s, i, j], theirs, atol=1e-5, err_msg=about)


def plain_loop(key_run, problem, rows, method, config):
    dim, noise = config.feature_map.feature_dim, config.model_noise
    gram = np.eye(dim) + problem.features[:rows].T @ problem.features[:rows] / noise**2
    target = problem.features[:rows].T @ problem.rewards[:rows] / noise**2
    # Draws depend on which square root of the covariance is used, so start from the same one.
    start = posterior.warm_start(
        jnp.asarray(problem.features[:rows], float),
        jnp.asarray(problem.rewards[:rows], float),
        precision=1.0,
        noise=noise,
    )
    root = np.asarray(start.root, np.float64)
    regret = []
    for t in range(config.horizon):
        key_draw, _, key_take = jax.random.split(jax.random.fold_in(key_run, t), 3)
        covariance = np.linalg.inv(gram)
        mean = problem.arms @ covariance @ target
        variance = np.einsum("md,de,me->m", problem.arms, covariance, problem.arms)
        whitened = np.asarray(
            jax.random.normal(key_draw, (config.posterior_draws, dim)), np.float64
        )
        values = mean + whitened @ (problem.arms @ root).T
        delta = (values.max(axis=1, keepdims=True) - values).mean(axis=0)
        gain = 0.5 * np.log1p(variance / noise**2)
        if method.name == "greedy":
            chosen = np.argmax(mean)
        elif method.name == "ucb":
            chosen = np.argmax(mean + config.ucb_scale * np.sqrt(variance))
        elif method.name == "thompson":
            chosen = np.argmax(values[0])
        else:
            chosen = np.argmin(delta**2 / (gain + method.eta))
        arm = problem.arms[chosen]
        reward = problem.values[chosen] + config.noise * float(jax.random.normal(key_take))
        regret.append(problem.values.max() - problem.values[chosen])
        row = root.T @ arm
        factor = (1 - 1 / np.sqrt(1 + row @ row / noise**2)) / (row @ row)
        root = root - factor * np.outer(root @ row, row)
        gram += np.outer(arm, arm) / noise**2
        target += arm * reward / noise**2
    return regret


def test_fewer_offline_rows_are_the_first_of_more():
    """N = 5 has the same regret whether or not N = 10 is asked for beside it."""
    methods = (play.Method("thompson"), play.Method("ids", 0.1))
    both = totals([0], dataclasses.replace(TINY, offline_rows=(10, 5)), methods)
    other = totals([0], dataclasses.replace(TINY, offline_rows=(5, 10)), methods)
    np.testing.assert_allclose(both[:, ::-1], other, rtol=1e-5, atol=1e-6)


def test_a_seed_does_not_depend_on_its_neighbours_or_on_the_other_methods():
    method = play.Method("ids", 0.5)
    methods = play.methods_for(TINY.etas)
    alone = totals([6], TINY, [method])
    among = totals([4, 5, 6, 7], TINY, methods)
    np.testing.assert_allclose(alone[0, :, 0], among[2, :, methods.index(method)], atol=1e-5)


def test_the_problem_is_the_one_described():
    config = suites.BANDITS["default"].biased_linear
    draw = jax.jit(jax.vmap(lambda key: biased_linear.draw_problem(key, config)))
    problems = draw(jax.random.split(jax.random.key(0), 20))
    assert problems.arms.shape == (20, 256, 128)
    assert problems.features.shape == (20, 100, 128)
    np.testing.assert_allclose(jnp.linalg.norm(problems.arms, axis=-1), 1.0, rtol=1e-5)
    # Rewards are noisy views of the true weights, not of the behaviour's.
    noise = []
    for arms, values, rows, rewards in zip(
        *map(np.asarray, (problems.arms, problems.values, problems.features, problems.rewards)),
        strict=True,
    ):
        weights = np.linalg.lstsq(arms.astype(np.float64), values.astype(np.float64), rcond=None)[0]
        noise.append(rewards - rows @ weights)
    np.testing.assert_allclose(np.std(noise), 0.05, rtol=0.1)


def test_no_offline_rows_is_the_prior():
    config = dataclasses.replace(TINY, offline_rows=(0,))
    assert np.all(np.isfinite(totals([0], config, play.methods_for((0.0,)))))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"noise": -1.0}, "noise must be a finite number at least 0, got -1.0"),
        ({"model_noise": 0.0}, "model_noise must be a finite number at least 1e-06, got 0.0"),
        ({"num_states": 0}, "num_states must be a whole number from 1 to 10000, got 0"),
        ({"action_law": "cauchy"}, "action_law must be one of uniform, normal, got 'cauchy'"),
        ({"offline_rows": (-1,)}, "offline_rows must be different whole numbers from 0 to 100000"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_line(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **changes)
