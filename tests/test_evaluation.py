import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import evaluation
from roid_jax.envs import mujoco_c, probes


def still(key, memory, obs):
    """Does nothing, and counts how often it was asked."""
    del key
    return jnp.zeros((*obs.shape[:-1], 3)), memory + 1


@pytest.fixture(scope="module")
def seen():
    env = mujoco_c.make("hopper")
    run = jax.jit(lambda key: evaluation.evaluate(key, env, still, jnp.array(0), episodes=4))
    return run(jax.random.key(1))


def test_returns_are_those_of_first_episodes_by_plain_stepping(seen):
    env = mujoco_c.make("hopper")
    key_reset, _ = jax.random.split(jax.random.key(1))
    state = env.reset(jax.random.split(key_reset, 4))
    returns, lengths = np.full(4, np.nan), np.zeros(4)
    step = jax.jit(env.step)
    for _ in range(1000):
        state = step(state, jnp.zeros((4, 3)))
        ended = np.asarray(state.is_last) & np.isnan(returns)
        returns[ended] = np.asarray(state.episode_return)[ended]
        lengths[ended] = np.asarray(state.episode_length)[ended]
        if not np.any(np.isnan(returns)):
            break
    np.testing.assert_allclose(seen.returns, returns, rtol=1e-6)
    np.testing.assert_array_equal(seen.lengths, lengths)
    assert np.all(seen.finished)


def test_a_policy_is_told_what_its_action_brought():
    env = probes.make("delayed")

    def ask(key, memory, obs):
        jax.debug.callback(lambda x: seen.append(float(x[0])), memory, ordered=False)
        return jnp.zeros_like(obs), memory

    seen = []
    told = {"remember": lambda memory, reward: memory + 1.0 + reward}
    evaluation.evaluate(jax.random.key(0), env, ask, jnp.zeros(2), episodes=2, **told)
    jax.effects_barrier()
    assert sorted(seen) == [0.0, 1.0]  # the second step brings 1, and nobody acts after it


def test_scores_are_0_for_random_and_100_for_expert_returns():
    for task, (random, expert) in evaluation.REFERENCE_RETURNS.items():
        scores = evaluation.normalised_score(task, np.array([random, expert]))
        np.testing.assert_allclose(scores, [0.0, 100.0], atol=1e-6)
    assert evaluation.normalised_score("hopper", 1422.1) == pytest.approx(44.3, abs=0.05)


def test_a_task_without_references_is_refused_in_one_line():
    with pytest.raises(ValueError, match="no reference returns for 'ant'; there are for hopper"):
        evaluation.normalised_score("ant", 1.0)
