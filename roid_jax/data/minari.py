"""Recordings as Minari datasets: episodes with terminations, truncations and their provenance.

An episode of Minari has one observation more than it has steps: the true last one. D4RL's older
files do not have it; the last one acted on then stands in for it, and the metadata says so.
"""

import json
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from minari import __version__ as minari_version
from minari.data_collector import EpisodeBuffer
from minari.dataset.minari_storage import METADATA_FILE_NAME, MinariStorage

from roid_jax import directories, results
from roid_jax.data import hdf5, prepare
from roid_jax.data.d4rl import Recording

# What a damaged or strange dataset makes Minari, HDF5 and NumPy raise; JSON errors are ValueErrors.
_FLAWS = (
    OSError,
    LookupError,
    RuntimeError,
    AssertionError,
    ImportError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
)

_DATA = "main_data.hdf5"

# What is read of an episode, with its number of axes.
_AXES = {"observations": 2, "actions": 2, "rewards": 1, "terminations": 1, "truncations": 1}


def read(path: str | os.PathLike) -> Recording:
    """Returns the recording in a Minari dataset's directory, or raises a ValueError of one line."""
    path = pathlib.Path(path)
    try:
        storage = _open(path)
        episodes = _read_episodes(storage)
        if not episodes:
            raise ValueError("it has no episodes")
        return _join(episodes, storage)
    except _FLAWS as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"cannot read {path.name!r} as a Minari dataset: {reason:.500}") from error


