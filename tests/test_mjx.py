import functools
import importlib.util
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from roid_jax.envs import mjx, physics, tasks

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mujoco.mjx") is None, reason="the extra `mjx` is not installed"
)

STEPS, SIZE = 20, 8
# Compiling MJX takes longer than all else here, so each task is compiled once, under one physics.
PHYSICS = {"hopper": "d4rl", "walker2d": "stock", "halfcheetah": "d4rl"}
# What MJX in float32 and the C engine may differ by in an observation, after one step and after
# STEPS steps; at least three times what was seen over 64 environments. A cheetah soon multiplies
# any rounding, so for it the second is of the median environment.
TOLERANCES = {"hopper": (1e-4, 2e-4), "walker2d": (1e-3, 3e-3), "halfcheetah": (3e-3, 1e-2)}


@functools.cache
def world(name):
    """An environment and its compiled scan: (state, `[T, B, U]`) -> states before and after."""
    env = mjx.make(name, physics=PHYSICS[name])

    def step(state, action):
        after = env.step(state, action)
        return after, (state, after)

    return env, jax.jit(lambda state, actions: jax.lax.scan(step, state, actions)[1])


def play(name, *, seed=0, **changes):
    """STEPS random steps of SIZE environments: their actions, and states before and after each."""
    env, scan = world(name)
    key_reset, key_action = jax.random.split(jax.random.key(seed))
    shape = (STEPS, SIZE, env.spec.action_dim)
    actions = jax.random.uniform(key_action, shape, minval=-1.0, maxval=1.0)
    start = env.reset(jax.random.split(key_reset, SIZE)).replace(**changes)
    return jax.device_get((actions, *scan(start, actions)))


class Engine:
    """One simulation on the C engine."""

    def __init__(self, name, kind):
        self.task = tasks.find(name)
        self.model = physics.load(self.task, physics=kind)
        self.data = mujoco.MjData(self.model)

    def put(self, qpos, qvel):
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        mujoco.mj_forward(self.model, self.data)

    def step(self, action):
        """Returns observation, reward, whether it ended, and whether anything touches."""
        task, data, x = self.task, self.data, self.data.qpos[0]
        data.ctrl[:] = action
        mujoco.mj_step(self.model, data, nstep=task.frame_skip)
        seconds = self.model.opt.timestep * task.frame_skip
        reward = tasks.reward(np, task, data.qpos[0] - x, seconds, action)
        obs = tasks.observe(np, task, data.qpos, data.qvel)
        return obs, reward, tasks.is_terminated(np, task, data.qpos, data.qvel), data.ncon > 0


def one_step_errors(name, kind, played):
    """`[T, B]` error in observation of each step, and in reward, and whether it had contact."""
    engine = Engine(name, kind)
    actions, before, after = played
    errors = np.empty((3, STEPS, SIZE))
    for t, i in np.ndindex(STEPS, SIZE):
        engine.put(before.physics.qpos[t, i], before.physics.qvel[t, i])
        obs, reward, _, touches = engine.step(actions[t, i])
        errors[0, t, i] = np.abs(obs - after.last_obs[t, i]).max()
        errors[1:, t, i] = abs(reward - after.reward[t, i]), touches
    return errors


@pytest.mark.parametrize("name", sorted(PHYSICS))
def test_every_step_is_the_c_engines_under_the_same_physics_and_only_that(name):
    played = play(name)
    own = PHYSICS[name]
    (other,) = set(physics.PHYSICS) - {own}
    error, reward_error, touches = one_step_errors(name, own, played)
    assert 0.2 < touches.mean() < 0.95, "in contact and in flight"
    assert max(error.max(), reward_error.max()) < TOLERANCES[name][0]
    assert np.median(one_step_errors(name, other, played)[0]) > 10 * error.max()


@pytest.mark.parametrize("name", sorted(PHYSICS))
def test_an_episodes_first_steps_are_the_c_engines_within_tolerance(name):
    actions, before, after = play(name, seed=1)
    engine, errors = Engine(name, PHYSICS[name]), []
    for i in range(SIZE):
        engine.put(before.physics.qpos[0, i], before.physics.qvel[0, i])
        for t in range(STEPS):
            obs, _, terminated, _ = engine.step(actions[t, i])
            assert terminated == after.terminated[t, i]
            error = np.abs(obs - after.last_obs[t, i]).max()
            if terminated:
                break
        errors.append(error)
    worst = np.median(errors) if name == "halfcheetah" else np.max(errors)
    assert worst < TOLERANCES[name][1]


@pytest.mark.parametrize("kind", physics.PHYSICS)
@pytest.mark.parametrize("name", sorted(PHYSICS))
def test_masses_inertias_and_margins_arrive_on_the_device(name, kind):
    model = physics.load(tasks.find(name), physics=kind)
    on_device = mjx._import_mjx().put_model(model, impl="jax")
    for field in ("body_mass", "body_inertia", "body_ipos", "body_iquat", "geom_margin"):
        np.testing.assert_allclose(getattr(on_device, field), getattr(model, field), rtol=1e-6)


