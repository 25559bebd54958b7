"""Finished or running trainings side by side: one table, their curves, what there was to watch.

    python -m experiments.report runs/roid-hopper-medium-v2-cpu --out=runs/report
    python -m experiments.report gentle=runs/a literal=runs/b --out=runs/report

Each argument is the workdir of `experiments.train`, with a name before it where the directory's own
will not do; the same name twice puts tasks side by side. Only result files are read. Writes
results.csv, table.md, curves.png and diagnostics.png.
"""

import json
import pathlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import rich.console
from absl import flags

from experiments import cli, train_report
from roid_jax import results
from roid_jax.report import figures, tables

# What a row holds beside the score, and what it says.
WATCHED = {
    "spread": "spread of the values",
    "off_anchor": "share of steps off the anchor",
    "regret": "regret of what was chosen",
    "information": "information of it, nats",
    "off_best": "share of steps off the best member",
    "new_policy": "share of steps of the new policy",
    "entropy": "entropy of the policy, nats",
    "td_loss": "loss of the critics",
}


class Run(NamedTuple):
    """One seed of one training: its name in the report, its task, and its rows."""

    name: str
    task: str
    seed: int
    rows: list[dict[str, Any]]

    @property
    def online(self) -> list[dict[str, Any]]:
        """The rows of the online phase, the first of them before its first step."""
        return [row for row in self.rows if row["phase"] == "online"]


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_string("out", "runs/report", "Where the report lands.")


def main(*words: str) -> None:
    """Reads the runs, writes the report and shows its table."""
    console = rich.console.Console(highlight=False)
    with cli.border():
        runs = read(words)
        out = results.open_workdir(flags.FLAGS.out)
        table = make_table(runs)
        results.write_csv(out / "results.csv", flatten(runs))
        results.write_bytes(out / "table.md", tables.to_markdown(table).encode())
        results.write_bytes(out / "curves.png", draw_curves(runs))
        results.write_bytes(out / "diagnostics.png", draw_diagnostics(runs))
    tables.show(table, console)
    console.print(f"The report is in {out}/", soft_wrap=True)


def read(words: Sequence[str]) -> list[Run]:
    """Returns the runs in each `[name=]workdir`."""
    if not words:
        raise ValueError("name at least one workdir of experiments.train, as in runs/mine.")
    runs = []
    for word in words:
        name, _, given = word.partition("=") if "=" in word else ("", "", word)
        folder = results.expand(given)
        files = sorted(folder.glob("seed_*/results.jsonl"))
        if not files:
            raise ValueError(f"there are no results of experiments.train in {given!r}.")
        runs += [read_seed(name or folder.name, file) for file in files]
    for (name, task, seed), number in Counter(run[:3] for run in runs).items():
        if number > 1:
            raise ValueError(f"seed {seed} of {name!r} on {task} is there twice; name one <name>=.")
    if not any(run.online for run in runs):
        raise ValueError("none of these runs has come to its online phase.")
    return runs


def read_seed(name: str, file: pathlib.Path, task: str | None = None) -> Run:
    """Returns one seed's rows, on the task that it says, or on that one."""
    try:
        about = json.loads((file.parent / "config.json").read_text(encoding="utf-8"))["run"]
        return Run(name, task or about["env"], about["seed"], results.read_rows(file))
    except (OSError, ValueError, LookupError, TypeError):
        raise ValueError(f"{file.parent} is not what experiments.train writes.") from None


def flatten(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Returns rows for a CSV: the run's name first, the episodes' returns left out."""
    left_out = ("returns", *train_report.TIMES)
    rows = []
    for run in runs:
        for row in run.rows:
            kept = {name: value for name, value in row.items() if name not in left_out}
            rows.append({"run": run.name, "task": run.task, **kept})
    return rows


def make_table(runs: Sequence[Run]) -> tables.Table:
    """Returns a line for each seed, and the mean of each training."""
    body: list[tuple[str, ...]] = []
    for task, name in dict.fromkeys((run.task, run.name) for run in runs):
        group = [run for run in runs if (run.task, run.name) == (task, name) and run.online[1:]]
        for run in group:
            steps = f"{run.online[-1]['step']:,}"
            numbers = train_report.sum_up(run.rows).values()
            body.append((task, name, str(run.seed), *_cells(numbers), steps))
        if len(group) > 1:
            numbers = [list(train_report.sum_up(run.rows).values()) for run in group]
            means = np.mean(numbers, axis=0)
            body.append((task, name, "mean", *_cells(means), ""))
        body.append(())
    scores = "offline", "handover", "last", "last 10", "best", "lowest"
    heads = "task", "run", "seed", *scores, "steps"
    note = (
        "Scores; handover is what goes online, before its first step; last 10 is the mean of ten "
        "evaluations, or of all; lowest is of all online ones."
    )
    return tables.Table("Offline to online", heads, tuple(body[:-1]), (note,), text_columns=2)


def _cells(values: Iterable[float]) -> list[str]:
    return [f"{value:.1f}" for value in values]


def draw_curves(runs: Sequence[Run]) -> bytes:
    """Returns the score over online steps, a panel for each task."""
    panels = [_panel(runs, task, "score", "score") for task in _tasks(runs)]
    return figures.draw(panels, columns=min(3, len(panels)), title="", width=6.0)


def draw_diagnostics(runs: Sequence[Run]) -> bytes:
    """Returns what there was to watch over online steps, task by task."""
    seen = {name for run in runs for row in run.online for name in row}
    watched = [what for what in WATCHED.items() if what[0] in seen] or list(WATCHED.items())[:1]
    panels = [_panel(runs, task, *what) for task in _tasks(runs) for what in watched]
    return figures.draw(panels, columns=min(4, len(watched)), title="")


def _tasks(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.task for run in runs))


def _panel(runs: Sequence[Run], task: str, field: str, label: str) -> figures.Panel:
    """Returns the mean over seeds of a field, with its standard error, as far as all seeds are."""
    lines = []
    for name in dict.fromkeys(run.name for run in runs):
        group = [run.online for run in runs if (run.task, run.name) == (task, name)]
        curves = [{row["step"]: row[field] for row in rows if field in row} for rows in group]
        steps = sorted(set.intersection(*map(set, curves))) if curves else []
        if not steps:
            continue
        values = np.array([[curve[step] for step in steps] for curve in curves])
        error = np.std(values, axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
        lines.append(figures.Line(name, np.array(steps), np.mean(values, axis=0), error))
    return figures.Panel(title=task, x_label="online steps", y_label=label, lines=lines)


if __name__ == "__main__":
    cli.run(main, define_flags, arguments=None)