def write(
    path: str | os.PathLike,
    recording: Recording,
    *,
    dataset_id: str,
    provenance: Mapping[str, Any],
    replace: bool = False,
) -> None:
    """Writes a recording as a Minari dataset, whole or not at all.

    Args:
      path: the dataset's directory.
      recording: what to write; actions lie in [-1, 1].
      dataset_id: its name among Minari's.
      provenance: where it comes from; plain data, kept in the metadata.
      replace: whether a dataset that is there already is replaced.
    """
    path = pathlib.Path(path)
    if path.exists() and not replace:
        raise ValueError(f"there is a dataset {dataset_id!r} already, in {path}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = pathlib.Path(folder) / "new"
        made.mkdir()
        _fill(made / "data", recording, dataset_id, provenance)
        directories.put_in_place(made, path)  # what was there goes with the folder


def check_writable(directory: pathlib.Path) -> None:
    """Raises a ValueError of one line unless datasets can be written to a directory."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write datasets to {directory} ({error.strerror}); name another place with "
            "$MINARI_DATASETS_PATH."
        ) from error


def provenance(path: str | os.PathLike) -> dict[str, Any]:
    """Returns where a dataset says it comes from; nothing for one that was made elsewhere."""
    found = results.read_record(_metadata_file(pathlib.Path(path))).get("provenance")
    return found if isinstance(found, dict) else {}


def files(path: pathlib.Path) -> list[pathlib.Path]:
    """Returns what a dataset's numbers depend on: its data, and the spaces in its metadata."""
    return [path / "data" / _DATA, _metadata_file(path)]


def _metadata_file(path: pathlib.Path) -> pathlib.Path:
    return path / "data" / METADATA_FILE_NAME


def _open(path: pathlib.Path) -> MinariStorage:
    """Returns the storage of a dataset with spaces of plain vectors."""
    metadata = results.read_record(_metadata_file(path))
    for name in ("observation_space", "action_space"):
        # Minari would make the environment instead, from whatever code the metadata names.
        if name not in metadata:
            raise ValueError(f"it does not say its {name}; a newer Minari writes it")
        _check_space(json.loads(metadata[name]))
    return MinariStorage.read(path / "data")


def _check_space(space: dict[str, Any]) -> None:
    """Raises a ValueError unless a space is one of vectors, whose bounds are written out."""
    if space["type"] != "Box" or len(space["shape"]) != 1:
        raise ValueError(f"it has the space {space!r:.200}; only vectors can be read")
    # A short text could claim a wide space otherwise.
    if not space["shape"] == [len(space["low"])] == [len(space["high"])]:
        raise ValueError(f"it has bounds that are not as wide as its space, {space!r:.200}")


def _read_episodes(storage: MinariStorage) -> list[dict[str, np.ndarray]]:
    """Returns what is wanted of every episode."""
    numbers = range(storage.total_episodes)
    if storage.FORMAT != "hdf5":
        return list(storage.get_episodes(numbers))
    with hdf5.reading(storage.data_path / _DATA) as reader:
        return [
            {key: reader.numbers(f"episode_{i}/{key}", axes=axes) for key, axes in _AXES.items()}
            for i in numbers
        ]


def _join(episodes: list[dict[str, np.ndarray]], storage: MinariStorage) -> Recording:
    """Returns all episodes one after another, checked."""
    spaces = {"observations": storage.observation_space, "actions": storage.action_space}
    for i, episode in enumerate(episodes):
        steps = len(episode["rewards"])
        lengths = [len(episode[key]) for key in ("actions", "terminations", "truncations")]
        if not steps or lengths != [steps] * 3 or len(episode["observations"]) != steps + 1:
            raise ValueError(f"it has unequal lengths in episode {i}")
        for key, space in spaces.items():
            if episode[key].shape[1:] != space.shape:
                raise ValueError(f"it has {key} of another width than its space in episode {i}")

    def join(key: str, rows: slice = slice(None), dtype: type = np.float32) -> np.ndarray:
        with np.errstate(over="ignore"):
            joined = np.concatenate([episode[key][rows] for episode in episodes]).astype(dtype)
        return _finite(joined, key)

    terminals = join("terminations", dtype=bool)
    timeouts = join("truncations", dtype=bool)
    ends = np.cumsum([len(episode["rewards"]) for episode in episodes]) - 1
    timeouts[ends[:-1]] = True  # an episode that just stops was cut; the very last may go on
    return Recording(
        observations=join("observations", slice(None, -1)),
        actions=_finite(_to_unit_box(join("actions"), storage.action_space), "actions"),
        rewards=join("rewards"),
        terminals=terminals,
        timeouts=timeouts & ~terminals,
        next_observations=join("observations", slice(1, None)),
    )


def _finite(array: np.ndarray, key: str) -> np.ndarray:
    if not np.all(np.isfinite(array)):
        raise ValueError(f"it has a number in {key!r} that is not finite")
    return array


def _to_unit_box(actions: np.ndarray, space: gymnasium.spaces.Box) -> np.ndarray:
    """Returns the actions with the space's bounds moved to -1 and 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        if not np.all(np.isfinite(high - low)) or (np.all(low == -1) and np.all(high == 1)):
            return actions
        if not np.all(low < high):
            raise ValueError("it has an action space without room between its bounds")
        return 2.0 * (actions - low) / (high - low) - 1.0


def _fill(
    path: pathlib.Path, recording: Recording, dataset_id: str, provenance: Mapping[str, Any]
) -> None:
    """Writes the dataset into a fresh directory."""
    obs_dim, action_dim = recording.observations.shape[1], recording.actions.shape[1]
    storage = MinariStorage.new(
        path,
        observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (obs_dim,), np.float32),
        action_space=gymnasium.spaces.Box(-1.0, 1.0, (action_dim,), np.float32),
    )
    has_last = recording.next_observations is not None
    storage.update_metadata(
        {
            "dataset_id": dataset_id,
            "minari_version": minari_version,
            "provenance": {
                **provenance,
                "last_observations": "recorded" if has_last else "the last acted on, again",
            },
        }
    )
    storage.update_episodes(_episodes(recording))


def _episodes(recording: Recording) -> Iterator[EpisodeBuffer]:
    following = recording.next_observations
    last = recording.observations if following is None else following
    spans = prepare.episodes(recording)
    for i, (start, stop) in enumerate(zip(spans.starts, spans.stops, strict=True)):
        rows = slice(start, stop)
        yield EpisodeBuffer(
            id=i,
            observations=np.append(recording.observations[rows], last[stop - 1 : stop], axis=0),
            actions=recording.actions[rows],
            rewards=recording.rewards[rows],
            terminations=recording.terminals[rows],
            truncations=recording.timeouts[rows],
        )
