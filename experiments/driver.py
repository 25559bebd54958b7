"""Runs from logged data to a fine-tuned policy: offline, handover, online; saved as they go.

Several seeds run at once, with a leading axis S. Between two evaluations everything is compiled
chunks; after each of them every seed is saved whole and on its own, so that a killed run goes on
there, beside the same seeds or others, and ends with the same numbers.
"""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from experiments.profiles import TrainConfig
from roid_jax import config as cfg
from roid_jax import evaluation, replay, seeds, training
from roid_jax.agents import base, named
from roid_jax.data import load, prepare
from roid_jax.envs import named as worlds
from roid_jax.envs.base import Environment
from roid_jax.types import Array, Key

STATE_AXES = {"offline": 0, "online": training.ONLINE_AXES}
DATASET_AXES = replay.Dataset(rows=None, order=0)

_LARGEST_ACTION = 1.001  # of what is logged, where rounding is all that is wrong
DATA = "the sha256 of its data"  # a field of what a run's numbers depend on

_FREE = ("chunk", "online_steps")  # fields that change none of the numbers so far
_PARTS = ("data", "init", "pretrain", "handover", "begin", "online", "evaluate")


class Problem(NamedTuple):
    """What is to be learned, and from what; `wide` is the same world for many episodes at once."""

    agent_name: str
    env_name: str
    dataset_name: str
    seeds: tuple[int, ...]
    config: TrainConfig
    env: Environment
    wide: Environment
    agent: base.Agent
    dataset: replay.Dataset  # rows that all share, `[S, N]` an order for each
    digest: str  # of the data: other numbers may come to have its name
    mesh: Mesh

    def key(self, part: str) -> Key:
        """Returns `[S]` the keys of a part of the runs."""
        return _keys(self.seeds, part)

    def names(self, seed: int) -> dict[str, Any]:
        """Returns which run it is, as plain data."""
        names = {"agent": self.agent_name, "env": self.env_name, "dataset": self.dataset_name}
        return {**names, "seed": seed}

    def identity(self, seed: int) -> dict[str, Any]:
        """Returns what a run's numbers depend on, as plain data."""
        fields = cfg.flatten(self.config)
        kept = {name: value for name, value in fields.items() if name not in _FREE}
        return {**self.names(seed), DATA: self.digest, **kept}

    def score(self, returns: np.ndarray) -> np.ndarray:
        """Returns normalised scores where the world has them, else the returns themselves."""
        return (
            evaluation.normalised_score(self.env.spec.name, returns) if self.is_scored else returns
        )

    @property
    def is_scored(self) -> bool:
        """Whether the world has reference returns."""
        return self.env.spec.name in evaluation.REFERENCE_RETURNS

    def compile(self, function: Callable, *in_axes: Any, out_axes: Any = 0, **how: Any) -> Callable:
        """Returns the function of one run, compiled for all of them."""
        if self.env.keeps_state:
            return seeds.alone(function, in_axes, out_axes, **how)
        return seeds.over(function, self.mesh, in_axes, out_axes, **how)


class Progress(NamedTuple):
    """How far the runs are.

    phase: `offline` or `online`; step: how many steps of it are done.
    state: the agents', offline; online everything that changes. Leaves `[S, ...]`.
    rows: of each seed, one for each evaluation.
    pending: metrics since the last row, `[S, T]` each by name, chunk by chunk; seconds: they took.
    """

    phase: str
    step: int
    state: Any
    rows: list[list[dict[str, Any]]]
    pending: tuple[dict[str, np.ndarray], ...] = ()
    seconds: float = 0.0

    def number(self, config: TrainConfig) -> int:
        """Returns which of all evaluations and checkpoints this is, by steps of both phases."""
        return number(self.phase, self.step, config)

    def is_finished(self, config: TrainConfig) -> bool:
        """Whether nothing is left to be done."""
        return self.phase == "online" and self.step == config.online_steps and self.is_evaluated

    @property
    def is_evaluated(self) -> bool:
        """Whether the last thing that was done is an evaluation."""
        return not self.pending

    @property
    def axes(self) -> seeds.Axes:
        """Which leaves of the state have the seed axis."""
        return STATE_AXES[self.phase]


def number(phase: str, step: int, config: TrainConfig) -> int:
    """Returns where a step stands among those of both phases; checkpoints are called after it."""
    return step + (phase == "online") * (config.offline_steps + 1)


class Diverged(Exception):
    """A number of a run is no longer finite."""


def _keys(numbers: Sequence[int], part: str) -> Key:
    return jnp.stack(
        [jax.random.split(jax.random.key(n), len(_PARTS))[_PARTS.index(part)] for n in numbers]
    )


