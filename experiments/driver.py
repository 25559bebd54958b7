"""One run from logged data to a fine-tuned policy: offline, handover, online; saved as it goes.

Between two evaluations everything is compiled chunks; after each the run is saved whole, so that a
killed one goes on there and ends with the same numbers.
"""

import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.profiles import TrainConfig
from roid_jax import checkpoint, evaluation, replay, training
from roid_jax import config as cfg
from roid_jax.agents import base, named
from roid_jax.data import load, prepare
from roid_jax.envs import named as worlds
from roid_jax.envs.base import Environment
from roid_jax.types import Key

_FREE = ("chunk",)  # fields that change no number
_PARTS = ("data", "init", "pretrain", "handover", "begin", "online", "evaluate")


class Problem(NamedTuple):
    """What is to be learned, and from what; `wide` is the same world for many episodes at once."""

    agent_name: str
    env_name: str
    dataset_name: str
    seed: int
    config: TrainConfig
    env: Environment
    wide: Environment
    agent: base.Agent
    dataset: replay.Dataset

    def key(self, part: str) -> Key:
        """Returns the key of a part of the run."""
        return jax.random.split(jax.random.key(self.seed), len(_PARTS))[_PARTS.index(part)]

    def names(self) -> dict[str, Any]:
        """Returns which run it is, as plain data."""
        names = {"agent": self.agent_name, "env": self.env_name, "dataset": self.dataset_name}
        return {**names, "seed": self.seed}

    def identity(self) -> dict[str, Any]:
        """Returns what the run's numbers depend on, as plain data."""
        fields = cfg.flatten(self.config)
        kept = {name: value for name, value in fields.items() if name not in _FREE}
        return {**self.names(), **kept}

    def score(self, returns: np.ndarray) -> np.ndarray:
        """Returns normalised scores where the world has them, else the returns themselves."""
        is_known = self.env_name in evaluation.REFERENCE_RETURNS
        return evaluation.normalised_score(self.env_name, returns) if is_known else returns


class Progress(NamedTuple):
    """How far a run is.

    phase: `offline` or `online`; step: how many steps of it are done.
    state: the agent's, offline; online everything that changes.
    rows: one for each evaluation.
    """

    phase: str
    step: int
    state: Any
    rows: list[dict[str, Any]]


class Diverged(Exception):
    """A number of the run is no longer finite."""


def make_problem(
    agent_name: str, env_name: str, dataset_name: str, seed: int, config: TrainConfig
) -> Problem:
    """Returns the problem with its data, its worlds and its agent."""
    env = worlds.make(env_name, physics=config.physics)
    wide = worlds.make(env_name, physics=config.physics, threads=2)
    recording = load.load(dataset_name)
    layout = replay.Layout(env.spec.obs_dim, env.spec.action_dim)
    given = replay.Layout(recording.observations.shape[1], recording.actions.shape[1])
    if given != layout:
        raise ValueError(
            f"{dataset_name!r} has {given.obs_dim} observations and {given.action_dim} actions, "
            f"but {env_name!r} has {layout.obs_dim} and {layout.action_dim}."
        )
    key = jax.random.split(jax.random.key(seed), len(_PARTS))[_PARTS.index("data")]
    return Problem(
        agent_name=agent_name,
        env_name=env_name,
        dataset_name=dataset_name,
        seed=seed,
        config=config,
        env=env,
        wide=wide,
        agent=named.make(agent_name, config.agent, env.spec),
        dataset=replay.make_dataset(key, layout, prepare.transitions(recording)),
    )


def begin(problem: Problem) -> Progress:
    """Returns a run that learned nothing yet."""
    state = jax.jit(problem.agent.init)(problem.key("init"), problem.dataset)
    return Progress("offline", 0, jax.tree.map(jnp.copy, state), [])


def hand_over(problem: Problem, progress: Progress) -> Progress:
    """Returns the run at the start of its online phase."""
    handover = jax.jit(problem.agent.handover)
    state = handover(problem.key("handover"), progress.state, problem.dataset)
    online = training.begin_online(
        problem.key("begin"),
        problem.agent,
        state,
        problem.env,
        capacity=problem.config.replay_capacity,
    )
    return Progress("online", 0, online, progress.rows)


def start(
    problem: Problem,
    checkpoints: checkpoint.Checkpoints,
    *,
    resume: bool,
    source: pathlib.Path | None,
) -> Progress:
    """Returns where a run begins: as it was saved, with another's offline phase, or at nothing.

    Args:
      problem: what is to be learned.
      checkpoints: of this run.
      resume: whether what is there is to be gone on with.
      source: the directory that `keep_offline` wrote for another run.
    """
    latest = checkpoints.latest()
    if latest is not None and not resume:
        raise ValueError("there is a run in this workdir; go on with --resume, or take another.")
    if latest is not None:
        return _restore(problem, checkpoints, latest)
    return begin(problem) if source is None else _take_over(problem, source)


def keep_offline(problem: Problem, progress: Progress, folder: pathlib.Path) -> None:
    """Keeps the end of the offline phase, for other runs to begin with."""
    with checkpoint.Checkpoints(folder / "offline", keep=1) as checkpoints:
        if checkpoints.latest() is None:
            notes = {"rows": progress.rows, "identity": offline_identity(problem)}
            checkpoints.save(progress.step, progress.state, notes)


def offline_identity(problem: Problem) -> dict[str, Any]:
    """Returns what the end of the offline phase depends on."""
    kept = ("agent.offline.", "offline_steps", "env", "dataset", "seed", "physics")
    fields = problem.identity()
    if "agent.offline.hidden" not in fields:  # an agent that is one phase's alone
        kept = (*kept, "agent")
    return {name: value for name, value in fields.items() if name.startswith(kept)}


def _take_over(problem: Problem, source: pathlib.Path) -> Progress:
    with checkpoint.Checkpoints(source, keep=1) as checkpoints:
        latest = checkpoints.latest()
        if latest is None:
            raise ValueError(f"there is no whole checkpoint in {source}.")
        notes = checkpoints.notes(latest)
        checkpoint.require_same(notes["identity"], offline_identity(problem))
        state = checkpoints.restore(latest, begin(problem).state)
    return Progress("offline", latest, state, notes["rows"])


def _restore(problem: Problem, checkpoints: checkpoint.Checkpoints, step: int) -> Progress:
    notes = checkpoints.notes(step)
    checkpoint.require_same(notes["identity"], problem.identity())
    like = begin(problem)
    if notes["phase"] == "online":
        like = hand_over(problem, like)
    state = checkpoints.restore(step, like.state)
    if notes["phase"] == "online":
        state = state.replace(env=problem.env.resume(state.env))
    return Progress(notes["phase"], notes["step"], state, notes["rows"])


def save(problem: Problem, progress: Progress, checkpoints: checkpoint.Checkpoints) -> None:
    """Saves everything that the rest of the run depends on."""
    is_online = progress.phase == "online"
    number = progress.step + is_online * (problem.config.offline_steps + 1)
    notes = {"phase": progress.phase, "step": progress.step, "rows": progress.rows}
    notes["identity"] = problem.identity()
    checkpoints.save(number, progress.state, notes, score=progress.rows[-1]["score"])
