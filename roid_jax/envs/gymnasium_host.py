"""Any Gymnasium environment with Box observations and actions, a user's own simulator included.

Such an environment keeps its state to itself, so the callback is ordered and the carry only counts.
A run that resumes (`Environment.resume`) cuts the episode it was in and starts a new one, where the
bundled tasks go on in the middle. One that raises an error is not called again: from there on its
rewards are NaN, so that whoever looks at them stops, and `Environment.fault` says why.
"""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from roid_jax.envs import base
from roid_jax.types import Array

_LONGEST_WORDS = 1000  # of an error
LONGEST_EPISODE = 10_000  # steps, where the environment has no limit of its own: it may never end


def make(env_id: str, **options) -> base.Environment:
    """Returns `gymnasium.make(env_id, **options)` as an environment of ours.

    Actions in [-1, 1] are rescaled linearly to the environment's own bounds.
    """
    probe = _open(env_id, options)
    try:
        obs_dim, action_dim = _size(env_id, probe, "observation"), _size(env_id, probe, "action")
        limit = probe.spec.max_episode_steps if probe.spec else None
    finally:
        probe.close()
    spec = base.Spec(env_id, obs_dim, action_dim, limit or LONGEST_EPISODE)
    host = _Host(functools.partial(_open, env_id, options), spec)

    def reset(seed: Array) -> tuple[Array, Array]:
        obs = jax.ShapeDtypeStruct((*seed.shape, obs_dim), jnp.float32)
        return jnp.zeros(seed.shape), io_callback(host.reset, obs, seed, ordered=True)

    def step(count: Array, action: Array, length: Array, seed: Array):
        obs = jax.ShapeDtypeStruct((*seed.shape, obs_dim), jnp.float32)
        number = jax.ShapeDtypeStruct(seed.shape, jnp.float32)
        truth = jax.ShapeDtypeStruct(seed.shape, bool)
        outcome = io_callback(
            host.step, (obs, obs, number, truth, truth), action, length, seed, ordered=True
        )
        return count + 1, *outcome

    backend = base.Backend(spec=spec, reset=reset, step=step, keeps_state=True)
    return base.make(backend._replace(fault=lambda: host.fault))


def _open(env_id: str, options: dict) -> gymnasium.Env:
    try:
        return gymnasium.make(env_id, **options)
    except (Exception, SystemExit) as error:  # whatever a user's environment raises
        raise ValueError(f"Gymnasium cannot make {env_id!r}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    """Returns an error's kind and words in one line."""
    try:
        words = str(error)
    except BaseException:  # a user's own kind of error may fail at that
        words = "(its words cannot be had)"
    words = "".join(c if c.isprintable() else " " for c in words[:_LONGEST_WORDS])
    return " ".join(f"{type(error).__name__}: {words}".split())


def _size(env_id: str, env: gymnasium.Env, kind: str) -> int:
    space = getattr(env, f"{kind}_space")
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        raise ValueError(f"{env_id!r} needs a flat Box {kind} space, it has {space}.")
    if kind == "action" and not np.all(np.isfinite([space.low, space.high])):
        raise ValueError(f"{env_id!r} needs a bounded action space, it has {space}.")
    return space.shape[0]


class _Host:
    """The environments themselves, one for each of the batch.

    fault: what the first error said; an error must not leave by compiled code, which would end
        without a word of where it was.
    """

    def __init__(self, open_one: Callable[[], gymnasium.Env], spec: base.Spec):
        self._open = open_one
        self._spec = spec
        self._envs: list[gymnasium.Env] = []
        self.fault: str | None = None

    def reset(self, seed: np.ndarray) -> np.ndarray:
        seed = np.asarray(seed)
        nothing = np.zeros((seed.size, self._spec.obs_dim), np.float32)
        return self._guarded(self._reset, nothing, seed)

    def step(self, action: np.ndarray, length: np.ndarray, seed: np.ndarray):
        obs = np.zeros((len(action), self._spec.obs_dim), np.float32)
        ended = np.ones(len(action), bool)  # so that nobody waits for the end of an episode
        nothing = obs, obs, np.full(len(action), np.nan, np.float32), ~ended, ended
        return self._guarded(self._step, nothing, *map(np.asarray, (action, length, seed)))

    def _guarded(self, function: Callable, nothing: Any, *inputs: np.ndarray) -> Any:
        """Returns what the function does, and `nothing` once anything has failed."""
        if self.fault is None:
            try:
                return function(*inputs)
            except BaseException as error:  # nothing may leave by compiled code
                self.fault = _said(error)
        return nothing

    def _reset(self, seed: np.ndarray) -> np.ndarray:
        while len(self._envs) < seed.size:
            self._envs.append(self._open())
        pairs = zip(self._envs, seed, strict=False)
        return np.stack([self._begin(env, one) for env, one in pairs])

    def _begin(self, env: gymnasium.Env, seed: int) -> np.ndarray:
        return self._checked("observation", env.reset(seed=int(seed))[0])

    def _checked(self, what: str, given: Any) -> np.ndarray:
        """Returns what an environment gave as numbers; an error where it is none, or too many."""
        with np.errstate(over="ignore"):
            found = np.array(given, np.float32)  # its own may change under us
        shape = (self._spec.obs_dim,) if what == "observation" else ()
        if found.shape != shape:
            raise ValueError(f"its {what} has the shape {found.shape}, not {shape}")
        if not np.all(np.isfinite(found)):
            raise ValueError(f"its {what} was {found.tolist()}")
        return found

    def _step(self, action: np.ndarray, length: np.ndarray, seed: np.ndarray):
        each = zip(self._envs, action, length, seed, strict=False)
        outcomes = [self._step_one(*one) for one in each]
        return tuple(map(np.array, zip(*outcomes, strict=True)))

    def _step_one(self, env: gymnasium.Env, action: np.ndarray, length: int, seed: int):
        if not np.all(np.isfinite(action)):
            raise ValueError(f"it was given the action {action.tolist()}")
        low, high = env.action_space.low, env.action_space.high
        scaled = low + 0.5 * (np.clip(action, -1.0, 1.0) + 1.0) * (high - low)
        found, reward, terminated, truncated, _ = env.step(scaled.astype(env.action_space.dtype))
        last, reward = self._checked("observation", found), self._checked("reward", reward)
        truncated = truncated or length + 1 >= self._spec.max_steps
        obs = self._begin(env, seed) if terminated or truncated else last
        return obs, last, reward, bool(terminated), bool(truncated and not terminated)
