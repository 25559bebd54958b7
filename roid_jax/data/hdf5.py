"""Numbers from HDF5 files that may be damaged, or made to do harm.

A header may claim any size and a link may lead into any file of the disk. So nothing outside of the
file is followed, and a claim is looked at before memory is taken for it.
"""

import contextlib
import math
import pathlib
from collections.abc import Iterator

import h5py
import numpy as np

from roid_jax import memory

# What a damaged file makes HDF5, h5py and NumPy raise.
_FLAWS = (OSError, LookupError, RuntimeError, TypeError, ValueError, ArithmeticError)

_COPIES = 4  # of a recording's numbers are in memory at once while it is read
_DEFLATE = 1032  # zlib makes nothing smaller than that


class Refused(ValueError):
    """A file's content is not what belongs there; one line says why."""


@contextlib.contextmanager
def reading(path: pathlib.Path) -> Iterator["Reader"]:
    """Opens a file while the block runs; whatever HDF5 raises there becomes one line."""
    if not path.is_file():
        raise Refused(f"there is no file {str(path)!r}.")
    try:
        with h5py.File(path, "r") as file:
            yield Reader(file, path)
    except Refused:
        raise
    except _FLAWS as error:
        reason = " ".join(str(error).split())
        raise Refused(
            f"cannot read {path.name!r} as HDF5, it may be cut short: {reason}"
        ) from error


class Reader:
    """The numbers of an open file by their keys, as far as there is memory for them."""

    def __init__(self, file: h5py.File, path: pathlib.Path):
        self._file = file
        self._name = path.name
        self._bytes = path.stat().st_size
        self._room = memory.room() // _COPIES

    def has(self, key: str) -> bool:
        """Whether there is a dataset of that name."""
        return isinstance(self._find(key), h5py.Dataset)

    def numbers(self, key: str, *, axes: int) -> np.ndarray:
        """Returns a dataset as finite numbers with so many axes; old files may have one of 1 more.

        Raises:
          Refused: if there is none, or it is something else.
        """
        dataset = self._find(key)
        if not isinstance(dataset, h5py.Dataset):
            raise Refused(f"{self._name!r} has no {key!r}.")
        self._admit(key, dataset)
        has_extra = axes == 1 and len(dataset.shape) == 2 and dataset.shape[1] == 1
        if len(dataset.shape) != axes and not has_extra:
            raise Refused(
                f"{self._name!r} has {key!r} of shape {dataset.shape}, {axes} axes belong there."
            )
        array = dataset[()]
        if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            raise Refused(
                f"{self._name!r} has a number in {key!r} that is not finite, in row {row}."
            )
        return array[:, 0] if has_extra else array

    def _find(self, key: str) -> h5py.HLObject | None:
        """Returns what is at a key, or None; a link on the way there is refused, not followed."""
        place = self._file
        for part in key.split("/"):
            link = place.get(part, getlink=True) if isinstance(place, h5py.Group) else None
            if link is None:
                return None
            if not isinstance(link, h5py.HardLink):
                raise Refused(
                    f"{self._name!r} has a link to elsewhere in {key!r}, where numbers belong; "
                    "copy them into the file."
                )
            place = place[part]
        return place

    def _admit(self, key: str, dataset: h5py.Dataset) -> None:
        """Raises a `Refused` unless a dataset holds numbers, in this file, and they fit."""
        if dataset.dtype.kind not in "biuf" or dataset.shape is None:
            raise Refused(f"{self._name!r} holds {dataset.dtype} in {key!r}, where numbers belong.")
        if dataset.external or dataset.is_virtual:
            raise Refused(f"{self._name!r} has {key!r} in other files; copy it into this one.")
        size = math.prod(dataset.shape) * dataset.dtype.itemsize
        chunk = math.prod(dataset.chunks or (0,)) * dataset.dtype.itemsize
        self._room -= size
        if self._room < chunk:
            raise Refused(
                f"{self._name!r} claims {dataset.shape} numbers in {key!r}, which is too many for "
                "the memory here."
            )
        stored = dataset.id.get_storage_size()
        is_packed = dataset.id.get_create_plist().get_nfilters() > 0
        if stored > self._bytes or size > stored * (_DEFLATE if is_packed else 1):
            raise Refused(
                f"{self._name!r} claims {dataset.shape} numbers in {key!r}, but has {stored:,} "
                "bytes of them; it may be cut short."
            )
