"""The tasks on MuJoCo's own C engine, stepped by a callback from inside compiled code.

The whole integration state rides in the carry as its own bits (float64 seen as uint32), the
solver's warm start included, so a trajectory is the one Gymnasium makes, bit for bit, also after it
was saved and restored in mid-episode. The host side restores the state, steps, and reads it back:
it touches NumPy and MuJoCo only, since JAX inside a callback can hang.
"""

import collections
import contextlib
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco.batch import Batch

from roid_jax.envs import base, host_call, physics, tasks
from roid_jax.types import Array


def make(name: str, *, physics: str = "d4rl", threads: int = 1) -> base.Environment:
    """Returns a task on the C engine.

    Args:
      name: hopper, walker2d or halfcheetah.
      physics: `d4rl`, as its data was recorded, or `stock`, as MuJoCo is today.
      threads: how many step the batch; one beside training, all cores to evaluate or collect.
    """
    task = tasks.find(name)
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}.")
    host = _host(task, physics, threads)
    spec = base.Spec(name, task.obs_dim, task.action_dim, task.max_steps)

    # One array goes each way, since an array costs more to hand over than the numbers in it.
    def call(part: str, function: host_call.Function, words: Array, width: int) -> Array:
        return host_call.call(f"roid_jax {name} {physics} {threads} {part}", function, words, width)

    def reset(seed: Array) -> tuple[Array, Array]:
        words = call("reset", host.reset, seed[:, None], host.words + task.obs_dim)
        return words[:, : host.words], _bits_to(jnp.float32, words[:, host.words :])

    def step(bits: Array, action: Array, length: Array, seed: Array):
        parts = bits, _bits_to(jnp.uint32, action), _bits_to(jnp.uint32, length)[:, None]
        words = jnp.concatenate([*parts, seed[:, None]], axis=1)
        words = call("step", host.step, words, host.words + 2 * task.obs_dim + 3)
        after, rest = words[:, : host.words], words[:, host.words :]
        numbers = _bits_to(jnp.float32, rest[:, : 2 * task.obs_dim + 1])
        obs, last_obs, reward = jnp.split(numbers, [task.obs_dim, 2 * task.obs_dim], axis=1)
        terminated, truncated = rest[:, -2] > 0, rest[:, -1] > 0
        return after, obs, last_obs, reward[:, 0], terminated, truncated

    return base.make(base.Backend(spec, reset, step, fault=host.take_fault))


def _bits_to(dtype: jnp.dtype, words: Array) -> Array:
    """Returns the same 32 bits of each number as another type."""
    return jax.lax.bitcast_convert_type(words, dtype)


class _Simulations:
    """A batch of simulations with views of what is read and written in every call."""

    def __init__(self, model: mujoco.MjModel, size: int, threads: int):
        self.batch = Batch(model, size, min(threads, size))
        self.words = self.batch.state.view(np.uint32)
        self.qpos, self.qvel, self.ctrl = map(self.batch.bind, ("qpos", "qvel", "ctrl"))


