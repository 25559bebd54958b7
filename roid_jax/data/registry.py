"""Names of datasets, and where their files are.

d4rl:hopper-medium-v2    D4RL's, imported into Minari or a file in $D4RL_DATASET_DIR or
                         ~/.d4rl/datasets
hdf5:<path>              any file of that layout
minari:<id>              a Minari dataset in $MINARI_DATASETS_PATH or ~/.minari/datasets
collected:<name>         what `experiments.collect` made; Minari's collected/<name>-v0
embedded:hopper-medium   a small set that comes with the package
"""

import os
import pathlib
import re
from typing import NamedTuple

from roid_jax.data.published import TASKS, Entry, find
from roid_jax.directories import expand

EMBEDDED = pathlib.Path(__file__).parent / "embedded"


def directories() -> list[pathlib.Path]:
    """Returns where D4RL files are looked for, in order."""
    chosen = os.environ.get("D4RL_DATASET_DIR")
    standard = pathlib.Path.home() / ".d4rl" / "datasets"
    return [expand(chosen), standard] if chosen else [standard]


class Source(NamedTuple):
    """Where a dataset is: an `hdf5` file of D4RL's layout, or the directory of a `minari` one."""

    kind: str
    path: pathlib.Path


def locate(name: str) -> Source:
    """Returns where a dataset is, or raises a ValueError of one line with the ways to get it."""
    kind, _, rest = name.partition(":")
    if kind not in _FINDERS or not rest:
        known = ", ".join(f"{kind}:{what}" for kind, (what, _) in _FINDERS.items())
        raise ValueError(f"unknown dataset {name!r}; use one of {known}.")
    return _FINDERS[kind][1](rest)


def is_here(name: str) -> bool:
    """Whether a dataset of a known kind can be read without fetching it."""
    try:
        locate(name)
    except ValueError:
        return False
    return True


def minari_directory() -> pathlib.Path:
    """Returns where Minari keeps its datasets."""
    chosen = os.environ.get("MINARI_DATASETS_PATH")
    standard = pathlib.Path.home() / ".minari" / "datasets"
    return expand(chosen) if chosen else standard


def minari_path(dataset_id: str) -> pathlib.Path:
    """Returns the directory that a Minari dataset has or would have."""
    if not re.fullmatch(r"([-\w]+/)*[-\w]+-v\d+", dataset_id, re.ASCII):
        raise ValueError(f"{dataset_id!r} is no name of a Minari dataset, as in 'mine/hopper-v0'.")
    return minari_directory() / dataset_id


def imported_id(entry: Entry) -> str:
    """Returns the Minari name of a D4RL set, as in d4rl/hopper-medium-v2."""
    return f"d4rl/{entry.name}"


def collected_id(name: str) -> str:
    """Returns the Minari name of a collected set, as in collected/hopper-medium-v0."""
    return f"collected/{name}-v0"


def _find_d4rl(name: str) -> Source:
    entry = find(name)
    imported = minari_path(imported_id(entry))
    if _is_dataset(imported):
        return Source("minari", imported)
    for directory in directories():
        if (directory / entry.file).is_file():
            return Source("hdf5", directory / entry.file)
    task, level = entry.name.removesuffix("-v2").split("-", 1)
    raise ValueError(
        f"'d4rl:{name}' is not here; fetch it with 'python -m experiments.data download "
        f"d4rl:{name}', put {entry.file} into {directories()[0]}, name its place with "
        f"hdf5:<path>, make a like one with 'python -m experiments.collect --task={task} "
        f"--sets={level}', or use embedded:hopper-medium."
    )


def _find_hdf5(path: str) -> Source:
    return Source("hdf5", expand(path))


def _find_minari(dataset_id: str) -> Source:
    path = minari_path(dataset_id)
    if not _is_dataset(path):
        raise ValueError(
            f"'minari:{dataset_id}' is not here; fetch it with 'minari download {dataset_id}', "
            f"or put it into {path}."
        )
    return Source("minari", path)


def _find_collected(name: str) -> Source:
    path = minari_path(collected_id(name))
    if not _is_dataset(path):
        raise ValueError(
            f"'collected:{name}' is not here; make it with 'python -m experiments.collect'. "
            f"It is looked for in {path}."
        )
    return Source("minari", path)


def _find_embedded(name: str) -> Source:
    path = EMBEDDED / name
    if not re.fullmatch(r"[-\w]+", name) or not _is_dataset(path):
        known = ", ".join(f"embedded:{found}" for found in embedded())
        raise ValueError(f"there is no 'embedded:{name}'; choose from {known}.")
    return Source("minari", path)


def embedded() -> list[str]:
    """Returns the names of the sets that come with the package."""
    return sorted(path.name for path in EMBEDDED.iterdir() if _is_dataset(path))


def _is_dataset(path: pathlib.Path) -> bool:
    return (path / "data" / "metadata.json").is_file()


_FINDERS = {
    "d4rl": ("<name>", _find_d4rl),
    "hdf5": ("<path>", _find_hdf5),
    "minari": ("<id>", _find_minari),
    "collected": ("<name>", _find_collected),
    "embedded": ("<name>", _find_embedded),
}


def task_of(name: str) -> str | None:
    """Returns the task that a dataset's name tells: `hopper` for minari:mujoco/hopper/medium-v0."""
    kind, _, rest = name.partition(":")
    parts = pathlib.Path(rest).parts
    told = reversed(parts) if kind == "minari" else parts[-1:]
    return next((task for part in told for task in TASKS if part.startswith(task)), None)


def minari_ids() -> list[str]:
    """Returns the names of the Minari datasets that are here."""
    root = minari_directory()
    found = (path.parent.parent.relative_to(root) for path in root.rglob("data/metadata.json"))
    return sorted(str(path) for path in found if not any(p.startswith(".") for p in path.parts))
