"""The tasks on MJX, which is MuJoCo written in JAX: no callbacks, the whole batch on the device.

Meant for many environments on an accelerator. Rules and models are those of `mujoco_c`; resets draw
from JAX instead of NumPy, and numbers are float32, so that a trajectory follows the C engine's at
first and parts from it after many contacts.
"""

import contextlib
import functools
import importlib
import io
from collections.abc import Callable
from types import ModuleType
from typing import Any

import chex
import jax
import jax.numpy as jnp
import mujoco

from roid_jax.envs import base, tasks
from roid_jax.envs import physics as models
from roid_jax.types import Array

# Under vmap MJX runs its line search to this limit in every iteration of the solver, needed or not,
# so that the C engine's 50 would take most of the time. Ten change a step by its rounding only.
_LINE_SEARCH_STEPS = 10


@chex.dataclass(frozen=True)
class Motion:
    """All that the next step depends on; the rest of an mjx.Data follows from it.

    qpos: `[B, Q]` positions; the root's x is how far the last step moved it.
    qvel: `[B, V]` velocities.
    qacc: `[B, V]` the last accelerations, where the constraint solver starts.
    """

    qpos: Array
    qvel: Array
    qacc: Array


def make(name: str, *, physics: str = "d4rl") -> base.Environment:
    """Returns a task on MJX.

    Args:
      name: hopper, walker2d or halfcheetah.
      physics: `d4rl`, as its data was recorded, or `stock`, as MuJoCo is today.
    """
    task = tasks.find(name)
    model = models.load(task, physics=physics)
    advance = jax.vmap(_make_advance(model, task.frame_skip))
    begin = jax.vmap(_make_begin(model, task))
    seconds = model.opt.timestep * task.frame_skip
    spec = base.Spec(name, task.obs_dim, task.action_dim, task.max_steps)

    def observe(motion: Motion) -> Array:
        return tasks.observe(jnp, task, motion.qpos, motion.qvel)

    def reset(seed: Array) -> tuple[Motion, Array]:
        motion = begin(seed)
        return motion, observe(motion)

    def step(motion: Motion, action: Array, length: Array, seed: Array):
        after = advance(motion, action)
        reward = tasks.reward(jnp, task, after.qpos[:, 0], seconds, action)
        terminated = tasks.is_terminated(jnp, task, after.qpos, after.qvel)
        truncated = (length + 1 >= task.max_steps) & ~terminated
        ended = (terminated | truncated)[:, None]
        following = jax.tree.map(lambda new, old: jnp.where(ended, new, old), begin(seed), after)
        return following, observe(following), observe(after), reward, terminated, truncated

    return base.make(base.Backend(spec=spec, reset=reset, step=step))


def _make_begin(model: mujoco.MjModel, task: tasks.Task) -> Callable[[Array], Motion]:
    """Returns (seed) -> the first motion of an episode, its noise distributed as Gymnasium's."""
    scale, rest = task.reset_noise, jnp.asarray(model.qpos0)

    def begin(seed: Array) -> Motion:
        key_position, key_velocity = jax.random.split(jax.random.key(seed))
        position = jax.random.uniform(key_position, (model.nq,), minval=-scale, maxval=scale)
        if task.normal_velocities:
            velocity = scale * jax.random.normal(key_velocity, (model.nv,))
        else:
            velocity = jax.random.uniform(key_velocity, (model.nv,), minval=-scale, maxval=scale)
        # Gymnasium also calls mj_forward. Of what that works out a step reads only the solver's
        # start, which MJX's forward does not set; so we spare one in every step of the batch.
        return Motion(qpos=rest + position, qvel=velocity, qacc=jnp.zeros_like(velocity))

    return begin


def _make_advance(model: mujoco.MjModel, frames: int) -> Callable[[Motion, Array], Motion]:
    """Returns (motion, `[U]` action) -> the motion that many time steps later."""
    mjx = _import_mjx()
    place = {"impl": "jax", "device": jax.local_devices()[0]}  # compiled code moves it as it needs
    limit = {"opt.ls_iterations": _LINE_SEARCH_STEPS}
    device_model = mjx.put_model(model, **place).tree_replace(limit)
    blank = mjx.make_data(model, **place)
    by_rk4 = model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
    integrate = functools.partial(_runge_kutta, mjx) if by_rk4 else mjx.step

    def advance(motion: Motion, action: Array) -> Motion:
        def tick(_, motion: Motion) -> Motion:
            data = blank.replace(
                qpos=motion.qpos, qvel=motion.qvel, qacc_warmstart=motion.qacc, ctrl=action
            )
            data = integrate(device_model, data)
            return Motion(qpos=data.qpos, qvel=data.qvel, qacc=data.qacc_warmstart)

        # The floor is alike everywhere, so every step begins at x = 0: after a cheetah's 300 m,
        # rounding in float32 would be 30 times as large, and 1000 times in the reward.
        motion = motion.replace(qpos=motion.qpos.at[0].set(0.0))
        # GPUs multiply matrices with 10 bits unless told otherwise, too few for physics. And MJX
        # multiplies `[3, 3]` by `[3]`, which is an error to those who ask for equal ranks.
        with jax.default_matmul_precision("highest"), jax.numpy_rank_promotion("allow"):
            return jax.lax.fori_loop(0, frames, tick, motion)

    return advance


def _runge_kutta(mjx: ModuleType, model: Any, data: Any) -> Any:
    """Returns the mjx.Data one time step h later, by the classical fourth-order rule.

    k_i = f(x + h c_i k_{i-1}),  x' = x + h sum_i w_i k_i.  It is what `mjx.step` does, which writes
    the four stages out and takes twice as long to compile. Positions add because all joints slide
    or hinge.
    """
    step = model.opt.timestep
    offsets, weights = jnp.array([0.0, 0.5, 0.5, 1.0]), jnp.array([1.0, 2.0, 2.0, 1.0]) / 6.0

    def stage(carry, constants):
        qvel, qacc, mean_qvel, mean_qacc = carry
        offset, weight = constants
        qpos = data.qpos + step * offset * qvel
        qvel = data.qvel + step * offset * qacc
        qacc = mjx.forward(model, data.replace(qpos=qpos, qvel=qvel)).qacc
        return (qvel, qacc, mean_qvel + weight * qvel, mean_qacc + weight * qacc), None

    nothing = jnp.zeros_like(data.qvel)
    (_, qacc, mean_qvel, mean_qacc), _ = jax.lax.scan(stage, (nothing,) * 4, (offsets, weights))
    return data.replace(
        qpos=data.qpos + step * mean_qvel, qvel=data.qvel + step * mean_qacc, qacc_warmstart=qacc
    )


def _import_mjx() -> ModuleType:
    """Returns MJX, or says how to get it."""
    try:
        # It prints which engines for other hardware it did not find.
        with contextlib.redirect_stdout(io.StringIO()):
            return importlib.import_module("mujoco.mjx")
    except ModuleNotFoundError as error:
        raise ValueError(
            f"MJX is not installed (no module {error.name}); `pip install roid_jax[mjx]` would do, "
            "or use mujoco_c, which needs nothing more."
        ) from error
