"""Cal-QL: what is pushed down and not below what, the target, the temperature; and the probes."""

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
from roid_jax.agents import base, calql, sac
from roid_jax.agents.calql import CalqlConfig
from roid_jax.envs import probes


@pytest.fixture(autouse=True)
def loose_ranks(explicit_ranks):
    with jax.numpy_rank_promotion("allow"):  # distrax relies on it
        yield


CONFIG = CalqlConfig(hidden=(8,), batch_size=6, num_actions=3)


def batch_of(number=6, return_to_go=0.0):
    batch = transitions(number)._replace(
        discount=(np.arange(number) % 3 > 0).astype(np.float32),
        return_to_go=np.full(number, return_to_go, np.float32),
    )
    return jax.tree.map(jnp.asarray, batch)


@functools.cache
def make(config=CONFIG):
    agent = probing.compiled(calql.calql(config, SPEC))
    parts = calql.make_parts(config, SPEC)
    dataset = replay.make_dataset(jax.random.key(0), replay.Layout(3, 2), transitions(40))
    state = agent.init(jax.random.key(1), dataset)
    other = agent.init(jax.random.key(2), dataset)
    log_temperature = state.log_temperature.replace(params=jnp.log(0.3))
    state = state.replace(target_critics=other.critics.params, log_temperature=log_temperature)
    return agent, parts, dataset, state


@pytest.mark.parametrize("calibrated", [True, False], ids=["calql", "cql"])
def test_the_floor_is_under_the_policys_actions_and_not_under_random_ones(calibrated):
    config = dataclasses.replace(CONFIG, calibrated=calibrated)
    _, parts, _, state = make(config)
    floor = 0.001  # between values that start near 0, so that it lifts some and not others
    batch, key = batch_of(return_to_go=floor), jax.random.key(3)
    found = calql.push(key, state.critics.params, state, batch, parts)

    keys = jax.random.split(key, 3)
    uniform = jax.random.uniform(keys[0], (3, 6, 2), minval=-1.0, maxval=1.0)
    here, log_here = calql.draw(keys[1], state, batch.obs, parts, number=3)
    there, log_there = calql.draw(keys[2], state, batch.next_obs, parts, number=3)
    lifted = 0
    for k in range(2):
        critic = jax.tree.map(lambda leaf, k=k: leaf[k], state.critics.params)
        total = np.zeros(6)
        for kind, actions, log_density in (
            ("uniform", uniform, np.full((3, 6), 2 * np.log(0.5))),
            ("policy", here, np.asarray(log_here)),
            ("policy", there, np.asarray(log_there)),
        ):
            for j in range(3):
                value = np.asarray(parts.critic.apply(critic, batch.obs, actions[j]))
                if calibrated and kind == "policy":
                    lifted += np.sum(value < floor)
                    value = np.maximum(value, floor)
                total += np.exp(value - log_density[j])
        np.testing.assert_allclose(found[k], np.log(total), rtol=1e-4)
    assert not calibrated or 0 < lifted < 2 * 2 * 3 * 6


@pytest.mark.parametrize("max_backup", [True, False])
def test_the_target_is_the_best_of_some_actions_by_the_lesser_critic(max_backup):
    _, parts, _, state = make(dataclasses.replace(CONFIG, max_backup=max_backup))
    batch, key = batch_of(), jax.random.key(4)
    found = calql.critic_target(key, state, batch, parts)
    number = 3 if max_backup else 1
    actions, _ = calql.draw(key, state, batch.next_obs, parts, number=number)
    least = np.stack(
        [
            np.min(
                networks.apply_members(parts.critic, state.target_critics, batch.next_obs, action),
                axis=0,
            )
            for action in actions
        ]
    )
    worth = np.asarray(batch.discount) * least.max(axis=0)
    np.testing.assert_allclose(found, np.asarray(batch.reward) + 0.99 * worth, rtol=1e-4, atol=1e-6)