class _Host:
    """The C side of one task: what a call returns is a function of its arguments alone."""

    def __init__(self, task: tasks.Task, kind: str, threads: int):
        self._task = task
        self._threads = threads
        self._model = physics.load(task, physics=kind)
        self._seconds = self._model.opt.timestep * task.frame_skip
        # Simulations serve one call at a time, and several devices may call at once. (Not one set a
        # thread: a callback's thread has its Python state, and all in it, torn down after it.)
        self._idle: dict[int, list[_Simulations]] = collections.defaultdict(list)
        state = mujoco.mjtState.mjSTATE_INTEGRATION
        self.words = 2 * mujoco.mj_stateSize(self._model, state)
        self._fault: str | None = None

    def take_fault(self) -> str | None:
        """Returns what went wrong since this was asked the last time."""
        fault, self._fault = self._fault, None
        return fault

    def reset(self, seed: np.ndarray) -> np.ndarray:
        """`[..., 1]` seeds -> `[..., W + O]`: state and observation."""
        seed = np.asarray(seed)
        words = np.empty((seed.size, self.words + self._task.obs_dim), np.uint32)
        with self._borrow(seed.size) as simulations:
            self._begin(simulations, np.arange(seed.size), seed.ravel())
            words[:, : self.words] = simulations.words
            words.view(np.float32)[:, self.words :] = self._observe(simulations)
        return words.reshape(*seed.shape[:-1], -1)

    def step(self, words: np.ndarray) -> np.ndarray:
        """`[..., W + U + 2]` -> `[..., W + 2 O + 3]`.

        State, action, length and next seed in; state, observation, last observation, reward,
        terminated and truncated out.
        """
        words, task = np.asarray(words), self._task
        flat = words.reshape(-1, words.shape[-1])
        action = flat[:, self.words : -2].view(np.float32)
        out = np.empty((len(flat), self.words + 2 * task.obs_dim + 3), np.uint32)
        numbers, middle = out.view(np.float32), self.words + task.obs_dim
        with self._borrow(len(flat)) as simulations:
            simulations.words[:] = flat[:, : self.words]
            reward, terminated = self._advance(simulations, action)
            truncated = (flat[:, -2] + 1 >= task.max_steps) & ~terminated
            last_obs = obs = self._observe(simulations)
            ended = np.flatnonzero(terminated | truncated)
            if ended.size:
                self._begin(simulations, ended, flat[ended, -1])
                obs = self._observe(simulations)
            out[:, : self.words] = simulations.words
        numbers[:, self.words : middle], numbers[:, middle:-3] = obs, last_obs
        numbers[:, -3], out[:, -2], out[:, -1] = reward, terminated, truncated
        return out.reshape(*words.shape[:-1], -1)

    def _advance(self, simulations: _Simulations, action: np.ndarray):
        """Steps every simulation; returns its reward and whether it terminated."""
        task, qpos = self._task, simulations.qpos
        time = simulations.batch.state[:, 0]  # comes first
        before, then = qpos[:, 0].copy(), time.copy()
        simulations.ctrl[:] = action
        simulations.batch.step(nstep=task.frame_skip)
        if not np.all(np.isfinite(action)):  # which makes the reward none either
            self._fault = self._fault or "it was given an action that is no number"
        reward = tasks.reward(np, task, qpos[:, 0] - before, self._seconds, action)
        # MuJoCo then begins anew, from time 0, and goes on with what is left of the step.
        is_unstable = np.abs(time - then - self._seconds) > 0.5 * self._model.opt.timestep
        if np.any(is_unstable):
            unstable = "MuJoCo's simulation became unstable, and it started it anew"
            self._fault = self._fault or unstable  # what comes after it comes of it
            reward = np.where(is_unstable, np.nan, reward)
        return reward, tasks.is_terminated(np, task, qpos, simulations.qvel)

    @contextlib.contextmanager
    def _borrow(self, size: int) -> Iterator[_Simulations]:
        """Lends that many simulations, made if none are idle."""
        try:
            simulations = self._idle[size].pop()
        except IndexError:
            simulations = _Simulations(self._model, size, self._threads)
        try:
            yield simulations
        finally:
            self._idle[size].append(simulations)

    def _begin(self, simulations: _Simulations, ids: np.ndarray, seeds: np.ndarray) -> None:
        """Starts new episodes in some of the simulations."""
        simulations.batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
        qpos, qvel = simulations.qpos, simulations.qvel
        for i, seed in zip(ids, seeds, strict=True):
            position, velocity = tasks.reset_noise(
                self._task, int(seed), qpos.shape[1], qvel.shape[1]
            )
            qpos[i] += position
            qvel[i] += velocity
        simulations.batch.forward(ids)  # as Gymnasium does; it also warms the solver's start

    def _observe(self, simulations: _Simulations) -> np.ndarray:
        return tasks.observe(np, self._task, simulations.qpos, simulations.qvel)


_host = functools.cache(_Host)  # compiled code finds it by name, so there is one of each
