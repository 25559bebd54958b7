"""The loops: scans over agents and environments, in chunks; they know neither files nor algorithms.

Keys come from the number of the step, never from the carry, so that neither resuming nor the length
of a chunk changes a number. Between chunks the host evaluates, logs and saves.
"""

from collections.abc import Callable, Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp

from roid_jax import compiler, episodes
from roid_jax import replay as memory_of
from roid_jax.agents.base import Agent
from roid_jax.envs.base import Environment, EnvState
from roid_jax.types import Array, Key, Transitions


@chex.dataclass(frozen=True)
class Online:
    """Everything that changes while an agent acts and learns.

    agent: its state.
    env: B environments, in mid-episode.
    memory: what the agent remembers within each episode, leaves `[B, ...]`.
    replay: what it lived through.
    """

    agent: Any
    env: EnvState
    memory: Any
    replay: memory_of.Replay


# What seeds that run side by side do not share: all but how full their memories are.
ONLINE_AXES = Online(agent=0, env=0, memory=0, replay=memory_of.Replay(rows=0, count=None))


@chex.dataclass(frozen=True)
class Log:
    """What a chunk of T steps of B environments reports.

    metrics: `[T]` each number that the agent reports, step by step.
    episode_return: `[T, B]` return of the episode, up to and with each step.
    is_last: `[T, B]` whether the step ended its episode.
    """

    metrics: dict[str, Array]
    episode_return: Array
    is_last: Array


def chunks(
    start: int, stop: int, *, chunk: int, warmup: int = 0
) -> Iterator[tuple[int, int, bool]]:
    """Yields the first step and the length of each compiled call, and whether it learns.

    A call never crosses the end of the warm-up.
    """
    while start < stop:
        end = min(start + chunk, stop, warmup if start < warmup else stop)
        yield start, end - start, start >= warmup
        start = end


def make_pretrain(agent: Agent, *, length: int) -> Callable:
    """Returns a compiled `(run_key, state, start, dataset) -> state, metrics` over `length` steps.

    `start` is the number of the first step; each of the metrics is `[T]`, step by step. The state
    is given away: its buffers are used again. Inside another `jit` it is `compiler.plain` of this.
    """

    def step(run_key: Key, dataset: Any, state: Any, t: Array) -> tuple[Any, dict[str, Array]]:
        return agent.offline_update(jax.random.fold_in(run_key, t), t, state, dataset)

    def chunk(run_key: Key, state: Any, start: Array, dataset: Any) -> tuple[Any, dict[str, Array]]:
        return jax.lax.scan(
            lambda state, t: step(run_key, dataset, state, t), state, start + jnp.arange(length)
        )

    return compiler.jit(chunk, donate=1)


def begin_online(
    key: Key, agent: Agent, state: Any, env: Environment, *, capacity: int, num_envs: int = 1
) -> Online:
    """Returns the start of an online run, with an empty replay."""
    key_env, key_memory = jax.random.split(key)
    start = Online(
        agent=state,
        env=env.reset(jax.random.split(key_env, num_envs)),
        memory=jax.vmap(agent.begin_episode)(jax.random.split(key_memory, num_envs)),
        replay=memory_of.init(_layout(env), capacity),
    )
    return jax.tree.map(jnp.copy, start)  # a buffer that two leaves share cannot be given away


def make_online(agent: Agent, env: Environment, *, length: int, learn: bool) -> Callable:
    """Returns a compiled `(run_key, online, start, dataset) -> online, log` over `length` steps.

    `start` is the number of the first step. Without `learn` the agent only acts, as in its warm-up.
    The first argument that changes, `online`, is given away: its buffers are used again. Inside
    another `jit` it is `compiler.plain` of this.
    """

    def step(run_key: Key, dataset: Any, online: Online, t: Array) -> tuple[Online, Any]:
        key_act, key_memory, key_update = jax.random.split(jax.random.fold_in(run_key, t), 3)
        act = agent.act if learn or agent.warmup_act is None else agent.warmup_act
        action, memory, metrics = act(
            key_act, online.agent, online.memory, online.env.obs, explore=True
        )
        env_state = env.step(online.env, action)
        memory = agent.remember(memory, env_state.reward)
        replay = memory_of.add(online.replay, _row(env, online.env, action, env_state))
        if agent.credits:
            how = {"discount": agent.return_discount, "longest": env.spec.max_steps}
            replay = episodes.credit(replay, _layout(env), number=len(action), **how)
        online = online.replace(
            env=env_state,
            memory=_begin_again(key_memory, agent, memory, env_state.is_last),
            replay=replay,
        )
        if learn:
            state, learned = agent.online_update(
                key_update, t, online.agent, online.replay, dataset
            )
            online, metrics = online.replace(agent=state), {**metrics, **learned}
        return online, (metrics, env_state.episode_return, env_state.is_last)

    def chunk(run_key: Key, online: Online, start: Array, dataset: Any) -> tuple[Online, Log]:
        steps = start + jnp.arange(length)
        online, (metrics, episode_return, is_last) = jax.lax.scan(
            lambda online, t: step(run_key, dataset, online, t), online, steps
        )
        return online, Log(metrics=metrics, episode_return=episode_return, is_last=is_last)

    return compiler.jit(chunk, donate=1)


def _layout(env: Environment) -> memory_of.Layout:
    return memory_of.Layout(env.spec.obs_dim, env.spec.action_dim)


def _row(env: Environment, before: EnvState, action: Array, after: EnvState) -> Array:
    """Returns `[B, R]` what the step was, packed for the replay."""
    return _layout(env).pack(
        Transitions(
            obs=before.obs,
            action=action,
            reward=after.reward,
            discount=1.0 - after.terminated,
            next_obs=after.last_obs,
            place=after.episode_length - 1,
            episode=before.episode,
        )
    )


def _begin_again(key: Key, agent: Agent, memory: Any, is_last: Array) -> Any:
    """Returns the memory, begun afresh where an episode ended."""
    fresh = jax.vmap(agent.begin_episode)(jax.random.split(key, len(is_last)))

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(is_last.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, fresh, memory)