def test_everything_moves_by_gradients_at_the_same_point():
    agent, parts, dataset, state = make()
    key = jax.random.key(5)
    found, metrics = agent.offline_update(key, 0, state, dataset)
    key_rows, key_update = jax.random.split(key)
    rows, _ = replay.sample_dataset(key_rows, dataset, 6)
    batch = sac.unpack(parts, rows, largest_action=0.99999)
    key_target, key_push, key_actor = jax.random.split(key_update, 3)
    target = calql.critic_target(key_target, state, batch, parts)

    def value_loss(params):
        values = networks.apply_members(parts.critic, params, batch.obs, batch.action)
        pushed = calql.push(key_push, params, state, batch, parts)
        return sum(
            jnp.mean((values[k] - target) ** 2) + 5.0 * jnp.mean(pushed[k] - values[k])
            for k in range(2)
        )

    gradient = jax.grad(value_loss)(state.critics.params)
    critics = base.descend(parts.critic_optimiser, state.critics, gradient)
    chex.assert_trees_all_close(found.critics, critics, rtol=1e-4, atol=1e-6)
    slow = networks.polyak(critics.params, state.target_critics, rate=0.005)
    chex.assert_trees_all_close(found.target_critics, slow, rtol=1e-5, atol=1e-7)

    def policy_loss(params):
        policy = parts.actor.apply(params, batch.obs)
        action, log_prob = policy.sample_and_log_prob(seed=key_actor)
        values = networks.apply_members(parts.critic, state.critics.params, batch.obs, action)
        return jnp.mean(0.3 * log_prob - jnp.min(values, axis=0)), -jnp.mean(log_prob)

    gradient, entropy = jax.grad(policy_loss, has_aux=True)(state.actor.params)
    actor = base.descend(parts.optimiser, state.actor, gradient)
    chex.assert_trees_all_close(found.actor, actor, rtol=1e-4, atol=1e-6)
    # The loss of the temperature is -log temperature (log pi + target), and the target is -2 here.
    temperature = base.descend(parts.optimiser, state.log_temperature, entropy + 2.0)
    chex.assert_trees_all_close(found.log_temperature, temperature, rtol=1e-5)
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-5)


def test_at_first_the_policy_clones_if_asked_to():
    agent, parts, dataset, state = make(dataclasses.replace(CONFIG, cloning_steps=2))
    key = jax.random.key(5)
    rows, _ = replay.sample_dataset(jax.random.split(key)[0], dataset, 6)
    batch = sac.unpack(parts, rows, largest_action=0.99999)

    def likelihood(params):
        policy = parts.actor.apply(params, batch.obs)
        normal, raw = policy.distribution, jnp.arctanh(batch.action)
        squashing = jnp.sum(jnp.log(1.0 - batch.action**2), axis=1)
        return jnp.mean(normal.log_prob(raw) - squashing)

    gradient = jax.tree.map(lambda leaf: -leaf, jax.grad(likelihood)(state.actor.params))
    expected = base.descend(parts.optimiser, state.actor, gradient)
    for step, clones in ((0, True), (1, True), (2, False)):
        found, _ = agent.offline_update(key, step, state, dataset)
        pairs = zip(*map(jax.tree.leaves, (found.actor, expected)), strict=True)
        is_close = all(np.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in pairs)
        assert is_close == clones


def test_rewards_and_returns_are_scaled_alike():
    _, parts, dataset, state = make(dataclasses.replace(CONFIG, reward_scale=0.25))
    _, plain, _, _ = make()
    rows = dataset.rows[:4]
    scaled, batch = (calql._unpack(given, state, rows) for given in (parts, plain))
    np.testing.assert_allclose(scaled.reward, 0.25 * np.asarray(batch.reward))
    np.testing.assert_allclose(scaled.return_to_go, 0.25 * np.asarray(batch.return_to_go))


def test_the_deviation_begins_smaller_by_a_shift_that_is_learned():
    _, parts, _, state = make()
    params = state.actor.params["params"]
    assert params["log_std_scale"] == 1.0 and params["log_std_shift"] == -1.0
    policy = parts.actor.apply(state.actor.params, jnp.zeros((1, 3)))
    np.testing.assert_allclose(policy.distribution.stddev(), np.exp(-1.0), rtol=0.05)


def test_online_rows_come_from_ended_episodes_with_their_returns():
    config = dataclasses.replace(CONFIG, offline_fraction=0.0)
    agent, _, dataset, state = make(config)
    layout = replay.Layout(3, 2)
    lived = transitions(8, seed=5)._replace(
        place=np.array([0, 1, 2, 3, 4, 0, 1, 2], np.float32),
        episode=np.array([0, 0, 0, 0, 0, 1, 1, 1], np.float32),
    )
    reward = lived.reward.copy()
    reward[5:] = np.nan  # of an episode that goes on: no loss may see them
    memory = replay.add(replay.init(layout, 8), layout.pack(lived._replace(reward=reward)))
    found, metrics = agent.online_update(jax.random.key(6), 0, state, memory, dataset)
    assert np.isfinite(metrics["td_loss"])
    chex.assert_tree_all_finite(found)
    assert agent.return_discount == 0.99 and agent.credits


