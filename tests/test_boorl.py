"""BOORL: which member acts, what it learns online, and that it solves the probes."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import probing
import pytest

from roid_jax import networks, replay
from roid_jax.agents import base, boorl, ensemble, td3bc
from roid_jax.agents.boorl import BoorlConfig
from roid_jax.agents.ensemble import EnsembleConfig
from roid_jax.envs import probes
from roid_jax.envs.base import Spec
from roid_jax.types import Transitions

SPEC = Spec("toy", 3, 2, 10)
OFFLINE = EnsembleConfig(hidden=(8,), batch_size=6, num_members=3, holdout=0)
CONFIG = BoorlConfig(offline=OFFLINE, updates=2, warmup_steps=0)


def transitions(number, seed=0):
    draw = functools.partial(np.random.default_rng(seed).normal)
    return Transitions(
        obs=draw(size=(number, 3)).astype(np.float32),
        action=np.tanh(draw(size=(number, 2))).astype(np.float32),
        reward=draw(size=number).astype(np.float32),
        discount=np.ones(number, np.float32),
        next_obs=draw(size=(number, 3)).astype(np.float32),
    )


@functools.cache
def make(config=CONFIG):
    agent = probing.compiled(boorl.boorl(config, SPEC))
    parts = boorl.Parts(config=config, offline=ensemble.make_parts(config.offline, SPEC))
    dataset = replay.make_dataset(jax.random.key(0), parts.offline.layout, transitions(40))
    state = agent.init(jax.random.key(1), dataset)
    for step in range(4):
        state, _ = agent.offline_update(jax.random.key(2 + step), step, state, dataset)
    return agent, parts, dataset, state


def test_a_member_is_drawn_by_the_softmax_of_what_its_action_is_worth():
    worth = jnp.broadcast_to(jnp.array([[0.0], [1.0], [-0.5]]), (3, 40_000))
    config = BoorlConfig(inverse_temperature=2.0)
    chosen = boorl.choose(jax.random.key(0), worth, jnp.zeros(40_000, int), config)
    weights = np.exp(2.0 * np.array([0.0, 1.0, -0.5]))
    np.testing.assert_allclose(
        np.bincount(chosen, minlength=3) / 40_000, weights / weights.sum(), atol=0.01
    )
    uniform = BoorlConfig(selection="uniform_step")
    chosen = boorl.choose(jax.random.key(0), worth, jnp.zeros(40_000, int), uniform)
    np.testing.assert_allclose(np.bincount(chosen) / 40_000, 1 / 3, atol=0.01)
    episode = BoorlConfig(selection="uniform_episode")
    memory = jnp.arange(40_000) % 3
    np.testing.assert_array_equal(boorl.choose(jax.random.key(0), worth, memory, episode), memory)


def test_it_executes_a_members_own_action_with_noise_and_is_scored_by_their_mean():
    agent, parts, _, state = make()
    obs = jnp.array(transitions(50, seed=3).obs)
    each = [
        parts.offline.actor.apply(jax.tree.map(lambda x, k=k: x[k], state.actors.params), obs)
        for k in range(3)
    ]
    mean, _, _ = agent.act(jax.random.key(0), state, jnp.zeros(50, int), obs, explore=False)
    np.testing.assert_allclose(mean, np.mean(each, axis=0), atol=1e-6)
    action, _, metrics = agent.act(jax.random.key(0), state, jnp.zeros(50, int), obs, explore=True)
    nearest = np.min(np.max(np.abs(np.array(each) - np.asarray(action)[None]), axis=2), axis=0)
    assert 0.0 < np.median(nearest) < 0.2 and np.all(np.abs(action) <= 1.0)
    assert 0.0 <= metrics["off_best"] <= 1.0 and metrics["spread"] > 0.0


def test_the_best_member_is_the_one_whose_own_lesser_twin_says_most():
    """With a draw that is all but greedy, and no noise."""
    config = BoorlConfig(
        offline=dataclasses.replace(OFFLINE, exploration_noise=0.0),
        inverse_temperature=1e6,
        warmup_steps=0,
    )
    agent, parts, dataset, _ = make(config)
    state = agent.init(jax.random.key(1), dataset)
    critics = jax.tree.map(lambda x: 3.0 * x, state.critics.params)
    state = state.replace(critics=state.critics.replace(params=critics))
    obs = jnp.array(transitions(200, seed=3).obs)
    action, _, _ = agent.act(jax.random.key(0), state, jnp.zeros(200, int), obs, explore=True)
    one = lambda tree, *k: jax.tree.map(lambda x: x[k], tree)  # noqa: E731
    each = [parts.offline.actor.apply(one(state.actors.params, k), obs) for k in range(3)]
    twins = np.array(
        [
            [parts.offline.critic.apply(one(critics, k, i), obs, each[k]) for i in range(2)]
            for k in range(3)
        ]
    )
    best = np.argmax(twins.min(axis=1), axis=0)
    assert len(set(best)) > 1 and np.any(best != np.argmax(twins.max(axis=1), axis=0))
    expected = np.array(each)[best, np.arange(200)]
    np.testing.assert_allclose(action, expected, atol=1e-5)


def test_at_the_handover_targets_are_copies():
    agent, _, dataset, state = make()
    fresh = agent.handover(jax.random.key(0), state, dataset)
    chex.assert_trees_all_equal(fresh.target_critics, state.critics.params)
    chex.assert_trees_all_equal(fresh.target_actors, state.actors.params)
    chex.assert_trees_all_equal(fresh.critics, state.critics)  # the moments stay


def test_critics_and_their_targets_move_every_time_and_actors_once():
    agent, parts, dataset, state = make()
    state = agent.handover(jax.random.key(0), state, dataset)
    layout = parts.offline.layout
    memory = replay.add(replay.init(layout, 10), layout.pack(transitions(10, seed=5)))
    key = jax.random.key(9)
    found, metrics = agent.online_update(key, 0, state, memory, dataset)

    key_rows, key_updates = jax.random.split(key)
    rows, _ = replay.sample_mixed(key_rows, memory, dataset, 2, 6, fraction=0.5)
    expected, td_losses = state, []
    for key, batch in zip(jax.random.split(key_updates, 2), rows, strict=True):
        expected, td_loss = critic_step(parts, key, expected, layout.unpack(batch))
        td_losses.append(td_loss)
    batch = layout.unpack(rows[-1])

    def up(params, k):
        value = parts.offline.critic.apply(
            jax.tree.map(lambda x: x[k, 0], expected.critics.params),
            batch.obs,
            parts.offline.actor.apply(params, batch.obs),
        )
        return -jnp.mean(value)

    gradient = jax.tree.map(
        lambda *leaves: jnp.stack(leaves),
        *(
            jax.grad(up)(jax.tree.map(lambda x, k=k: x[k], state.actors.params), k)
            for k in range(3)
        ),
    )
    actors = base.descend(parts.offline.optimiser, state.actors, gradient)
    chex.assert_trees_all_close(found.critics, expected.critics, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(found.target_critics, expected.target_critics, atol=1e-6)
    chex.assert_trees_all_close(found.actors, actors, rtol=1e-4, atol=1e-6)
    slow = networks.polyak(actors.params, state.target_actors, rate=0.005)
    chex.assert_trees_all_close(found.target_actors, slow, atol=1e-6)
    np.testing.assert_allclose(metrics["td_loss"], np.mean(td_losses), rtol=1e-4)


def critic_step(parts, key, state, batch):
    """One update of every member's twins, member by member and in NumPy where it can be."""
    offline = parts.offline
    noise = 0.2 * np.asarray(jax.random.normal(key, (3, 6, 2)))
    gradients, total = [], 0.0
    for k in range(3):
        one = lambda tree, k=k: jax.tree.map(lambda x: x[k], tree)  # noqa: E731
        a = np.asarray(offline.actor.apply(one(state.target_actors), batch.next_obs))
        a = np.clip(a + np.clip(noise[k], -0.5, 0.5), -1, 1)
        twins = networks.apply_members(
            offline.critic, one(state.target_critics), batch.next_obs, jnp.array(a)
        )
        y = np.asarray(batch.reward) + 0.99 * np.asarray(batch.discount) * np.min(twins, axis=0)

        def loss(params, y=y):
            values = networks.apply_members(offline.critic, params, batch.obs, batch.action)
            return jnp.sum(jnp.mean(jnp.square(values - y[None]), axis=1))

        value, gradient = jax.value_and_grad(loss)(one(state.critics.params))
        gradients.append(gradient)
        total += float(value)
    gradient = jax.tree.map(lambda *leaves: jnp.stack(leaves), *gradients)
    critics = base.descend(offline.optimiser, state.critics, gradient)
    slow = networks.polyak(critics.params, state.target_critics, rate=0.005)
    return state.replace(critics=critics, target_critics=slow), total / 6


