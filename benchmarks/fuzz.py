"""Does anything that comes from outside do harm: damaged files, read as the product reads them.

    python -m benchmarks.fuzz --cases=1000
    python -m benchmarks.fuzz --kinds=d4rl,minari --cases=200 --seed=1 --json
    python -m benchmarks.fuzz --kinds=d4rl --case=17

A small sample of every kind of file is damaged: in its bytes (bits flipped, parts cut off, zeroed,
inserted, swapped) and in what it says (types, shapes, claims, links, names). Reading it must end in
data that is as it should be, or in one clear line. A traceback, a crash, a wait without end, memory
beyond a bound, a file outside of the case's own directory and a pickle that is loaded are failures;
each is listed with its number, by which it can be run again. Its files are then in the workdir.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from absl import flags

from benchmarks.fuzz_kinds import KINDS
from benchmarks.fuzz_worker import BROKEN, Outcome
from experiments import cli
from roid_jax import config as cfg
from roid_jax import directories, results
from roid_jax.report import tables


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_list("kinds", list(KINDS), "Which files, between commas.")
    flags.DEFINE_integer("cases", 1200, "Over all kinds.", lower_bound=1)
    flags.DEFINE_integer("case", None, "Only this one of each kind.", lower_bound=0)
    flags.DEFINE_integer("seed", 0, "Of the damages.", lower_bound=0)
    flags.DEFINE_float("seconds", 20.0, "That a case may take.", lower_bound=0.1)
    flags.DEFINE_string("workdir", "runs/fuzz", "Where the files are.")
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")


def main() -> None:
    """Runs the cases of each kind, prints one table, and ends with 1 where one failed."""
    values = flags.FLAGS
    with cli.border():
        for name in values.kinds:
            cfg.check_one_of("kinds", name, KINDS)
        workdir = directories.open_workdir(values.workdir)
    console = cli.console(quiet=values.json)
    each = -(-values.cases // len(values.kinds))
    cases = range(each) if values.case is None else range(values.case, values.case + 1)
    found = []
    for name in values.kinds:
        if values.case is None:
            shutil.rmtree(workdir / name, ignore_errors=True)
        with cli.track(name, len(cases), console, unit="cases") as advance:
            how = {"seed": values.seed, "seconds": values.seconds}
            found += run(name, cases, workdir / name, advance, **how)
    failed = [one for one in found if one.ending == "failed"]
    if values.json:
        counts = [dict(zip(HEADS, row, strict=True)) for row in count(found)]
        failures = [one._asdict() for one in failed]
        record = {"counts": counts, "failed": failures, "versions": results.versions()}
        print(json.dumps(record))
    else:
        tables.show(make_table(found), console)
        for one in failed:
            console.print(
                f"{one.kind} {one.case} ({one.damage}): {one.why}", soft_wrap=True, markup=False
            )
    if failed:
        sys.exit(1)


def run(
    name: str,
    cases: range,
    folder: pathlib.Path,
    report: Callable[[float, str], None] = lambda number, said: None,
    *,
    seed: int,
    seconds: float = 20.0,
) -> list[Outcome]:
    """Runs cases of one kind, in as many processes as it takes: a case may be a process's last."""
    found: list[Outcome] = []
    while len(found) < len(cases):
        rest = cases[len(found) :]
        words = name, seed, rest.start, rest.stop, folder.absolute(), seconds
        begun, code = None, 0
        with (
            open(folder.with_name(f"{name}.log"), "a", encoding="utf-8") as log,
            _start(words, log) as worker,
        ):
            for line in worker.stdout:
                told = json.loads(line)
                begun = told["case"] if "ending" not in told else None
                if begun is None:
                    found.append(Outcome(**told))
                    report(1, "failed" if found[-1].ending == "failed" else "")
            code = worker.wait()
        if code == BROKEN or (begun is None and code != 0):
            raise RuntimeError(f"the fuzz itself failed with {name}; see {log.name}.")
        if begun is not None:
            found.append(Outcome(name, begun, "", "failed", _cause(code, seconds)))
            report(1, "failed")
    return found


def _start(words: Sequence[object], log: TextIO) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fuzz_worker", *map(str, words)],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "MALLOC_ARENA_MAX": "2"},
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )


def _cause(code: int, seconds: float) -> str:
    """Returns what ended a process in the middle of a case."""
    if code < 0:
        return f"the process died of {signal.Signals(-code).name}"
    return f"it took more than {seconds:g} s" if code == 1 else f"the process ended with {code}"


HEADS = ("kind", "cases", "loaded", "refused", "failed")


def count(found: Sequence[Outcome]) -> list[tuple[str, int, int, int, int]]:
    """Returns a line for each kind: how many cases, and how they ended."""
    rows = []
    for kind in dict.fromkeys(one.kind for one in found):
        endings = [one.ending for one in found if one.kind == kind]
        rows.append((kind, len(endings), *(endings.count(ending) for ending in HEADS[2:])))
    return rows


def make_table(found: Sequence[Outcome]) -> tables.Table:
    """Returns the counts, and their sums."""
    rows = count(found)
    sums = ("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:]))
    body = [tuple(map(str, row)) for row in rows]
    versions = results.versions()
    notes = (f"{versions['device']}, jax {versions['jax']}, {versions['platform']}.",)
    return tables.Table("Damaged files", HEADS, (*body, (), tuple(map(str, sums))), notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
