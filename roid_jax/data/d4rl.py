"""Reads files in D4RL's HDF5 layout, with the quirks they have had over the years.

Old files store rewards as `(N, 1)` and flags as floats; some have no `timeouts`, many no
`next_observations`. What is read is checked here, so that nothing later needs to be.
"""

import dataclasses
import os
import pathlib

import numpy as np

from roid_jax.data import hdf5

EPISODE_LIMIT = 1000  # steps, where a file does not say when it cut an episode

# What is read, with its number of axes.
_NEEDED = {"observations": 2, "actions": 2, "rewards": 1, "terminals": 1}
_OPTIONAL = {"next_observations": 2, "timeouts": 1}
_STATES = {"infos/qpos": 2, "infos/qvel": 2}


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
    wanted = _NEEDED | _OPTIONAL | (_STATES if states else {})
    with hdf5.reading(path) as reader:
        found = {
            key: reader.numbers(key, axes=axes) for key, axes in wanted.items() if reader.has(key)
        }
    return _make(found, path.name)


def _make(found: dict[str, np.ndarray], name: str) -> Recording:
    _check_shapes(found, name)
    terminals = found["terminals"] > 0.5
    observations = _cast(found, "observations", name)
    following = _cast(found, "next_observations", name)
    if "timeouts" in found:
        timeouts = found["timeouts"] > 0.5
    else:
        timeouts = infer_timeouts(observations, terminals, following)
    states = [_cast(found, key, name, np.float64) for key in _STATES]
    qpos, qvel = (None, None) if any(state is None for state in states) else states
    return Recording(
        observations=observations,
        actions=_cast(found, "actions", name),
        rewards=_cast(found, "rewards", name),
        terminals=terminals,
        timeouts=timeouts & ~terminals,
        next_observations=following,
        qpos=qpos,
        qvel=qvel,
    )


def _check_shapes(found: dict[str, np.ndarray], name: str) -> None:
    """Raises a ValueError of one line unless all are there, as long as each other, and fit."""
    for key in _NEEDED:
        if key not in found:
            raise ValueError(f"{name!r} has no {key!r}; a D4RL file has {', '.join(_NEEDED)}.")
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


def _cast(
    found: dict[str, np.ndarray], key: str, name: str, dtype: type = np.float32
) -> np.ndarray | None:
    """Returns an array of that precision, if its numbers fit; None where there is none."""
    if key not in found:
        return None
    with np.errstate(over="ignore"):
        cast = found[key].astype(dtype)
    if not np.all(np.isfinite(cast)):
        raise ValueError(f"{name!r} has a number in {key!r} that is too large.")
    return cast


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
