"""Rollouts of a policy as a recording: whole episodes, from a batch of environments."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roid_jax.data.d4rl import Recording
from roid_jax.envs.base import Environment, require_sound
from roid_jax.types import Array, Key

Policy = Callable[[Key, Any, Array], Array]  # (key, state, [B, O] obs) -> [B, U] action

_CHUNK = 500  # steps in one compiled call
_STREAM = 10_000  # rows that one environment should have at least, so that few ends are left over


def record(
    key: Key,
    env: Environment,
    policy: Policy,
    state: Any,
    *,
    rows: int,
    max_envs: int = 64,
    report: Callable[[int, str], None] = lambda steps, score: None,
) -> Recording:
    """Returns at least `rows` rows of whole episodes, one environment's after another's.

    Each environment goes on until the first end of an episode after its share of the rows, which
    favours neither short episodes nor long ones.

    Args:
      key: from it come the resets and the policy's random numbers.
      env: the environment.
      policy: `(key, state, [B, O] obs) -> [B, U] action`.
      state: handed to the policy.
      rows: how many, at least.
      max_envs: environments to step together, at most.
      report: told the number of new rows, and the mean return so far, as they come.
    """
    num_envs = int(np.clip(rows // _STREAM, 1, max_envs))
    share = -(-rows // num_envs)
    key_reset, key_act = jax.random.split(key)
    roll = _make_roll(env, policy)
    env_state = jax.jit(env.reset)(jax.random.split(key_reset, num_envs))
    chunks: list[dict[str, np.ndarray]] = []
    while True:
        start = jnp.int32(len(chunks) * _CHUNK)
        env_state, chunk = roll(key_act, env_state, start, state)
        chunks.append(jax.device_get(chunk))
        require_sound(env, chunks[-1]["rewards"])
        is_last = np.concatenate([chunk["is_last"] for chunk in chunks])
        returns = np.concatenate([chunk["episode_return"] for chunk in chunks])[is_last]
        report(_CHUNK * num_envs, f"return {returns.mean():.0f}" if returns.size else "")
        is_enough = is_last & (np.arange(len(is_last)) + 1 >= share)[:, None]
        if np.all(np.any(is_enough, axis=0)):
            break
    columns = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    return _recording(columns, stops=np.argmax(is_enough, axis=0) + 1)


def _make_roll(env: Environment, policy: Policy) -> Callable:
    """Returns a compiled `(key, env_state, start, state) -> env_state, columns` over a chunk."""

    def roll(key: Key, env_state: Any, start: Array, state: Any):
        def step(env_state: Any, t: Array):
            action = policy(jax.random.fold_in(key, t), state, env_state.obs)
            after = env.step(env_state, action)
            return after, {
                "observations": env_state.obs,
                "actions": action,
                "rewards": after.reward,
                "terminals": after.terminated,
                "timeouts": after.truncated,
                "next_observations": after.last_obs,
                "episode_return": after.episode_return,
                "is_last": after.is_last,
            }

        return jax.lax.scan(step, env_state, start + jnp.arange(_CHUNK))

    return jax.jit(roll)


def _recording(columns: dict[str, np.ndarray], stops: np.ndarray) -> Recording:
    """Returns the first `stops[i]` rows of environment i, one after another."""

    def join(name: str) -> np.ndarray:
        return np.concatenate([columns[name][:stop, i] for i, stop in enumerate(stops)])

    fields = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
    return Recording(**{name: join(name) for name in fields})
