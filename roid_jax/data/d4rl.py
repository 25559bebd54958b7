"""Reads files in D4RL's HDF5 layout, with the quirks they have had over the years.

Old files store rewards as `(N, 1)` and flags as floats; some have no `timeouts`, many no
`next_observations`. What is read is checked here, so that nothing later needs to be.
"""

import dataclasses
import os
import pathlib

import h5py
import numpy as np

LIMIT_BYTES = 64 * 2**30  # a header may claim any size; refuse before memory does
EPISODE_LIMIT = 1000  # steps, where a file does not say when it cut an episode


@dataclasses.dataclass(frozen=True)
class Recording:
    """N rows in the order they were recorded, episode after episode.

    observations: `[N, O]` float32; actions: `[N, U]` float32; rewards: `[N]` float32.
    terminals: `[N]` bool, the world ended; timeouts: `[N]` bool, the episode was cut.
    next_observations: `[N, O]` float32 what each action led to, or None; unlike the next row's
        observation it is right where an episode ends.
    qpos, qvel: `[N, ...]` float64 the simulator's state before the action, or None.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminals: np.ndarray
    timeouts: np.ndarray
    next_observations: np.ndarray | None = None
    qpos: np.ndarray | None = None
    qvel: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rewards)


def read(path: str | os.PathLike, *, states: bool = False) -> Recording:
    """Returns a checked recording, or raises a ValueError of one line.

    Args:
      path: the file.
      states: whether to read the simulator's states too, where they were recorded.
    """
    path = pathlib.Path(path).expanduser()
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}; give the path of a D4RL HDF5 file.")
    try:
        with h5py.File(path, "r") as file:
            return _read(file, path.name, states)
    except (OSError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"cannot read {path.name!r} as HDF5, it may be cut short: {reason}"
        ) from error


def _read(file: h5py.File, name: str, states: bool) -> Recording:
    wanted = {"observations": 2, "actions": 2, "rewards": 1, "terminals": 1}
    optional = {"next_observations": 2, "timeouts": 1}
    if states and "infos/qpos" in file and "infos/qvel" in file:
        optional |= {"infos/qpos": 2, "infos/qvel": 2}
    wanted |= {key: axes for key, axes in optional.items() if key in file}
    found = {key: _numbers(file, key, name, axes=axes) for key, axes in wanted.items()}
    _check_shapes(found, name)
    terminals = found["terminals"] > 0.5
    following = _single(found.get("next_observations"), "next_observations", name)
    observations = _single(found["observations"], "observations", name)
    if "timeouts" in found:
        timeouts = found["timeouts"] > 0.5
    else:
        timeouts = infer_timeouts(observations, terminals, following)
    return Recording(
        observations=observations,
        actions=_single(found["actions"], "actions", name),
        rewards=_single(found["rewards"], "rewards", name),
        terminals=terminals,
        timeouts=timeouts & ~terminals,
        next_observations=following,
        qpos=found.get("infos/qpos"),
        qvel=found.get("infos/qvel"),
    )


def _check_shapes(found: dict[str, np.ndarray], name: str) -> None:
    """Raises a ValueError of one line unless all have the same length, and widths that fit."""
    count = len(found["rewards"])
    if count == 0:
        raise ValueError(f"{name!r} has no rows.")
    for key, array in found.items():
        if len(array) != count:
            raise ValueError(f"{name!r} has {count} rewards but {len(array)} {key}.")
        if array.ndim == 2 and array.shape[1] == 0:
            raise ValueError(f"{name!r} has rows without numbers in {key!r}.")
    following = found.get("next_observations")
    if following is not None and following.shape != found["observations"].shape:
        width, other = found["observations"].shape[1], following.shape[1]
        raise ValueError(f"{name!r} has observations {width} wide, next_observations {other}.")


def _single(array: np.ndarray | None, key: str, name: str) -> np.ndarray | None:
    """Returns an array in single precision, if it fits."""
    if array is None:
        return None
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    if not np.all(np.isfinite(single)):
        raise ValueError(f"{name!r} has a number in {key!r} that is too large.")
    return single


def _numbers(file: h5py.File, key: str, name: str, *, axes: int) -> np.ndarray:
    """Returns one dataset as finite numbers with the given number of axes."""
    if key not in file or not isinstance(file[key], h5py.Dataset):
        raise ValueError(
            f"{name!r} has no {key!r}; a D4RL file has observations, actions, rewards, terminals."
        )
    dataset = file[key]
    if dataset.dtype.kind not in "biuf":
        raise ValueError(f"{name!r} holds {dataset.dtype} in {key!r}, where numbers belong.")
    if dataset.size * dataset.dtype.itemsize > LIMIT_BYTES:
        raise ValueError(f"{name!r} claims {dataset.shape} numbers in {key!r}, which is too many.")
    array = dataset[()]
    if axes == 1 and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]  # older files have (N, 1)
    if array.ndim != axes:
        raise ValueError(f"{name!r} has {key!r} of shape {array.shape}, {axes} axes belong there.")
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise ValueError(f"{name!r} has a number in {key!r} that is not finite, in row {row}.")
    return array


def infer_timeouts(
    observations: np.ndarray, terminals: np.ndarray, following: np.ndarray | None
) -> np.ndarray:
    """Returns where episodes were cut, for a file that does not say.

    Where the next observation was recorded and is not the next row's; else after every 1000 steps.
    """
    timeouts = np.zeros(len(terminals), bool)
    if following is not None:
        jumps = np.any(following[:-1] != observations[1:], axis=1)
        timeouts[:-1] = jumps & ~terminals[:-1]
        return timeouts
    length = 0
    for i, terminal in enumerate(terminals):
        length += 1
        timeouts[i] = length == EPISODE_LIMIT and not terminal
        if terminal or timeouts[i]:
            length = 0
    return timeouts
