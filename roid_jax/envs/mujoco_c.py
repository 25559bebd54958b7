"""The tasks on MuJoCo's own C engine, stepped by a pure callback from inside compiled code.

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

from roid_jax.envs import base, physics, tasks
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
    host = _Host(task, physics, threads)
    spec = base.Spec(name, task.obs_dim, task.action_dim, task.max_steps)
    call = functools.partial(jax.pure_callback, vmap_method="expand_dims")

    def shapes(batch: tuple[int, ...]) -> dict[str, jax.ShapeDtypeStruct]:
        vector = functools.partial(jax.ShapeDtypeStruct, batch)
        return {
            "bits": jax.ShapeDtypeStruct((*batch, host.words), jnp.uint32),
            "obs": jax.ShapeDtypeStruct((*batch, task.obs_dim), jnp.float32),
            "number": vector(jnp.float32),
            "truth": vector(bool),
        }

    def reset(seed: Array) -> tuple[Array, Array]:
        shape = shapes(seed.shape)
        return call(host.reset, (shape["bits"], shape["obs"]), seed)

    def step(bits: Array, action: Array, length: Array, seed: Array):
        shape = shapes(seed.shape)
        names = ("bits", "obs", "obs", "number", "truth", "truth")
        return call(host.step, tuple(shape[name] for name in names), bits, action, length, seed)

    return base.make(base.Backend(spec=spec, reset=reset, step=step))


class _Host:
    """The C side of one task. Every call is a function of its arguments alone."""

    def __init__(self, task: tasks.Task, kind: str, threads: int):
        self._task = task
        self._threads = threads
        self._model = physics.load(task, physics=kind)
        self._seconds = self._model.opt.timestep * task.frame_skip
        # A batch serves one call at a time, and several devices may call at once. (Not one batch
        # a thread: a callback's thread has its Python state, and all in it, torn down after it.)
        self._idle: dict[int, list[Batch]] = collections.defaultdict(list)
        state = mujoco.mjtState.mjSTATE_INTEGRATION
        self.words = 2 * mujoco.mj_stateSize(self._model, state)

    def reset(self, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seed = np.asarray(seed)
        with self._batch(seed.size) as batch:
            self._begin(batch, np.arange(seed.size), seed.ravel())
            return self._bits(batch, seed.shape), self._observe(batch, seed.shape)

    def step(self, bits: np.ndarray, action: np.ndarray, length: np.ndarray, seed: np.ndarray):
        bits, action, length, seed = map(np.asarray, (bits, action, length, seed))
        # Under vmap an argument that is not batched comes with axes of length one.
        shape = seed.shape
        bits = np.broadcast_to(bits, (*shape, self.words)).reshape(seed.size, -1)
        action = np.broadcast_to(action, (*shape, self._task.action_dim)).reshape(seed.size, -1)
        length = np.broadcast_to(length, shape).ravel()
        with self._batch(seed.size) as batch:
            batch.state[:] = np.ascontiguousarray(bits).view(np.float64)
            last_obs, reward, terminated = self._advance(batch, action)
            truncated = (length + 1 >= self._task.max_steps) & ~terminated
            ended = np.flatnonzero(terminated | truncated)
            if ended.size:
                self._begin(batch, ended, seed.ravel()[ended])
            obs = self._observe(batch, shape)
            after = self._bits(batch, shape)
        flags = terminated.reshape(shape), truncated.reshape(shape)
        return after, obs, last_obs.reshape(obs.shape), reward.reshape(shape), *flags

    def _advance(self, batch: Batch, action: np.ndarray):
        """Steps every simulation; returns its observation, reward and whether it terminated."""
        task, qpos, qvel = self._task, batch.bind("qpos"), batch.bind("qvel")
        before = qpos[:, 0].copy()
        batch.bind("ctrl")[:] = action
        batch.step(nstep=task.frame_skip)
        reward = tasks.reward(np, task, qpos[:, 0] - before, self._seconds, action)
        terminated = tasks.is_terminated(np, task, qpos, qvel)
        return self._observe(batch, (batch.nsim,)), reward.astype(np.float32), terminated

    @contextlib.contextmanager
    def _batch(self, size: int) -> Iterator[Batch]:
        """Lends a batch of that many simulations, made if none is idle."""
        try:
            batch = self._idle[size].pop()
        except IndexError:
            batch = Batch(self._model, size, min(self._threads, size))
        try:
            yield batch
        finally:
            self._idle[size].append(batch)

    def _begin(self, batch: Batch, ids: np.ndarray, seeds: np.ndarray) -> None:
        """Starts new episodes in some of the simulations."""
        batch.reset(ids, stage=mujoco.mjtStage.mjSTAGE_NONE)
        qpos, qvel = batch.bind("qpos"), batch.bind("qvel")
        for i, seed in zip(ids, seeds, strict=True):
            position, velocity = tasks.reset_noise(
                self._task, int(seed), qpos.shape[1], qvel.shape[1]
            )
            qpos[i] += position
            qvel[i] += velocity
        batch.forward(ids)  # as Gymnasium does; it also gives the solver its warm start

    def _bits(self, batch: Batch, shape: tuple[int, ...]) -> np.ndarray:
        return batch.state.copy().view(np.uint32).reshape(*shape, self.words)

    def _observe(self, batch: Batch, shape: tuple[int, ...]) -> np.ndarray:
        obs = tasks.observe(np, self._task, batch.bind("qpos"), batch.bind("qvel"))
        return obs.astype(np.float32).reshape(*shape, -1)
