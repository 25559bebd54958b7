"""One door for every dataset: a name goes in, a recording comes out, quickly the second time."""

import hashlib
import io
import os
import pathlib

import numpy as np

from roid_jax import directories, memory, results
from roid_jax.data import d4rl, minari, prepare, published, registry
from roid_jax.data.d4rl import Recording

_CACHE_VERSION = 1  # of what a recording holds


def load(name: str) -> Recording:
    """Returns the recording of that name, without the simulator's states."""
    source = registry.locate(name)
    cache = _cache_file(source)
    found = _read_cache(cache)
    if found is None:
        found = read(source)
        _write_cache(cache, found)
    return found


def read(source: registry.Source) -> Recording:
    """Returns a recording from its own files."""
    return minari.read(source.path) if source.kind == "minari" else d4rl.read(source.path)


def import_file(
    path: pathlib.Path, dataset_id: str, entry: published.Entry | None = None
) -> pathlib.Path:
    """Makes a Minari dataset of a file in D4RL's layout; returns its directory.

    Args:
      path: the file.
      dataset_id: Minari's name for it.
      entry: what is published about the file, if anything; it must be true of it.
    """
    recording = d4rl.read(path)
    with open(path, "rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    if entry is not None and entry.sha256 not in (None, checksum):
        raise ValueError(
            f"{path} has the sha256 {checksum[:12]}..., but D4RL publishes {entry.sha256[:12]}... "
            f"for {entry.name}; fetch it again, or import it as hdf5:<path>."
        )
    provenance = {
        "source": path.name,
        "bytes": path.stat().st_size,
        "sha256": checksum,
        "physics": "d4rl" if entry is not None else "unknown",
        "digest": prepare.digest(recording),
        "versions": results.versions(),
    }
    target = registry.minari_path(dataset_id)
    minari.write(target, recording, dataset_id=dataset_id, provenance=provenance)
    return target


def cache_directory() -> pathlib.Path:
    """Returns where recordings are kept as they are in memory: `$XDG_CACHE_HOME/roid_jax`."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return directories.expand(home) / "roid_jax" / "recordings"


def _cache_file(source: registry.Source) -> pathlib.Path | None:
    """Returns where a source's copy belongs; another file of the same name has another place."""
    files = minari.files(source.path) if source.kind == "minari" else [source.path]
    try:
        states = [file.stat() for file in files]
    except OSError:
        return None  # reading it will say what is wrong
    changes = [(state.st_size, state.st_mtime_ns, state.st_ctime_ns) for state in states]
    identity = (_CACHE_VERSION, str(source.path.resolve()), changes)
    return cache_directory() / f"{hashlib.sha256(repr(identity).encode()).hexdigest()[:32]}.npz"


def _read_cache(cache: pathlib.Path | None) -> Recording | None:
    """Returns the copy, or None where there is none that is whole."""
    if cache is None or not cache.is_file():
        return None
    try:
        with open(cache, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            if sum(entry.file_size for entry in arrays.zip.infolist()) > memory.room():
                return None
            found = Recording(**arrays)
    except Exception:  # NumPy and zipfile raise whatever their parts do; the file itself is there
        return None
    return found if _is_sound(found) else None


def _is_sound(found: Recording) -> bool:
    """Whether a copy is what a reader would have made."""
    arrays = {name: array for name, array in vars(found).items() if array is not None}
    kinds = {"terminals": bool, "timeouts": bool, "qpos": np.float64, "qvel": np.float64}
    axes = {"rewards": 1, "terminals": 1, "timeouts": 1}
    following = found.observations if found.next_observations is None else found.next_observations
    return following.shape == found.observations.shape and all(
        array.dtype == kinds.get(name, np.float32)
        and array.ndim == axes.get(name, 2)
        and len(array) == len(found.observations) > 0
        and np.all(np.isfinite(array))
        for name, array in arrays.items()
    )


def _write_cache(cache: pathlib.Path | None, recording: Recording) -> None:
    """Keeps a copy; where that cannot be, loading is slower and nothing else."""
    if cache is None:
        return
    buffer = io.BytesIO()
    np.savez(buffer, **{name: x for name, x in vars(recording).items() if x is not None})
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        results.write_bytes(cache, buffer.getbuffer())
    except OSError:
        pass
