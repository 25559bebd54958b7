"""The three locomotion tasks: observation, reward, termination and reset, by Gymnasium's v4 rules.

Written once over an array namespace `xp` (NumPy beside MuJoCo's C engine, jax.numpy beside MJX).
Positions and velocities have any leading axes.
"""

import math
from typing import Any, NamedTuple

import numpy as np

Namespace = Any


class Task(NamedTuple):
    """The numbers in which the tasks differ."""

    name: str
    model: str  # file among Gymnasium's MuJoCo assets
    obs_dim: int
    action_dim: int
    frame_skip: int
    control_cost: float
    healthy_reward: float
    reset_noise: float
    normal_velocities: bool  # reset velocities are normal rather than uniform
    velocity_limit: float  # observed velocities are clipped to this
    height: tuple[float, float] = (-math.inf, math.inf)  # healthy range of the torso's height
    angle: tuple[float, float] = (-math.inf, math.inf)  # healthy range of its angle
    coordinate_limit: float = math.inf  # healthy bound on all other coordinates
    max_steps: int = 1000


TASKS = {
    "hopper": Task(
        name="hopper",
        model="hopper.xml",
        obs_dim=11,
        action_dim=3,
        frame_skip=4,
        control_cost=1e-3,
        healthy_reward=1.0,
        reset_noise=5e-3,
        normal_velocities=False,
        velocity_limit=10.0,
        height=(0.7, math.inf),
        angle=(-0.2, 0.2),
        coordinate_limit=100.0,
    ),
    "walker2d": Task(
        name="walker2d",
        model="walker2d.xml",
        obs_dim=17,
        action_dim=6,
        frame_skip=4,
        control_cost=1e-3,
        healthy_reward=1.0,
        reset_noise=5e-3,
        normal_velocities=False,
        velocity_limit=10.0,
        height=(0.8, 2.0),
        angle=(-1.0, 1.0),
    ),
    "halfcheetah": Task(
        name="halfcheetah",
        model="half_cheetah.xml",
        obs_dim=17,
        action_dim=6,
        frame_skip=5,
        control_cost=0.1,
        healthy_reward=0.0,
        reset_noise=0.1,
        normal_velocities=True,
        velocity_limit=math.inf,
    ),
}


def find(name: str) -> Task:
    """Returns the task of that name."""
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; choose from {', '.join(TASKS)}.")
    return TASKS[name]


def observe(xp: Namespace, task: Task, qpos: Any, qvel: Any) -> Any:
    """Returns `[..., O]` positions without the root's x, and velocities, clipped where they are."""
    if math.isfinite(task.velocity_limit):
        qvel = xp.minimum(xp.maximum(qvel, -task.velocity_limit), task.velocity_limit)
    return xp.concatenate([qpos[..., 1:], qvel], axis=-1)


def reward(xp: Namespace, task: Task, moved: Any, seconds: float, action: Any) -> Any:
    """Returns `[...]` speed along x, plus the reward for being alive, minus the cost of control.

    Paid on the terminating step too, as in v2 to v4. The cost is summed in the action's own type.
    """
    cost = task.control_cost * xp.sum(xp.square(action), axis=-1)
    return moved / seconds + task.healthy_reward - cost


def is_terminated(xp: Namespace, task: Task, qpos: Any, qvel: Any) -> Any:
    """Returns `[...]` whether the torso left its healthy range."""

    if task.height == task.angle == (-math.inf, math.inf):
        return xp.zeros(qpos.shape[:-1], bool)

    def within(value: Any, limits: tuple[float, float]) -> Any:
        return (limits[0] < value) & (value < limits[1])

    healthy = within(qpos[..., 1], task.height) & within(qpos[..., 2], task.angle)
    if math.isfinite(task.coordinate_limit):
        rest = xp.concatenate([qpos[..., 2:], qvel], axis=-1)
        healthy = healthy & xp.all(xp.abs(rest) < task.coordinate_limit, axis=-1)
    return ~healthy


def reset_noise(task: Task, seed: int, positions: int, velocities: int):
    """Returns the noise on positions and velocities of a first state, as Gymnasium draws it.

    `gymnasium.make(...).reset(seed=seed)` starts from the same numbers.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    scale = task.reset_noise
    position = generator.uniform(low=-scale, high=scale, size=positions)
    if task.normal_velocities:
        return position, scale * generator.standard_normal(velocities)
    return position, generator.uniform(low=-scale, high=scale, size=velocities)
