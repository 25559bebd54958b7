"""Returns to go, ended episodes and windows in a ring, however often it went round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import episodes, replay
from roid_jax.types import Transitions

LAYOUT = replay.Layout(obs_dim=1, action_dim=1)


def live(lengths, *, capacity, discount=0.9, num_envs=1, seed=0):
    """A ring after episodes of these lengths in each environment, and every row ever lived."""
    rng = np.random.default_rng(seed)
    places = np.concatenate([np.arange(n) for n in lengths])
    numbers = np.concatenate([np.full(n, i) for i, n in enumerate(lengths)])
    rewards = rng.normal(size=(len(places), num_envs)).astype(np.float32)
    memory = replay.init(LAYOUT, capacity)
    longest = max(lengths)

    @jax.jit
    def step(memory, row):
        memory = replay.add(memory, row)
        how = {"number": num_envs, "discount": discount, "longest": longest}
        return episodes.credit(memory, LAYOUT, **how)

    for t, (place, number) in enumerate(zip(places, numbers, strict=True)):
        full = np.ones(num_envs, np.float32)
        row = Transitions(
            obs=t * full[:, None],
            action=full[:, None],
            reward=rewards[t],
            discount=full,
            next_obs=full[:, None],
            place=place * full,
            episode=number * full,
        )
        memory = step(memory, LAYOUT.pack(row))
    return memory, places, numbers, rewards


def returns_to_go(places, rewards, discount):
    """As far as the episodes went, by the definition, from the end."""
    found = np.zeros(rewards.shape)
    for t in reversed(range(len(places))):
        goes_on = t + 1 < len(places) and places[t + 1] > 0
        found[t] = rewards[t] + (discount * found[t + 1] if goes_on else 0.0)
    return found


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("capacity", [8, 12, 40])
def test_returns_to_go_are_right_through_the_wrap_around(capacity, num_envs):
    lengths = [5, 1, 7, 3, 4]  # the last is not at its end
    memory, places, _, rewards = live(lengths, capacity=capacity, num_envs=num_envs)
    expected = returns_to_go(places, rewards, 0.9).ravel()
    total = len(expected)
    kept = range(max(0, total - capacity), total)
    found = LAYOUT.unpack(np.asarray(memory.rows)).return_to_go
    for number in kept:
        np.testing.assert_allclose(found[number % capacity], expected[number], rtol=1e-5, atol=1e-5)


def test_only_rows_of_ended_episodes_are_drawn_and_all_of_them():
    memory, _, numbers, _ = live([5, 2, 6, 3], capacity=10)
    rows, ended = episodes.finished(memory)
    assert (int(rows), int(ended)) == (7, 3)  # of the ten newest rows three are of the last episode
    drawn, which = episodes.sample_finished(jax.random.key(0), memory, 500)
    assert set(np.asarray(which)) == set(range(6, 13))
    found = LAYOUT.unpack(np.asarray(drawn))
    np.testing.assert_array_equal(found.obs[:, 0], which)
    np.testing.assert_array_equal(found.episode, numbers[np.asarray(which)])


def test_before_an_episode_has_ended_there_is_the_oldest_row():
    memory, _, _, _ = live([3], capacity=10)
    assert tuple(map(int, episodes.finished(memory))) == (0, 0)
    _, which = episodes.sample_finished(jax.random.key(0), memory, 5)
    np.testing.assert_array_equal(which, 0)
    empty = replay.init(LAYOUT, 10)
    assert tuple(map(int, episodes.finished(empty))) == (0, 0)


def test_a_window_ends_with_its_episode_and_goes_round_the_ring():
    memory, _, numbers, _ = live([5, 2, 6, 3], capacity=10)
    starts = np.arange(6, 13)
    rows, mask = episodes.windows(memory.rows, jnp.asarray(starts), length=4)
    for start, window, real in zip(starts, np.asarray(rows), np.asarray(mask), strict=True):
        same = [n for n in range(start, start + 4) if n < 16 and numbers[n] == numbers[start]]
        np.testing.assert_array_equal(real, [1.0] * len(same) + [0.0] * (4 - len(same)))
        np.testing.assert_array_equal(LAYOUT.unpack(window).obs[: len(same), 0], same)


def test_a_window_of_the_only_episode_does_not_begin_again():
    memory, _, _, _ = live([6], capacity=6)
    _, mask = episodes.windows(memory.rows, jnp.array([4]), length=4)
    np.testing.assert_array_equal(mask, [[1, 1, 0, 0]])
