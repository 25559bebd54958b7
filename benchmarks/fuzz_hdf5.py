"""Damage to what an HDF5 file says: types, shapes, claims, and links that lead out of it."""

import os
import pathlib
import random
from collections.abc import Callable

import h5py
import numpy as np

_DTYPES = (
    *("S5", "c8", "f2", "f8", "u1", "i8", "u8", "?", "V7", [("a", "f4"), ("b", "i4")]),
    *(np.longdouble, h5py.string_dtype(), h5py.vlen_dtype(np.float32), h5py.ref_dtype),
    *(h5py.regionref_dtype, h5py.enum_dtype({"a": 0, "b": 1})),
)


def _damage(change: Callable) -> Callable:
    """Makes a damage to a directory of one to an open file and one of its datasets."""

    def damage(folder: pathlib.Path, draw: random.Random) -> None:
        (path,) = sorted(folder.rglob("*.hdf5"))
        with h5py.File(path, "r+") as file:
            keys: list[str] = []
            file.visititems(lambda key, one: keys.append(key) if hasattr(one, "shape") else None)
            change(file, draw.choice(sorted(keys)), draw)

    return damage


def _outside(file: h5py.File, draw: random.Random) -> str:
    """Returns a file to lead to; one of them is a pipe, and who opens it waits for ever."""
    pipe = pathlib.Path(file.filename).with_name("pipe")
    if not pipe.exists():
        os.mkfifo(pipe)
    return draw.choice(("../other.hdf5", "../sentinel", "/etc/passwd", "absent.hdf5", pipe.name))


def _replace(file: h5py.File, key: str, **how: object) -> h5py.Dataset:
    del file[key]
    return file.create_dataset(key, **how)


def _missing(file: h5py.File, key: str, draw: random.Random) -> None:
    del file[draw.choice((key, key.split("/")[0]))]


def _dtype(file: h5py.File, key: str, draw: random.Random) -> None:
    _replace(file, key, shape=file[key].shape, dtype=draw.choice(_DTYPES))


def _filled(file: h5py.File, key: str, draw: random.Random) -> None:
    """Numbers of another type, all written."""
    dtype = draw.choice(("f2", "f8", "u1", "i8", "u8", "?", "c8", np.longdouble))
    value = draw.choice((0, 1, 255, 10**18))
    with np.errstate(over="ignore"):
        _replace(file, key, data=np.full(file[key].shape, value, np.float64).astype(dtype))


def _shape(file: h5py.File, key: str, draw: random.Random) -> None:
    count = file[key].shape[0]
    shapes = ((), (0,), (count,), (count, 1), (1, count), (count, 2, 2), (count + 1, 3), (count, 0))
    _replace(file, key, data=np.ones(draw.choice(shapes), np.float32))


def _nothing(file: h5py.File, key: str, draw: random.Random) -> None:
    _replace(file, key, data=h5py.Empty("f4"))


def _value(file: h5py.File, key: str, draw: random.Random) -> None:
    array = file[key][()].astype(np.float64)
    array.flat[draw.randrange(array.size)] = draw.choice((np.nan, np.inf, -np.inf, 1e300, -1e39))
    _replace(file, key, data=array)


def _trillion(file: h5py.File, key: str, draw: random.Random) -> None:
    rows = draw.choice((10**8, 10**9, 10**12, 2**50))
    shape = (rows, *file[key].shape[1:])
    how = {"compression": draw.choice((None, "gzip")), "chunks": (1000, *shape[1:])}
    dataset = _replace(file, key, shape=shape, dtype="f4", **how)
    if draw.random() < 0.5:
        dataset[:1000] = 1.0


def _wide(file: h5py.File, key: str, draw: random.Random) -> None:
    _replace(file, key, shape=(2**40, 2**20), dtype="f4", chunks=(1000, 1))


def _large_part(file: h5py.File, key: str, draw: random.Random) -> None:
    """A few rows in one compressed part that claims a gigabyte and more."""
    count, part = file[key].shape[0], draw.choice((2**26, 2**29))
    how = {"maxshape": (None,), "chunks": (part,), "compression": "gzip"}
    dataset = _replace(file, key, shape=(count,), dtype="f4", **how)
    dataset.id.write_direct_chunk((0,), draw.randbytes(4096))


def _external_link(file: h5py.File, key: str, draw: random.Random) -> None:
    place = draw.choice((key, key.split("/")[0]))
    del file[place]
    file[place] = h5py.ExternalLink(_outside(file, draw), f"/{place}")


def _soft_link(file: h5py.File, key: str, draw: random.Random) -> None:
    others = ("/nowhere", f"/{key}", "/../..", "/", "/outside/rewards")
    file["outside"] = h5py.ExternalLink("../other.hdf5", "/")
    del file[key]
    file[key] = h5py.SoftLink(draw.choice(others))


def _external_storage(file: h5py.File, key: str, draw: random.Random) -> None:
    shape = file[key].shape
    place = (_outside(file, draw), 0, h5py.h5f.UNLIMITED)
    _replace(file, key, shape=shape, dtype="f4", external=[place])


def _virtual(file: h5py.File, key: str, draw: random.Random) -> None:
    shape = file[key].shape
    layout = h5py.VirtualLayout(shape, "f4")
    layout[...] = h5py.VirtualSource(_outside(file, draw), key, shape)
    del file[key]
    file.create_virtual_dataset(key, layout)


def _circle(file: h5py.File, key: str, draw: random.Random) -> None:
    """A group that holds the whole file, itself included."""
    del file[key]
    file[key] = file["/"]


def _named_type(file: h5py.File, key: str, draw: random.Random) -> None:
    del file[key]
    file[key] = np.dtype("f4")


def _bits(file: h5py.File, key: str, draw: random.Random) -> None:
    """A type that NumPy has nothing like."""
    space = h5py.h5s.create_simple(file[key].shape)
    del file[key]
    h5py.h5d.create(file.id, key.encode(), h5py.h5t.STD_B32LE, space)


DAMAGES = {
    "missing": _missing,
    "of another type, unwritten": _dtype,
    "of another type": _filled,
    "of another shape": _shape,
    "without a shape": _nothing,
    "not finite": _value,
    "a trillion rows": _trillion,
    "too wide to count": _wide,
    "a part of gigabytes": _large_part,
    "an external link": _external_link,
    "a soft link": _soft_link,
    "external storage": _external_storage,
    "virtual": _virtual,
    "a circle": _circle,
    "a named type": _named_type,
    "bits": _bits,
}
DAMAGES = {f"hdf5: {name}": _damage(change) for name, change in DAMAGES.items()}
