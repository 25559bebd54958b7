"""What a training brought: its summary, with a digest of every number; a table; a curve."""

import hashlib
import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.driver import Problem, Progress
from roid_jax import key_data, results, seeds
from roid_jax.agents import named
from roid_jax.report import figures, tables

TIMES = ("seconds", "eval_seconds")  # fields of a row that differ from run to run

_BEGINNING = 2**20  # bytes of results: some rows


class Finished(NamedTuple):
    """A run at its end: its rows, and the numbers that sum it up."""

    rows: list[dict[str, Any]]
    summary: dict[str, Any]


def finish(problem: Problem, progress: Progress, i: int) -> Finished:
    """Returns what a finished run brought, the one at place i of the seeds."""
    rows = progress.rows[i]
    summary = {
        **problem.names(problem.seeds[i]),
        **sum_up(rows),
        "seconds": round(sum(row[name] for row in rows for name in TIMES), 1),
        **{f"{phase}_steps_per_second": _speed(rows, phase) for phase in _PHASES},
        "digest": digest(seeds.take(progress.state, progress.axes, i), rows),
        "versions": results.versions(),
    }
    return Finished(rows=rows, summary=summary)


_PHASES = ("offline", "online")


def sum_up(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Returns the scores that a run is told by; those of the online phase are None without one.

    Offline is the policy that offline learning ended with; the handover's is what goes online with
    it, before its first step.
    """
    online = [row["score"] for row in rows if row["phase"] == "online"]
    offline = [row["score"] for row in rows if row["phase"] == "offline"]
    trained = online[1:]
    return {
        "offline_score": offline[-1] if offline else online[0],
        "handover_score": online[0] if online else None,
        "online_last": trained[-1] if trained else None,
        "online_mean_of_last_10": float(np.mean(trained[-10:])) if trained else None,
        "online_best": max(trained, default=None),
        "online_lowest": min(trained, default=None),
    }


def digest(state: Any, rows: Sequence[dict[str, Any]]) -> str:
    """Returns a sha256 over everything that the run ended with and its rows without their times."""
    sums = hashlib.sha256()
    for leaf in jax.tree.leaves(key_data.without_types(state)):
        array = np.asarray(leaf)
        sums.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    for row in rows:
        kept = {name: value for name, value in row.items() if name not in TIMES}
        sums.update(json.dumps(kept, sort_keys=True).encode())
    return sums.hexdigest()


def _speed(rows: Sequence[dict[str, Any]], phase: str) -> float | None:
    """Returns the steps a second of a phase, its evaluations left out and compilation kept in."""
    steps = max((row["step"] for row in rows if row["phase"] == phase), default=0)
    seconds = sum(row["seconds"] for row in rows if row["phase"] == phase)
    return round(steps / seconds, 2) if seconds else None


def summary_file(folder: pathlib.Path) -> pathlib.Path:
    """Returns the file that is there once a run has ended."""
    return folder / "summary.json"


def write_summary(folder: pathlib.Path, finished: Finished) -> None:
    """Writes the summary beside the rows, as JSON."""
    content = f"{json.dumps(finished.summary, indent=2)}\n"
    results.write_bytes(summary_file(folder), content.encode())


def read(folder: pathlib.Path) -> Finished:
    """Returns a finished run as its files have it."""
    summary = results.read_record(summary_file(folder))
    return Finished(rows=results.read_rows(folder / "results.jsonl"), summary=summary)


def count_rows(folder: pathlib.Path) -> int:
    """Returns how many evaluations the results of a run have, as far as its beginning tells."""
    file = folder / "results.jsonl"
    if not file.is_file():
        return 0
    with open(file, "rb") as opened:
        return len(opened.read(_BEGINNING).splitlines())


def make_table(problem: Problem, finished: Sequence[Finished]) -> tables.Table:
    """Returns a line for each seed, and one for their mean."""
    names = ("offline_score", "online_last", "online_mean_of_last_10", "online_best")
    body = []
    for one in finished:
        cells = (tables.number(one.summary[name], places=2) for name in names)
        body.append((str(one.summary["seed"]), *cells, f"{one.summary['seconds'] / 60:.1f}"))
    if len(finished) > 1:
        columns = [[one.summary[name] for one in finished] for name in names]
        means = ("" if None in column else f"{np.mean(column):.1f}" for column in columns)
        body += [(), ("mean", *means, "")]
    config = problem.config
    notes = (
        f"{config.offline_steps:,} offline and {config.online_steps:,} online steps on "
        f"{problem.dataset_name}; {config.eval_episodes} episodes an evaluation.",
    )
    kind = "score" if problem.is_scored else "return"
    rule = f" ({config.agent.selector.name})" if hasattr(config.agent, "selector") else ""
    title = f"{problem.agent_name}{rule} on {problem.env_name}: {kind}"
    count = max(sum(row["phase"] == "online" for row in one.rows) - 1 for one in finished)
    several = f"mean of last {min(10, count) if count > 0 else 10}"
    heads = ("seed", "offline", "online, last", several, "best", "minutes")
    return tables.Table(title, heads, tuple(body), notes)


def make_figure(finished: Sequence[Finished]) -> bytes:
    """Returns the learning curve: the score over online steps, the offline score marked.

    Bands are one standard error over the episodes of an evaluation.
    """
    lines = []
    for one in finished:
        rows = [row for row in one.rows if row["phase"] == "online"] or one.rows
        fields = "step", "score", "score_error"
        steps, scores, errors = (np.array([row[name] for row in rows]) for name in fields)
        lines.append(figures.Line(f"seed {one.summary['seed']}", steps, scores, errors))
    offline = float(np.mean([one.summary["offline_score"] for one in finished]))
    last = max(float(line.x[-1]) for line in lines)
    lines.append(
        figures.Line("offline score", np.array([0.0, last]), np.array([offline] * 2), style="--")
    )
    first = finished[0].summary
    panel = figures.Panel(
        title=f"{first['agent']} on {first['env']}, from {first['dataset'].split('/')[-1]}",
        x_label="online steps",
        y_label="score and its standard error",
        lines=lines,
    )
    return figures.draw([panel], columns=1, title="", width=6.0)


def list_agents() -> tables.Table:
    """Returns every agent, its paper, what it needs, and where its defaults are from."""
    return tables.Table(
        title="Agents",
        columns=("agent", "paper", "needs", "defaults from"),
        rows=tuple((name, e.paper, e.needs, e.source) for name, e in named.AGENTS.items()),
        text_columns=4,
    )
