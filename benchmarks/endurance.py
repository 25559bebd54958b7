"""Does a long run stay as it began: a training of hours, and its memory and rate on the way.

    python -m benchmarks.endurance --minutes=120
    python -m benchmarks.endurance --minutes=120 --json > endurance.json

`experiments.train` takes online steps of ROID at a small setting, with all that belongs to it:
evaluations, rows, event files, checkpoints. The world is halfcheetah, whose episodes are all of one
length, so that a policy that learns to stand changes no rate. In two hours there are about as many
evaluations as in a run of the paper's, 300 to 400. The run is looked at from outside, and in the
end asked to stop, as by a scheduler. What is compared are medians of the first and the last
quarter; ends with 1 where memory grew by more than 2% or steps a second fell by more than 5%.
"""

import contextlib
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import h5py
import numpy as np
from absl import flags

from experiments import cli, stopping
from roid_jax import config as cfg
from roid_jax import memory, results
from roid_jax.report import tables

QUARTERS = 4
_PATIENCE = 300  # seconds for a training that is asked to stop
MOST_MEMORY, LEAST_RATE = 1.02, 0.95  # of the first quarter's


class Mark(NamedTuple):
    """A training at an evaluation: what it needed and how fast it was since the last one.

    megabytes: the least that it had for itself; what saving takes for a moment is not in it.
    rate: online steps a second as it reports them, without evaluations.
    own_rate: online steps a second of the process's own time, with all that it does between them;
      neighbours on the machine disturb it less.
    """

    minutes: float
    steps: int
    megabytes: float
    rate: float
    own_rate: float


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_float("minutes", 120.0, "How long.", upper_bound=1e5)
    flags.DEFINE_integer("interval", 20_000, "Online steps between evaluations.", lower_bound=2)
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")


def main() -> None:
    """Trains for as long as it was told to and prints one table."""
    values = flags.FLAGS
    with cli.border():
        cfg.check(values.minutes > 0, "minutes", "above 0", values.minutes)
    console = cli.console(quiet=values.json)
    how = {"minutes": values.minutes, "interval": values.interval}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="endurance-") as folder,
            cli.track("a training", 60.0 * values.minutes, console, unit="seconds") as advance,
        ):
            marks = endure(pathlib.Path(folder), **how, report=advance)
    except Ended as error:
        cli.fail(str(error), code=1)
    change = drift(marks)
    if values.json:
        rows = [mark._asdict() for mark in marks]
        print(json.dumps({"marks": rows, "drift": change, "versions": results.versions()}))
    else:
        tables.show(make_table(marks), console)
    if said := complaint(change):
        cli.fail(said, code=1)


class Ended(Exception):
    """A training did not go on for as long as it should, or did not stop as it should."""


def endure(
    folder: pathlib.Path,
    *,
    minutes: float,
    interval: int,
    report: Callable[[float], None] = lambda seconds: None,
) -> list[Mark]:
    """Returns a mark for every evaluation once all is compiled, two for each quarter at least."""
    training = _start(folder, interval)
    marks: list[Mark] = []
    began = before = None  # moment, own seconds and step of the first and the last evaluation
    least = math.inf
    try:
        while len(marks) < 2 * QUARTERS or time.perf_counter() < began[0] + 60.0 * minutes:
            time.sleep(0.1)
            if training.poll() is not None:
                said = (folder / "stderr").read_text(encoding="utf-8")
                raise Ended(f"the training ended with {training.returncode}: {said}")
            row, held = _newest_row(folder), memory.held(training.pid)
            least = min(least, held)
            now = time.perf_counter(), _own_seconds(training.pid), row["step"]
            if began is None and row["step"] > 0:
                began, before, least = now, now, held
            elif began is not None and row["step"] > before[2]:
                passed, own, steps = (y - x for x, y in zip(before, now, strict=True))
                rates = steps / row["seconds"], steps / own
                since = (now[0] - began[0]) / 60.0
                marks.append(Mark(since, row["step"], least, *rates))
                before, least = now, held
                report(passed)
            report(0.0)  # where Ctrl-C acts
        training.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            training.wait(_PATIENCE)
        if training.returncode != stopping.PREEMPTED:
            raise Ended(f"the training did not stop with 75, but with {training.returncode}.")
    finally:
        training.kill()
        training.wait()
    return marks


