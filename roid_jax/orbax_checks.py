"""What a checkpoint on disk must be to be believed: its checksums, its claims, its score."""

import errno
import hashlib
import json
import math
import os
import pathlib
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from roid_jax import memory

_COPIES = 2  # of an array are in memory while it is read: Orbax's, and the device's

# What a machine says when it cannot do what it is asked; TensorStore has it in words alone.
_REFUSALS = (errno.EIO, errno.EACCES, errno.EPERM, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_REFUSALS += (errno.ESTALE, errno.ETIMEDOUT)


class TooLarge(ValueError):
    """A checkpoint claims more than there is memory for."""


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
