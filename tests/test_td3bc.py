import chex
import jax
import jax.numpy as jnp
import numpy as np
import probing
import pytest

from roid_jax import replay
from roid_jax.agents import ensemble, td3bc
from roid_jax.envs import base
from roid_jax.types import Transitions

SPEC = base.Spec("test", obs_dim=2, action_dim=1, max_steps=10)
CONFIG = ensemble.EnsembleConfig(hidden=(8,), batch_size=6, num_members=3, holdout=2)


def transitions(number, seed=0):
    rng = np.random.default_rng(seed)
    return Transitions(
        obs=rng.normal(size=(number, 2)),
        action=rng.uniform(-1, 1, (number, 1)),
        reward=rng.normal(size=number),
        discount=(rng.uniform(size=number) > 0.3).astype(float),
        next_obs=rng.normal(size=(number, 2)),
    )


@pytest.fixture
def parts():
    return ensemble.make_parts(CONFIG, SPEC)


@pytest.fixture
def dataset(parts):
    return replay.make_dataset(jax.random.key(0), parts.layout, transitions(20))


@pytest.fixture
def state(parts, dataset):
    return ensemble.init(parts, jax.random.key(1), dataset)


def member_batch(parts, dataset):
    rows, numbers = replay.sample_dataset(jax.random.key(2), dataset, 3, 6)
    return parts.layout.unpack(rows), numbers


def one(params, *index):
    return jax.tree.map(lambda leaf: leaf[index], params)


def test_the_target_is_each_members_own_least_twin(parts, dataset, state):
    plain = parts._replace(config=ensemble.EnsembleConfig(hidden=(8,), smoothing_noise=0.0))
    batch, _ = member_batch(parts, dataset)
    target = td3bc.critic_target(jax.random.key(3), state, batch, plain)
    for j in range(3):
        action = parts.actor.apply(one(state.target_actors, j), batch.next_obs[j])
        twins = [
            np.asarray(
                parts.critic.apply(one(state.target_critics, j, i), batch.next_obs[j], action)
            )
            for i in range(2)
        ]
        expected = batch.reward[j] + 0.99 * batch.discount[j] * np.minimum(*twins)
        np.testing.assert_allclose(target[j], expected, rtol=1e-5)


def test_smoothing_is_clipped_noise_inside_the_box():
    config = ensemble.EnsembleConfig(smoothing_noise=10.0, smoothing_clip=0.5)
    moved = ensemble.smoothed(jax.random.key(0), jnp.zeros((1000, 1)), config)
    assert np.abs(moved).max() == 0.5
    moved = ensemble.smoothed(jax.random.key(0), jnp.full((1000, 1), 0.9), config)
    assert moved.max() == 1.0 and moved.min() == pytest.approx(0.4)


def test_the_critic_loss_leaves_masked_rows_out(parts, dataset, state):
    batch, _ = member_batch(parts, dataset)
    target = jnp.ones((3, 6))
    mask = jnp.ones((3, 6)).at[1, 2:].set(0.0).at[2].set(0.0)
    loss = td3bc.critic_loss(state.critics.params, batch, target, mask, parts)
    assert loss.shape == (3, 2)
    for i in range(2):
        values = parts.critic.apply(one(state.critics.params, 1, i), batch.obs[1], batch.action[1])
        expected = np.mean(np.square(np.asarray(values[:2]) - 1.0))
        np.testing.assert_allclose(loss[1, i], expected, rtol=1e-5)
    np.testing.assert_array_equal(loss[2], 0.0)


def test_the_actor_loss_is_cloning_minus_the_normalised_value(parts, dataset, state):
    batch, _ = member_batch(parts, dataset)
    loss = td3bc.actor_loss(
        state.actors.params, state.critics.params, batch, jnp.ones((3, 6)), parts
    )
    for j in range(3):
        action = np.asarray(parts.actor.apply(one(state.actors.params, j), batch.obs[j]))
        value = parts.critic.apply(one(state.critics.params, j, 0), batch.obs[j], action)
        value = np.asarray(value)
        worth = 2.5 / np.mean(np.abs(value)) * np.mean(value)
        expected = np.mean(np.square(action - batch.action[j])) - worth
        np.testing.assert_allclose(loss[j], expected, rtol=1e-4)


def test_the_second_twin_gets_no_gradient_from_the_actor(parts, dataset, state):
    batch, _ = member_batch(parts, dataset)

    def loss(critics):
        return td3bc.actor_loss(state.actors.params, critics, batch, jnp.ones((3, 6)), parts).sum()

    for leaf in jax.tree.leaves(jax.grad(loss)(state.critics.params)):
        np.testing.assert_array_equal(leaf[:, 1], 0.0)


