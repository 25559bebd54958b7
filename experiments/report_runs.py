"""Runs as their result files have them: found in workdirs, read, and grouped."""

import pathlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import train_report
from roid_jax import directories, results

_TASK = "--task="
_BUDGET = ("offline_steps", "online_steps", "eval_episodes", "eval_interval")
_LARGE = 1e100  # no number of a training, which is of single precision, comes near it


class Run(NamedTuple):
    """One seed of one training.

    name: in the report; task: what it was on; rows: one for each evaluation.
    about: its config.json: command, settings, versions, and which run it is.
    folder: where its files are.
    """

    name: str
    task: str
    seed: int
    rows: list[dict[str, Any]]
    about: dict[str, Any]
    folder: pathlib.Path

    @property
    def online(self) -> list[dict[str, Any]]:
        """The rows of the online phase, the first of them before its first step."""
        return [row for row in self.rows if row["phase"] == "online"]

    @property
    def slug(self) -> str:
        """What its page is called, without signs that a file's name had better not have."""
        words = f"{self.name}-{self.task}-seed-{self.seed}"
        plain = "".join(sign if sign.isalnum() or sign in "-._" else "-" for sign in words)
        return plain.lstrip(".-")

    @property
    def scores(self) -> dict[str, float | None]:
        """The numbers that it is told by."""
        return train_report.sum_up(self.rows)


def read(words: Sequence[str]) -> list[Run]:
    """Returns the runs in each `[name=]workdir`, of a training or of a whole sweep."""
    if not words:
        raise ValueError("name at least one workdir of experiments.train, as in runs/mine.")
    runs = []
    for word in words:
        name, folder = split(word)
        found = [*_training(name or folder.name, folder), *_sweep(name, folder)]
        if not found:
            raise ValueError(f"there are no results of experiments.train in {str(folder)!r}.")
        runs += found
    for (name, task, seed), number in Counter(run[:3] for run in runs).items():
        if number > 1:
            raise ValueError(f"seed {seed} of {name!r} on {task} is there twice; name one <name>=.")
    for slug, number in Counter(run.slug for run in runs).items():
        if number > 1:
            raise ValueError(f"two runs would have the page {slug}.html; name one <name>=.")
    if not any(run.online for run in runs):
        raise ValueError("none of these runs has come to its online phase.")
    return runs


def split(word: str) -> tuple[str, pathlib.Path]:
    """Returns the name, empty for none, and the workdir in `[name=]workdir`."""
    name, _, given = word.partition("=") if "=" in word else ("", "", word)
    if not given:
        raise ValueError(f"{word!r} has no workdir; name one, as in runs/mine or mine=runs/mine.")
    return name, directories.expand(given)


def _training(name: str, folder: pathlib.Path) -> Iterator[Run]:
    for file in sorted(folder.glob("seed_*/results.jsonl"), key=_seed_of):
        yield read_seed(name, file)


def _sweep(prefix: str, folder: pathlib.Path) -> Iterator[Run]:
    """Yields the runs of `experiments.sweep`, which are in <task>/<name>/."""
    for cell in sorted({file.parent.parent for file in folder.glob("*/*/seed_*/results.jsonl")}):
        name = f"{prefix} {cell.name}".strip()
        yield from _training(name, cell)


def _seed_of(file: pathlib.Path) -> tuple[int, str]:
    number = file.parent.name.removeprefix("seed_")
    return (int(number) if number.isdigit() else 0, number)


def read_seed(name: str, file: pathlib.Path) -> Run:
    """Returns one seed of a training."""
    try:
        about = results.read_record(file.parent / "config.json")
        rows = results.read_rows(file)
        _check_about(about)
        _check_rows(rows)
        return Run(name, task_of(about), about["run"]["seed"], rows, about, file.parent)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, LookupError) else str(error)
        has_more = (file.parent / "checkpoints").is_dir()
        do = "start that training again, which writes it anew" if has_more else "remove it"
        raise ValueError(
            f"{file.parent} is not what experiments.train writes ({reason}); {do}, or name "
            "another workdir."
        ) from error


def _check_about(about: dict[str, Any]) -> None:
    """Raises an error where a field of config.json is missing or of another type."""
    run, config = about["run"], about["config"]
    rule = config.get("agent", {}).get("selector", {}).get("name", "")
    versions = [about["versions"][name] for name in ("roid_jax", "jax", "mujoco", "device")]
    words = [run["agent"], run["env"], run["dataset"], rule, *versions, *about["command"]]
    if not all(isinstance(word, str) for word in words) or type(about["command"]) is not list:
        raise TypeError("config.json has something else where words belong")
    if not all(_is_count(number) for number in (run["seed"], *(config[name] for name in _BUDGET))):
        raise TypeError("config.json has something else where whole numbers belong")


def _check_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Raises an error where a field of a row is missing, or is no number that a report can show."""
    if not rows:
        raise ValueError("results.jsonl has no rows")
    for i, row in enumerate(rows):
        numbers = [value for name, value in row.items() if name not in ("phase", "returns")]
        is_right = row["phase"] in ("offline", "online") and _is_count(row["step"])
        if not is_right or not {"score", "score_error"} <= row.keys():
            raise ValueError(f"row {i + 1} has no phase, step or score that could be")
        if not all(type(number) in (int, float) and abs(number) < _LARGE for number in numbers):
            raise TypeError(f"row {i + 1} has something else where numbers belong")


def _is_count(given: Any) -> bool:
    return type(given) is int and 0 <= given < 2**63


def task_of(about: dict[str, Any]) -> str:
    """Returns the task that a training was on: D4RL's where its data is, else its world."""
    world, dataset = about["run"]["env"], str(about["run"]["dataset"])
    asked = [word.removeprefix(_TASK) for word in about["command"] if word.startswith(_TASK)]
    of_world = [task for task in asked if task.split("-")[0] == world]
    if dataset.startswith("d4rl:"):
        return dataset.removeprefix("d4rl:")
    return of_world[-1] if of_world else world


def groups(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """Returns the runs by (task, name), in their order; only those that learned online."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.online[1:]:
            found.setdefault((run.task, run.name), []).append(run)
    return found


def names(runs: Sequence[Run]) -> list[str]:
    """Returns the runs' names, each once."""
    return list(dict.fromkeys(run.name for run in runs))


def tasks(runs: Sequence[Run]) -> list[str]:
    """Returns the tasks, each once."""
    return list(dict.fromkeys(run.task for run in runs))


def matrices(runs: Sequence[Run], field: str) -> dict[str, np.ndarray]:
    """Returns `[N, T]` a score of each name that is on every task, with as many seeds on each.

    Where a task has more seeds than another, the first so many are taken.
    """
    grouped, found = groups(runs), {}
    for name in names(runs):
        columns = [grouped.get((task, name), []) for task in tasks(runs)]
        number = min(map(len, columns))
        if number:
            scores = [[run.scores[field] for run in column[:number]] for column in columns]
            found[name] = np.array(scores, float).T
    return found


def flatten(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Returns rows for a CSV: the run's name first, the episodes' returns left out."""
    left_out = ("returns", *train_report.TIMES)
    rows = []
    for run in runs:
        for row in run.rows:
            kept = {name: value for name, value in row.items() if name not in left_out}
            rows.append({"run": run.name, "task": run.task, **kept})
    return rows
