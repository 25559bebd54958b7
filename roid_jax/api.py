"""The package for one's own scripts: data in, an agent, its two phases, and how good it became.

    agent = roid_jax.make_agent("roid", env.spec)
    dataset = roid_jax.make_dataset(key, recording, agent)
    state = roid_jax.pretrain(key, agent, dataset, steps=10_000)
    online = roid_jax.finetune(key, agent, state, env, dataset, steps=5_000)

`experiments.train` does the same with many seeds, checkpoints and reports.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roid_jax import diagnosis, evaluation, replay, training
from roid_jax.agents import named
from roid_jax.agents.base import Agent
from roid_jax.data import prepare
from roid_jax.data.d4rl import Recording
from roid_jax.envs.base import Environment, Spec, require_sound
from roid_jax.types import Array, Key

Report = Callable[[int, dict[str, float]], None]  # (steps done, means of the last chunk)

_CHUNK = 500


def make_agent(name: str, spec: Spec, config: Any = None) -> Agent:
    """Returns an agent for an environment; with its paper's settings, if none are given."""
    return named.make(name, named.find(name) if config is None else config, spec)


def make_dataset(key: Key, recording: Recording, agent: Agent) -> replay.Dataset:
    """Returns logged data as an agent trains on it."""
    layout = replay.Layout(recording.observations.shape[1], recording.actions.shape[1])
    found = prepare.transitions(recording, return_discount=agent.return_discount)
    rows = jnp.asarray(layout.pack(found))
    return replay.Dataset(rows=rows, order=replay.draw_order(key, len(rows)))


def pretrain(
    key: Key,
    agent: Agent,
    dataset: replay.Dataset,
    *,
    steps: int,
    report: Report = lambda done, metrics: None,
) -> Any:
    """Returns an agent's state after so many offline updates."""
    if agent.offline_update is None:
        raise ValueError("this agent has no offline phase; go online with agent.init's state.")
    key_init, key_steps = jax.random.split(key)
    state = jax.tree.map(jnp.copy, agent.init(key_init, dataset))
    make = functools.cache(lambda length: training.make_pretrain(agent, length=length))
    for start, length, _ in training.chunks(0, steps, chunk=_CHUNK):
        state, metrics = make(length)(key_steps, state, start, dataset)
        report(start + length, _means(metrics))
    return state


def finetune(
    key: Key,
    agent: Agent,
    state: Any,
    env: Environment,
    dataset: replay.Dataset,
    *,
    steps: int,
    capacity: int | None = None,
    report: Report = lambda done, metrics: None,
) -> training.Online:
    """Returns everything after so many online steps: the agent's state, the world, the replay.

    Args:
      key: of the handover, the world and the steps.
      agent: the algorithm; state: the end of its offline phase, which is not changed.
      env: the world, stepped by one environment.
      dataset: what was logged.
      steps: of the environment, the warm-up among them.
      capacity: rows of the replay; as many as steps, if not given.
      report: told how many steps are done, and the means of what there is to watch.
    """
    key_handover, key_begin, key_steps = jax.random.split(key, 3)
    start_state = agent.handover(key_handover, state, dataset)
    size = capacity or steps
    online = training.begin_online(key_begin, agent, start_state, env, capacity=size)
    make = functools.cache(
        lambda length, learn: training.make_online(agent, env, length=length, learn=learn)
    )
    plan = training.chunks(0, steps, chunk=_CHUNK, warmup=agent.warmup_steps)
    for start, length, learn in plan:
        online, log = make(length, learn)(key_steps, online, start, dataset)
        require_sound(env, log.episode_return)
        report(start + length, _means(log.metrics))
    return online


def evaluate(key: Key, agent: Agent, state: Any, env: Environment, *, episodes: int = 10) -> Array:
    """Returns the undiscounted return of each of some episodes, without exploration."""
    key_memory, key_play = jax.random.split(key)

    def policy(key: Key, memory: Any, obs: Array) -> tuple[Array, Any]:
        return agent.act(key, state, memory, obs, explore=False)[:2]

    memory = jax.vmap(agent.begin_episode)(jax.random.split(key_memory, episodes))
    how = {"episodes": episodes, "remember": agent.remember}
    returns = evaluation.evaluate(key_play, env, policy, memory, **how).returns
    if not isinstance(returns, jax.core.Tracer):  # else it is a part of a program
        require_sound(env, returns)
    return returns


def diagnose(
    key: Key, agent: Agent, state: Any, dataset_obs: Array, policy_obs: Array
) -> diagnosis.Diagnosis:
    """Returns what is left to learn, from an agent's online state and `[N, O]` observations."""
    if agent.explain is None:
        raise ValueError("this agent has no ensemble to ask; roid has.")
    ask = jax.jit(agent.explain)
    states = {"dataset": dataset_obs, "policy": policy_obs}
    return diagnosis.diagnose({kind: ask(key, state, obs) for kind, obs in states.items()})


def _means(metrics: dict[str, Array]) -> dict[str, float]:
    return {name: float(np.mean(values)) for name, values in metrics.items()}
