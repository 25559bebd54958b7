"""Logged data with its damages: files of D4RL, copies of them, and datasets of Minari."""

import dataclasses
import os
import pathlib
import random
import zipfile

import h5py
import numpy as np

from benchmarks.fuzz_damage import Wrong
from roid_jax.data import d4rl, load, minari, prepare
from roid_jax.data.d4rl import Recording


def _recording() -> Recording:
    """Three episodes: one that ends, one that is cut, one that the file cuts off."""
    draw, count = np.random.default_rng(0), 24
    observations = draw.normal(size=(count + 1, 3)).astype(np.float32)
    ends = np.arange(count)
    return Recording(
        observations=observations[:-1],
        actions=draw.uniform(-1, 1, (count, 2)).astype(np.float32),
        rewards=draw.normal(size=count).astype(np.float32),
        terminals=ends == 9,
        timeouts=ends == 17,
        next_observations=observations[1:],
        qpos=draw.normal(size=(count, 2)),
        qvel=draw.normal(size=(count, 2)),
    )


def write_d4rl(folder: pathlib.Path) -> None:
    """Writes a file of D4RL's layout, some of it compressed."""
    fields = dict(vars(_recording()))
    fields |= {f"infos/{name}": fields.pop(name) for name in ("qpos", "qvel")}
    with h5py.File(folder / "data.hdf5", "w") as file:
        for i, (name, array) in enumerate(fields.items()):
            file.create_dataset(name, data=array, compression="gzip" if i % 2 else None)


def read_d4rl(folder: pathlib.Path) -> None:
    """Reads the file, with the simulator's states."""
    check(d4rl.read(folder / "data.hdf5", states=True))


def check(found: Recording) -> None:
    """Raises a `Wrong` unless a recording is what its class promises."""
    arrays = {name: array for name, array in vars(found).items() if array is not None}
    for name, array in arrays.items():
        is_flag, is_double = name in ("terminals", "timeouts"), name in ("qpos", "qvel")
        dtype = bool if is_flag else np.float64 if is_double else np.float32
        axes = 1 if is_flag or name == "rewards" else 2
        if array.dtype != dtype or array.ndim != axes or not len(array) == len(found) > 0:
            raise Wrong(f"{name} is {array.dtype} {array.shape}")
        if not np.all(np.isfinite(array)):
            raise Wrong(f"{name} is not finite")
    if arrays.get("next_observations", found.observations).shape != found.observations.shape:
        raise Wrong("observations have two widths")
    if np.any(found.terminals & found.timeouts):
        raise Wrong("a row is terminal and cut")


def write_copy(folder: pathlib.Path) -> None:
    """Writes a file of D4RL's layout, and beside it the copy that loading it makes."""
    write_d4rl(folder)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    load.load(f"hdf5:{folder / 'data.hdf5'}")
    (made,) = load.cache_directory().iterdir()
    (folder / "copy").mkdir()
    made.rename(folder / "copy" / "copy.npz")


def read_copy(folder: pathlib.Path) -> None:
    """Loads the file with its copy in the place where it is looked for."""
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    name = f"hdf5:{folder / 'data.hdf5'}"
    first = load.load(name)
    (place,) = load.cache_directory().iterdir()
    place.unlink()
    if (folder / "copy" / "copy.npz").exists():
        (folder / "copy" / "copy.npz").rename(place)
    found = load.load(name)
    check(found)
    if prepare.digest(found) != prepare.digest(first):
        raise Wrong("the copy is not what it is a copy of")


def other_copy(folder: pathlib.Path, draw: random.Random) -> None:
    """A copy that is whole, with something else in one field."""
    copy = folder / "copy" / "copy.npz"
    with np.load(copy) as arrays:
        fields = dict(arrays)
    name = draw.choice(sorted(fields))
    array = fields[name]
    others = [np.array([{}], object), array[:3], array.astype("c8"), np.float32(1), array * np.inf]
    fields[name] = draw.choice(others)
    if draw.random() < 0.3:
        del fields[name]
    with open(copy, "wb") as file:
        np.savez(file, allow_pickle=True, **fields)


def large_copy(folder: pathlib.Path, draw: random.Random) -> None:
    """A copy whose arrays claim far more rows than are there."""
    copy = folder / "copy" / "copy.npz"
    digits = draw.choice((10**9, 10**12))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({digits}, 3), }}".encode()
    header += b" " * (117 - len(header)) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
    with zipfile.ZipFile(copy, "a") as archive:
        kept = [one for one in archive.namelist() if not one.startswith("observations")]
        parts = {one: archive.read(one) for one in kept}
    with zipfile.ZipFile(copy, "w") as archive:
        for one, part in {**parts, "observations.npy": content}.items():
            archive.writestr(one, part)


def write_minari(folder: pathlib.Path) -> None:
    """Writes a dataset of Minari."""
    source = dataclasses.replace(_recording(), qpos=None, qvel=None)
    minari.write(folder / "set-v0", source, dataset_id="set-v0", provenance={"made": "here"})


def read_minari(folder: pathlib.Path) -> None:
    """Reads the dataset, and where it says it comes from."""
    check(minari.read(folder / "set-v0"))
    minari.provenance(folder / "set-v0")
