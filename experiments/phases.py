"""The two phases of runs, interval by interval: compiled chunks, then an evaluation, a row."""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
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
            state, found, lived = advance(progress.state, step, length, learn)
            found, lived = jax.device_get((found, lived))
            _require_finite(found, lived, problem, progress.phase, step)
            progress = progress._replace(
                step=step + length,
                state=state,
                pending=(*progress.pending, found),
                seconds=progress.seconds + time.perf_counter() - started,
            )
            _require_finite_agent(progress, problem)
            report(length, _last_scores(progress))
            if progress.step < stop:  # else the evaluation comes first
                yield progress
        progress = evaluate(progress)
        report(0, _last_scores(progress))
        yield progress


def make_evaluate(problem: Problem) -> Callable[[Progress], Progress]:
    """Returns `progress -> progress` with a row more for each seed, and nothing pending."""
    play = problem.compile(functools.partial(_play, problem), 0, 0)

    def evaluate(progress: Progress) -> Progress:
        number = progress.number(problem.config)
        keys = jax.vmap(jax.random.fold_in, (0, None))(problem.key("evaluate"), number)
        state = agent_state(progress)
        started = time.perf_counter()
        returns = np.asarray(play(keys, state), np.float64)
        times = {"seconds": progress.seconds, "eval_seconds": time.perf_counter() - started}
        bad = np.flatnonzero(~np.all(np.isfinite(returns), axis=1))
        if bad.size:  # before anything is saved
            where = f"{progress.phase} step {progress.step} of seed {problem.seeds[bad[0]]}"
            raise _broken(problem, "an episode's return is not finite", where, is_lived=True)
        _ask(problem)
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


def _make_advance(problem: Problem, phase: str) -> Callable[..., tuple[Any, dict, dict]]:
    """Returns `(state, step, length, learn) -> state, metrics, what was lived`.

    Compiled once for each length.
    """
    agent, keys = problem.agent, problem.key("pretrain" if phase == "offline" else "online")

    @functools.cache
    def compiled(length: int, learn: bool) -> Callable:
        if phase == "offline":
            chunk, axes = training.make_pretrain(agent, length=length), 0
        else:
            chunk = training.make_online(agent, problem.env, length=length, learn=learn)
            axes = training.ONLINE_AXES
        return problem.compile(chunk, 0, axes, None, DATASET_AXES, out_axes=(axes, 0), donate=1)

    def advance(state: Any, step: int, length: int, learn: bool) -> tuple[Any, dict, dict]:
        run = compiled(length, learn)
        state, log = run(keys, state, step, problem.dataset)
        if phase == "offline":
            return state, log, {}
        return state, log.metrics, {"the sum of rewards": log.episode_return[:, :, 0]}

    return advance


def _next(step: int, interval: int) -> int:
    return (step // interval + 1) * interval


def _require_finite(
    metrics: dict, lived: dict, problem: Problem, phase: str, first_step: int
) -> None:
    """Ends the runs at the first number of a chunk that is not finite.

    Within a step what was lived comes first, as a reward that is no number makes such losses.
    """
    numbers = {**lived, **metrics}
    bad = [
        (t, name not in lived, name, i)
        for name, values in numbers.items()
        for i, t in np.argwhere(~np.isfinite(values)).tolist()
    ]
    if bad:
        t, _, name, i = min(bad)
        where = f"{phase} step {first_step + t} of seed {problem.seeds[i]}"
        raise _broken(problem, f"{name} is {numbers[name][i, t]}", where, is_lived=name in lived)
    _ask(problem)


def _require_finite_agent(progress: Progress, problem: Problem) -> None:
    """Ends the runs where a number that an agent learned is not finite, before it is saved."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(agent_state(progress)):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            continue
        flat = np.asarray(leaf).reshape(len(problem.seeds), -1)
        bad = np.flatnonzero(~np.all(np.isfinite(flat), axis=1))
        if bad.size:
            what = f"{jax.tree_util.keystr(path, simple=True, separator='.')} is not finite"
            where = f"{progress.phase} step {progress.step} of seed {problem.seeds[bad[0]]}"
            raise _broken(problem, what, where, is_lived=False)


def agent_state(progress: Progress) -> Any:
    """Returns what the agents learned so far."""
    return progress.state.agent if progress.phase == "online" else progress.state


def _broken(problem: Problem, what: str, where: str, *, is_lived: bool) -> Diverged:
    """Returns the error of a run that cannot go on, in the world's own words where it failed."""
    fault = _ask(problem)
    if is_lived and fault is not None:
        return Diverged(f"{problem.env_name} failed at {where}: {fault}")
    return Diverged(f"the run diverged: {what} at {where}")


def _ask(problem: Problem) -> str | None:
    """Returns what went wrong in the worlds since they were asked the last time."""
    faults = [env.fault() for env in (problem.env, problem.wide)]
    return faults[0] or faults[1]


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
