"""Reads damaged files, one after another, in a process that may die of it.

    python -m benchmarks.fuzz_worker <kind> <seed> <first> <stop> <folder> <seconds>

Says which case it begins before it begins it, and how it ended after: one JSON object a line. A
case that takes too long ends the process; memory beyond a bound is refused by the system.
"""

import contextlib
import faulthandler
import json
import os
import pathlib
import pickle
import random
import resource
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple
from unittest import mock

from benchmarks import fuzz_data
from benchmarks.fuzz_kinds import KINDS, Kind

MEMORY = 2 * 2**30  # bytes that a case may take beside what the process has
LINE = 1000  # characters of a line that can still be read
BROKEN = 70  # the exit code where not a reader but the fuzz itself is at fault


class Outcome(NamedTuple):
    """How a case ended: `loaded`, `refused` or `failed`; and what was said."""

    kind: str
    case: int
    damage: str
    ending: str
    why: str


def prepare(kind: Kind, root: pathlib.Path) -> None:
    """Makes the sample, and beside it what nobody may touch; reads it once, undamaged.

    One that is there stays: Orbax names its files at random.
    """
    if not root.exists():
        (root / "sample").mkdir(parents=True)
        kind.make(root / "sample")
        (root / "sentinel").write_text("as it was\n", encoding="utf-8")
        (root / "other").mkdir()
        fuzz_data.write_d4rl(root / "other")
        (root / "other" / "data.hdf5").rename(root / "other.hdf5")
    _fresh_case(root)
    kind.read(root / "case")


def _fresh_case(root: pathlib.Path) -> None:
    shutil.rmtree(root / "case", ignore_errors=True)
    shutil.copytree(root / "sample", root / "case")


def run_case(name: str, kind: Kind, root: pathlib.Path, seed: int, case: int) -> Outcome:
    """Damages a copy of the sample and reads it; all that happens follows from the numbers."""
    _fresh_case(root)
    damage = kind.damage(root / "case", case, random.Random(f"{seed} {name} {case}"))
    before = _snapshot(root)
    with _watching_pickles() as loaded:
        ending, why = judge(kind.read, root / "case")
    changed = sorted(before.items() ^ _snapshot(root).items())
    if loaded:
        ending, why = "failed", "a pickle was loaded"
    elif changed:
        ending, why = "failed", f"wrote to {changed[0][0]}"
    return Outcome(name, case, damage, ending, why)


def judge(read: Callable[[pathlib.Path], None], folder: pathlib.Path) -> tuple[str, str]:
    """Returns how reading ends, and what is said; a user's mistake is told in one line."""
    try:
        read(folder)
    except (ValueError, OSError) as error:
        line = str(error)
        is_clear = line.strip() and len(line.splitlines()) == 1 and len(line) <= LINE
        return ("refused", line) if is_clear else ("failed", f"no clear line: {line!r:.300}")
    except BaseException as error:
        return "failed", f"{type(error).__name__}: {error!s:.300}"
    return "loaded", ""


def _snapshot(root: pathlib.Path) -> dict[str, tuple[int, int]]:
    """Returns what there is outside of the case's own directory."""
    found = {}
    for place, folders, files in os.walk(root):
        if place == str(root):
            folders.remove("case")
        for entry in (*folders, *files):
            status = os.lstat(os.path.join(place, entry))
            found[os.path.join(place, entry)] = (status.st_size, status.st_mtime_ns)
    return found


@contextlib.contextmanager
def _watching_pickles() -> Iterator[list[str]]:
    """Yields a list of the pickles that something tried to load; none is."""
    tried: list[str] = []

    def refuse(*_: object, **__: object) -> None:
        tried.append("")
        raise RuntimeError("a pickle was to be loaded")

    doors = ("load", "loads", "Unpickler", "_load", "_loads", "_Unpickler")
    with mock.patch.multiple(pickle, **dict.fromkeys(doors, refuse)):
        yield tried


def bound_memory() -> None:
    """Lets the process have a bounded number of bytes more than it has."""
    page = os.sysconf("SC_PAGE_SIZE")
    mapped = int(pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (page * mapped + MEMORY, most))


def main(name: str, seed: str, first: str, stop: str, folder: str, seconds: str) -> None:
    """Runs some cases of one kind."""
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")  # whatever else prints goes elsewhere
    os.dup2(2, 1)
    kind, root = KINDS[name], pathlib.Path(folder)
    prepare(kind, root)
    os.chdir(root)
    bound_memory()
    for case in range(int(first), int(stop)):
        print(json.dumps({"case": case}), file=said, flush=True)
        faulthandler.dump_traceback_later(float(seconds), exit=True)
        outcome = run_case(name, kind, root, int(seed), case)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(outcome._asdict()), file=said, flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception:
        traceback.print_exc()
        sys.exit(BROKEN)