def make_problem(
    agent_name: str, env_name: str, dataset_name: str, numbers: Sequence[int], config: TrainConfig
) -> Problem:
    """Returns the problem of these seeds, with its data, its worlds and its agent."""
    env = worlds.make(env_name, physics=config.physics)
    if env.keeps_state and len(numbers) > 1:
        raise ValueError(
            f"{env_name!r} keeps its state to itself, so only one run can step it; use "
            "--num_seeds=1, and --seed for another."
        )
    wide = worlds.make(env_name, physics=config.physics, threads=os.cpu_count() or 1)
    recording = load.load(dataset_name)
    layout = replay.Layout(env.spec.obs_dim, env.spec.action_dim)
    given = replay.Layout(recording.observations.shape[1], recording.actions.shape[1])
    if given != layout:
        raise ValueError(
            f"{dataset_name!r} has {given.obs_dim} observations and {given.action_dim} actions, "
            f"but {env_name!r} has {layout.obs_dim} and {layout.action_dim}."
        )
    agent = named.make(agent_name, config.agent, env.spec)
    if config.offline_steps and agent.offline_update is None:
        raise ValueError(
            f"{agent_name} has no offline phase; offline_steps must be 0, got "
            f"{config.offline_steps}."
        )
    rows = layout.pack(prepare.transitions(recording, return_discount=agent.return_discount))
    if not len(rows):
        raise ValueError(f"{dataset_name!r} has no transition: its rows are all episodes' last.")
    mesh = seeds.make_mesh(len(numbers))
    return Problem(
        agent_name=agent_name,
        env_name=env_name,
        dataset_name=dataset_name,
        seeds=tuple(numbers),
        config=config,
        env=env,
        wide=wide,
        agent=agent,
        dataset=_make_dataset(rows, numbers, mesh),
        digest=prepare.digest(recording),
        mesh=mesh,
    )


def unusual(problem: Problem) -> list[str]:
    """Returns lines about logged numbers that are far from what settings here are meant for."""
    layout = replay.Layout(problem.env.spec.obs_dim, problem.env.spec.action_dim)
    logged = layout.unpack(problem.dataset.rows)
    lines = []
    sizes = np.abs(np.asarray(logged.reward))
    if np.any(sizes) and not 1e-3 <= (size := float(np.mean(sizes[sizes > 0]))) <= 1e3:
        lines.append(
            f"note: rewards in {problem.dataset_name} are about {size:.1g} in size; networks, "
            "rates and limits here are meant for about 1, so scale them, in the data and the "
            "world alike."
        )
    if (largest := float(jnp.max(jnp.abs(logged.action)))) > _LARGEST_ACTION:
        lines.append(
            f"note: actions in {problem.dataset_name} are up to {largest:.3g} in size; policies "
            "here act in [-1, 1], so scale them."
        )
    return lines


def with_seeds(problem: Problem, numbers: Sequence[int]) -> Problem:
    """Returns the same problem of other seeds."""
    mesh = seeds.make_mesh(len(numbers))
    dataset = _make_dataset(problem.dataset.rows, numbers, mesh)
    return problem._replace(seeds=tuple(numbers), dataset=dataset, mesh=mesh)


def _make_dataset(rows: Array, numbers: Sequence[int], mesh: Mesh) -> replay.Dataset:
    """Returns the rows, on every device, with an order for each seed."""
    orders = [replay.draw_order(key, len(rows)) for key in _keys(numbers, "data")]
    datasets = [replay.Dataset(rows=rows, order=order) for order in orders]
    return seeds.stack(datasets, DATASET_AXES, mesh)


def begin(problem: Problem) -> Progress:
    """Returns runs that learned nothing yet."""
    run = problem.compile(functools.partial(_init, problem), 0, DATASET_AXES)
    state = run(problem.key("init"), problem.dataset)
    return Progress("offline", 0, state, [[] for _ in problem.seeds])


def hand_over(problem: Problem, progress: Progress) -> Progress:
    """Returns the runs at the start of their online phase."""
    cross = functools.partial(_cross, problem)
    run = problem.compile(cross, 0, 0, 0, DATASET_AXES, out_axes=training.ONLINE_AXES)
    keys = problem.key("handover"), problem.key("begin")
    return Progress("online", 0, run(*keys, progress.state, problem.dataset), progress.rows)


def shapes(problem: Problem, phase: str) -> Any:
    """Returns what one run's state is like in a phase, without its numbers."""
    key, dataset = jax.random.key(0), seeds.take(problem.dataset, DATASET_AXES, 0)
    state = jax.eval_shape(functools.partial(_init, problem), key, dataset)
    if phase == "offline":
        return state
    return jax.eval_shape(functools.partial(_cross, problem), key, key, state, dataset)


def _init(problem: Problem, key: Key, dataset: replay.Dataset) -> Any:
    return jax.tree.map(jnp.copy, problem.agent.init(key, dataset))


def _cross(
    problem: Problem, key: Key, key_begin: Key, state: Any, dataset: replay.Dataset
) -> training.Online:
    start = problem.agent.handover(key, state, dataset)
    capacity = problem.config.replay_capacity
    return training.begin_online(key_begin, problem.agent, start, problem.env, capacity=capacity)
