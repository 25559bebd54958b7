"""The two phases of runs, interval by interval: compiled chunks, then an evaluation, a row."""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from experiments.driver import DATASET_AXES, Diverged, Problem, Progress
from roid_jax import api, training
from roid_jax.types import Array, Key

Advance = Callable[[int, str], None]


def run_phase(problem: Problem, progress: Progress, report: Advance) -> Iterator[Progress]:
    """Yields the runs after each chunk, until their phase has ended.

    At the end of an interval they are evaluated first: there is a row more and nothing is pending.
    """
    total = getattr(problem.config, f"{progress.phase}_steps")
    evaluate = make_evaluate(problem)
    advance = _make_advance(problem, progress.phase)
    warmup = problem.agent.warmup_steps if progress.phase == "online" else 0
    is_new = not any(row["phase"] == "online" for row in progress.rows[0])
    if progress.phase == "online" and is_new:
        progress = evaluate(progress)
        yield progress
    while progress.step < total:
        stop = min(_next(progress.step, problem.config.eval_interval), total)
        how = {"chunk": problem.config.chunk, "warmup": warmup}
        for step, length, learn in training.chunks(progress.step, stop, **how):
            started = time.perf_counter()
            state, found = advance(progress.state, step, length, learn)
            found = jax.device_get(found)
            _require_finite(found, problem, progress.phase, step)
            progress = progress._replace(
                step=step + length,
                state=state,
                pending=(*progress.pending, found),
                seconds=progress.seconds + time.perf_counter() - started,
            )
            report(length, _last_scores(progress))
            if progress.step < stop:  # else the evaluation comes first
                yield progress
        progress = evaluate(progress)
        yield progress


def make_evaluate(problem: Problem) -> Callable[[Progress], Progress]:
    """Returns `progress -> progress` with a row more for each seed, and nothing pending."""
    play = problem.compile(functools.partial(_play, problem), 0, 0)

    def evaluate(progress: Progress) -> Progress:
        number = progress.number(problem.config)
        keys = jax.vmap(jax.random.fold_in, (0, None))(problem.key("evaluate"), number)
        state = progress.state.agent if progress.phase == "online" else progress.state
        started = time.perf_counter()
        returns = np.asarray(play(keys, state), np.float64)
        times = {"seconds": progress.seconds, "eval_seconds": time.perf_counter() - started}
        bad = np.flatnonzero(~np.all(np.isfinite(returns), axis=1))
        if bad.size:  # before anything is saved
            where = f"{progress.phase} step {progress.step} of seed {problem.seeds[bad[0]]}"
            raise Diverged(f"an episode's return is not finite at {where}")
        rows = []
        for i, seed in enumerate(problem.seeds):
            about = {"seed": seed, "phase": progress.phase, "step": progress.step}
            row = {**about, **_scores(problem, returns[i]), **_means(progress.pending, i)}
            row |= {name: round(value, 3) for name, value in times.items()}
            rows.append([*progress.rows[i], row])
        return progress._replace(rows=rows, pending=(), seconds=0.0)

    return evaluate


def _play(problem: Problem, key: Key, state: Any) -> Array:
    """Returns the returns of some episodes of one run's policy, without exploration."""
    number = problem.config.eval_episodes
    return api.evaluate(key, problem.agent, state, problem.wide, episodes=number)


def _scores(problem: Problem, returns: np.ndarray) -> dict[str, Any]:
    """Returns the mean score of an evaluation, its standard error, and each episode's return."""
    scores = problem.score(returns)
    error = np.std(scores) / np.sqrt(max(1, len(scores) - 1))
    found = {"score": float(np.mean(scores)), "score_error": float(error)}
    return {**found, "returns": returns.tolist()}


def _make_advance(problem: Problem, phase: str) -> Callable[..., tuple[Any, dict]]:
    """Returns `(state, step, length, learn) -> state, metrics`, compiled once for each length."""
    agent, keys = problem.agent, problem.key("pretrain" if phase == "offline" else "online")

    @functools.cache
    def compiled(length: int, learn: bool) -> Callable:
        if phase == "offline":
            chunk, axes = training.make_pretrain(agent, length=length), 0
        else:
            chunk = training.make_online(agent, problem.env, length=length, learn=learn)
            axes = training.ONLINE_AXES
        return problem.compile(chunk, 0, axes, None, DATASET_AXES, out_axes=(axes, 0), donate=1)

    def advance(state: Any, step: int, length: int, learn: bool) -> tuple[Any, dict]:
        run = compiled(length, learn)
        state, log = run(keys, state, step, problem.dataset)
        return state, log if phase == "offline" else log.metrics

    return advance


def _next(step: int, interval: int) -> int:
    return (step // interval + 1) * interval


def _require_finite(metrics: dict, problem: Problem, phase: str, first_step: int) -> None:
    """Ends the runs at the first number of a chunk that is not finite."""
    for name, values in metrics.items():
        bad = np.argwhere(~np.isfinite(values))
        if bad.size:
            i, t = bad[np.argmin(bad[:, 1])]
            where = f"{phase} step {first_step + t} of seed {problem.seeds[i]}"
            raise Diverged(f"{name} is {values[i, t]} at {where}")


def _means(metrics: Sequence[dict[str, np.ndarray]], i: int) -> dict[str, float]:
    """Returns the mean of each number of a seed over an interval."""
    means = {}
    for name in sorted({name for chunk in metrics for name in chunk}):
        values = np.concatenate([chunk[name][i] for chunk in metrics if name in chunk])
        means[name] = float(np.mean(values.astype(np.float64)))
    return means


def _last_scores(progress: Progress) -> str:
    scores = [f"{rows[-1]['score']:.1f}" for rows in progress.rows if rows]
    return f"score {', '.join(scores)}" if scores else ""
