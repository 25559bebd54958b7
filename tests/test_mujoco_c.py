import pathlib

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax.data import d4rl
from roid_jax.envs import base, mujoco_c, physics, recorded, tasks

IDS = {"hopper": "Hopper-v4", "walker2d": "Walker2d-v4", "halfcheetah": "HalfCheetah-v4"}
STEPS = 1000


@pytest.fixture(scope="module", params=sorted(IDS))
def name(request):
    return request.param


def rollout(env, state, actions):
    """Scans over `[T, B, U]` actions; returns the last state and what happened, `[T, B, ...]`."""

    def step(state, action):
        state = env.step(state, action)
        return state, (state.last_obs, state.obs, state.reward, state.terminated, state.truncated)

    return jax.jit(lambda state, actions: jax.lax.scan(step, state, actions))(state, actions)


def gymnasium_rollout(task_id, key, actions):
    """The same environment by Gymnasium, reset with the seeds our episodes have."""
    physics.mute()
    with pytest.warns(DeprecationWarning):
        env = gymnasium.make(task_id)
    episode, seen = 0, []
    seed = lambda: int(base._seeds(key[None], jnp.array([episode]))[0])  # noqa: E731
    obs, _ = env.reset(seed=seed())
    first = obs.astype(np.float32)
    for action in actions:
        last, reward, terminated, truncated, _ = env.step(action)
        obs = last
        if terminated or truncated:
            episode += 1
            obs, _ = env.reset(seed=seed())
        seen.append((last, obs, reward, terminated, truncated and not terminated))
    env.close()
    columns = (np.array(column) for column in zip(*seen, strict=True))
    return first, [c.astype(np.float32) if c.dtype == np.float64 else c for c in columns]