PROBE = BoorlConfig(
    offline=EnsembleConfig(
        hidden=(32,),
        batch_size=64,
        num_members=2,
        holdout=0,
        learning_rate=3e-3,
        polyak=0.05,
        discount=0.9,
    ),
    updates=1,
    warmup_steps=50,
)


@pytest.mark.parametrize("name", sorted(probes.PROBES))
def test_every_probe_is_solved(name):
    agent, state, env = probing.run(boorl.boorl, PROBE, name, offline=400, online=900)
    probing.assert_acts_well(agent, state, name)
    expected = probing.first_value(name)
    if expected is not None:
        parts, obs = ensemble.make_parts(PROBE.offline, env.spec), probing.observations(name)
        same = jnp.broadcast_to(obs[None], (2, *obs.shape))
        found = td3bc.twin_values(state.critics.params, same, jnp.zeros_like(same), parts)
        np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=0.15)


def test_what_it_does_is_learned_online_too():
    agent, state, _ = probing.run(boorl.boorl, PROBE, "both", offline=0, online=900)
    probing.assert_acts_well(agent, state, "both")


@pytest.mark.parametrize(
    ("field", "value"),
    [("selection", "best"), ("updates", 0), ("offline_fraction", -0.1), ("warmup_steps", -1)],
)
def test_a_wrong_setting_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        BoorlConfig(**{field: value})
