"""What every agent's tests need: its programs, logged data, and a whole run in a probe."""

import jax
import jax.numpy as jnp
import numpy as np

from roid_jax import replay, training
from roid_jax.data import prepare
from roid_jax.data.d4rl import Recording
from roid_jax.envs import probes


def compiled(agent):
    """The agent with each of its functions as one program: one by one, operations take longer."""
    names = ("init", "offline_update", "handover", "online_update")
    programs = {name: jax.jit(getattr(agent, name)) for name in names if getattr(agent, name)}
    return agent._replace(**programs, act=jax.jit(agent.act, static_argnames="explore"))


def logged(name, number=2000, return_discount=None):
    """Random actions in a probe, as a dataset."""
    env = probes.make(name)
    rng = np.random.default_rng(0)
    state = env.reset(jax.random.split(jax.random.key(0), 64))
    columns = []
    step = jax.jit(env.step)
    while 64 * len(columns) < number:
        action = jnp.asarray(rng.uniform(-1, 1, (64, 1)), jnp.float32)
        after = step(state, action)
        columns.append((state.obs, action, after.reward, after.terminated, after.truncated))
        state = after
    # One environment after another, so that episodes are whole.
    joined = [np.stack(column, axis=1) for column in zip(*columns, strict=True)]
    joined = [column.reshape(-1, *column.shape[2:]) for column in joined]
    rows = prepare.transitions(Recording(*joined), return_discount=return_discount)
    return env, replay.make_dataset(jax.random.key(1), replay.Layout(1, 1), rows)


def run(make, config, name, *, offline=0, warmup=50, online=0):
    """Returns an agent and its state after both phases in a probe, and the world."""
    env = probes.make(name)
    agent = make(config, env.spec)
    _, dataset = logged(name, return_discount=agent.return_discount)
    keys = jax.random.split(jax.random.key(0), 5)
    state = jax.tree.map(jnp.copy, jax.jit(agent.init)(keys[0], dataset))
    if offline:
        state, _ = training.make_pretrain(agent, length=offline)(keys[1], state, 0, dataset)
    if not online:
        return agent, state, env
    state = jax.jit(agent.handover)(keys[2], state, dataset)
    lived = training.begin_online(keys[3], agent, state, env, capacity=2000)
    for start, length, learn in ((0, warmup, False), (warmup, online, True)):
        chunk = training.make_online(agent, env, length=length, learn=learn)
        lived, _ = chunk(keys[4], lived, start, dataset)
    return agent, lived.agent, env


def observations(name):
    """Every first observation of a probe, `[B, 1]`."""
    return jnp.array([[-1.0], [1.0]]) if probes.PROBES[name].varies else jnp.array([[0.0]])


def assert_acts_well(agent, state, name, *, within=0.15):
    """Fails unless the policy does the best thing, where there is one."""
    obs = observations(name)
    best = probes.PROBES[name].best_action(obs)
    if best is not None:
        memory = jax.vmap(agent.begin_episode)(jax.random.split(jax.random.key(0), len(obs)))
        action, _, _ = agent.act(jax.random.key(1), state, memory, obs, explore=False)
        np.testing.assert_allclose(action, best, atol=within)


def first_value(name, gamma=0.9):
    """What the first observations are worth where no action matters, `[B]`; None elsewhere."""
    known = {"constant": 1.0, "observation": observations(name)[:, 0], "delayed": gamma}
    return known.get(name)
