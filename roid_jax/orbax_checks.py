"""What a checkpoint on disk must be to be believed: its checksums, its claims; which stay."""

import errno
import hashlib
import json
import math
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

from roid_jax import memory

_COPIES = 2  # of an array are in memory while it is read: Orbax's, and the device's

# What a machine says when it cannot do what it is asked; TensorStore has it in words alone.
_REFUSALS = (errno.EIO, errno.EACCES, errno.EPERM, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_REFUSALS += (errno.ESTALE, errno.ETIMEDOUT)


class TooLarge(ValueError):
    """A checkpoint claims more than there is memory for."""


class Sums(NamedTuple):
    """The checksums of a checkpoint's parts, each empty where it was saved without.

    The first versions had none of their notes, or of their rows, which were notes: such checkpoints
    are other, but not broken.
    """

    arrays: str = ""
    notes: str = ""
    rows: str = ""

    @classmethod
    def of(cls, plain: Any, notes: dict[str, Any], rows: Iterable[Mapping[str, Any]]) -> "Sums":
        """Returns those of what is to be saved."""
        return cls(checksum(plain), notes_checksum(notes), rows_checksum(rows))

    @classmethod
    def read(cls, found: Any) -> "Sums":
        """Returns those that were joined with colons."""
        return cls(*found.split(":", 2)) if isinstance(found, str) else cls()


def checksum(plain: Any) -> str:
    """Returns a sha256 over all arrays, whatever the containers they are in."""
    sums = []
    for leaf in jax.tree.leaves(plain):
        array = np.ascontiguousarray(leaf)
        head = f"{array.dtype}{array.shape}".encode()
        sums.append(hashlib.sha256(head + array.tobytes()).hexdigest())
    return hashlib.sha256("".join(sorted(sums)).encode()).hexdigest()


def notes_checksum(notes: dict[str, Any]) -> str:
    """Returns a sha256 over plain data with words as keys, the same once it has been to disk."""
    return hashlib.sha256(json.dumps(notes, sort_keys=True).encode()).hexdigest()


def rows_checksum(rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns a sha256 over rows of plain data, the same once they have been to disk."""
    sums = hashlib.sha256()
    for row in rows:
        sums.update(json.dumps(row, sort_keys=True).encode())
    return sums.hexdigest()


def claimed(folder: pathlib.Path) -> Any:
    """Returns the shapes and types that a checkpoint says its arrays have.

    Raises:
      TooLarge: if they are more than the memory here.
    """
    tree = ocp.StandardCheckpointHandler().metadata(folder / "state").tree
    size = sum(map(_size, jax.tree.leaves(tree)))
    if size * _COPIES > memory.room():
        raise TooLarge(f"it claims {size:,} bytes, more than the memory here")
    return tree


def is_of_this_machine(error: Exception) -> bool:
    """Whether reading failed for want of memory or for the disk, and not for what is on it."""
    if isinstance(error, OSError):
        return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, None)
    return isinstance(error, MemoryError | jax.errors.JaxRuntimeError) or bool(_refusals(error))


def in_short(error: Exception) -> str:
    """Returns what a machine said of why it could not, in a few words."""
    of_files = "its files are not what was written"
    kind = of_files if type(error) is Exception else type(error).__name__
    return next(iter(_refusals(error)), kind)


def _refusals(error: Exception) -> list[str]:
    return [words for words in map(os.strerror, _REFUSALS) if words in str(error)]


def _size(leaf: Any) -> int:
    """Returns the bytes that reading an array takes: its own, or those of one part on disk."""
    storage = getattr(leaf, "storage", None)
    shapes = [leaf.shape, getattr(storage, "chunk_shape", None) or ()]
    return max(map(math.prod, shapes)) * np.dtype(leaf.dtype).itemsize


def can_be_listed(folder: pathlib.Path) -> bool:
    """Whether Orbax can open the directory that a checkpoint is in: it reads all scores at once."""
    file = folder / "metrics" / "metrics"
    try:
        return not file.exists() or isinstance(json.loads(file.read_bytes()), dict)
    except (ValueError, RecursionError):
        return False
    except OSError as error:
        if is_of_this_machine(error):
            raise
        return False


def score(metrics: Any) -> float:
    """Returns the score of a checkpoint; the lowest there is where it has lost its own."""
    found = metrics.get("score") if isinstance(metrics, dict) else None
    return float(found) if isinstance(found, float | int) and abs(found) < 1e300 else -1e300


def options(keep: int, read_only: bool) -> ocp.CheckpointManagerOptions:
    """Returns that the last ones stay, and the best."""
    return ocp.CheckpointManagerOptions(
        best_fn=score,
        preservation_policy=preservation_policy.AnyPreservationPolicy(
            [
                preservation_policy.LatestN(keep),
                preservation_policy.BestN(get_metric_fn=score, n=1),
            ]
        ),
        enable_async_checkpointing=True,
        create=not read_only,
        save_root_metadata=False,  # its own thread may outlive a run that ends at once
    )