def _start(folder: pathlib.Path, interval: int) -> subprocess.Popen:
    sizes = {"online_steps": 10**8, "eval_interval": interval, "eval_episodes": 1, "chunk": 500}
    sizes |= {"replay_capacity": 100_000}
    words = [f"--config.{name}={value}" for name, value in sizes.items()]
    _write_data(folder / "data.hdf5")
    words += ["--env=halfcheetah", f"--dataset=hdf5:{folder / 'data.hdf5'}"]
    command = [sys.executable, "-m", "experiments.train", "--profile=smoke", *words]
    with open(folder / "stderr", "w", encoding="utf-8") as said:
        return subprocess.Popen(
            [*command, f"--workdir={folder}"],
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,  # Ctrl-C is ours
        )


def _write_data(path: pathlib.Path, rows: int = 2000) -> None:
    """Writes a recording to begin with, of no meaning."""
    generator = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file["observations"] = generator.normal(size=(rows, 17)).astype(np.float32)
        file["actions"] = generator.uniform(-1.0, 1.0, (rows, 6)).astype(np.float32)
        file["rewards"] = generator.normal(size=rows).astype(np.float32)
        file["terminals"] = np.zeros(rows, bool)
        file["timeouts"] = np.arange(rows) % 1000 == 999


def _newest_row(folder: pathlib.Path) -> dict[str, Any]:
    """Returns what a training wrote of its last evaluation online, step 0 before there is one."""
    file = folder / "seed_0" / "results.jsonl"
    rows = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    last = json.loads(rows[-1]) if rows else {}
    return last if last.get("phase") == "online" else {"step": 0}


def _own_seconds(process: int) -> float:
    """Returns the time on processors that a process has had."""
    after_name = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, after_name[11:13])) / os.sysconf("SC_CLK_TCK")


def quarters(marks: list[Mark]) -> list[dict[str, float]]:
    """Returns the last minute and step of each quarter, and medians of the rest."""
    size = len(marks) / QUARTERS
    found = []
    for i in range(QUARTERS):
        part = marks[round(i * size) : round((i + 1) * size)]
        middle = map(statistics.median, zip(*part, strict=True))
        ends = {"minutes": part[-1].minutes, "steps": part[-1].steps}
        found.append({**dict(zip(Mark._fields, middle, strict=True)), **ends})
    return found


def drift(marks: list[Mark]) -> dict[str, float]:
    """Returns the last quarter's median over the first's, of memory and of both rates."""
    first, *_, last = quarters(marks)
    return {name: last[name] / first[name] for name in ("megabytes", "rate", "own_rate")}


def complaint(change: dict[str, float]) -> str:
    """Returns what is wrong with a drift, or nothing."""
    if change["megabytes"] > MOST_MEMORY:
        return f"memory grew to {change['megabytes']:.3f} of what it was, above {MOST_MEMORY}."
    if change["rate"] < LEAST_RATE:
        return f"steps a second fell to {change['rate']:.3f} of what they were, below {LEAST_RATE}."
    return ""


def make_table(marks: list[Mark]) -> tables.Table:
    """Returns the medians of each quarter, and how the last compares with the first."""
    body: list[tuple[str, ...]] = [
        (
            f"to minute {part['minutes']:.0f}",
            *(f"{part[name]:,.0f}" for name in ("steps", "megabytes", "rate", "own_rate")),
        )
        for part in quarters(marks)
    ]
    changes = [f"{ratio:.3f}" for ratio in drift(marks).values()]
    body += [(), ("last / first", "", *changes)]
    heads = ("online steps, medians", "steps", "MB", "steps/s", "steps/s of its own time")
    versions = results.versions()
    notes = (
        f"{len(marks)} evaluations; {versions['device']}, jax {versions['jax']}, MuJoCo "
        f"{versions['mujoco']}.",
    )
    return tables.Table("A long run", heads, tuple(body), notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