@pytest.mark.filterwarnings("ignore:.*is out of date.*")
def test_stock_physics_is_gymnasium_bit_for_bit_also_when_saved_in_mid_episode(name):
    env = mujoco_c.make(name, physics="stock")
    keys = jax.random.split(jax.random.key(0), 3)
    shape = (STEPS, 3, env.spec.action_dim)
    actions = jax.random.uniform(jax.random.key(1), shape, minval=-1.0, maxval=1.0)
    start = env.reset(keys)
    half, first = rollout(env, start, actions[: STEPS // 2])
    saved = jax.tree.map(
        lambda x: x, jax.device_get(half.replace(key=jax.random.key_data(half.key)))
    )
    restored = base.EnvState(**saved).replace(key=jax.random.wrap_key_data(saved.key))
    _, rest = rollout(env, restored, actions[STEPS // 2 :])
    ours = [np.concatenate(parts) for parts in zip(first, rest, strict=True)]
    for i in range(3):
        begin, theirs = gymnasium_rollout(IDS[name], keys[i], np.asarray(actions[:, i]))
        np.testing.assert_array_equal(start.obs[i], begin)
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine[:, i], other)
    if name != "halfcheetah":
        assert ours[3].sum() > 10, "episodes ended on the way"


def test_batches_vmaps_and_threads_change_nothing(name):
    env, threaded = mujoco_c.make(name), mujoco_c.make(name, threads=2)
    keys = jax.random.split(jax.random.key(2), 4)
    shape = (60, 4, env.spec.action_dim)
    actions = jax.random.uniform(jax.random.key(3), shape, minval=-1.0, maxval=1.0)
    _, together = rollout(env, env.reset(keys), actions)
    _, other = rollout(threaded, threaded.reset(keys), actions)
    alone = [rollout(env, env.reset(keys[i : i + 1]), actions[:, i : i + 1])[1] for i in range(4)]
    pairs = keys.reshape(2, 2)
    nested = jax.vmap(lambda keys, actions: rollout(env, env.reset(keys), actions)[1], (0, 1))(
        pairs, actions.reshape(60, 2, 2, -1)
    )
    for j, whole in enumerate(together):
        np.testing.assert_array_equal(whole, other[j])
        np.testing.assert_array_equal(whole, np.concatenate([a[j] for a in alone], axis=1))
        flat = np.swapaxes(np.asarray(nested[j]), 0, 1).reshape(whole.shape)
        np.testing.assert_array_equal(whole, flat)


def test_a_time_limit_truncates_and_does_not_terminate():
    env = mujoco_c.make("halfcheetah")
    state = env.reset(jax.random.split(jax.random.key(0), 1))
    state, seen = rollout(env, state, jnp.zeros((1001, 1, 6)))
    terminated, truncated = np.asarray(seen[3])[:, 0], np.asarray(seen[4])[:, 0]
    assert not terminated.any()
    np.testing.assert_array_equal(np.flatnonzero(truncated), [999])
    assert int(state.episode_length[0]) == 1 and int(state.episode[0]) == 1
    assert not np.array_equal(seen[0][999], seen[1][999]), "the last observation is kept"
    np.testing.assert_array_equal(seen[0][998], seen[1][998])


def test_returns_and_lengths_are_those_of_the_episode():
    env = mujoco_c.make("hopper")
    state = env.reset(jax.random.split(jax.random.key(5), 1))
    total, length = 0.0, 0
    for _ in range(200):
        state = env.step(state, jnp.full((1, 3), 0.3))
        total, length = total + float(state.reward[0]), length + 1
        assert float(state.episode_return[0]) == pytest.approx(total, rel=1e-5)
        assert int(state.episode_length[0]) == length
        if state.is_last[0]:
            total, length = 0.0, 0
    assert int(state.episode[0]) > 0, "an episode ended on the way"


def test_physics_differ_and_d4rls_bodies_weigh_what_they_did():
    stock, old = (physics.load(tasks.find("hopper"), physics=kind) for kind in ("stock", "d4rl"))
    np.testing.assert_allclose(stock.body_mass[1:], [3.6652, 4.0579, 2.7814, 5.3156], atol=1e-4)
    np.testing.assert_allclose(old.body_mass[1:], [3.5343, 3.9270, 2.7143, 5.0894], atol=1e-4)
    cheetah = physics.load(tasks.find("halfcheetah"), physics="d4rl")
    assert cheetah.body_mass.sum() == pytest.approx(14.0)


RECORDED = pathlib.Path(__file__).parent.parent.parent / "shared" / "data" / "d4rl"


@pytest.mark.parametrize("task", ["hopper", "halfcheetah"])
def test_d4rl_physics_makes_the_transitions_d4rl_recorded(task):
    path = RECORDED / f"{task}_medium-v2.hdf5"
    if not path.exists():
        pytest.skip(f"the recording {path.name} is not part of the package and not beside it")
    recording = d4rl.read(path, states=True)
    ours, stock = (
        recorded.step_errors(tasks.find(task), recording, kind=kind, most=300)
        for kind in ("d4rl", "stock")
    )
    for in_contact in (False, True):
        assert ours.median(in_contact=in_contact) < 1e-5 < stock.median(in_contact=in_contact)


def test_a_simulation_that_becomes_unstable_is_noticed():
    env = mujoco_c.make("hopper")
    state = env.reset(jax.random.split(jax.random.key(0), 2))
    action = jnp.zeros((2, 3))
    state = env.step(state, action)
    assert np.all(np.isfinite(state.reward)) and env.fault() is None
    words = np.array(state.physics)
    numbers = words.view(np.float64)
    velocities = slice(1 + 6, 1 + 6 + 6)  # after the time and six positions
    numbers[1, velocities] = 1e12  # beyond what MuJoCo takes to be sane
    state = env.step(state.replace(physics=jnp.asarray(words)), action)
    assert np.isfinite(state.reward[0]) and np.isnan(state.reward[1])
    assert "unstable" in env.fault()


def test_an_action_that_is_no_number_is_noticed():
    env = mujoco_c.make("hopper")
    state = env.reset(jax.random.split(jax.random.key(0), 2))
    state = env.step(state, jnp.array([[0.0, 0.0, 0.0], [0.0, jnp.nan, 0.0]]))
    assert np.isfinite(state.reward[0]) and np.isnan(state.reward[1])
    assert env.fault() == "it was given an action that is no number" and env.fault() is None


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown task 'ant'; choose from hopper, walker2d"):
        mujoco_c.make("ant")
    with pytest.raises(ValueError, match="unknown physics 'mine'; choose from d4rl, stock"):
        mujoco_c.make("hopper", physics="mine")
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        mujoco_c.make("hopper", threads=0)
