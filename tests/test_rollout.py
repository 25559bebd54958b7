import jax
import jax.numpy as jnp
import numpy as np

from roid_jax import rollout
from roid_jax.data import prepare
from roid_jax.envs import base, mujoco_c, probes


def random_policy(action_dim):
    def policy(key, state, obs):
        return state + jax.random.uniform(key, (len(obs), action_dim), minval=-1.0)

    return policy


def test_every_episode_is_whole_and_there_are_rows_enough():
    env = mujoco_c.make("hopper", threads=2)
    recording = rollout.record(jax.random.key(0), env, random_policy(3), jnp.zeros(()), rows=20_000)
    spans = prepare.episodes(recording)
    assert np.all(spans.is_whole)
    assert 20_000 <= len(recording) < 20_000 + 2 * 1000
    assert np.all(recording.next_observations[:-1] == recording.observations[1:], axis=1).sum() == (
        len(recording) - len(spans.starts)
    )


def test_two_steps_make_an_episode_of_the_delayed_probe():
    env = probes.make("delayed")
    recording = rollout.record(jax.random.key(0), env, random_policy(1), jnp.zeros(()), rows=10)
    assert recording.terminals.tolist() == [False, True] * 5
    assert recording.rewards.tolist() == [0.0, 1.0] * 5


def test_the_same_key_gives_the_same_recording():
    env = probes.make("both")
    one, two, other = (
        rollout.record(jax.random.key(seed), env, random_policy(1), jnp.zeros(()), rows=50)
        for seed in (0, 0, 1)
    )
    assert prepare.digest(one) == prepare.digest(two) != prepare.digest(other)


def coin_world():
    """Episodes of 1 step or of 1000, as a coin falls when they begin."""

    def reset(seed):
        is_long = (seed % 2).astype(jnp.float32)[:, None]
        return is_long, is_long

    def step(is_long, action, length, seed):
        terminated = (is_long[:, 0] == 0) | (length + 1 >= 1000)
        following = jnp.where(terminated[:, None], reset(seed)[1], is_long)
        reward = jnp.ones(len(action))
        return following, following, is_long, reward, terminated, jnp.zeros_like(terminated)

    spec = base.Spec("coin", obs_dim=1, action_dim=1, max_steps=1000)
    return base.make(base.Backend(spec=spec, reset=reset, step=step))


def test_neither_short_nor_long_episodes_are_favoured(monkeypatch):
    monkeypatch.setattr(rollout, "_STREAM", 3000)
    recording = rollout.record(
        jax.random.key(0), coin_world(), random_policy(1), jnp.zeros(()), rows=120_000
    )
    is_long = prepare.returns(recording) > 1
    # A fair coin, and stops that do not look ahead: half of some 260, +- 3 standard deviations.
    assert abs(np.mean(is_long) - 0.5) < 3 * 0.5 / np.sqrt(len(is_long))
