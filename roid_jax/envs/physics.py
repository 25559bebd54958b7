"""MuJoCo models of the tasks: as they are today, and as they were when D4RL was recorded.

Two things changed in MuJoCo since. Before 2.1.2 a capsule weighed as much as a cylinder of its
radius whose length is the middle section plus half a radius at each end; today it weighs as the
capsule it is. And since about 3.4 the contact margins of two geoms are added, where the larger was
taken, so that the same model has twice the margin. Undoing both reproduces recorded transitions to
float32 accuracy.
"""

import pathlib

import gymnasium
import mujoco
import numpy as np

from roid_jax.envs.tasks import Task

PHYSICS = ("d4rl", "stock")
_DENSITY = 1000.0  # MuJoCo's default, which the three models keep


def load(task: Task, *, physics: str) -> mujoco.MjModel:
    """Returns Gymnasium's v4 model of a task under today's physics or D4RL's."""
    if physics not in PHYSICS:
        raise ValueError(f"unknown physics {physics!r}; choose from {', '.join(PHYSICS)}.")
    assets = pathlib.Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    path = str(assets / task.model)
    mute()
    model = mujoco.MjModel.from_xml_path(path)
    total_mass = mujoco.MjSpec.from_file(path).compiler.settotalmass
    if physics == "d4rl":
        _restore_d4rl(model, total_mass)
    return model


def mute() -> None:
    """Keeps MuJoCo from printing its warnings, and from logging them to the current directory.

    They say that these old models use deprecated attributes, and that a simulation became unstable,
    which is noticed without them.
    """
    mujoco.set_mju_user_warning(lambda message: None)


def _restore_d4rl(model: mujoco.MjModel, total_mass: float) -> None:
    """Rewrites the masses and margins of a model in place."""
    for body in range(1, model.nbody):
        geoms = np.flatnonzero(model.geom_bodyid == body)
        mass, centre, inertia = _combine([_old_capsule(model, geom) for geom in geoms])
        moments, axes = np.linalg.eigh(inertia)
        moments, axes = moments[::-1], axes[:, ::-1]  # MuJoCo has the largest moment first
        axes[:, 2] *= np.sign(np.linalg.det(axes))
        model.body_mass[body] = mass
        model.body_ipos[body] = centre
        model.body_inertia[body] = moments
        mujoco.mju_mat2Quat(model.body_iquat[body], np.ascontiguousarray(axes).ravel())
    if total_mass > 0:
        scale = total_mass / model.body_mass.sum()
        model.body_mass *= scale
        model.body_inertia *= scale
    # The compiler noted which frames coincide; with other inertias that is no longer so.
    for field in ("body_sameframe", "geom_sameframe", "site_sameframe"):
        getattr(model, field)[:] = 0
    model.geom_margin *= 0.5
    mujoco.mj_setConst(model, mujoco.MjData(model))


def _old_capsule(model: mujoco.MjModel, geom: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Returns mass, centre and inertia (about the centre, in body axes) of one capsule of old."""
    if model.geom_type[geom] != mujoco.mjtGeom.mjGEOM_CAPSULE:
        raise ValueError(f"only capsules are known from D4RL's time, geom {geom} is none.")
    radius, half_length = model.geom_size[geom, :2]
    length = 2.0 * half_length + radius
    mass = _DENSITY * np.pi * radius**2 * length
    across, along = mass * (3.0 * radius**2 + length**2) / 12.0, mass * radius**2 / 2.0
    rotation = np.empty(9)
    mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
    axes = rotation.reshape(3, 3)
    return mass, model.geom_pos[geom].copy(), axes @ np.diag([across, across, along]) @ axes.T


def _combine(parts: list[tuple[float, np.ndarray, np.ndarray]]):
    """Returns mass, centre and inertia of several parts of one body (parallel-axis theorem)."""
    mass = sum(part[0] for part in parts)
    centre = sum(part[0] * part[1] for part in parts) / mass
    inertia = np.zeros((3, 3))
    for weight, position, own in parts:
        offset = position - centre
        inertia += own + weight * (offset @ offset * np.eye(3) - np.outer(offset, offset))
    return mass, centre, inertia
