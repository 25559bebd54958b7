"""RLPD: what it learns from, towards what, and how often; and that it solves the probes."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import probing
import pytest
from test_boorl import SPEC, transitions

from roid_jax import networks, replay
from roid_jax.agents import base, rlpd, sac
from roid_jax.agents.rlpd import RlpdConfig
from roid_jax.envs import probes


@pytest.fixture(autouse=True)
def loose_ranks(explicit_ranks):
    with jax.numpy_rank_promotion("allow"):  # distrax relies on it
        yield


CONFIG = RlpdConfig(hidden=(8,), batch_size=6, num_critics=4, updates=3)


@functools.cache
def make(config=CONFIG):
    agent = probing.compiled(rlpd.rlpd(config, SPEC))
    parts = rlpd.make_parts(config, SPEC)
    layout = replay.Layout(3, 2)
    dataset = replay.make_dataset(jax.random.key(0), layout, transitions(40))
    state = agent.init(jax.random.key(1), dataset)
    # Targets that differ from what they follow, and a temperature that is not one.
    other = agent.init(jax.random.key(2), dataset)
    log_temperature = state.log_temperature.replace(params=jnp.log(0.3))
    state = state.replace(target_critics=other.critics.params, log_temperature=log_temperature)
    memory = replay.add(replay.init(layout, 10), layout.pack(transitions(10, seed=5)))
    return agent, parts, dataset, state, memory


@pytest.mark.parametrize("entropy_backup", [True, False])
def test_the_target_is_the_least_of_two_critics_with_the_entropys_worth(entropy_backup):
    config = dataclasses.replace(CONFIG, entropy_backup=entropy_backup)
    _, parts, _, state, _ = make(config)
    batch = transitions(6)._replace(discount=np.array([1, 1, 0, 1, 0, 1], np.float32))
    batch = jax.tree.map(jnp.asarray, batch)
    key = jax.random.key(7)
    found = rlpd.critic_target(key, state, batch, parts)

    key_action, key_critics = jax.random.split(key)
    policy = parts.actor.apply(state.actor.params, batch.next_obs)
    action, log_prob = policy.sample_and_log_prob(seed=key_action)
    every = np.asarray(
        networks.apply_members(parts.critic, state.target_critics, batch.next_obs, action)
    )
    drawn = np.asarray(jax.random.choice(key_critics, 4, (2,), replace=False))
    assert len(set(drawn.tolist())) == 2
    worth = np.min(every[drawn], axis=0) - 0.3 * entropy_backup * np.asarray(log_prob)
    expected = np.asarray(batch.reward) + 0.99 * np.asarray(batch.discount) * worth
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_critics_loss_is_a_mean_over_critics_and_rows():
    _, parts, _, state, _ = make()
    batch, target = jax.tree.map(jnp.asarray, transitions(6)), jnp.arange(6.0)
    values = np.asarray(
        networks.apply_members(parts.critic, state.critics.params, batch.obs, batch.action)
    )
    found = rlpd.critic_loss(state.critics.params, batch, target, parts)
    np.testing.assert_allclose(found, np.mean((values - np.arange(6.0)) ** 2), rtol=1e-5)


def test_the_actor_goes_up_the_mean_of_all_critics():
    _, parts, _, state, _ = make()
    obs, key = jnp.asarray(transitions(6).obs), jax.random.key(3)
    found, entropy = rlpd.actor_loss(key, state.actor.params, state, obs, parts)
    action, log_prob = parts.actor.apply(state.actor.params, obs).sample_and_log_prob(seed=key)
    values = networks.apply_members(parts.critic, state.critics.params, obs, action)
    expected = np.mean(0.3 * np.asarray(log_prob) - np.mean(values, axis=0))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(entropy, -np.mean(log_prob), rtol=1e-5)


@pytest.mark.parametrize(("fraction", "logged"), [(0.5, 3), (1 / 3, 2), (1.0, 6)])
def test_critics_move_many_times_and_the_actor_once_on_the_last_batch(fraction, logged):
    config = dataclasses.replace(CONFIG, offline_fraction=fraction)
    agent, parts, dataset, state, memory = make(config)
    key = jax.random.key(9)
    found, metrics = agent.online_update(key, 0, state, memory, dataset)
    key_critics, key_actor = jax.random.split(key)
    key_rows, key_updates = jax.random.split(key_critics)
    rows, numbers = replay.sample_mixed(key_rows, memory, dataset, 3, 6, fraction=fraction)
    assert np.all(np.sum(numbers < 0, axis=1) == logged), "exactly, in every batch"
    expected = state
    for key, batch in zip(jax.random.split(key_updates, 3), rows, strict=True):
        batch = sac.unpack(parts, batch, largest_action=1 - 1e-5)
        target = rlpd.critic_target(key, expected, batch, parts)
        gradient = jax.grad(rlpd.critic_loss)(expected.critics.params, batch, target, parts)
        critics = base.descend(parts.optimiser, expected.critics, gradient)
        slow = networks.polyak(critics.params, expected.target_critics, rate=0.005)
        expected = expected.replace(critics=critics, target_critics=slow)

    def loss(params):
        return rlpd.actor_loss(key_actor, params, expected, batch.obs, parts)

    gradient, entropy = jax.grad(loss, has_aux=True)(state.actor.params)
    actor = base.descend(parts.optimiser, state.actor, gradient)
    surplus = entropy + 0.5 * 2  # the target entropy is minus half the action's size
    temperature = base.descend(parts.optimiser, state.log_temperature, 0.3 * surplus)
    chex.assert_trees_all_close(found.critics, expected.critics, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(found.target_critics, expected.target_critics, atol=1e-6)
    chex.assert_trees_all_close(found.actor, actor, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(found.log_temperature, temperature, rtol=1e-5)
    assert set(metrics) == {"td_loss", "entropy", "temperature"}


def test_actions_of_the_data_stay_inside_the_box():
    _, parts, _, _, _ = make()
    edge = transitions(2)._replace(action=np.array([[1.0, -1.0], [0.5, 0.0]], np.float32))
    rows = replay.Layout(3, 2).pack(edge)
    found = sac.unpack(parts, rows, largest_action=rlpd.LARGEST_ACTION).action
    np.testing.assert_allclose(found, [[1 - 1e-5, -1 + 1e-5], [0.5, 0.0]], rtol=1e-7)
    assert np.all(np.abs(found) < 1.0)


PROBE = RlpdConfig(
    hidden=(32,),
    batch_size=32,
    num_critics=3,
    updates=2,
    learning_rate=3e-3,
    polyak=0.05,
    discount=0.9,
    initial_temperature=0.05,
    entropy_per_dimension=-3.0,
    warmup_steps=50,
)


@pytest.mark.parametrize("name", sorted(probes.PROBES))
def test_every_probe_is_solved(name):
    agent, state, env = probing.run(rlpd.rlpd, PROBE, name, online=1200)
    probing.assert_acts_well(agent, state, name)
    expected = probing.first_value(name)
    if expected is not None:
        critic, obs = rlpd.make_parts(PROBE, env.spec).critic, probing.observations(name)
        found = networks.apply_members(critic, state.critics.params, obs, jnp.zeros_like(obs))
        np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=0.2)


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_in_minimum", 11), ("updates", 0), ("offline_fraction", 2.0), ("warmup_steps", 0)],
)
def test_a_wrong_setting_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        RlpdConfig(**{field: value})
