import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import losses, networks, training
from roid_jax.agents import sac
from roid_jax.envs import probes
from roid_jax.types import Transitions

CONFIG = sac.SacConfig(
    hidden=(32,), learning_rate=3e-3, batch_size=32, polyak=0.05, warmup_steps=50, discount=0.9
)


@pytest.fixture(autouse=True)
def implicit_ranks(explicit_ranks):
    with jax.numpy_rank_promotion("allow"):  # distrax relies on it
        yield


def learn(name, steps=600):
    env = probes.make(name)
    agent = sac.sac(CONFIG, env.spec)
    key_init, key_begin, key_run = jax.random.split(jax.random.key(0), 3)
    state = jax.jit(agent.init)(key_init, None)
    online = training.begin_online(key_begin, agent, state, env, capacity=steps)
    warm_up = training.make_online(agent, env, length=CONFIG.warmup_steps, learn=False)
    online, _ = warm_up(key_run, online, 0, None)
    run = training.make_online(agent, env, length=steps - CONFIG.warmup_steps, learn=True)
    online, _ = run(key_run, online, CONFIG.warmup_steps, None)
    return agent, online.agent


def values(state, obs, action):
    return networks.apply_members(networks.Critic(CONFIG.hidden), state.critics.params, obs, action)


@pytest.mark.parametrize("name", ["action", "both"])
def test_the_policy_finds_the_best_action_of_a_probe(name):
    agent, state = learn(name, steps=1500)
    obs = jnp.array([[0.0]]) if name == "action" else jnp.array([[-1.0], [1.0]])
    action, _, _ = agent.act(jax.random.key(1), state, (), obs, explore=False)
    best = probes.PROBES[name].best_action(obs)
    np.testing.assert_allclose(action, best, atol=0.15)


@pytest.mark.parametrize("name", ["constant", "observation"])
def test_the_critics_find_the_reward_of_a_probe(name):
    _, state = learn(name)
    obs = jnp.array([[0.0]]) if name == "constant" else jnp.array([[-1.0], [1.0]])
    expected = jnp.ones(1) if name == "constant" else obs[:, 0]
    found = values(state, obs, jnp.zeros_like(obs))
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=0.15)


def test_a_reward_a_step_away_is_discounted_once_beside_the_entropys_worth():
    _, state = learn("delayed", steps=1500)
    obs = jnp.array([[1.0]])
    found = values(state, obs, jnp.zeros_like(obs))
    np.testing.assert_allclose(found, 1.0, atol=0.15)  # the second step ends the world
    first = jnp.zeros((256, 1))
    policy = networks.GaussianActor(CONFIG.hidden, 1).apply(state.actor.params, first + 1.0)
    action, log_prob = policy.sample_and_log_prob(seed=jax.random.key(2))
    temperature = jnp.exp(state.log_temperature.params)
    soft = losses.soft_value(
        values(state, first + 1.0, action).min(axis=0), log_prob, temperature=temperature
    )
    expected = CONFIG.discount * float(soft.mean())
    np.testing.assert_allclose(values(state, first[:1], first[:1]), expected, atol=0.2)


def fixed_state():
    env = probes.make("both")
    agent = sac.sac(CONFIG, env.spec)
    return agent.init(jax.random.key(3), None)


def test_the_critic_loss_is_the_squared_error_to_the_soft_minimum():
    state = fixed_state()
    keys = jax.random.split(jax.random.key(4), 3)
    batch = Transitions(
        obs=jax.random.normal(keys[0], (8, 1)),
        action=jax.random.uniform(keys[1], (8, 1), minval=-1.0),
        reward=jnp.arange(8.0),
        discount=jnp.arange(8.0) % 2,
        next_obs=jax.random.normal(keys[2], (8, 1)),
    )
    parts = sac.make_parts(CONFIG, probes.make("both").spec)
    actor, critic = parts.actor, parts.critic
    key = jax.random.key(5)
    loss = sac.critic_loss(key, state.critics.params, state, batch, parts)

    action, log_prob = actor.apply(state.actor.params, batch.next_obs).sample_and_log_prob(seed=key)
    one = lambda params, obs, action, k: critic.apply(  # noqa: E731
        jax.tree.map(lambda leaf: leaf[k], params), obs, action
    )
    targets = [one(state.target_critics, batch.next_obs, action, k) for k in range(2)]
    soft = np.minimum(*map(np.asarray, targets)) - 1.0 * np.asarray(log_prob)
    target = np.asarray(batch.reward) + 0.9 * np.asarray(batch.discount) * soft
    expected = sum(
        np.mean((np.asarray(one(state.critics.params, batch.obs, batch.action, k)) - target) ** 2)
        for k in range(2)
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_the_temperature_falls_where_there_is_more_entropy_than_is_aimed_at():
    state = fixed_state()
    above = sac.temperature_gradient(state, jnp.array(2.0))
    below = sac.temperature_gradient(state, jnp.array(-1.0))
    assert above == 2.0 and below == -1.0  # descending lowers the one and raises the other


def test_a_sampled_action_explores_and_a_plain_one_does_not():
    env = probes.make("both")
    agent, state = sac.sac(CONFIG, env.spec), fixed_state()
    obs = jnp.ones((4, 1))
    act = lambda seed, explore: agent.act(  # noqa: E731
        jax.random.key(seed), state, (), obs, explore=explore
    )[0]
    chex.assert_trees_all_equal(act(0, False), act(1, False))
    assert not np.allclose(act(0, True), act(1, True))


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden", ()), ("hidden", (0,)), ("discount", 1.0), ("batch_size", 0), ("polyak", 0.0)],
)
def test_a_wrong_setting_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        sac.SacConfig(**{field: value})
