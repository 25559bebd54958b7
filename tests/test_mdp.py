import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax.linear import mdp as mdps

SIZE = {"horizon": 3, "states": 3, "actions": 2}


@pytest.fixture
def mdp():
    return mdps.draw_mdp(jax.random.key(0), dim=4, **SIZE)


def value(mdp, policy, weights):
    """The value of a deterministic policy by backward induction, in plain loops."""
    start, transitions, features = (np.asarray(x, np.float64) for x in mdp.values())
    after = np.zeros(len(start))
    for h in reversed(range(len(policy))):
        after = np.array(
            [
                features[s, a] @ weights[h] + transitions[h, s, a] @ after
                for s, a in enumerate(policy[h])
            ]
        )
    return start @ after


def test_a_drawn_mdp_has_distributions_and_unit_features(mdp):
    np.testing.assert_allclose(jnp.sum(mdp.start), 1.0, rtol=1e-6)
    np.testing.assert_allclose(jnp.sum(mdp.transitions, axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(jnp.linalg.norm(mdp.features, axis=-1), 1.0, rtol=1e-6)


def test_every_policy_is_listed_once_and_found_by_its_index():
    policies = mdps.list_policies(**SIZE)
    assert policies.shape == (512, 3, 3)
    assert len(np.unique(policies.reshape(512, -1), axis=0)) == 512
    index = jax.vmap(lambda policy: mdps.policy_index(policy, actions=2))(jnp.array(policies))
    np.testing.assert_array_equal(index, np.arange(512))


def test_visits_times_rewards_is_the_value_by_backward_induction(mdp):
    weights = np.random.default_rng(0).normal(size=(3, 4))
    rewards = np.einsum("oud,hd->hou", mdp.features, weights)
    for policy in mdps.list_policies(**SIZE)[::37]:
        visits = mdps.visits(mdp, jax.nn.one_hot(jnp.array(policy), 2))
        np.testing.assert_allclose(jnp.sum(visits, axis=(1, 2)), 1.0, rtol=1e-5)
        np.testing.assert_allclose(np.sum(visits * rewards), value(mdp, policy, weights), rtol=1e-4)


def test_planning_finds_the_best_of_all_policies(mdp):
    policies = mdps.list_policies(**SIZE)
    for seed in range(5):
        weights = np.random.default_rng(seed).normal(size=(3, 4))
        planned = mdps.plan(mdp, jnp.asarray(weights, float))
        best = max(value(mdp, policy, weights) for policy in policies)
        np.testing.assert_allclose(value(mdp, np.asarray(planned), weights), best, rtol=1e-6)


def test_rollouts_visit_as_often_as_visits_say(mdp):
    policy = jnp.array(mdps.list_policies(**SIZE)[300])
    keys = jax.random.split(jax.random.key(1), 20_000)
    episodes = jax.vmap(lambda key: mdps.rollout(key, mdp, policy))(keys)
    assert episodes.shape == (20_000, 3, 2)
    expected = np.asarray(mdps.visits(mdp, jax.nn.one_hot(policy, 2)))
    for h in range(3):
        states, actions = np.asarray(episodes[:, h]).T
        counts = np.zeros((3, 2))
        np.add.at(counts, (states, actions), 1 / len(states))
        np.testing.assert_allclose(counts, expected[h], atol=0.02)
