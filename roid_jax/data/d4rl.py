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
    observations = _numbers(file, "observations", name, axes=2).astype(np.float32)
    actions = _numbers(file, "actions", name, axes=2).astype(np.float32)
    rewards = _numbers(file, "rewards", name, axes=1).astype(np.float32)
    terminals = _numbers(file, "terminals", name, axes=1) > 0.5
    count = len(rewards)
    if count == 0:
        raise ValueError(f"{name!r} has no rows.")
    following = None
    if "next_observations" in file:
        following = _numbers(file, "next_observations", name, axes=2).astype(np.float32)
    if "timeouts" in file:
        timeouts = _numbers(file, "timeouts", name, axes=1) > 0.5
    else:
        timeouts = infer_timeouts(observations, terminals, following)
    has_state = states and "infos/qpos" in file and "infos/qvel" in file
    recording = Recording(
        observations=observations,
        actions=actions,
        rewards=rewards,
        terminals=terminals,
        timeouts=timeouts & ~terminals,
        next_observations=following,
        qpos=_numbers(file, "infos/qpos", name, axes=2) if has_state else None,
        qvel=_numbers(file, "infos/qvel", name, axes=2) if has_state else None,
    )
    for field, array in vars(recording).items():
        if array is not None and len(array) != count:
            raise ValueError(f"{name!r} has {count} rewards but {len(array)} {field}.")
    return recording


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
    if following is not None and len(following) == len(observations):
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
