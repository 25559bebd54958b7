"""Episodes in a memory of transitions: returns to go, rows whose episode has ended, and windows.

Every row knows its place in its episode and the number of that, so that all of this needs neither
another array nor a copy.
"""

import jax
import jax.numpy as jnp

from roid_jax.replay import (
    EPISODE,
    PLACE,
    RETURN_TO_GO,
    Dataset,
    Layout,
    Replay,
    sample_dataset,
)
from roid_jax.types import Array, Key


def credit(memory: Replay, layout: Layout, *, number: int, discount: float, longest: int) -> Replay:
    """Returns the memory with the newest rewards added to the returns to go of their episodes.

    G_{t-k} += discount^k r_t for every earlier row of the episode, however the ring has gone round;
    what an unfinished episode will still bring is not in it yet.

    Args:
      memory: the ring, with `number` rows just added, one of each environment.
      layout: of its rows.
      number: B, how many environments.
      discount: of one step.
      longest: steps of an episode, at most.
    """
    capacity = memory.rows.shape[0]
    numbers = memory.count - number + jnp.arange(number)
    newest = layout.unpack(memory.rows[numbers % capacity])
    back = jnp.arange(min(longest, capacity // number))[:, None]
    is_own = back <= newest.place[None]
    amounts = jnp.where(is_own, discount**back * newest.reward[None], 0.0)
    places = (numbers[None] - number * back) % capacity
    return memory.replace(rows=memory.rows.at[places, RETURN_TO_GO].add(amounts))


def finished(memory: Replay) -> tuple[Array, Array]:
    """Returns `[]` how many rows belong to episodes that have ended, and how many those are.

    Of one environment. An episode counts once the next has begun.
    """
    newest = memory.rows[(memory.count - 1) % memory.rows.shape[0]]
    is_lived = memory.count > 0
    rows = jnp.where(is_lived, memory.filled - 1 - newest[PLACE].astype(jnp.int32), 0)
    episodes = jnp.where(is_lived, newest[EPISODE].astype(jnp.int32), 0)
    return jnp.maximum(rows, 0), episodes


def sample_finished(key: Key, memory: Replay, *shape: int) -> tuple[Array, Array]:
    """Returns `[*shape, R]` rows of episodes that have ended, drawn uniformly, and their numbers.

    As `replay.sample` does from all. Where none has ended yet they are all the oldest row.
    """
    rows, _ = finished(memory)
    oldest = memory.count - memory.filled
    numbers = oldest + jax.random.randint(key, shape, 0, jnp.maximum(rows, 1))
    return memory.rows[numbers % memory.rows.shape[0]], numbers


def sample_known(dataset: Dataset, key: Key, memory: Replay, *shape: int) -> tuple[Array, Array]:
    """Returns rows whose return is known, and their numbers: lived ones, or logged before any."""
    has_any = finished(memory)[0] > 0
    lived, logged = sample_finished(key, memory, *shape), sample_dataset(key, dataset, *shape)
    return jax.tree.map(lambda a, b: jnp.where(has_any, a, b), lived, logged)


def windows(rows: Array, starts: Array, *, length: int) -> tuple[Array, Array]:
    """Returns `[B, length, R]` rows from each start on, and `[B, length]` 1 where they belong.

    They do while they are of the episode of the first. The rows are one environment's, in their
    order, round the end where they are a ring.
    """
    found = rows[(starts[:, None] + jnp.arange(length)[None]) % len(rows)]
    follows = found[..., PLACE] == found[:, :1, PLACE] + jnp.arange(length)[None]
    is_own = follows & (found[..., EPISODE] == found[:, :1, EPISODE])
    return found, is_own.astype(jnp.float32)
