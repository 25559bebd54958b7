import chex
import jax
import jax.numpy as jnp
import numpy as np
import probing
import pytest
from test_td3bc import one, transitions

from roid_jax import replay
from roid_jax.agents import ensemble, roid, roid_learner
from roid_jax.agents.roid_learner import Parts, RoidConfig
from roid_jax.agents.selector import SelectorConfig
from roid_jax.envs import base, probes

SPEC = base.Spec("test", obs_dim=2, action_dim=1, max_steps=10)
OFFLINE = ensemble.EnsembleConfig(hidden=(8,), batch_size=6, num_members=3, holdout=8)
TINY = SelectorConfig(candidates=8, wide_candidates=16)


def make(**changes):
    config = RoidConfig(offline=OFFLINE, selector=TINY, warmup_steps=4, updates=2, **changes)
    parts = Parts(config=config, offline=ensemble.make_parts(OFFLINE, SPEC))
    dataset = replay.make_dataset(jax.random.key(0), parts.offline.layout, transitions(40))
    start = ensemble.init(parts.offline, jax.random.key(1), dataset)
    # Targets of their own, so that nothing can pass for anything else.
    start = start.replace(
        target_critics=jax.tree.map(lambda leaf: leaf + 0.1, start.target_critics),
        target_actors=jax.tree.map(lambda leaf: leaf - 0.1, start.target_actors),
    )
    return parts, dataset, start


def hand_over(parts, dataset, start):
    return roid.handover(parts, jax.random.key(2), start, dataset)


def test_twin_i_of_member_j_becomes_critic_2j_plus_i_with_its_moments_and_target():
    parts, dataset, start = make()
    start, _ = jax.jit(roid.roid(parts.config, SPEC).offline_update)(
        jax.random.key(3), 1, start, dataset
    )
    state = hand_over(parts, dataset, start)
    for j in range(3):
        for i in range(2):
            k = 2 * j + i
            chex.assert_trees_all_equal(
                one(state.critics.params, k), one(start.critics.params, j, i)
            )
            chex.assert_trees_all_equal(
                one(state.target_critics, k), one(start.target_critics, j, i)
            )
            chex.assert_trees_all_equal(
                one(state.critics.moments[0].mu, k), one(start.critics.moments[0].mu, j, i)
            )
    assert state.critics.moments[0].count == 1
    chex.assert_trees_all_equal(state.actor.params, start.anchor)
    chex.assert_trees_all_equal(state.target_anchor, start.target_anchor)


def test_the_critics_are_disjoint():
    parts, dataset, start = make()
    state = hand_over(parts, dataset, start)
    leaves = jax.tree.leaves(state.critics.params)
    assert all(leaf.shape[0] == 6 for leaf in leaves)
    kernel = max(leaves, key=lambda leaf: leaf.size)
    flat = np.asarray(kernel.reshape(6, -1))
    assert len(np.unique(flat, axis=0)) == 6


def test_the_average_row_held_out_has_a_scaled_variance_of_one():
    parts, dataset, start = make()
    state = hand_over(parts, dataset, start)
    batch = parts.offline.layout.unpack(replay.held_out(dataset, 8))
    values = np.stack(
        [
            parts.offline.critic.apply(one(state.critics.params, k), batch.obs, batch.action)
            for k in range(6)
        ]
    )
    np.testing.assert_allclose(
        np.mean(float(state.alpha) * values.var(axis=0) / float(state.noise)), 1.0, rtol=1e-4
    )
    mean_next = np.mean(
        [
            parts.offline.critic.apply(
                one(state.critics.params, k),
                batch.next_obs,
                parts.offline.actor.apply(state.target_anchor, batch.next_obs),
            )
            for k in range(6)
        ],
        axis=0,
    )
    residual = batch.reward + 0.99 * batch.discount * mean_next - values.mean(axis=0)
    np.testing.assert_allclose(state.noise, np.var(residual), rtol=1e-4)