def test_actors_and_targets_move_every_second_step_and_by_their_rate(parts, dataset, state):
    update = jax.jit(
        lambda step, state: td3bc.offline_update(parts, jax.random.key(5), step, state, dataset)[0]
    )
    first = update(0, state)
    chex.assert_trees_all_equal(first.actors, state.actors)
    chex.assert_trees_all_equal(first.target_critics, state.target_critics)
    second = update(1, first)
    moved = jax.tree.map(
        lambda new, old: 0.005 * new + 0.995 * old, second.critics.params, first.target_critics
    )
    chex.assert_trees_all_close(second.target_critics, moved, rtol=1e-6)
    moved = jax.tree.map(
        lambda new, old: 0.005 * new + 0.995 * old, second.actors.params, first.target_actors
    )
    chex.assert_trees_all_close(second.target_actors, moved, rtol=1e-6)


def test_members_do_not_touch_each_other(parts, dataset, state):
    """A member's update is the same whatever the others hold."""
    other = state.replace(
        critics=state.critics.replace(
            params=jax.tree.map(lambda leaf: leaf.at[1].add(1.0), state.critics.params)
        )
    )
    update = lambda state: td3bc.offline_update(  # noqa: E731
        parts, jax.random.key(5), 1, state, dataset
    )[0]
    mine, theirs = update(state), update(other)
    chex.assert_trees_all_equal(one(mine.actors.params, 0), one(theirs.actors.params, 0))
    chex.assert_trees_all_equal(one(mine.critics.params, 2), one(theirs.critics.params, 2))


def test_the_held_out_rows_are_never_drawn(dataset):
    _, numbers = replay.sample_dataset(jax.random.key(0), dataset, 5000, holdout=2)
    kept = set(np.asarray(dataset.order[-2:]).tolist())
    assert not kept & set(np.unique(numbers).tolist())
    assert len(np.unique(numbers)) == 18
    np.testing.assert_array_equal(replay.held_out(dataset, 2), dataset.rows[dataset.order[-2:]])


def test_a_holdout_of_everything_is_refused(dataset):
    with pytest.raises(ValueError, match="a holdout of 20 leaves nothing of 20 rows"):
        replay.sample_dataset(jax.random.key(0), dataset, 5, holdout=20)


def test_masks_are_permanent_apart_and_as_likely_as_asked():
    numbers = jnp.broadcast_to(jnp.arange(20_000)[None], (5, 20_000))
    members = jnp.broadcast_to(jnp.arange(5)[:, None], numbers.shape)
    mask = replay.bootstrap_mask(jnp.uint32(7), numbers, members, probability=0.9)
    again = replay.bootstrap_mask(jnp.uint32(7), numbers, members, probability=0.9)
    np.testing.assert_array_equal(mask, again)
    np.testing.assert_allclose(mask.mean(axis=1), 0.9, atol=4 * np.sqrt(0.09 / 20_000))
    np.testing.assert_allclose(np.corrcoef(mask), np.eye(5), atol=4 / np.sqrt(20_000))
    other = replay.bootstrap_mask(jnp.uint32(8), numbers, members, probability=0.9)
    assert abs(np.corrcoef(mask[0], other[0])[0, 1]) < 4 / np.sqrt(20_000)
    assert np.all(replay.bootstrap_mask(jnp.uint32(7), numbers, members, probability=1.0) == 1)


def test_states_are_normalised_by_the_dataset_where_asked(dataset):
    config = ensemble.EnsembleConfig(hidden=(8,), normalise_states=True, holdout=2)
    parts = ensemble.make_parts(config, SPEC)
    state = ensemble.init(parts, jax.random.key(0), dataset)
    obs = parts.layout.unpack(dataset.rows).obs
    seen = ensemble.normalise(parts, state, obs)
    np.testing.assert_allclose(seen.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(
        seen.std(axis=0), obs.std(axis=0) / (obs.std(axis=0) + 1e-3), rtol=1e-4
    )


PROBE = ensemble.EnsembleConfig(
    hidden=(32, 32),
    learning_rate=3e-3,
    batch_size=32,
    polyak=0.05,
    num_members=2,
    holdout=100,
    discount=0.9,
    bc_alpha=50.0,
)


def pretrained(name):
    return probing.run(td3bc.td3bc, PROBE, name, offline=2000)


@pytest.mark.parametrize("name", ["constant", "observation", "delayed"])
def test_the_critics_find_the_values_of_a_probe(name):
    _, state, env = pretrained(name)
    critic = ensemble.make_parts(PROBE, env.spec).critic
    obs = {"constant": [0.0], "observation": [-1.0, 1.0], "delayed": [0.0, 1.0]}[name]
    expected = {"constant": [1.0], "observation": [-1.0, 1.0], "delayed": [0.9, 1.0]}[name]
    obs = jnp.array(obs)[:, None]
    for j in range(2):
        for i in range(2):
            found = critic.apply(one(state.critics.params, j, i), obs, jnp.zeros_like(obs))
            np.testing.assert_allclose(found, expected, atol=0.1)


@pytest.mark.parametrize("name", ["action", "both"])
def test_the_actor_finds_the_best_action_of_a_probe(name):
    agent, state, _ = pretrained(name)
    probing.assert_acts_well(agent, state, name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden", ()),
        ("mask", "none"),
        ("mask_probability", 0.0),
        ("holdout", -1),
        ("policy_delay", 0),
        ("discount", 1.0),
    ],
)
def test_a_wrong_setting_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        ensemble.EnsembleConfig(**{field: value})
