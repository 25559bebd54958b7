"""Memory of transitions: a ring of packed rows that lives in the carry and is written in place.

All fields of a transition lie side by side in one row of one array. With an array for each field
XLA copies the whole buffer at every step; with one it writes a row, whatever the capacity.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from roid_jax.types import Array, Key, Transitions

RETURN_TO_GO, PLACE, EPISODE = -3, -2, -1  # columns, the last ones of a row


class Layout(NamedTuple):
    """Where the fields of a transition lie in its row: in their order, side by side.

    Fields that nobody gave are 0.
    """

    obs_dim: int
    action_dim: int

    @property
    def width(self) -> int:
        """Numbers in a row, R."""
        return 2 * self.obs_dim + self.action_dim + 5

    def pack(self, transitions: Transitions) -> Array:
        """Returns `[..., R]` rows."""
        chex.assert_axis_dimension(transitions.obs, -1, self.obs_dim)
        chex.assert_axis_dimension(transitions.action, -1, self.action_dim)
        nothing = jnp.zeros_like(transitions.reward)
        parts = [nothing if part is None else part for part in transitions]
        vectors = transitions.obs.ndim
        parts = [part if part.ndim == vectors else part[..., None] for part in parts]
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
            next_obs=rows[..., after_action + 2 : -3],
            return_to_go=rows[..., RETURN_TO_GO],
            place=rows[..., PLACE],
            episode=rows[..., EPISODE],
        )

    def moments(self, rows: Array) -> tuple[Array, Array]:
        """Returns `[O]` the mean of the observations in `[N, R]` rows, and their deviation."""
        observed = self.unpack(rows).obs
        return jnp.mean(observed, axis=0), jnp.std(observed, axis=0)


@chex.dataclass(frozen=True)
class Dataset:
    """Logged transitions, which never change.

    rows: `[N, R]` packed transitions.
    order: `[N]` the numbers of the rows, shuffled; an agent may hold the last of them out.
    """

    rows: Array
    order: Array


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


def sample(key: Key, replay: Replay, *shape: int) -> tuple[Array, Array]:
    """Returns `[*shape, R]` rows drawn uniformly, with replacement, from those that are filled.

    And `[*shape]` their numbers, counted from the first row ever added.
    """
    capacity = replay.rows.shape[0]
    places = jax.random.randint(key, shape, 0, replay.filled)
    newest = replay.count - 1
    return replay.rows[places], newest - (newest - places) % capacity


def make_dataset(key: Key, layout: Layout, transitions: Transitions) -> Dataset:
    """Returns logged transitions with an order drawn from the key."""
    rows = layout.pack(transitions)
    return Dataset(rows=rows, order=draw_order(key, len(rows)))


def draw_order(key: Key, number: int) -> Array:
    """Returns `[number]` the numbers of the rows, shuffled."""
    return jax.random.permutation(key, number)


def sample_dataset(
    key: Key, dataset: Dataset, *shape: int, holdout: int = 0
) -> tuple[Array, Array]:
    """Returns `[*shape, R]` rows drawn uniformly, with replacement, and `[*shape]` their numbers.

    The last `holdout` rows of the order are never drawn.
    """
    check_holdout(dataset, holdout)
    places = dataset.order[jax.random.randint(key, shape, 0, len(dataset.order) - holdout)]
    return dataset.rows[places], places


def sample_mixed(
    key: Key,
    memory: Replay,
    dataset: Dataset,
    updates: int,
    size: int,
    *,
    fraction: float,
    draw: Callable[..., tuple[Array, Array]] = sample,
) -> tuple[Array, Array]:
    """Returns `[updates, size, R]` rows, a fraction of each batch logged, the rest lived through.

    And their numbers: logged rows count from -1 down, so that nobody confuses them with lived ones.
    Lived rows are drawn by `sample`, or another function like it.
    """
    logged = round(fraction * size)
    key_logged, key_lived = jax.random.split(key)
    rows, numbers = draw(key_lived, memory, updates, size - logged)
    if not logged:
        return rows, numbers
    logged_rows, logged_numbers = sample_dataset(key_logged, dataset, updates, logged)
    return (
        jnp.concatenate([logged_rows, rows], axis=1),
        jnp.concatenate([-1 - logged_numbers, numbers], axis=1),
    )


def check_holdout(dataset: Dataset, holdout: int) -> None:
    """Raises a ValueError of one line where nothing would be left to learn from."""
    if holdout >= len(dataset.order):
        raise ValueError(f"a holdout of {holdout} leaves nothing of {len(dataset.order)} rows.")


def held_out(dataset: Dataset, holdout: int) -> Array:
    """Returns `[holdout, R]` the rows that `sample_dataset` never draws."""
    return dataset.rows[dataset.order[len(dataset.order) - holdout :]]


def bootstrap_mask(salt: Array, numbers: Array, members: Array, *, probability: float) -> Array:
    """Returns `[...]` 1 where a member may learn from a row, else 0; the same whenever it is asked.

    A hash of the row's number and the member decides, so that a permanent mask over any number of
    rows takes no memory.

    Args:
      salt: `[]` uint32 of the run.
      numbers: `[...]` of the rows.
      members: `[...]` of the ensemble.
      probability: that a member learns from a row.
    """
    chex.assert_equal_shape([numbers, members])
    of_member = _scramble(members.astype(jnp.uint32) + salt)
    word = _scramble(numbers.astype(jnp.uint32) ^ of_member)
    # The upper bits alone: all 32 would round up to 1, which is not below a probability of 1.
    return ((word >> 8).astype(jnp.float32) * 2.0**-24 < probability).astype(jnp.float32)


def _scramble(words: Array) -> Array:
    """Returns uint32 words with every bit a mixture of all (multiply, shift, exclusive or)."""
    for factor, shift in ((0x7FEB352D, 16), (0x846CA68B, 15)):
        words = (words ^ (words >> 16)) * jnp.uint32(factor)
        words = words ^ (words >> shift)
    return words
