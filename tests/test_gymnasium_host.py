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


NOTHING = np.zeros(1, np.float32)
STUCK = RuntimeError("the arm is\nstuck")


class Wordless(Exception):
    """Fails where it should say what is wrong."""

    def __str__(self):
        raise KeyboardInterrupt


class Frail(gymnasium.Env):
    """Rises by what is done, never ends an episode, and breaks where it is told to."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, breaks_at=None, error=STUCK, reward=1.0, last=NOTHING):
        self.breaks_at, self.error, self.reward = breaks_at, error, reward
        self.last, self.count = last, 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        if self.count == self.breaks_at:
            raise self.error
        return self.last.copy(), self.reward, False, False, {}


@pytest.fixture
def frail():
    gymnasium.register("Frail-v0", Frail)
    yield "Frail-v0"
    gymnasium.registry.pop("Frail-v0")


def play(env, steps, action=0.5):
    def step(state, _):
        state = env.step(state, jnp.full((1, 1), action))
        return state, (state.reward[0], state.is_last[0])

    keys = jax.random.split(jax.random.key(0), 1)
    return jax.jit(lambda keys: jax.lax.scan(step, env.reset(keys), length=steps))(keys)[1]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (STUCK, "RuntimeError: the arm is stuck"),
        (SystemExit("no licence"), "SystemExit: no licence"),
        (KeyboardInterrupt(), "KeyboardInterrupt:"),
        (Wordless(), "Wordless: (its words cannot be had)"),
        (RuntimeError("\x1b[31mred" + "o" * 10_000), "RuntimeError: [31mred" + "o" * 992),
    ],
)
def test_an_error_in_an_environment_is_a_reward_that_is_no_number_and_a_line_that_says_why(
    frail, error, said
):
    env = gymnasium_host.make(frail, breaks_at=4, error=error)
    assert env.fault() is None
    reward, is_last = play(env, 10)
    np.testing.assert_array_equal(np.isnan(reward), np.arange(10) >= 3)
    assert not is_last[2] and is_last[3], "nobody waits for the end of its episode"
    assert env.fault() == said


def test_an_action_that_is_no_number_does_not_reach_an_environment(frail):
    env = gymnasium_host.make(frail)
    reward, _ = play(env, 2, action=jnp.nan)
    assert np.all(np.isnan(reward)) and "was given the action [nan]" in env.fault()


@pytest.mark.filterwarnings("ignore")  # Gymnasium's
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"last": np.array([np.nan])}, "its observation was [nan]"),
        ({"last": np.array([1e300])}, "its observation was [inf]"),  # in 32 bits
        ({"last": np.zeros(2)}, "its observation has the shape (2,), not (1,)"),
        ({"reward": -np.inf}, "its reward was -inf"),
        ({"reward": (1.0, 2.0)}, "its reward has the shape (2,), not ()"),
    ],
)
def test_what_an_environment_gives_is_numbers_or_a_line_that_says_what_it_was(frail, given, said):
    env = gymnasium_host.make(frail, **given)
    reward, _ = play(env, 3)
    assert np.all(np.isnan(reward)) and env.fault() == f"ValueError: {said}"


@pytest.mark.parametrize(
    ("error", "said"),
    [(KeyError("no such robot"), "KeyError: 'no such robot'"), (SystemExit(3), "SystemExit: 3")],
)
def test_an_environment_that_cannot_be_made_is_told_in_one_line(error, said):
    def make():
        raise error

    gymnasium.register("Unmade-v0", make)
    with pytest.raises(ValueError, match=f"cannot make 'Unmade-v0': {said}"):
        gymnasium_host.make("Unmade-v0")
    gymnasium.registry.pop("Unmade-v0")


def test_an_episode_that_would_never_end_is_cut(frail, monkeypatch):
    monkeypatch.setattr(gymnasium_host, "LONGEST_EPISODE", 5)
    env = gymnasium_host.make(frail)
    assert env.spec.max_steps == 5
    np.testing.assert_array_equal(np.flatnonzero(play(env, 12)[1]), [4, 9])


class Reuser(Frail):
    """Gives the same array every time, and changes it."""

    def reset(self, *, seed=None, options=None):
        self.last[:] = 0.0
        return self.last, {}

    def step(self, action):
        self.last += 1.0
        return self.last, 0.0, False, self.last[0] == 3.0, {}


@pytest.mark.filterwarnings("ignore")  # Gymnasium's
def test_the_last_observation_of_an_episode_is_not_the_first_of_the_next():
    gymnasium.register("Reuser-v0", Reuser)
    env = gymnasium_host.make("Reuser-v0", last=np.zeros(1, np.float32))
    state = env.reset(jax.random.split(jax.random.key(0), 1))
    seen = []
    for _ in range(4):
        state = env.step(state, jnp.zeros((1, 1)))
        seen.append((float(state.last_obs[0, 0]), float(state.obs[0, 0])))
    gymnasium.registry.pop("Reuser-v0")
    assert seen == [(1.0, 1.0), (2.0, 2.0), (3.0, 0.0), (1.0, 1.0)]