def test_an_ended_episode_keeps_its_last_observation_and_the_next_begins_at_rest():
    _, before, after = play("hopper")
    ended = after.terminated
    assert 3 < ended.sum() < ended.size / 2 and not after.truncated.any()
    np.testing.assert_array_equal(after.last_obs[~ended], after.obs[~ended])
    height, angle = after.last_obs[..., 0], after.last_obs[..., 1]
    np.testing.assert_array_equal(ended, (height <= 0.7) | (np.abs(angle) >= 0.2))
    rest = np.concatenate([physics.load(tasks.find("hopper"), physics="d4rl").qpos0[1:], [0.0] * 6])
    noise = np.abs(after.obs[ended] - rest)
    assert noise.max() <= 0.005 + 1e-6 and noise.std() > 1e-3
    np.testing.assert_array_equal(after.physics.qacc[ended], 0.0)
    np.testing.assert_array_equal(after.episode - before.episode, ended)
    follows = ended[:-1]
    np.testing.assert_array_equal(after.episode_length[1:][follows], 1)
    np.testing.assert_array_equal(after.episode_return[1:][follows], after.reward[1:][follows])


def test_a_new_episode_depends_on_key_and_number_and_not_on_what_went_before():
    env, scan = world("hopper")
    start = env.reset(jax.random.split(jax.random.key(5), SIZE))
    other = start.replace(episode_length=start.episode_length + 990)  # ends within STEPS for sure
    actions = jnp.zeros((STEPS, SIZE, 3))
    firsts = []
    for state in (other, other.replace(episode_length=other.episode_length - 5)):
        _, after = jax.device_get(scan(state, actions))
        when = after.is_last.argmax(axis=0)
        firsts.append((when, after.obs[when, np.arange(SIZE)]))
    assert (firsts[0][0] < firsts[1][0]).all(), "other lengths"
    np.testing.assert_array_equal(firsts[0][1], firsts[1][1])
    assert len(np.unique(firsts[0][1], axis=0)) == SIZE


def test_a_time_limit_truncates_and_does_not_terminate():
    _, _, after = play("halfcheetah", episode_length=jnp.full((SIZE,), 990, jnp.int32))
    assert not after.terminated.any()
    np.testing.assert_array_equal(np.flatnonzero(after.truncated.all(axis=1)), [9])
    assert after.truncated.sum() == SIZE
    assert after.episode_length[9, 0] == 1000 and after.episode_length[10, 0] == 1
    assert not np.array_equal(after.last_obs[9], after.obs[9])
    np.testing.assert_array_equal(after.last_obs[10:], after.obs[10:])


def test_a_batch_steps_as_each_alone_also_under_vmap():
    env, _ = world("halfcheetah")
    actions, before, after = play("halfcheetah")
    alone = jax.jit(jax.vmap(env.step))
    pick = lambda tree, t: jax.tree.map(lambda x: x[t, :2, None], tree)  # noqa: E731
    for t in range(STEPS):
        single = alone(pick(before, t), actions[t, :2, None])
        np.testing.assert_allclose(single.last_obs[:, 0], after.last_obs[t, :2], atol=1e-3)


class Policy(nn.Module):
    """A small tanh policy."""

    action_dim: int

    @nn.compact
    def __call__(self, obs):
        return nn.tanh(nn.Dense(self.action_dim)(nn.relu(nn.Dense(32)(obs))))


def lower_for_cuda(function, *arguments):
    """What a GPU would be given, as text; made without one."""
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


def many(env):
    """Shapes of 4096 environments."""
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 4096))
    return jax.eval_shape(env.reset, keys)


def test_a_step_lowers_for_a_gpu_in_full_precision():
    env, _ = world("halfcheetah")
    text = lower_for_cuda(env.step, many(env), jnp.zeros((4096, 6)))
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert products and all("precision = [HIGHEST, HIGHEST]" in line for line in products)


def test_a_rollout_of_a_policy_lowers_for_a_gpu_without_callbacks():
    env, _ = world("hopper")
    policy = Policy(env.spec.action_dim)
    weights = policy.init(jax.random.key(0), jnp.zeros((1, env.spec.obs_dim)))

    def rollout(weights, state):
        def step(state, _):
            return env.step(state, policy.apply(weights, state.obs)), state.reward

        return jax.lax.scan(step, state, length=1000)

    assert "callback" not in lower_for_cuda(rollout, weights, many(env))


def test_without_the_extra_one_line_says_what_would_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco.mjx", None)
    with pytest.raises(ValueError, match=r"no module mujoco\.mjx\); `pip install roid_jax\[mjx\]`"):
        mjx.make("hopper")


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown task 'ant'; choose from hopper, walker2d"):
        mjx.make("ant")
    with pytest.raises(ValueError, match="unknown physics 'mine'; choose from d4rl, stock"):
        mjx.make("hopper", physics="mine")


def test_making_a_world_prints_nothing(capsys):
    mjx.make("hopper")
    assert capsys.readouterr().out == ""
