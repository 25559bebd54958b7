"""Many trainings, one table: every agent on every task, or every selector from one offline phase.

    python -m experiments.sweep --suite=d4rl_table --profile=cpu
    python -m experiments.sweep --suite=selector_study --profile=cpu --num_seeds=5
    python -m experiments.sweep --suite=d4rl_table --profile=cpu --tasks=hopper-medium-v2 \\
        --dataset=hdf5:data/{world}_medium.hdf5 -- --config.online_steps=50_000

What stands after `--` goes to every training. Each of them is `experiments.train` in a process of
its own; those that have finished are not run again, and one that was stopped goes on. Writes
table.md, results.csv and figures; `experiments.report` makes a page of the workdir.
"""

import contextlib
import dataclasses
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import rich.console
import scipy.stats
from absl import flags

from experiments import (
    cli,
    profiles,
    report,
    report_panels,
    report_runs,
    stopping,
    suites,
    train_report,
)
from experiments.suites import SweepConfig
from roid_jax import directories, results
from roid_jax.data import registry
from roid_jax.report import tables

_REFUSED = 2  # what a training ends with that did not begin


class Cell(NamedTuple):
    """One training: its name in the table, its task, where it lands, and what is asked of it."""

    name: str
    task: str
    folder: pathlib.Path
    flags: tuple[str, ...]

    def folders(self, num_seeds: int) -> list[pathlib.Path]:
        """Where each seed lands."""
        return [self.folder / f"seed_{seed}" for seed in range(num_seeds)]

    def is_finished(self, num_seeds: int, words: Sequence[str]) -> bool:
        """Whether every seed has ended, and was asked for in the same words."""
        asked = [f"--workdir={self.folder}", *self.flags, *words]
        return all(
            train_report.summary_file(folder).is_file() and _command(folder)[1:] == asked
            for folder in self.folders(num_seeds)
        )


def _command(folder: pathlib.Path) -> list[str]:
    """Returns the words that a training was started with; none where its files cannot be read."""
    try:
        return report_runs.read_seed("", folder / "results.jsonl").about["command"]
    except ValueError:
        return []


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_enum("suite", "d4rl_table", list(suites.SWEEPS), "Which trainings.")
    flags.DEFINE_enum("profile", "cpu", profiles.PROFILES, "How long and how large each is.")
    flags.DEFINE_string(
        "dataset", None, "Logged data by name, with {task} and {world} in it; the tasks', if not."
    )
    flags.DEFINE_string("workdir", None, "Where results land; runs/<suite>-<profile>.")
    for name in ("tasks", "agents", "selectors"):
        flags.DEFINE_list(name, None, f"Which {name}, between commas; the suite's, if not given.")
    flags.DEFINE_integer("num_seeds", None, "How many of each; the suite's.", lower_bound=1)


def main(*words: str) -> None:
    """Runs every training that has not finished, then shows them together."""
    values = flags.FLAGS
    console = cli.console()
    stopping.mind_preemption()
    with contextlib.ExitStack() as stack:
        with cli.border():
            config = configured()
            workdir = values.workdir or f"runs/{values.suite}-{values.profile}"
            workdir = directories.open_workdir(workdir)
            stack.enter_context(directories.hold(workdir))
            cells = make_cells(config, workdir)
        failed = [cell for cell in cells if not _run(cell, cells, config, words, console)]
        finished = [cell for cell in cells if cell not in failed]
        if finished:
            with cli.border():
                table = _report(finished, config, workdir)
            tables.show(table, console)
            console.print(f"The table, its rows and the curves are in {workdir}/", soft_wrap=True)
    if failed:
        names = ", ".join(f"{cell.name} on {cell.task}" for cell in failed)
        cli.fail(f"{len(failed)} of {len(cells)} trainings failed: {names}.", code=1)


def configured() -> SweepConfig:
    """Returns the suite with what the flags change in it."""
    values = flags.FLAGS
    given = {name: getattr(values, name) for name in ("tasks", "agents", "selectors", "num_seeds")}
    changes = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if value is not None
    }
    return dataclasses.replace(suites.SWEEPS[values.suite], **changes)


def make_cells(config: SweepConfig, workdir: pathlib.Path) -> list[Cell]:
    """Returns the trainings in the order they are run."""
    values = flags.FLAGS
    cells = []
    for task in config.tasks:
        shared = [
            f"--task={task}",
            f"--profile={values.profile}",
            f"--num_seeds={config.num_seeds}",
        ]
        if values.dataset:
            world = task.split("-")[0]
            name = values.dataset.replace("{task}", task).replace("{world}", world)
            shared.append(f"--dataset={name}")
            registry.locate(name)  # before the first training, not in each
        elif values.profile in ("paper", "cpu"):
            registry.locate(f"d4rl:{task}")
        for agent in config.agents:
            for selector in config.selectors or (None,):
                name = selector or agent
                asked = [*shared, f"--agent={agent}"]
                if selector:
                    asked.append(f"--selector={selector}")
                if selector and selector != config.selectors[0]:
                    asked.append(f"--from_checkpoint={workdir / task / config.selectors[0]}")
                cells.append(Cell(name, task, workdir / task / name, tuple(asked)))
    return cells


