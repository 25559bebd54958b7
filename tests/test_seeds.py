"""Beside other seeds in one program a run sees what it sees alone."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_td3bc import one

from experiments import driver, profiles
from roid_jax import replay, training
from roid_jax.agents import base
from roid_jax.checkpoint import without_key_types as plain

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def problems():
    config = profiles.find("roid", "hopper-medium-v2", "smoke")
    return [
        driver.make_problem("roid", "hopper", "embedded:hopper-medium", seed, config)
        for seed in SEEDS
    ]


def watching_agent(action_dim):
    """Learns nothing, and reports its keys and the rows that it would have learned from."""

    def act(key, state, memory, obs, *, explore):
        return jax.random.uniform(key, (len(obs), action_dim), minval=-1.0), memory, {}

    def look(key, state, dataset, memory=None):
        found = {"key": jax.random.key_data(key)}
        found["logged"] = replay.sample_dataset(key, dataset, 8, holdout=50)[1]
        if memory is not None:
            found["lived"] = replay.sample(key, memory, 8)[0]
        return state, found

    return base.Agent(
        init=lambda key, dataset: jnp.zeros(()),
        act=act,
        offline_update=lambda key, step, state, dataset: look(key, state, dataset),
        online_update=lambda key, step, state, memory, dataset: look(key, state, dataset, memory),
    )


def beside(problems, run, keys, states):
    """Runs all seeds in one program; the logged rows are shared, their order is each one's own."""
    order = jnp.stack([problem.dataset.order for problem in problems])
    dataset = replay.Dataset(rows=problems[0].dataset.rows, order=order)
    axes = replay.Dataset(rows=None, order=0)
    return jax.vmap(run, in_axes=(0, 0, None, axes))(keys, states, 0, dataset)


def stack(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def begin_online(problem, agent, state):
    return training.begin_online(problem.key("begin"), agent, state, problem.env, capacity=60)


def test_a_seed_has_the_same_keys_data_and_resets_beside_others(problems):
    agent = watching_agent(problems[0].env.spec.action_dim)
    # 60 random steps are several falls, so resets are among what is compared.
    phases = {
        "pretrain": (training.make_pretrain(agent, length=60), lambda problem: jnp.zeros(())),
        "online": (
            training.make_online(agent, problems[0].env, length=60, learn=True),
            lambda problem: begin_online(problem, agent, jnp.zeros(())),
        ),
    }
    for name, (run, start) in phases.items():
        keys = jnp.stack([problem.key(name) for problem in problems])
        together = beside(problems, run, keys, stack([start(problem) for problem in problems]))
        for i, problem in enumerate(problems):
            alone = run(problem.key(name), start(problem), 0, problem.dataset)
            mine = one(plain(together), i)
            chex.assert_trees_all_equal(mine, plain(alone))
        if name == "online":
            assert np.all(np.sum(together[1].is_last, axis=(1, 2)) >= 2)


def test_a_seed_learns_the_same_beside_others(problems):
    agent = problems[0].agent
    offline = training.make_pretrain(agent, length=40)
    starts = [driver.begin(problem).state for problem in problems]
    keys = jnp.stack([problem.key("pretrain") for problem in problems])
    together, _ = beside(problems, offline, keys, stack(starts))
    states = []
    for i, problem in enumerate(problems):
        state, _ = offline(problem.key("pretrain"), starts[i], 0, problem.dataset)
        mine = one(together, i)
        chex.assert_trees_all_close(mine, state, rtol=1e-3, atol=1e-5)
        states.append(agent.handover(problem.key("handover"), state, problem.dataset))
    online = training.make_online(agent, problems[0].env, length=20, learn=True)
    starts = [begin_online(*pair) for pair in zip(problems, [agent] * 3, states, strict=True)]
    keys = jnp.stack([problem.key("online") for problem in problems])
    together, _ = beside(problems, online, keys, stack(starts))
    for i, problem in enumerate(problems):
        state, _ = online(problem.key("online"), starts[i], 0, problem.dataset)
        mine = one(together.agent, i)
        chex.assert_trees_all_close(mine, state.agent, rtol=1e-3, atol=1e-5)
