"""An episode of a trained policy as a picture that moves."""

import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rich.console

from experiments import revive
from experiments.driver import Problem, Progress
from roid_jax import results, seeds
from roid_jax.envs import named, render, tasks
from roid_jax.report import video
from roid_jax.types import Array, Key

FILE = "video.gif"
_FRAMES = 200
_PER_SECOND = 25.0


def require(env_name: str) -> None:
    """Raises a ValueError of one line where a world cannot be drawn, or nothing can."""
    if task_of(env_name) is None:
        raise ValueError(f"there are no pictures of {env_name!r}, only of MuJoCo's tasks.")
    render.require()


def task_of(env_name: str) -> str | None:
    """Returns the task that can be drawn, None for worlds that cannot."""
    name = env_name.removeprefix("mjx:")
    return name if name in tasks.TASKS else None


def record(problem: Problem, key: Key, state: Any, path: pathlib.Path) -> None:
    """Plays an episode of one run's policy, without exploration, and writes it as a GIF."""
    require(problem.env_name)
    name = str(task_of(problem.env_name))
    kind = problem.config.physics
    words, ends = jax.device_get(jax.jit(functools.partial(_play, problem, name))(key, state))
    length = int(np.argmax(ends)) + 1 if np.any(ends) else len(ends)
    model = render.physics.load(tasks.find(name), physics=kind)
    seconds = model.opt.timestep * tasks.find(name).frame_skip
    stride = max(1, round(1.0 / (_PER_SECOND * seconds)))
    shown = words[:length:stride][:_FRAMES]
    pictures = list(render.frames(name, shown, kind=kind))
    content = video.to_gif(pictures, per_second=1.0 / (stride * seconds))
    results.write_bytes(path, content)


def _play(problem: Problem, name: str, key: Key, state: Any) -> tuple[Array, Array]:
    """Returns `[T, W]` the states of an episode before each step, and `[T]` where it ends."""
    env = named.make(name, physics=problem.config.physics)
    key_reset, key_memory, key_act = jax.random.split(key, 3)
    memory = jax.vmap(problem.agent.begin_episode)(key_memory[None])

    def step(carry: tuple, t: Array) -> tuple[tuple, tuple[Array, Array]]:
        world, memory = carry
        key = jax.random.fold_in(key_act, t)
        action, memory, _ = problem.agent.act(key, state, memory, world.obs, explore=False)
        after = env.step(world, action)
        memory = problem.agent.remember(memory, after.reward)
        return (after, memory), (world.physics[0], after.is_last[0])

    start = env.reset(key_reset[None]), memory
    return jax.lax.scan(step, start, jnp.arange(env.spec.max_steps))[1]


def record_seed(problem: Problem, progress: Progress, i: int, folder: pathlib.Path) -> None:
    """Records an episode of the seed at place i into its folder."""
    mine = seeds.take(progress.state, progress.axes, i)
    state = mine.agent if progress.phase == "online" else mine
    record(problem, problem.key("evaluate")[i], state, folder / FILE)


def record_missing(folder: pathlib.Path, console: rich.console.Console) -> None:
    """Records an episode of the last checkpoint of a run that has no video yet."""
    if (folder / FILE).is_file():
        return
    problem = revive.problem_of(folder)
    if task_of(problem.env_name) is None:
        console.print(f"There are no pictures of {problem.env_name}.", soft_wrap=True)
        return
    record_seed(problem, revive.latest(problem, folder), 0, folder)
    console.print(f"An episode of {folder} is in {folder / FILE}.", soft_wrap=True)
