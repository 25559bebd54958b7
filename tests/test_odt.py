"""ODT: what it sees, what it learns from, the loss and the temperature; and the probes."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import probing
import pytest
from test_boorl import SPEC, transitions

from roid_jax import replay
from roid_jax.agents import base, odt, odt_learner
from roid_jax.agents.odt_learner import OdtConfig
from roid_jax.data import prepare
from roid_jax.data.d4rl import Recording
from roid_jax.envs import probes


@pytest.fixture(autouse=True)
def loose_ranks(explicit_ranks):
    with jax.numpy_rank_promotion("allow"):  # distrax relies on it
        yield


CONFIG = OdtConfig(
    width=8,
    layers=2,
    heads=2,
    dropout=0.0,
    context=4,
    acting_context=3,
    batch_size=5,
    kept_episodes=2,
    ramp_updates=4,
    evaluation_return=3000.0,
    exploration_return=6000.0,
)
LENGTHS = (5, 3, 4, 6)


def recorded():
    """Episodes of these lengths, which bring 1, 4, 2 and 3 in all."""
    number = sum(LENGTHS)
    rows = transitions(number)
    totals = (1.0, 4.0, 2.0, 3.0)
    rewards = np.concatenate([np.full(n, x / n) for n, x in zip(LENGTHS, totals, strict=True)])
    ends = np.isin(np.arange(number), np.cumsum(LENGTHS) - 1)
    return Recording(
        rows.obs, rows.action, rewards.astype(np.float32), ends, np.zeros(number, bool)
    )


@functools.cache
def make(config=CONFIG):
    agent = probing.compiled(odt.odt(config, SPEC))
    parts = odt_learner.make_parts(config, SPEC)
    found = prepare.transitions(recorded(), return_discount=1.0)
    dataset = replay.make_dataset(jax.random.key(0), parts.layout, found)
    state = agent.init(jax.random.key(1), dataset)
    return agent, parts, dataset, state


def see(parts, state, *tokens):
    return parts.policy.apply(state.policy.params, *tokens, train=False).distribution.mean()


def tokens_of(number, steps=4):
    batch = transitions(number * steps, seed=9)
    obs = batch.obs.reshape(number, steps, 3)
    return [jnp.asarray(x) for x in (batch.reward.reshape(number, steps), obs)] + [
        jnp.asarray(batch.action.reshape(number, steps, 2))
    ]


def test_an_action_sees_what_came_before_it_and_nothing_after():
    _, parts, _, state = make()
    asked, obs, action = tokens_of(2)
    before = see(parts, state, asked, obs, action)
    later = see(parts, state, asked, obs, action.at[:, 2].add(1.0))
    chex.assert_trees_all_equal(before[:, :3], later[:, :3])  # nor itself
    assert np.all(np.any(before[:, 3] != later[:, 3], axis=-1))
    for changed in ((asked.at[:, 2].add(1.0), obs), (asked, obs.at[:, 2].add(1.0))):
        later = see(parts, state, *changed, action)
        chex.assert_trees_all_equal(before[:, :2], later[:, :2])
        assert np.all(np.any(before[:, 2:] != later[:, 2:], axis=-1))


def test_how_much_is_asked_for_is_seen_and_not_only_its_sign():
    parts = odt_learner.make_parts(OdtConfig(layers=2), SPEC)
    tokens = tokens_of(2)
    params = parts.policy.init(jax.random.key(1), *tokens, train=False)
    for more, less in ((7.2, 3.6), (3.6, 1.8)):
        means = [
            parts.policy.apply(
                params, jnp.full_like(tokens[0], asked), *tokens[1:], train=False
            ).distribution.mean()
            for asked in (more, less)
        ]
        assert np.mean(np.abs(means[0] - means[1])) > 2e-3


def test_it_learns_to_do_what_brings_the_return_asked_for():
    # Episodes of one step that bring what was done; the rate rises slowly, as in a training.
    config = dataclasses.replace(
        CONFIG, width=16, layers=1, context=1, acting_context=1, batch_size=64
    )
    config = dataclasses.replace(config, learning_rate=4e-3, ramp_updates=100, return_scale=1.0)
    agent = probing.compiled(odt.odt(config, SPEC))
    parts = odt_learner.make_parts(config, SPEC)
    rows = transitions(200)
    brought = np.random.default_rng(0).uniform(1.0, 4.0, 200).astype(np.float32)
    action = np.stack([(brought - 2.5) / 2.0, np.zeros_like(brought)], axis=1)
    ends = np.ones(200, bool)
    recording = Recording(rows.obs, action, brought, ends, np.zeros(200, bool))
    found = prepare.transitions(recording, return_discount=1.0)
    dataset = replay.make_dataset(jax.random.key(0), parts.layout, found)
    state = agent.init(jax.random.key(1), dataset)

    def update(state, key):
        return agent.offline_update(key, 0, state, dataset)

    state, _ = jax.lax.scan(update, state, jax.random.split(jax.random.key(2), 1000))
    asked = jnp.array([[1.5], [2.5], [3.5]])
    obs, none = jnp.zeros((3, 1, 3)), jnp.zeros((3, 1, 2))
    done = np.tanh(see(parts, state, asked, obs, none))[:, 0, 0]
    np.testing.assert_allclose(done, [-0.5, 0.0, 0.5], atol=0.15)


def test_padding_at_the_end_changes_nothing():
    _, parts, _, state = make()
    tokens = tokens_of(2)
    short = [x[:, :2] for x in tokens]
    whole = [x.at[:, 2:].set(7.0) for x in tokens]
    found = see(parts, state, *whole)[:, :2]
    np.testing.assert_allclose(found, see(parts, state, *short), rtol=1e-5, atol=1e-6)


def test_the_deviation_stays_within_its_range():
    _, parts, _, state = make()
    params = jax.tree.map(lambda leaf: 100.0 * leaf, state.policy.params)
    policy = parts.policy.apply(params, *tokens_of(3), train=False)
    log_std = np.log(policy.distribution.stddev())
    assert np.all((log_std >= -5.001) & (log_std <= 2.001)) and np.ptp(log_std) > 3.0


def test_the_loss_counts_real_steps_only_and_asks_for_what_was_reached():
    _, parts, dataset, state = make()
    rows, mask = odt_learner.episodes.windows(dataset.rows, jnp.array([3, 6, 12]), length=4)
    np.testing.assert_array_equal(mask.sum(axis=1), [2, 2, 4])
    batch, key = parts.layout.unpack(rows), jax.random.key(3)
    loss, report = odt_learner.policy_loss(key, state.policy.params, state, batch, mask, parts)

    obs = recorded().observations[:-1]  # the last row of a file has no successor
    seen = (np.asarray(batch.obs) - obs.mean(axis=0)) / (obs.std(axis=0) + 1e-6)
    to_go = prepare.returns_to_go(recorded(), discount=1.0)[np.array([3, 6, 12])]
    np.testing.assert_allclose(batch.return_to_go[:, 0], to_go, rtol=1e-6)
    action = np.clip(np.asarray(batch.action), -1 + 1e-6, 1 - 1e-6)
    tokens = 0.001 * np.asarray(batch.return_to_go), seen, action
    policy = parts.policy.apply(state.policy.params, *map(jnp.asarray, tokens), train=False)
    mean, std = (np.asarray(x) for x in (policy.distribution.mean(), policy.distribution.stddev()))
    plain = np.arctanh(action)
    normal = -0.5 * ((plain - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    log_prob = np.sum(normal - np.log1p(-(action**2)), axis=-1)
    real = np.asarray(mask) > 0
    np.testing.assert_allclose(report["surprise"], -log_prob[real].mean(), rtol=1e-3)
    _, sampled = policy.sample_and_log_prob(seed=jax.random.split(key)[1])
    entropy = -np.asarray(sampled)[real].mean()
    np.testing.assert_allclose(report["entropy"], entropy, rtol=1e-3)
    np.testing.assert_allclose(loss, -log_prob[real].mean() - 0.1 * entropy, rtol=1e-3)


def test_the_temperature_is_a_price_for_entropy_below_its_target():
    agent, parts, dataset, state = make()
    after, report = jax.jit(agent.offline_update)(jax.random.key(4), 0, state, dataset)
    surplus = report["entropy"] + 2.0  # the target is minus the action's size
    expected = base.descend(parts.temperature_optimiser, state.log_temperature, 0.1 * surplus)
    chex.assert_trees_all_close(after.log_temperature, expected, rtol=1e-5)
    assert np.sign(after.log_temperature.params - np.log(0.1)) == -np.sign(surplus)


def test_the_rate_rises_in_a_line_and_every_tensor_moves_by_its_own_size():
    _, parts, _, state = make()
    gradient = jax.tree.map(lambda leaf: 1e-3 * jnp.ones_like(leaf), state.policy.params)
    learner, kernel = state.policy, ("params", "Dense_0", "Dense_0", "kernel")
    descend = jax.jit(lambda learner: base.descend(parts.optimiser, learner, gradient))
    for rate in (0.25e-4, 0.5e-4, 0.75e-4, 1e-4, 1e-4, 1e-4):
        before, learner = learner, descend(learner)
        old, new = (_leaf(x.params, kernel) for x in (before, learner))
        # LAMB: the step is as long as the tensor, times the rate.
        share = np.linalg.norm(new - old) / np.linalg.norm(old)
        np.testing.assert_allclose(share, rate, rtol=1e-2)


def _leaf(tree, path):
    for name in path:
        tree = tree[name]
    return np.asarray(tree)


def test_logged_episodes_are_ranked_by_what_they_brought():
    agent, parts, dataset, state = make()
    after = agent.handover(jax.random.key(5), state, dataset)
    # Episodes 0 to 3 brought 1, 4, 2, 3. The last row of all is dropped, as in every view.
    firsts = np.cumsum((0, *LENGTHS))
    ranked = [np.arange(firsts[i], firsts[i] + LENGTHS[i] - (i == 3)) for i in (0, 2, 3, 1)]
    np.testing.assert_array_equal(after.order, np.concatenate(ranked))
    np.testing.assert_array_equal(after.starts, [9, 14, 17])  # of the best two, and the end
    _, starts = odt_learner.rank(dataset, parts.layout, kept=6)
    np.testing.assert_array_equal(starts, [0, 5, 9, 14, 17, 17, 17])


@pytest.mark.parametrize("capacity", [100, 3])
@pytest.mark.parametrize("ended", [0, 1, 2, 3])
def test_each_lived_episode_replaces_the_worst_logged_one_that_is_left(ended, capacity):
    agent, parts, dataset, state = make()
    state = agent.handover(jax.random.key(5), state, dataset)
    lived = transitions(2 * ended + 1, seed=3)
    places = np.arange(2 * ended + 1) % 2
    lived = lived._replace(place=places, episode=np.arange(2 * ended + 1) // 2)
    memory = replay.init(parts.layout, capacity)
    for row in np.asarray(parts.layout.pack(lived)):
        memory = replay.add(memory, jnp.asarray(row)[None])
    draw = jax.jit(
        lambda key: odt_learner.draw_windows(key, state, memory, dataset, CONFIG)[0][:, 0]
    )
    drawn = np.concatenate([draw(jax.random.key(k)) for k in range(60)])
    found = {tuple(row) for row in drawn[:, :3].round(5)}
    obs = recorded().observations
    best = [obs[5:8], obs[12:17]] if ended == 0 else [obs[5:8]] * (ended == 1)
    kept = slice(max(0, 2 * ended + 1 - capacity), 2 * ended)  # a small ring went round
    expected = np.concatenate([*best, lived.obs[kept]])
    assert found == {tuple(row) for row in expected.round(5)}


def test_the_policy_sees_a_few_steps_and_what_is_still_asked_for():
    agent, parts, _, state = make()
    memory = jax.vmap(agent.begin_episode)(jax.random.split(jax.random.key(0), 2))
    observed = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    rewards = np.array([[10.0, 20.0]] * 5, np.float32)
    actions = []
    for t in range(5):
        obs = jnp.asarray(observed[t])
        action, memory, _ = agent.act(jax.random.key(t), state, memory, obs, explore=False)
        actions.append(np.asarray(action))
        memory = agent.remember(memory, jnp.asarray(rewards[t]))
        first = max(0, t - 2)  # three steps at most
        asked = 3.0 - 0.001 * np.stack([rewards[0] * k for k in range(first, t + 1)], axis=1)
        seen = base.normalise(state, jnp.asarray(observed[first : t + 1]).swapaxes(0, 1))
        past = np.stack([*actions[first:t], np.zeros((2, 2))], axis=1).astype(np.float32)
        expected = np.tanh(see(parts, state, jnp.asarray(asked), seen, jnp.asarray(past))[:, -1])
        np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)
    explored, _, _ = agent.act(jax.random.key(9), state, memory, obs, explore=True)
    again, _, _ = agent.act(jax.random.key(10), state, memory, obs, explore=True)
    assert np.any(explored != again)


@pytest.mark.parametrize(("rate", "expected"), [(0.3, 3), (1.5, 15)])
def test_updates_come_at_the_rate_that_was_asked_for(rate, expected):
    config = dataclasses.replace(CONFIG, update_rate=rate)
    agent, parts, dataset, state = make(config)
    state = agent.handover(jax.random.key(5), state, dataset)
    memory = replay.init(parts.layout, 10)
    update = jax.jit(agent.online_update)
    for step in range(10):
        state, _ = update(jax.random.key(step), jnp.int32(step), state, memory, dataset)
    moments = jax.tree.leaves(state.log_temperature.moments)
    (count,) = (int(x) for x in moments if jnp.issubdtype(x.dtype, jnp.integer))
    assert count == expected


PROBE = OdtConfig(
    width=16,
    layers=1,
    heads=1,
    dropout=0.0,
    context=2,
    acting_context=2,
    learning_rate=1e-2,
    ramp_updates=0,
    weight_decay=0.0,
    batch_size=64,
    return_scale=1.0,
    evaluation_return=1.0,
    exploration_return=1.0,
    update_rate=1.0,
    entropy_per_dimension=-3.0,
)


@pytest.mark.parametrize("name", ["action", "both"])
def test_the_probes_with_something_to_do_are_solved(name):
    """It has no values, so the three probes that only ask for a value have nothing for it."""
    assert {n for n in probes.PROBES if probes.PROBES[n].best_action(jnp.zeros(1)) is not None} == {
        "action",
        "both",
    }
    online = 300 if name == "both" else 0
    agent, state, _ = probing.run(odt.odt, PROBE, name, offline=1000, online=online)
    probing.assert_acts_well(agent, state, name)


def test_what_it_does_is_learned_online_too():
    agent, state, _ = probing.run(odt.odt, PROBE, "both", offline=0, online=1800)
    probing.assert_acts_well(agent, state, "both")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("width", 510),
        ("acting_context", 21),
        ("dropout", 1.0),
        ("update_rate", 0.0),
        ("learning_rate", 0.0),
    ],
)
def test_a_wrong_setting_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        OdtConfig(**{field: value})
