"""What the directory of a checkpoint must be before Orbax opens anything in it.

Orbax waits for ever at a pipe, reads whatever it finds whole, and opens what all checkpoints say of
themselves before it opens any.
"""

import contextlib
import json
import pathlib
import shutil
import stat
from typing import Any

from roid_jax import directories, memory
from roid_jax.on_disk import checks

_OURS = "notes/metadata", "rows/rows.jsonl"  # they grow with a run
_MOST = 2**22  # bytes of any other that has no arrays; they have some thousand


def clear(folder: pathlib.Path) -> list[pathlib.Path]:
    """Removes what a killed run left half written, and puts aside what cannot be opened.

    Orbax would do the first in a thread that nobody waits for, which complains where a run ends at
    once. Returns what was put aside.
    """
    for half in folder.glob("*.orbax-checkpoint-tmp*"):
        shutil.rmtree(half, ignore_errors=True)
    return [directories.put_aside(step) for step in _steps(folder) if not _can_be_opened(step)]


def require_open(folder: pathlib.Path) -> None:
    """Raises a ValueError of one line where there is a checkpoint that cannot be opened."""
    for step in _steps(folder):
        if not _can_be_opened(step) and step.exists():  # another run may have removed it
            raise ValueError(
                f"cannot open the checkpoints in {folder} ({step.name} is not what was written); "
                "take another directory."
            )


def _steps(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in folder.glob("*") if path.name.isdigit()]


def _can_be_opened(folder: pathlib.Path) -> bool:
    """Whether there are plain files alone, none endless, and Orbax can list it with the others."""
    try:
        if not folder.is_dir() or not all(_is_plain(one, folder) for one in folder.rglob("*")):
            return False
        with contextlib.suppress(ValueError):  # Orbax does without it
            _json(folder / "_CHECKPOINT_METADATA")
        return isinstance(_json(folder / "metrics" / "metrics"), dict)
    except (ValueError, RecursionError):
        return False
    except OSError as error:
        if checks.is_of_this_machine(error):
            raise
        return False


def require_room(folder: pathlib.Path) -> None:
    """Raises a `TooLarge` where there is not the memory to read what grew with a run."""
    for name in _OURS:
        file = folder / name
        size = file.stat().st_size if file.is_file() else 0
        if size > memory.room_for_json():
            raise checks.TooLarge(f"its {file.parent.name} have {size:,} bytes of JSON")


def _is_plain(path: pathlib.Path, folder: pathlib.Path) -> bool:
    """Whether a path is a directory, or a file no larger than it can be."""
    found = path.stat()
    may_be_large = path.parent.name == "d" or path.relative_to(folder).as_posix() in _OURS
    is_bounded = may_be_large or found.st_size <= _MOST
    return stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and is_bounded)


def _json(file: pathlib.Path) -> Any:
    return json.loads(file.read_bytes()) if file.exists() else {}
