"""What a checkpoint on disk must be to be believed: its checksums, its claims."""

import errno
import hashlib
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
_REFUSALS += (errno.ESTALE, errno.ETIMEDOUT, errno.ENOSPC, errno.EDQUOT, errno.EROFS)


# What it says of files that are not as they were.
_OF_FILES = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, None)


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
        return error.errno not in _OF_FILES
    return isinstance(error, MemoryError | jax.errors.JaxRuntimeError) or bool(refusal(error))


def in_short(error: Exception) -> str:
    """Returns why a checkpoint could not be read, in a few words."""
    if isinstance(error, KeyError | FileNotFoundError):
        return "a part of it is missing"
    is_of_files = type(error) in (Exception, ValueError)
    kind = "its files are not what was written" if is_of_files else type(error).__name__
    return refusal(error) or kind


def refusal(error: Exception) -> str:
    """Returns what the machine said of why it could not do what it was asked, or nothing."""
    return next((words for words in map(os.strerror, _REFUSALS) if words in str(error)), "")


def _size(leaf: Any) -> int:
    """Returns the bytes that reading an array takes: its own, or those of one part on disk."""
    storage = getattr(leaf, "storage", None)
    shapes = [leaf.shape, getattr(storage, "chunk_shape", None) or ()]
    return max(map(math.prod, shapes)) * np.dtype(leaf.dtype).itemsize