def test_before_an_episode_has_ended_rows_are_logged():
    config = dataclasses.replace(CONFIG, offline_fraction=0.0)
    agent, _, dataset, state = make(config)
    layout = replay.Layout(3, 2)
    lived = transitions(3, seed=5)._replace(place=np.arange(3.0), reward=np.full(3, np.nan))
    memory = replay.init(layout, 8)
    for row in layout.pack(lived):
        memory = replay.add(memory, row[None])
    found, _ = agent.online_update(jax.random.key(6), 0, state, memory, dataset)
    chex.assert_tree_all_finite(found)


def test_cql_needs_no_returns_and_learns_from_what_it_lives_at_once():
    config = dataclasses.replace(CONFIG, calibrated=False, offline_fraction=0.0)
    agent, _, dataset, state = make(config)
    assert agent.return_discount is None and not agent.credits
    layout = replay.Layout(3, 2)
    lived = transitions(8, seed=5)._replace(reward=np.full(8, np.nan))  # no episode has ended
    memory = replay.add(replay.init(layout, 8), layout.pack(lived))
    _, metrics = agent.online_update(jax.random.key(6), 0, state, memory, dataset)
    assert np.isnan(metrics["td_loss"])


PROBE = CalqlConfig(
    hidden=(32,),
    actor_rate=3e-3,
    critic_rate=3e-3,
    batch_size=32,
    polyak=0.05,
    discount=0.9,
    initial_temperature=0.05,
    entropy_per_dimension=-3.0,
    conservatism=0.1,
    num_actions=4,
)


@pytest.mark.parametrize("name", sorted(probes.PROBES))
def test_every_probe_is_solved(name):
    agent, state, env = probing.run(calql.calql, PROBE, name, offline=600, online=600)
    probing.assert_acts_well(agent, state, name)
    expected = probing.first_value(name)
    if expected is not None:
        critic, obs = calql.make_parts(PROBE, env.spec).critic, probing.observations(name)
        found = networks.apply_members(critic, state.critics.params, obs, jnp.zeros_like(obs))
        np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=0.2)


def test_what_it_does_is_learned_online_too():
    agent, state, _ = probing.run(calql.calql, PROBE, "both", offline=0, online=1200)
    probing.assert_acts_well(agent, state, "both")


@pytest.mark.parametrize(
    ("field", "value"),
    [("conservatism", -1.0), ("num_actions", 0), ("offline_fraction", 2.0), ("updates", 0)],
)
def test_a_wrong_setting_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        CalqlConfig(**{field: value})


def test_states_are_seen_as_so_many_deviations_from_the_logged_mean():
    config = dataclasses.replace(CONFIG, normalise_states=True)
    agent, parts = calql.calql(config, SPEC), calql.make_parts(config, SPEC)
    logged = transitions(40)
    dataset = replay.make_dataset(jax.random.key(0), replay.Layout(3, 2), logged)
    state = agent.init(jax.random.key(1), dataset)
    seen = (logged.obs - logged.obs.mean(axis=0)) / (logged.obs.std(axis=0) + 1e-3)
    action, *_ = agent.act(jax.random.key(2), state, (), jnp.asarray(logged.obs), explore=False)
    expected = networks.mode(parts.actor.apply(state.actor.params, jnp.asarray(seen)))
    np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)
    # An update on states that were normalised beforehand is the same update.
    plain = calql.calql(CONFIG, SPEC)
    following = (logged.next_obs - logged.obs.mean(axis=0)) / (logged.obs.std(axis=0) + 1e-3)
    rows = logged._replace(obs=seen, next_obs=following)
    other = replay.make_dataset(jax.random.key(0), replay.Layout(3, 2), rows)
    after, _ = agent.offline_update(jax.random.key(3), 0, state, dataset)
    begun = plain.init(jax.random.key(1), other)
    same, _ = plain.offline_update(jax.random.key(3), 0, begun, other)
    chex.assert_trees_all_close(after.critics, same.critics, rtol=1e-3, atol=1e-6)
    chex.assert_trees_all_equal((after.mean, after.scale), (state.mean, state.scale))
