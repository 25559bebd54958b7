"""The two phases of a run, interval by interval: compiled chunks, then an evaluation, a row."""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from experiments.driver import Diverged, Problem, Progress
from roid_jax import evaluation, training
from roid_jax.types import Array, Key

Advance = Callable[[int, str], None]


def run_phase(problem: Problem, progress: Progress, report: Advance) -> Iterator[Progress]:
    """Yields the run after each evaluation, until its phase has ended."""
    total = getattr(problem.config, f"{progress.phase}_steps")
    evaluate = make_evaluate(problem)
    advance = _make_advance(problem, progress.phase)
    is_new = not any(row["phase"] == "online" for row in progress.rows)
    if progress.phase == "online" and is_new:
        progress = progress._replace(rows=[*progress.rows, evaluate(progress, {}, 0.0)])
        yield progress
    while progress.step < total:
        started = time.perf_counter()
        stop = min(_next(progress.step, problem.config.eval_interval), total)
        step, state, metrics = progress.step, progress.state, []
        while step < stop:
            length = _length(problem, progress.phase, step, stop)
            state, chunk = advance(state, step, length)
            metrics.append(jax.device_get(chunk))
            _require_finite(metrics[-1], progress.phase, step)
            step += length
            report(length, _last_score(progress))
        progress = Progress(progress.phase, step, state, progress.rows)
        row = evaluate(progress, _means(metrics), time.perf_counter() - started)
        progress = progress._replace(rows=[*progress.rows, row])
        yield progress


def make_evaluate(problem: Problem) -> Callable[[Progress, dict, float], dict[str, Any]]:
    """Returns `(progress, metrics, seconds) -> row`: some episodes without exploration."""
    config, agent = problem.config, problem.agent

    @jax.jit
    def play(key: Key, state: Any) -> evaluation.Evaluation:
        key_memory, key_play = jax.random.split(key)
        keys = jax.random.split(key_memory, config.eval_episodes)

        def policy(key: Key, memory: Any, obs: Array):
            return agent.act(key, state, memory, obs, explore=False)[:2]

        memory = jax.vmap(agent.begin_episode)(keys)
        return evaluation.evaluate(
            key_play, problem.wide, policy, memory, episodes=config.eval_episodes
        )

    def evaluate(progress: Progress, metrics: dict[str, float], seconds: float) -> dict[str, Any]:
        is_online = progress.phase == "online"
        number = progress.step + is_online * (config.offline_steps + 1)
        key = jax.random.fold_in(problem.key("evaluate"), number)
        state = progress.state.agent if is_online else progress.state
        returns = np.asarray(play(key, state).returns, np.float64)
        scores = problem.score(returns)
        return {
            "seed": problem.seed,
            "phase": progress.phase,
            "step": progress.step,
            "score": float(np.mean(scores)),
            "score_error": float(np.std(scores) / np.sqrt(max(1, len(scores) - 1))),
            "returns": returns.tolist(),
            **metrics,
            "seconds": round(seconds, 3),
        }

    return evaluate


def _make_advance(problem: Problem, phase: str) -> Callable[[Any, int, int], tuple[Any, dict]]:
    """Returns `(state, step, length) -> state, metrics`, compiled once for each length."""
    agent, key = problem.agent, problem.key("pretrain" if phase == "offline" else "online")

    @functools.cache
    def compiled(length: int, learn: bool) -> Callable:
        if phase == "offline":
            return training.make_pretrain(agent, length=length)
        return training.make_online(agent, problem.env, length=length, learn=learn)

    def advance(state: Any, step: int, length: int) -> tuple[Any, dict]:
        run = compiled(length, step >= agent.warmup_steps or phase == "offline")
        state, log = run(key, state, step, problem.dataset)
        return state, log if phase == "offline" else log.metrics

    return advance


def _next(step: int, interval: int) -> int:
    return (step // interval + 1) * interval


def _length(problem: Problem, phase: str, step: int, stop: int) -> int:
    """Returns the length of the next chunk: never across an evaluation or the warm-up's end."""
    length = min(problem.config.chunk, stop - step)
    warmup = problem.agent.warmup_steps
    return min(length, warmup - step) if phase == "online" and step < warmup else length


def _require_finite(metrics: dict[str, np.ndarray], phase: str, first_step: int) -> None:
    """Ends the run at the first number of a chunk that is not finite."""
    for name, values in metrics.items():
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            value, step = values[bad[0]], first_step + bad[0]
            raise Diverged(f"{name} is {value} at {phase} step {step}")


def _means(metrics: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """Returns the mean of each number over an interval."""
    means = {}
    for name in sorted({name for chunk in metrics for name in chunk}):
        values = np.concatenate([chunk[name] for chunk in metrics if name in chunk])
        means[name] = float(np.mean(values.astype(np.float64)))
    return means


def _last_score(progress: Progress) -> str:
    return f"score {progress.rows[-1]['score']:.1f}" if progress.rows else ""
