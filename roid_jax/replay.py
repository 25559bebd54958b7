"""Memory of transitions: a ring of packed rows that lives in the carry and is written in place.

All fields of a transition lie side by side in one row of one array. With an array for each field
XLA copies the whole buffer at every step; with one it writes a row, whatever the capacity.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from roid_jax.types import Array, Key, Transitions


class Layout(NamedTuple):
    """Where the fields of a transition lie in its row: obs, action, reward, discount, next obs."""

    obs_dim: int
    action_dim: int

    @property
    def width(self) -> int:
        """Numbers in a row, R."""
        return 2 * self.obs_dim + self.action_dim + 2

    def pack(self, transitions: Transitions) -> Array:
        """Returns `[..., R]` rows."""
        chex.assert_axis_dimension(transitions.obs, -1, self.obs_dim)
        chex.assert_axis_dimension(transitions.action, -1, self.action_dim)
        scalars = transitions.reward[..., None], transitions.discount[..., None]
        parts = transitions.obs, transitions.action, *scalars, transitions.next_obs
        return jnp.concatenate([jnp.asarray(part, jnp.float32) for part in parts], axis=-1)

    def unpack(self, rows: Array) -> Transitions:
        """Returns the transitions in `[..., R]` rows; NumPy rows stay NumPy."""
        chex.assert_axis_dimension(rows, -1, self.width)
        after_obs, after_action = self.obs_dim, self.obs_dim + self.action_dim
        return Transitions(
            obs=rows[..., :after_obs],
            action=rows[..., after_obs:after_action],
            reward=rows[..., after_action],
            discount=rows[..., after_action + 1],
            next_obs=rows[..., after_action + 2 :],
        )


@chex.dataclass(frozen=True)
class Replay:
    """The last C rows.

    rows: `[C, R]` packed transitions; row i of all ever added lies at i modulo C.
    count: `[]` how many were ever added.
    """

    rows: Array
    count: Array

    @property
    def filled(self) -> Array:
        """`[]` how many rows hold a transition."""
        return jnp.minimum(self.count, self.rows.shape[-2])


def init(layout: Layout, capacity: int) -> Replay:
    """Returns an empty memory."""
    return Replay(rows=jnp.zeros((capacity, layout.width)), count=jnp.zeros((), jnp.int32))


def add(replay: Replay, rows: Array) -> Replay:
    """Returns the memory with `[B, R]` rows added over the oldest; B divides the capacity."""
    capacity, width = replay.rows.shape
    chex.assert_shape(rows, (None, width))
    if capacity % len(rows):
        raise ValueError(f"{len(rows)} rows at a time do not divide a capacity of {capacity}.")
    start = replay.count % capacity
    return Replay(
        rows=jax.lax.dynamic_update_slice(replay.rows, rows, (start, jnp.zeros_like(start))),
        count=replay.count + len(rows),
    )


def sample(key: Key, replay: Replay, number: int) -> Array:
    """Returns `[number, R]` rows drawn uniformly, with replacement, from those that are filled."""
    return replay.rows[jax.random.randint(key, (number,), 0, replay.filled)]
