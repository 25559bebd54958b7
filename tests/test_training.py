from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import replay, training
from roid_jax.agents import base
from roid_jax.envs import mujoco_c, probes


def counting_agent(action_dim=1):
    """Counts its updates, remembers the steps of its episode, and acts at random."""

    def act(key, state, memory, obs, *, explore):
        action = jax.random.uniform(key, (len(obs), action_dim), minval=-1.0)
        return action, memory + 1, {}

    def online_update(key, step, state, memory, dataset):
        noise = jax.random.uniform(key)
        return state + noise, {"noise": noise, "seen": memory.count}

    return base.Agent(
        init=lambda key, dataset: jnp.zeros(()),
        act=act,
        online_update=online_update,
        begin_episode=lambda key: jnp.zeros((), jnp.int32),
        warmup_act=base.random_act(action_dim),
    )


def begin(agent, env, num_envs=1, capacity=64):
    state = agent.init(jax.random.key(0), None)
    return training.begin_online(
        jax.random.key(1), agent, state, env, capacity=capacity, num_envs=num_envs
    )


def plain(tree: Any):
    return jax.tree.map(
        lambda leaf: (
            jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        ),
        tree,
    )


@pytest.mark.parametrize(
    "make_env", [lambda: probes.make("delayed"), lambda: mujoco_c.make("hopper")]
)
def test_two_halves_equal_one_whole(make_env):
    env = make_env()
    agent = counting_agent(env.spec.action_dim)
    run = {
        length: training.make_online(agent, env, length=length, learn=True) for length in (20, 40)
    }
    key = jax.random.key(2)
    whole, _ = run[40](key, begin(agent, env), 0, None)
    half, _ = run[20](key, begin(agent, env), 0, None)
    rest, _ = run[20](key, half, 20, None)
    chex.assert_trees_all_equal(plain(whole), plain(rest))


def test_chunks_are_compiled_once():
    chex.clear_trace_counter()
    env = probes.make("both")
    agent = counting_agent()
    traced = agent._replace(online_update=chex.assert_max_traces(agent.online_update, n=1))
    run = training.make_online(traced, env, length=5, learn=True)
    online = begin(agent, env)
    for start in (0, 5, 10):
        online, _ = run(jax.random.key(2), online, start, None)
    assert online.replay.count == 15


def test_what_was_lived_is_what_is_remembered():
    env = probes.make("delayed")
    agent = counting_agent()
    run = training.make_online(agent, env, length=6, learn=True)
    online, log = run(jax.random.key(2), begin(agent, env, num_envs=2), 0, None)
    rows = replay.Layout(1, 1).unpack(online.replay.rows[:12])
    # Two environments side by side, two steps an episode: 0 -> 1, then 1 -> the end with reward 1.
    np.testing.assert_array_equal(rows.obs[:, 0], [0, 0, 1, 1] * 3)
    np.testing.assert_array_equal(rows.reward, [0, 0, 1, 1] * 3)
    np.testing.assert_array_equal(rows.discount, [1, 1, 0, 0] * 3)
    np.testing.assert_array_equal(rows.next_obs[:, 0], 1.0)
    np.testing.assert_array_equal(rows.place, [0, 0, 1, 1] * 3)
    np.testing.assert_array_equal(rows.episode, np.repeat([0, 1, 2], 4))
    np.testing.assert_array_equal(rows.return_to_go, 0.0)  # nobody asked for it
    np.testing.assert_array_equal(log.is_last, [[False, False], [True, True]] * 3)
    np.testing.assert_array_equal(log.episode_return[1::2], 1.0)
    np.testing.assert_array_equal(log.metrics["seen"], [2, 4, 6, 8, 10, 12])


def test_returns_to_go_are_kept_where_an_agent_asks_for_them():
    env = probes.make("delayed")
    agent = counting_agent()._replace(return_discount=0.5, credits=True)
    run = training.make_online(agent, env, length=5, learn=True)
    online, _ = run(jax.random.key(2), begin(agent, env, num_envs=2), 0, None)
    rows = replay.Layout(1, 1).unpack(online.replay.rows[:10])
    np.testing.assert_array_equal(rows.return_to_go, [0.5, 0.5, 1, 1] * 2 + [0, 0])


def test_an_agent_remembers_what_its_action_brought():
    env = probes.make("delayed")
    act, seen = counting_agent().act, []

    def spy(key, state, memory, obs, *, explore):
        jax.debug.callback(lambda x: seen.append(float(x[0])), memory, ordered=True)
        return act(key, state, memory, obs, explore=explore)

    agent = counting_agent()._replace(
        begin_episode=lambda key: jnp.zeros(()),
        remember=lambda memory, reward: memory + 10.0 * (1.0 + reward),
        act=spy,
    )
    run = training.make_online(agent, env, length=4, learn=True)
    run(jax.random.key(2), begin(agent, env), 0, None)
    jax.effects_barrier()
    assert seen == [0.0, 11.0, 0.0, 11.0]


def test_memory_begins_again_with_the_episode():
    env = probes.make("delayed")
    agent = counting_agent()
    memory = []
    run = training.make_online(agent, env, length=1, learn=True)
    online = begin(agent, env)
    for t in range(4):
        online, _ = run(jax.random.key(2), online, t, None)
        memory.append(int(online.memory[0]))
    assert memory == [1, 0, 1, 0]


def test_nothing_is_learned_while_warming_up():
    env = probes.make("both")
    agent = counting_agent()
    run = training.make_online(agent, env, length=4, learn=False)
    online, log = run(jax.random.key(2), begin(agent, env), 0, None)
    assert online.agent == 0.0 and online.replay.count == 4 and log.metrics == {}
