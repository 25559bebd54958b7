import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import replay
from roid_jax.types import Transitions

LAYOUT = replay.Layout(obs_dim=2, action_dim=1)


def transitions(first, number):
    """Rows whose every field tells which row they are."""
    ids = jnp.arange(first, first + number, dtype=jnp.float32)
    return Transitions(
        obs=jnp.stack([ids, ids + 0.1], axis=-1),
        action=ids[:, None] + 0.2,
        reward=ids + 0.3,
        discount=ids % 2,
        next_obs=jnp.stack([ids + 0.4, ids + 0.5], axis=-1),
    )


def test_unpacking_gives_back_what_was_packed():
    rows = LAYOUT.pack(transitions(3, 4))
    assert rows.shape == (4, LAYOUT.width)
    nothing = jnp.zeros(4)
    expected = transitions(3, 4)._replace(return_to_go=nothing, place=nothing, episode=nothing)
    chex.assert_trees_all_equal(LAYOUT.unpack(rows), expected)
    assert isinstance(LAYOUT.unpack(np.asarray(rows)).obs, np.ndarray)


def test_the_newest_rows_lie_over_the_oldest():
    memory = replay.init(LAYOUT, 4)
    for first in (0, 2, 4):
        memory = replay.add(memory, LAYOUT.pack(transitions(first, 2)))
    assert memory.count == 6 and memory.filled == 4
    np.testing.assert_array_equal(LAYOUT.unpack(memory.rows).obs[:, 0], [4, 5, 2, 3])


def test_only_filled_rows_are_sampled_and_all_of_them_alike():
    memory = replay.add(replay.init(LAYOUT, 100), LAYOUT.pack(transitions(1, 4)))
    drawn = LAYOUT.unpack(replay.sample(jax.random.key(0), memory, 4000)[0]).obs[:, 0]
    counts = np.bincount(np.asarray(drawn, int), minlength=5)
    assert counts[0] == 0
    # Each of four rows has probability 1/4: 1000 +- 4 standard deviations of 27.
    assert np.all(np.abs(counts[1:] - 1000) < 110)


def test_rows_that_would_go_round_the_end_are_refused():
    with pytest.raises(ValueError, match="3 rows at a time do not divide a capacity of 4"):
        replay.add(replay.init(LAYOUT, 4), jnp.zeros((3, LAYOUT.width)))


def steps_per_second(capacity, steps=2000):
    @jax.jit
    def run(memory):
        def step(memory, t):
            memory = replay.add(memory, jnp.full((1, LAYOUT.width), 1.0))
            return memory, replay.sample(jax.random.fold_in(jax.random.key(0), t), memory, 16)[0]

        memory, rows = jax.lax.scan(step, memory, jnp.arange(steps))
        return memory, rows.sum()

    best = np.inf
    memory = replay.init(LAYOUT, capacity)
    run = jax.jit(run, donate_argnums=0)
    memory, _ = run(memory)
    for _ in range(3):
        start = time.perf_counter()
        memory, total = run(memory)
        total.block_until_ready()
        best = min(best, time.perf_counter() - start)
    return steps / best


def test_a_step_costs_the_same_at_any_capacity():
    # A copy of the larger buffer at every step would make it some hundred times slower.
    assert steps_per_second(1_000_000) > steps_per_second(1000) / 5


def test_a_mask_of_probability_one_keeps_every_row(monkeypatch):
    words = jnp.array([0, 2**32 - 1, 2**32 - 100], jnp.uint32)
    monkeypatch.setattr(replay, "_scramble", lambda _: words)  # the largest words there are
    numbers = jnp.zeros(3, jnp.int32)
    mask = replay.bootstrap_mask(jnp.uint32(0), numbers, numbers, probability=1.0)
    np.testing.assert_array_equal(mask, 1.0)
