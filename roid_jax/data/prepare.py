"""From a recording to the two views that agents train on; pure functions of arrays.

The q-learning view is a set of transitions; the trajectory view keeps episodes whole and knows the
return to go of each row.
"""

import hashlib
from typing import NamedTuple

import numpy as np

from roid_jax.data.d4rl import Recording
from roid_jax.types import Transitions


class Episodes(NamedTuple):
    """Where each episode lies: rows `starts[i]` up to, not with, `stops[i]`.

    is_whole: False for a last episode that the file cut off.
    """

    starts: np.ndarray
    stops: np.ndarray
    is_whole: np.ndarray


def transitions(recording: Recording, *, return_discount: float | None = None) -> Transitions:
    """Returns the q-learning view, as D4RL's own loader makes it, and where each row's episode is.

    With a discount for them every row has its return to go, over its whole episode.

    A row's successor is the next row. So a row at which the episode was cut is dropped (the next
    row is another episode's first), and so is the last row of all. On a terminal row the successor
    is another episode's first too, which a discount of 0 makes harmless.
    """
    kept = np.flatnonzero(~recording.timeouts[:-1])
    spans = episodes(recording)
    episode = np.repeat(np.arange(len(spans.starts)), spans.stops - spans.starts)[kept]
    to_go = None
    if return_discount is not None:
        to_go = returns_to_go(recording, discount=return_discount)[kept]
    return Transitions(
        obs=recording.observations[kept],
        action=recording.actions[kept],
        reward=recording.rewards[kept],
        discount=1.0 - recording.terminals[kept].astype(np.float32),
        next_obs=recording.observations[kept + 1],
        return_to_go=to_go,
        place=kept - spans.starts[episode],
        episode=episode,
    )


def episodes(recording: Recording) -> Episodes:
    """Returns where the episodes lie: cut after every terminal or timeout."""
    stops = np.flatnonzero(recording.terminals | recording.timeouts) + 1
    is_whole = np.ones(len(stops), bool)
    if len(stops) == 0 or stops[-1] < len(recording):
        stops, is_whole = np.append(stops, len(recording)), np.append(is_whole, False)
    return Episodes(starts=np.append(0, stops[:-1]), stops=stops, is_whole=is_whole)


def returns(recording: Recording) -> np.ndarray:
    """Returns the undiscounted return of each episode, summed in double precision."""
    return np.add.reduceat(recording.rewards.astype(np.float64), episodes(recording).starts)


def returns_to_go(recording: Recording, *, discount: float) -> np.ndarray:
    """Returns `[N]` what each row's episode still brought: G_t = r_t + discount G_{t+1}."""
    found = np.zeros(len(recording))
    spans = episodes(recording)
    lengths = spans.stops - spans.starts
    running = np.zeros(len(lengths))
    for back in range(1, int(lengths.max()) + 1):  # all episodes at once, from their ends
        has_row = lengths >= back
        rows = spans.stops[has_row] - back
        running[has_row] = recording.rewards[rows] + discount * running[has_row]
        found[rows] = running[has_row]
    return found.astype(np.float32)


def digest(recording: Recording) -> str:
    """Returns a sha256 over all that agents train on, the same for the same numbers."""
    sums = hashlib.sha256()
    for name in ("observations", "actions", "rewards", "terminals", "timeouts"):
        sums.update(np.ascontiguousarray(getattr(recording, name)).tobytes())
    return sums.hexdigest()
