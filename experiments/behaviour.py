"""Trains the behaviour policy of a dataset to a level, in intervals that a killed run resumes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments import stopping
from experiments.driver import Diverged
from experiments.suites import CollectConfig
from roid_jax import checkpoint, evaluation, training
from roid_jax import config as cfg
from roid_jax.agents import base, sac
from roid_jax.envs import named
from roid_jax.envs.base import Environment, require_sound
from roid_jax.types import Array, Key

_FREE = ("medium", "expert", "tolerance", "rows")  # fields that do not change the training


class Problem(NamedTuple):
    """What is to be learned, and how; `wide` is the same world for many episodes at once."""

    task: str
    physics: str
    seed: int
    config: CollectConfig
    env: Environment
    wide: Environment
    agent: base.Agent

    def keys(self) -> dict[str, Key]:
        """Returns the keys of the run's parts."""
        names = ("init", "begin", "train", "evaluate", "record")
        return dict(zip(names, jax.random.split(jax.random.key(self.seed), 6)[:5], strict=True))

    def identity(self) -> dict[str, Any]:
        """Returns what the training depends on, as plain data."""
        fields = cfg.flatten(self.config)
        kept = {name: value for name, value in fields.items() if name not in _FREE}
        return {"task": self.task, "physics": self.physics, "seed": self.seed, **kept}

    @property
    def has_scores(self) -> bool:
        """Whether the task has reference returns to normalise by."""
        return self.task in evaluation.REFERENCE_RETURNS

    def score(self, returns: Array | np.ndarray) -> Array | np.ndarray:
        """Returns normalised scores where the task has them, else the returns themselves."""
        return evaluation.normalised_score(self.task, returns) if self.has_scores else returns


class Progress(NamedTuple):
    """How far the training is: steps taken, everything that changes, and an evaluation a row."""

    step: int
    online: training.Online
    rows: list[dict[str, Any]]


def make_problem(task: str, physics: str, seed: int, config: CollectConfig) -> Problem:
    """Returns the problem with its worlds and its agent."""
    env = named.make(task, physics=physics)
    wide = named.make(task, physics=physics, threads=2)
    agent = sac.sac(config.sac, env.spec)
    return Problem(task, physics, seed, config, env, wide, agent)


def begin(problem: Problem, checkpoints: checkpoint.Checkpoints) -> Progress:
    """Returns the start of the training, or where it was when it was last saved."""
    keys, latest = problem.keys(), checkpoints.latest()
    start = training.begin_online(
        keys["begin"],
        problem.agent,
        jax.jit(problem.agent.init)(keys["init"], None),
        problem.env,
        capacity=problem.config.max_steps,
    )
    if latest is None:
        return Progress(0, start, [])
    notes = checkpoints.notes(latest, identity=dict)
    checkpoint.require_same(notes["identity"], problem.identity())
    online = checkpoints.restore(latest, start)
    online = online.replace(env=problem.env.resume(online.env))
    return Progress(latest, online, checkpoints.rows(latest))


def train_until(
    problem: Problem,
    progress: Progress,
    is_reached: Callable[[float], bool],
    checkpoints: checkpoint.Checkpoints,
    report: Callable[[int, str], None],
) -> Progress:
    """Returns the training at its first evaluation that `is_reached` holds for, or at its end."""
    config = problem.config
    evaluate, chunks = _make_evaluate(problem), _make_chunks(problem)
    while progress.step < config.max_steps and not is_at(progress, is_reached):
        step, online = progress.step, progress.online
        for _ in range(config.interval // config.sac.warmup_steps):
            online = chunks(online, step)
            step += config.sac.warmup_steps
            shown = f"score {progress.rows[-1]['score']:.1f}" if progress.rows else ""
            report(config.sac.warmup_steps, shown)
        rows = [*progress.rows, {"step": step, **evaluate(online.agent, step)}]
        progress = Progress(step, online, rows)
        checkpoints.save(step, online, {"identity": problem.identity()}, rows=rows)
        if stopping.is_asked():
            checkpoints.wait()
        stopping.raise_if_asked()
    return progress


def is_at(progress: Progress, is_reached: Callable[[float], bool]) -> bool:
    """Returns whether the last evaluation was at a level."""
    return bool(progress.rows) and is_reached(progress.rows[-1]["score"])


def _make_chunks(problem: Problem) -> Callable[[training.Online, int], training.Online]:
    """Returns `(online, step) -> online`: a warm-up's length of steps; only the first is one."""
    key, length = problem.keys()["train"], problem.config.sac.warmup_steps
    warm_up, learn = (
        training.make_online(problem.agent, problem.env, length=length, learn=learn)
        for learn in (False, True)
    )

    def chunk(online: training.Online, step: int) -> training.Online:
        online, log = (learn if step else warm_up)(key, online, step, None)
        _require_finite(problem, jax.device_get(log), step)
        return online

    return chunk


def _require_finite(problem: Problem, log: training.Log, first_step: int) -> None:
    """Raises an error about the first number of a chunk that is not finite, if there is one."""
    numbers = {"the sum of rewards": log.episode_return[:, 0], **log.metrics}
    bad = {name: ~np.isfinite(values) for name, values in numbers.items()}
    firsts = {name: int(np.argmax(is_bad)) for name, is_bad in bad.items() if np.any(is_bad)}
    if not firsts:
        return
    name = min(firsts, key=firsts.get)  # within a step the world comes first
    if name == "the sum of rewards":
        require_sound(problem.env, log.episode_return)
    where = f"step {first_step + firsts[name]}"
    raise Diverged(f"the training diverged: {name} is not finite at {where}")


def _make_evaluate(problem: Problem) -> Callable[[Any, int], dict[str, Any]]:
    """Returns `(state, step) -> row`: the exploring policy over some episodes."""
    key = problem.keys()["evaluate"]

    @jax.jit
    def play(key: Key, state: Any) -> evaluation.Evaluation:
        def policy(key: Key, memory: Any, obs: Array):
            return problem.agent.act(key, state, memory, obs, explore=True)[:2]

        episodes = problem.config.episodes
        return evaluation.evaluate(key, problem.wide, policy, (), episodes=episodes)

    def evaluate(state: Any, step: int) -> dict[str, Any]:
        returns = np.asarray(play(jax.random.fold_in(key, step), state).returns)
        require_sound(problem.wide, returns)
        return {"score": float(np.mean(problem.score(returns))), "returns": returns.tolist()}

    return evaluate
