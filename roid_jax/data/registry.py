"""Names of datasets, and where their files are.

d4rl:hopper-medium-v2    a file of D4RL's, in $D4RL_DATASET_DIR or ~/.d4rl/datasets
hdf5:<path>              any file of that layout
"""

import os
import pathlib
from typing import NamedTuple

TASKS = ("hopper", "walker2d", "halfcheetah")
LEVELS = ("random", "medium", "medium-replay", "medium-expert", "expert")


class Entry(NamedTuple):
    """What is known of one published file; bytes and sha256 are None where they are not."""

    name: str
    file: str
    bytes: int | None
    sha256: str | None


_KNOWN = {
    "hopper-medium-v2": (
        152756557,
        "5bdf1bc4a713c82941de44633df669b36c89850b652a25985166796d25cf71a0",
    ),
    "hopper-medium-replay-v2": (
        75854457,
        "e121c5f7c9857a307baa9edc6a2c3b48e85fedb9ac316ecddd0f48ca7ef4e39b",
    ),
    "walker2d-medium-v2": (
        232254996,
        "cf00f43add04c17fdfc2958dd581dea0851b2e5bedbe6fda073758a8f841aeda",
    ),
    "walker2d-medium-replay-v2": (
        86323963,
        "e75de96a4f77acf7d4e0d6fdf0d7ccb177c26c44bb4388e4fd99f543ccfa18db",
    ),
    "halfcheetah-medium-v2": (
        237727262,
        "41324e8487a9556d8cfa4538827f8937f4d63dae3030825ebc9f3a726ed08ca0",
    ),
    "halfcheetah-medium-replay-v2": (
        59448533,
        "48d494a4770c11f48260736dec090b78bdca8375647ed4d24bfa5b6610c7f683",
    ),
}


def entries() -> list[Entry]:
    """Returns every D4RL v2 locomotion set, in D4RL's own naming."""
    found = []
    for task in TASKS:
        for level in LEVELS:
            name = f"{task}-{level}-v2"
            file = f"{task}_{level.replace('-', '_')}-v2.hdf5"
            found.append(Entry(name, file, *_KNOWN.get(name, (None, None))))
    return found


def directories() -> list[pathlib.Path]:
    """Returns where D4RL files are looked for, in order."""
    chosen = os.environ.get("D4RL_DATASET_DIR")
    standard = pathlib.Path.home() / ".d4rl" / "datasets"
    return [pathlib.Path(chosen).expanduser(), standard] if chosen else [standard]


def locate(name: str) -> pathlib.Path:
    """Returns the file of a dataset, or raises a ValueError of one line with the ways to get it."""
    kind, separator, rest = name.partition(":")
    if kind == "hdf5" and separator:
        return pathlib.Path(rest).expanduser()
    if kind != "d4rl" or not separator:
        raise ValueError(f"unknown dataset {name!r}; use d4rl:<name> or hdf5:<path>.")
    known = {entry.name: entry for entry in entries()}
    if rest not in known:
        raise ValueError(f"unknown D4RL set {rest!r}; choose from {', '.join(known)}.")
    for directory in directories():
        if (directory / known[rest].file).is_file():
            return directory / known[rest].file
    raise ValueError(
        f"{name!r} is not here; put {known[rest].file} into {directories()[0]}, "
        "or name its place with hdf5:<path>."
    )


def task_of(name: str) -> str | None:
    """Returns the task that a dataset's name or file name begins with, if any."""
    last = pathlib.Path(name.partition(":")[2]).name
    return next((task for task in TASKS if last.startswith(task)), None)