def targets(parts, state, batch):
    action = parts.offline.actor.apply(state.target_anchor, batch.next_obs)
    found = np.stack(
        [
            parts.offline.critic.apply(one(state.target_critics, k), batch.next_obs, action)
            for k in range(6)
        ]
    )
    return found, lambda value: batch.reward + 0.99 * batch.discount * value


@pytest.mark.parametrize("target", roid_learner.TARGETS)
def test_the_target_is_made_of_the_target_critics_as_named(target):
    parts, dataset, start = make(target=target, smoothing=False)
    state = hand_over(parts, dataset, start)
    batch = parts.offline.layout.unpack(dataset.rows[:7])
    made = roid_learner.critic_target(jax.random.key(4), state, batch, parts)
    assert made.shape == (6, 7)
    found, backup = targets(parts, state, batch)
    if target == "mean":
        np.testing.assert_allclose(made, np.tile(backup(found.mean(axis=0)), (6, 1)), rtol=1e-4)
    elif target == "min":
        np.testing.assert_allclose(made, np.tile(backup(found.min(axis=0)), (6, 1)), rtol=1e-4)
    elif target == "twin_min":
        for k in range(6):
            pair = found[2 * (k // 2) : 2 * (k // 2) + 2].min(axis=0)
            np.testing.assert_allclose(made[k], backup(pair), rtol=1e-4)
    else:
        pairs = [backup(np.minimum(found[a], found[b])) for a in range(6) for b in range(a)]
        errors = [np.abs(np.asarray(made[0]) - pair).max() for pair in pairs]
        assert min(errors) < 1e-4
        np.testing.assert_array_equal(made, np.tile(made[0], (6, 1)))


def test_the_literal_actor_loss_is_the_normalised_mean_value():
    parts, dataset, start = make()
    state = hand_over(parts, dataset, start)
    batch = parts.offline.layout.unpack(dataset.rows[:7])
    action = parts.offline.actor.apply(state.actor.params, batch.obs)
    value = np.mean(
        [
            parts.offline.critic.apply(one(state.critics.params, k), batch.obs, action)
            for k in range(6)
        ],
        axis=0,
    )
    ratio = value.mean() / np.abs(value).mean()
    loss = roid_learner.actor_loss(
        state.actor.params, state.critics.params, batch, jnp.zeros(7), parts
    )
    np.testing.assert_allclose(loss, -ratio, rtol=1e-4)
    gentle, _, _ = make(bc_anneal_steps=10, offline_fraction=0.5)
    weight = np.linspace(0.0, 2.0, 7, dtype=np.float32)
    loss = roid_learner.actor_loss(
        state.actor.params, state.critics.params, batch, jnp.array(weight), gentle
    )
    cloning = np.mean(weight * np.square(action - batch.action).mean(axis=-1))
    np.testing.assert_allclose(loss, cloning - 2.5 * ratio, rtol=1e-4)


def test_cloning_fades_linearly_on_logged_rows_or_on_all_or_is_not_there():
    numbers = jnp.array([-3, 5, 6, -1, 7, 8])
    gentle = RoidConfig(bc_anneal_steps=100, offline_fraction=0.5)
    for step, left in ((0, 1.0), (25, 0.75), (100, 0.0), (500, 0.0)):
        weight = roid_learner.cloning_weight(step, numbers, gentle)
        np.testing.assert_allclose(weight, left * np.array([3, 0, 0, 3, 0, 0]), rtol=1e-6)
    everywhere = RoidConfig(bc_anneal_steps=100, cloned="all")
    weight = roid_learner.cloning_weight(25, numbers, everywhere)
    np.testing.assert_allclose(weight, np.full(6, 0.75))
    assert not np.any(roid_learner.cloning_weight(3, numbers, RoidConfig()))
    with pytest.raises(ValueError, match="offline_fraction must be above 0 where logged rows"):
        RoidConfig(bc_anneal_steps=100)


@pytest.mark.parametrize(("fraction", "logged_rows"), [(0.0, 0), (0.5, 3), (1.0, 6)])
def test_a_batch_has_the_asked_fraction_of_logged_rows(fraction, logged_rows):
    parts, dataset, _ = make()
    layout = parts.offline.layout
    lived = transitions(10, seed=5)._replace(reward=np.full(10, 99.0))
    memory = replay.add(replay.init(layout, 10), layout.pack(lived))
    rows, numbers = replay.sample_mixed(jax.random.key(0), memory, dataset, 2, 6, fraction=fraction)
    assert rows.shape[:2] == numbers.shape == (2, 6)
    is_lived = layout.unpack(rows).reward == 99.0
    np.testing.assert_array_equal((~is_lived).sum(axis=1), logged_rows)
    assert np.all((numbers >= 0) == is_lived)


def test_the_spread_is_told_of_all_critics_and_of_the_means_of_twins():
    found = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    told = ensemble.spreads(jnp.array(found))
    np.testing.assert_allclose(told["batch_spread"], found.std(axis=0).mean(), rtol=1e-5)
    pairs = (found[0::2] + found[1::2]) / 2
    np.testing.assert_allclose(told["pair_spread"], pairs.std(axis=0).mean(), rtol=1e-5)


def test_updates_move_the_actor_every_second_time_over_environment_steps():
    parts, dataset, start = make()
    parts = parts._replace(
        config=RoidConfig(offline=OFFLINE, selector=TINY, updates=1, warmup_steps=0)
    )
    state = hand_over(parts, dataset, start)
    layout = parts.offline.layout
    memory = replay.add(replay.init(layout, 10), layout.pack(transitions(10)))
    update = jax.jit(
        lambda step, state: roid_learner.online_update(
            parts, jax.random.key(1), step, state, memory, dataset
        )
    )
    moved = []
    for step in range(4):
        after, metrics = update(step, state)
        change = jax.tree.map(lambda a, b: np.any(a != b), after.actor.params, state.actor.params)
        moved.append(any(jax.tree.leaves(change)))
        assert np.isfinite(metrics["td_loss"])
        state = after
    assert moved == [False, True, False, True]


PROBE = RoidConfig(
    offline=ensemble.EnsembleConfig(
        hidden=(32, 32),
        learning_rate=3e-3,
        batch_size=32,
        polyak=0.05,
        num_members=2,
        holdout=100,
        discount=0.9,
        bc_alpha=5.0,
    ),
    selector=SelectorConfig(candidates=16, wide_candidates=32),
    updates=1,
    offline_fraction=0.5,
    warmup_steps=50,
    bc_anneal_steps=200,
)


@pytest.mark.parametrize("name", sorted(probes.PROBES))
def test_every_probe_is_solved(name):
    agent, state, env = probing.run(roid.roid, PROBE, name, offline=400, online=900)
    probing.assert_acts_well(agent, state, name)
    expected = probing.first_value(name)
    if expected is not None:
        critic, obs = (
            ensemble.make_parts(PROBE.offline, env.spec).critic,
            probing.observations(name),
        )
        for k in range(4):
            found = critic.apply(one(state.critics.params, k), obs, jnp.zeros_like(obs))
            np.testing.assert_allclose(found, expected, atol=0.15)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("updates", 0),
        ("offline_fraction", 1.5),
        ("target", "max"),
        ("warmup", "hot"),
        ("calibration", "none"),
        ("bc_anneal_steps", -1),
    ],
)
def test_a_wrong_setting_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        RoidConfig(**{field: value})


def test_without_rows_to_calibrate_on_it_is_refused():
    with pytest.raises(ValueError, match=r"offline\.holdout must be at least 2"):
        RoidConfig(offline=ensemble.EnsembleConfig(holdout=0))
