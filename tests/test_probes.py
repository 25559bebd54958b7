import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import evaluation
from roid_jax.envs import probes

KEYS = jax.random.split(jax.random.key(0), 64)


def play(name, action, steps=3):
    env = probes.make(name)
    state = env.reset(KEYS)
    states = []
    for _ in range(steps):
        chosen = action(state.obs)
        before, state = state, env.step(state, chosen)
        states.append((before.obs[:, 0], chosen[:, 0], state))
    return states


def test_constant_always_pays_one_and_ends():
    for _, _, state in play("constant", jnp.zeros_like):
        np.testing.assert_array_equal(state.reward, 1.0)
        assert np.all(state.terminated) and not np.any(state.truncated)


def test_observation_pays_what_was_seen():
    for obs, _, state in play("observation", jnp.zeros_like):
        np.testing.assert_array_equal(state.reward, obs)
        assert {-1.0, 1.0} == set(np.unique(obs))


def test_delayed_pays_on_the_second_step_only():
    states = play("delayed", jnp.zeros_like, steps=4)
    np.testing.assert_array_equal([s.reward[0] for _, _, s in states], [0, 1, 0, 1])
    np.testing.assert_array_equal([bool(s.terminated[0]) for _, _, s in states], [0, 1, 0, 1])
    np.testing.assert_array_equal([obs[0] for obs, _, _ in states], [0, 1, 0, 1])


@pytest.mark.parametrize("name", ["action", "both"])
def test_the_best_action_pays_one_and_any_other_less(name):
    best = lambda obs: probes.PROBES[name].best_action(obs)  # noqa: E731
    for _, _, state in play(name, best):
        np.testing.assert_allclose(state.reward, 1.0)
    for _, _, state in play(name, lambda obs: best(obs) + 0.3):
        np.testing.assert_allclose(state.reward, 0.91, rtol=1e-5)


def test_observations_are_fresh_every_episode_and_the_same_every_time():
    first, second = (np.stack([obs for obs, _, _ in play("both", jnp.zeros_like, 8)]) for _ in "ab")
    np.testing.assert_array_equal(first, second)
    assert 0.3 < np.mean(first > 0) < 0.7
    assert not np.array_equal(first[0], first[1])


def test_an_unknown_probe_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown probe 'x'; choose from constant, observation"):
        probes.make("x")


def test_evaluation_counts_each_episode_once():
    env = probes.make("delayed")
    policy = lambda key, memory, obs: (jnp.zeros_like(obs), memory)  # noqa: E731
    seen = evaluation.evaluate(jax.random.key(0), env, policy, (), episodes=5)
    np.testing.assert_array_equal(seen.returns, 1.0)
    np.testing.assert_array_equal(seen.lengths, 2)
    assert np.all(seen.finished)