def _run(
    cell: Cell,
    cells: Sequence[Cell],
    config: SweepConfig,
    words: Sequence[str],
    console: rich.console.Console,
) -> bool:
    """Runs one training to its end unless it is there; returns whether it is."""
    what = f"{cells.index(cell) + 1} of {len(cells)}: {cell.name} on {cell.task}"
    num_seeds = config.num_seeds
    is_there = cell.is_finished(num_seeds, words)
    if is_there or (_waited(cell, num_seeds, console) and cell.is_finished(num_seeds, words)):
        console.print(f"{what} is there.", soft_wrap=True)
        return True
    stopping.raise_if_asked()
    console.print(what, soft_wrap=True)
    code = _train(cell, words)
    stopping.raise_if_asked()  # whatever it made of that: it may have been at its end
    if code in (stopping.INTERRUPTED, stopping.PREEMPTED):
        raise stopping.Stopped(code)
    if code == _REFUSED and _waited(cell, num_seeds, console):  # that one had not begun before
        return _run(cell, cells, config, words, console)
    return code == 0


def _train(cell: Cell, words: Sequence[str]) -> int:
    """Runs one training; returns what it ended with."""
    command = [sys.executable, "-m", "experiments.train", f"--workdir={cell.folder}", *cell.flags]
    with subprocess.Popen([*command, *words]) as run, stopping.passing_on(run.send_signal):
        return run.wait()


def _waited(cell: Cell, num_seeds: int, console: rich.console.Console) -> bool:
    """Waits while a training is at work there that outlived its sweep; returns whether one was."""
    waited_for = set()
    for folder in filter(pathlib.Path.is_dir, cell.folders(num_seeds)):
        while (who := _worker(folder)) is not None:
            if who not in waited_for:
                waited_for.add(who)
                console.print(f"waiting for {who}, which is at work in {folder}", soft_wrap=True)
            stopping.pause(1.0)
    return bool(waited_for)


def _worker(folder: pathlib.Path) -> str | None:
    """Returns who has a directory to itself, None for nobody."""
    with cli.border():
        try:
            with directories.hold(folder):
                return None
        except directories.InUse as busy:
            return busy.who


def _report(cells: Sequence[Cell], config: SweepConfig, workdir: pathlib.Path) -> tables.Table:
    """Writes the report of the trainings that have finished; returns their table."""
    runs = [
        report_runs.read_seed(cell.name, folder / "results.jsonl")._replace(task=cell.task)
        for cell in cells
        for folder in cell.folders(config.num_seeds)
    ]
    table = make_table(runs)
    results.write_csv(workdir / "results.csv", report_runs.flatten(runs))
    results.write_bytes(workdir / "table.md", tables.to_markdown(table).encode())
    report.draw(workdir, report_panels.make(runs))
    return table


def make_table(runs: Sequence[report_runs.Run]) -> tables.Table:
    """Returns a line for each task and name: means over seeds, and a 95% interval of the gain."""
    body: list[tuple[str, ...]] = []
    for task, name in dict.fromkeys((run.task, run.name) for run in runs):
        group = [run for run in runs if (run.task, run.name) == (task, name)]
        numbers = [train_report.sum_up(run.rows) for run in group]
        columns = {key: np.array([one[key] for one in numbers], float) for key in numbers[0]}
        offline, late = columns["offline_score"], columns["online_mean_of_last_10"]
        cells = (offline, columns["online_last"], late, late - offline)
        steps = f"{group[0].online[-1]['step']:,}"
        body.append((task, name, str(len(group)), *map(interval, cells), steps))
    heads = "task", "run", "seeds", "offline", "last", "last 10", "gain", "steps"
    note = (
        "Scores: mean over seeds and 95% interval (Student's t); last 10 is the mean of ten "
        "evaluations, or of all that are online, and gain what it has over offline."
    )
    return tables.Table("Offline to online", heads, tuple(body), (note,), text_columns=2)


def interval(values: np.ndarray) -> str:
    """Returns the mean of some seeds and half its 95% interval, `mean ± half`; or the mean."""
    if len(values) < 2:
        return f"{np.mean(values):.1f}"
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.1f} ± {scipy.stats.t.ppf(0.975, len(values) - 1) * error:.1f}"


if __name__ == "__main__":
    cli.run(main, define_flags, arguments=None)
