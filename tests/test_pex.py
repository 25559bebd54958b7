"""IQL's values and weights, what PEX makes of two policies, and that both solve the probes."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import probing
import pytest
from test_boorl import SPEC, transitions

from roid_jax import losses, networks, replay
from roid_jax.agents import base, iql, pex
from roid_jax.agents.iql import IqlConfig
from roid_jax.agents.pex import Parts, PexConfig
from roid_jax.envs import probes


@pytest.fixture(autouse=True)
def loose_ranks(explicit_ranks):
    with jax.numpy_rank_promotion("allow"):  # distrax relies on it
        yield


OFFLINE = IqlConfig(hidden=(8,), batch_size=6, decay_steps=100, scaled_rewards=False)
CONFIG = PexConfig(offline=OFFLINE, warmup_steps=0)


@functools.cache
def make(config=CONFIG):
    agent = probing.compiled(pex.pex(config, SPEC))
    parts = Parts(config=config, offline=iql.make_parts(config.offline, SPEC))
    layout = parts.offline.layout
    dataset = replay.make_dataset(jax.random.key(0), layout, transitions(40))
    state = agent.init(jax.random.key(1), dataset)
    other = agent.init(jax.random.key(2), dataset)
    state = state.replace(target_critics=other.critics.params)  # not what they follow
    memory = replay.add(replay.init(layout, 10), layout.pack(transitions(10, seed=5)))
    return agent, parts, dataset, state, memory


def numbers(batch):
    return jax.tree.map(jnp.asarray, batch)


def test_the_expectile_weighs_what_exceeds_more_than_what_falls_short():
    found = losses.expectile(jnp.array([-2.0, 0.0, 3.0]), share=0.7)
    np.testing.assert_allclose(found, [0.3 * 4, 0.0, 0.7 * 9], rtol=1e-6)


def test_weights_are_exponential_and_at_most_a_hundred():
    config = IqlConfig(advantage_scale=3.0)
    found = iql.imitation_weight(jnp.array([-1.0, 0.0, 0.5, 50.0]), config)
    np.testing.assert_allclose(found, [np.exp(-3.0), 1.0, np.exp(1.5), 100.0], rtol=1e-6)


def test_rewards_are_scaled_so_that_returns_span_a_thousand():
    config = dataclasses.replace(OFFLINE, scaled_rewards=True)
    parts = iql.make_parts(config, SPEC)
    rows = transitions(6)._replace(
        place=np.array([0, 1, 0, 0, 1, 2], np.float32),
        return_to_go=np.array([3.0, 9.0, -2.0, 1.0, -9.0, 0.0], np.float32),
    )
    dataset = replay.make_dataset(jax.random.key(0), parts.layout, rows)
    state = jax.jit(functools.partial(iql.init, parts))(jax.random.key(1), dataset)
    np.testing.assert_allclose(state.reward_scale, 1000.0 / 5.0)
    batch = numbers(rows)
    plain, other = (
        iql.learn_values(parts, s, batch)[2]
        for s in (state, state.replace(reward_scale=jnp.ones(())))
    )
    expected = 199.0 * np.mean(rows.reward)
    np.testing.assert_allclose(plain["value"] - other["value"], expected, rtol=1e-4)


def test_value_and_critics_move_by_the_losses_worked_out_in_numpy():
    _, parts, _, state, _ = make()
    parts = parts.offline
    batch = numbers(transitions(6)._replace(discount=np.array([1, 0, 1, 1, 0, 1], np.float32)))
    after, advantage, metrics = iql.learn_values(parts, state, batch)

    def twins(params):
        return networks.apply_members(parts.critic, params, batch.obs, batch.action)

    value = np.asarray(parts.value.apply(state.value.params, batch.obs))
    worth = np.min(twins(state.target_critics), axis=0)
    np.testing.assert_allclose(advantage, worth - value, rtol=1e-5, atol=1e-6)
    next_value = np.asarray(parts.value.apply(state.value.params, batch.next_obs))
    target = np.asarray(batch.reward) + 0.99 * np.asarray(batch.discount) * next_value
    np.testing.assert_allclose(metrics["value"], target.mean(), rtol=1e-5)
    errors = np.square(np.asarray(twins(state.critics.params)) - target)
    np.testing.assert_allclose(metrics["td_loss"], 0.5 * errors.mean(axis=1).sum(), rtol=1e-5)

    def value_loss(params):
        short = worth - parts.value.apply(params, batch.obs)
        return jnp.mean(jnp.abs(0.7 - (short < 0)) * short**2)

    gradient = jax.grad(value_loss)(state.value.params)
    expected = base.descend(parts.optimiser, state.value, gradient)
    chex.assert_trees_all_close(after.value, expected, rtol=1e-4, atol=1e-6)
    gradient = jax.grad(lambda p: jnp.mean(jnp.square(twins(p) - target)))(state.critics.params)
    expected = base.descend(parts.optimiser, state.critics, gradient)
    chex.assert_trees_all_close(after.critics, expected, rtol=1e-4, atol=1e-6)
    slow = networks.polyak(expected.params, state.target_critics, rate=0.005)
    chex.assert_trees_all_close(after.target_critics, slow, rtol=1e-5, atol=1e-7)


def test_offline_the_policy_imitates_by_advantages_from_before_the_value_moved():
    agent, parts, dataset, state, _ = make()
    key = jax.random.key(4)
    found, _ = agent.offline_update(key, 0, state, dataset)
    parts = parts.offline
    batch = parts.layout.unpack(replay.sample_dataset(key, dataset, 6)[0])
    _, advantage, _ = iql.learn_values(parts, state, batch)
    weight = np.minimum(np.exp(3.0 * np.asarray(advantage)), 100.0)

    def loss(params):
        mean, std = networks_mean_and_std(parts, params, batch.obs)
        scaled = (batch.action - mean) / std
        log_prob = -0.5 * scaled**2 - jnp.log(std) - 0.5 * jnp.log(2 * jnp.pi)
        return -jnp.mean(weight * jnp.sum(log_prob, axis=-1))

    gradient = jax.grad(loss)(state.actor.params)
    expected = base.descend(parts.actor_optimiser, state.actor, gradient)
    chex.assert_trees_all_close(found.actor.params, expected.params, rtol=1e-4, atol=1e-6)


def networks_mean_and_std(parts, params, obs):
    policy = parts.actor.apply(params, obs)
    return policy.mode(), policy.stddev()


def test_the_offline_policys_rate_falls_to_nothing_and_the_new_ones_does_not():
    _, parts, _, state, _ = make()
    optimiser = parts.offline.actor_optimiser
    gradient = jax.tree.map(jnp.ones_like, state.actor.params)
    learner = state.actor
    for _ in range(101):
        before, learner = learner, base.descend(optimiser, learner, gradient)
    chex.assert_trees_all_close(before.params, learner.params, atol=1e-8)
    fresh = base.learner(parts.offline.optimiser, state.actor.params)
    moved = base.descend(parts.offline.optimiser, fresh, gradient)
    steps = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), moved.params, fresh.params)
    np.testing.assert_allclose(jax.tree.leaves(steps), 3e-4, rtol=1e-3)


def test_the_handover_settles_one_policy_and_begins_another():
    agent, parts, dataset, state, _ = make()
    after = agent.handover(jax.random.key(5), state, dataset)
    chex.assert_trees_all_equal(after.settled, state.actor.params)
    fresh = parts.offline.actor.init(jax.random.key(5), jnp.zeros(3))
    chex.assert_trees_all_equal(after.learned.actor.params, fresh)
    chex.assert_trees_all_equal(after.learned.critics, state.critics)
    alone, _, _, state, _ = make(dataclasses.replace(CONFIG, expands=False))
    after = alone.handover(jax.random.key(5), state, dataset)
    chex.assert_trees_all_equal(after.actor.params, state.actor.params)


def test_a_policy_is_drawn_by_what_its_action_is_worth():
    config = dataclasses.replace(CONFIG, inverse_temperature=2.0)
    agent, parts, dataset, state, _ = make(config)
    state = agent.handover(jax.random.key(5), state, dataset)
    log_std = {"params": {**state.learned.actor.params["params"], "log_std": jnp.full(2, -9.0)}}
    actor = state.learned.actor.replace(params=log_std)  # a sample is nearly the mode
    state = state.replace(learned=state.learned.replace(actor=actor))
    one = jnp.array([[0.3, -0.2, 0.5]])
    obs = jnp.broadcast_to(one, (20_000, 3))
    action, chosen = pex.compose(jax.random.key(6), state, obs, parts, explore=True)
    offline = parts.offline
    both = [offline.actor.apply(p, one).mode() for p in (state.settled, log_std)]
    worth = [iql.least(offline, state.learned.critics.params, one, a)[0] for a in both]
    expected = 1.0 / (1.0 + np.exp(2.0 * (worth[0] - worth[1])))
    np.testing.assert_allclose(np.mean(chosen), expected, atol=0.015)
    settled = np.asarray(action)[np.asarray(chosen) == 0]
    np.testing.assert_allclose(settled, np.broadcast_to(both[0], settled.shape), rtol=1e-6)
    # Evaluated, the better of the two, but for one time in ten, and then as drawn.
    _, chosen = pex.compose(jax.random.key(6), state, obs, parts, explore=False)
    best = int(worth[1] > worth[0])
    drawn = expected if best else 1.0 - expected
    np.testing.assert_allclose(np.mean(chosen == best), 0.9 + 0.1 * drawn, atol=0.01)


def with_equal_worth(state):
    """The agent online with critics to which all actions are alike."""
    critics = jax.tree.map(jnp.zeros_like, state.learned.critics)
    return state.replace(learned=state.learned.replace(critics=critics))


def test_the_new_policy_proposes_samples_and_evaluated_mostly_its_mode():
    agent, parts, dataset, state, _ = make()
    state = with_equal_worth(agent.handover(jax.random.key(5), state, dataset))
    params = {
        "params": {**state.learned.actor.params["params"], "log_std": jnp.log(jnp.full(2, 0.8))}
    }
    actor = state.learned.actor.replace(params=params)
    state = state.replace(learned=state.learned.replace(actor=actor))
    one = jnp.array([[0.3, -0.2, 0.5]])
    obs = jnp.broadcast_to(one, (20_000, 3))
    mode = np.asarray(parts.offline.actor.apply(params, one).mode())[0]
    action, chosen = pex.compose(jax.random.key(6), state, obs, parts, explore=True)
    drawn = np.asarray(action)[np.asarray(chosen) == 1]
    np.testing.assert_allclose(drawn.mean(axis=0), mode, atol=0.03)
    np.testing.assert_allclose(drawn.std(axis=0), 0.8, atol=0.03)  # not clipped, as it is imitated
    action, *_ = agent.act(jax.random.key(6), state, (), obs, explore=True)
    assert np.max(np.abs(action)) == 1.0
    action, chosen = pex.compose(jax.random.key(6), state, obs, parts, explore=False)
    drawn = np.asarray(action)[np.asarray(chosen) == 1]
    share = np.mean(np.all(np.isclose(drawn, mode), axis=1))
    assert len(drawn) > 500
    np.testing.assert_allclose(share, 0.9, atol=0.04)


def test_imitating_itself_a_policy_goes_nowhere_where_all_is_worth_the_same():
    agent, parts, dataset, state, _ = make()
    state = with_equal_worth(agent.handover(jax.random.key(5), state, dataset))
    obs = jnp.broadcast_to(jnp.array([0.3, -0.2, 0.5]), (100_000, 3))
    action, chosen = pex.compose(jax.random.key(6), state, obs, parts, explore=True)
    own = chosen == 1

    def log_prob(params):
        return jnp.sum(own * parts.offline.actor.apply(params, obs).log_prob(action)) / own.sum()

    gradient = jax.grad(log_prob)(state.learned.actor.params)["params"]["log_std"]
    np.testing.assert_allclose(gradient, 0.0, atol=0.03)


@pytest.mark.parametrize("imitated", ["composed", "logged"])
def test_online_the_new_policy_imitates_what_the_two_would_do(imitated):
    agent, parts, dataset, state, memory = make(dataclasses.replace(CONFIG, imitated=imitated))
    state = agent.handover(jax.random.key(5), state, dataset)
    key = jax.random.key(7)
    found, _ = agent.online_update(key, 0, state, memory, dataset)
    key_rows, key_updates = jax.random.split(key)
    rows, which = replay.sample_mixed(key_rows, memory, dataset, 1, 6, fraction=0.5)
    assert np.sum(which < 0) == 3
    offline = parts.offline
    batch = offline.layout.unpack(rows[0])
    learned, advantage, _ = iql.learn_values(offline, state.learned, batch)
    action = batch.action
    if imitated == "composed":
        key_update = jax.random.split(key_updates, 1)[0]
        between = state.replace(learned=learned)
        action, _ = pex.compose(key_update, between, batch.obs, parts, explore=True)
        value = offline.value.apply(learned.value.params, batch.obs)
        clipped = np.clip(action, -1.0, 1.0)
        assert np.any(clipped != action)
        advantage = iql.least(offline, learned.target_critics, batch.obs, clipped) - value
    weight = np.minimum(np.exp(3.0 * np.asarray(advantage)), 100.0)

    def loss(params):
        return -jnp.mean(weight * offline.actor.apply(params, batch.obs).log_prob(action))

    gradient = jax.grad(loss)(state.learned.actor.params)
    expected = base.descend(offline.optimiser, state.learned.actor, gradient)
    chex.assert_trees_all_close(found.learned.actor, expected, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_equal(found.settled, state.settled)


PROBE = PexConfig(
    offline=IqlConfig(
        hidden=(32,),
        learning_rate=3e-3,
        batch_size=64,
        polyak=0.05,
        discount=0.9,
        decay_steps=0,
        advantage_scale=20.0,
        scaled_rewards=False,
    ),
    warmup_steps=50,
)


def test_states_are_seen_as_so_many_deviations_from_the_logged_mean():
    offline = dataclasses.replace(OFFLINE, normalise_states=True)
    logged = transitions(40)
    mean, scale = logged.obs.mean(axis=0), logged.obs.std(axis=0) + 1e-3
    turned = logged._replace(
        obs=(logged.obs - mean) / scale, next_obs=(logged.next_obs - mean) / scale
    )
    found = []
    for config, rows in ((offline, logged), (OFFLINE, turned)):
        agent = probing.compiled(pex.pex(dataclasses.replace(CONFIG, offline=config), SPEC))
        layout = replay.Layout(3, 2)
        dataset = replay.make_dataset(jax.random.key(0), layout, rows)
        state = agent.init(jax.random.key(1), dataset)
        state, _ = agent.offline_update(jax.random.key(2), 0, state, dataset)
        state = agent.handover(jax.random.key(3), state, dataset)
        memory = replay.add(replay.init(layout, 40), layout.pack(rows))
        state, _ = agent.online_update(jax.random.key(4), 0, state, memory, dataset)
        obs = jnp.asarray(rows.obs)
        action, *_ = agent.act(jax.random.key(5), state, (), obs, explore=True)
        found.append((state.learned.critics.params, state.settled, action))
    chex.assert_trees_all_close(*found, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("expands", [True, False], ids=["pex", "iql"])
@pytest.mark.parametrize("name", sorted(probes.PROBES))
def test_every_probe_is_solved(name, expands):
    config = dataclasses.replace(PROBE, expands=expands)
    agent, state, env = probing.run(pex.pex, config, name, offline=400, online=600)
    probing.assert_acts_well(agent, state, name)
    expected = probing.first_value(name)
    if expected is not None:
        learned = state.learned if expands else state
        value = iql.make_parts(PROBE.offline, env.spec).value
        found = value.apply(learned.value.params, probing.observations(name))
        np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=0.15)


def test_the_new_policy_alone_has_learned_what_to_do():
    _, state, env = probing.run(pex.pex, PROBE, "both", offline=0, online=1000)
    policy = iql.make_parts(PROBE.offline, env.spec).actor
    obs = probing.observations("both")
    found = policy.apply(state.learned.actor.params, obs).mode()
    np.testing.assert_allclose(found, probes.PROBES["both"].best_action(obs), atol=0.15)


@pytest.mark.parametrize(
    ("field", "value"),
    [("imitated", "none"), ("updates", 0), ("offline_fraction", 2.0), ("evaluation_noise", -0.1)],
)
def test_a_wrong_setting_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        PexConfig(**{field: value})


@pytest.mark.parametrize(("field", "value"), [("expectile", 1.0), ("decay_steps", -1)])
def test_a_wrong_setting_of_its_offline_half_is_too(field, value):
    with pytest.raises(ValueError, match=field):
        IqlConfig(**{field: value})
