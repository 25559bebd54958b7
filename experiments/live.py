"""Where a run can be watched: rows on disk, TensorBoard's event files, a line on the terminal."""

import contextlib
import importlib
import pathlib
import shutil
import time
from collections.abc import Mapping
from typing import Any

import rich.console
from tensorboardX import event_file_writer, summary
from tensorboardX.proto import event_pb2

from experiments.driver import Problem, Progress
from roid_jax import config as cfg
from roid_jax import results

EVENTS = "tensorboard"
_LEFT_OUT = ("seed", "phase", "step", "returns")
_SHOWN = {"off_anchor": "off anchor", "spread": "spread", "td_loss": "TD loss"}


class Live:
    """Writes what runs found so far, and then every row as it comes."""

    def __init__(
        self,
        problem: Problem,
        folders: Mapping[int, pathlib.Path],
        console: rich.console.Console,
        *,
        wandb: bool = False,
    ):
        self._problem, self._folders, self._console = problem, folders, console
        self._writers: dict[int, Any] = {}
        self._runs: dict[int, Any] = _open_wandb(problem, folders) if wandb else {}
        self._has_head = False

    def begin(self, progress: Progress) -> None:
        """Writes anew what was found before: a kill may have lost some of it."""
        for rows, seed in zip(progress.rows, self._problem.seeds, strict=True):
            events = self._folders[seed] / EVENTS
            shutil.rmtree(events, ignore_errors=True)
            events.mkdir()
            # Not tensorboardX's own thread: on a full disk it dies, and whoever writes next waits.
            self._writers[seed] = event_file_writer.EventsWriter(str(events / "events"))
            results.write_rows(self._folders[seed] / "results.jsonl", rows)
            for row in rows:
                self._log(seed, row)

    def add(self, progress: Progress) -> None:
        """Writes and shows the newest row of each seed."""
        for rows, seed in zip(progress.rows, self._problem.seeds, strict=True):
            results.write_rows(self._folders[seed] / "results.jsonl", rows)
            self._log(seed, rows[-1])
            self._show(rows[-1])

    def close(self) -> None:
        """Closes what was opened; whatever was written is on disk."""
        for writer in self._writers.values():
            with contextlib.suppress(OSError):
                writer.close()
        for run in self._runs.values():
            run.finish()

    def _log(self, seed: int, row: dict[str, Any]) -> None:
        numbers = {f"{row['phase']}/{k}": v for k, v in row.items() if k not in _LEFT_OUT}
        for name, value in numbers.items():
            event = {"wall_time": time.time(), "step": row["step"]}
            event["summary"] = summary.scalar(name, value)
            self._writers[seed].write_event(event_pb2.Event(**event))
        self._writers[seed].flush()
        if seed in self._runs:
            self._runs[seed].log({**numbers, f"{row['phase']}/step": row["step"]})

    def _show(self, row: dict[str, Any]) -> None:
        """Prints a row as one line of a table."""
        heads = ["seed", "phase", "step", "score", "±", *_SHOWN.values(), "steps/s"]
        widths = [5, 8, 10, 8, 6, *(max(10, len(head) + 2) for head in _SHOWN.values()), 9]
        if not self._has_head:
            self._print(heads, widths)
            self._has_head = True
        seconds, interval = row["seconds"], self._problem.config.eval_interval
        cells = [str(row["seed"]), row["phase"], f"{row['step']:,}"]
        cells += [f"{row['score']:.1f}", f"{row['score_error']:.1f}"]
        cells += [f"{row[name]:.3g}" if name in row else "" for name in _SHOWN]
        cells.append(f"{interval / seconds:.0f}" if seconds else "")
        self._print(cells, widths)

    def _print(self, cells: list[str], widths: list[int]) -> None:
        line = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        self._console.print(line, style="dim", soft_wrap=True)


def _open_wandb(problem: Problem, folders: Mapping[int, pathlib.Path]) -> dict[int, Any]:
    """Returns a run of Weights & Biases for each seed; a line where it is not installed."""
    try:
        wandb = importlib.import_module("wandb")
    except ImportError:
        raise ValueError("--wandb needs Weights & Biases: pip install wandb.") from None
    found = {}
    for seed in problem.seeds:
        names = problem.names(seed)
        found[seed] = wandb.init(
            project="roid_jax",
            name=f"{names['agent']}-{names['env']}-{seed}",
            dir=str(folders[seed]),
            config={**names, **cfg.to_dict(problem.config)},
            reinit="create_new",
        )
    return found
