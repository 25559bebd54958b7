import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax.envs import base, gymnasium_host


def test_a_registered_environment_runs_inside_a_scan_as_gymnasium_runs_it():
    """Pendulum: bounds of -2 and 2, which our -1 and 1 stand for, and 200 steps an episode."""
    env = gymnasium_host.make("Pendulum-v1")
    assert (env.spec.obs_dim, env.spec.action_dim, env.spec.max_steps) == (3, 1, 200)
    keys = jax.random.split(jax.random.key(0), 2)
    actions = jax.random.uniform(jax.random.key(1), (210, 2, 1), minval=-1.0, maxval=1.0)

    def step(state, action):
        state = env.step(state, action)
        return state, (state.last_obs, state.reward, state.truncated)

    run = jax.jit(lambda keys, actions: jax.lax.scan(step, env.reset(keys), actions))
    _, (obs, reward, truncated) = run(keys, actions)
    for i in range(2):
        theirs = gymnasium.make("Pendulum-v1")
        theirs.reset(seed=int(base._seeds(keys[i : i + 1], jnp.array([0]))[0]))
        for t in range(200):
            expected = theirs.step(2.0 * np.asarray(actions[t, i]))
            np.testing.assert_allclose(obs[t, i], expected[0], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(reward[t, i], expected[1], rtol=1e-5, atol=1e-5)
        assert expected[3]
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(truncated)[:, 0]), [199])


@pytest.mark.parametrize(
    "env_id, message",
    [
        ("CartPole-v1", "needs a flat Box action space, it has Discrete"),
        ("NoSuchThing-v0", "Gymnasium cannot make 'NoSuchThing-v0'"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(env_id, message):
    with pytest.raises(ValueError, match=message):
        gymnasium_host.make(env_id)
