import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import networks


def relu(x):
    return np.maximum(x, 0.0)


def test_a_critic_is_the_perceptron_written_by_hand():
    critic = networks.Critic((5, 4))
    obs, action = jnp.array([0.3, -1.0]), jnp.array([0.5])
    params = critic.init(jax.random.key(0), obs, action)
    layers = [params["params"]["Mlp_0"][f"Dense_{i}"]["Dense_0"] for i in range(3)]
    x = np.concatenate([obs, action])
    for i, layer in enumerate(layers):
        x = x @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])
        x = relu(x) if i < 2 else x
    np.testing.assert_allclose(critic.apply(params, obs, action), x[0], rtol=1e-6)


@pytest.mark.parametrize("start", ["torch", "xavier"])
def test_layers_begin_within_the_bounds_of_their_rule(start):
    layer = networks.Dense(300, start)
    params = layer.init(jax.random.key(0), jnp.zeros(100))["params"]["Dense_0"]
    bound = 1 / np.sqrt(100) if start == "torch" else np.sqrt(6 / 400)
    assert 0.98 * bound < np.abs(params["kernel"]).max() <= bound
    if start == "torch":
        assert 0.9 * bound < np.abs(params["bias"]).max() <= bound
    else:
        assert not np.any(params["bias"])


@pytest.mark.parametrize(("is_last", "gain"), [(False, np.sqrt(2.0)), (True, 1e-2)])
def test_orthogonal_layers_turn_and_scale_and_the_last_hardly_answers(is_last, gain):
    layer = networks.Dense(20, "orthogonal", is_last=is_last)
    params = layer.init(jax.random.key(0), jnp.zeros(30))["params"]["Dense_0"]
    kernel = np.asarray(params["kernel"])
    np.testing.assert_allclose(kernel.T @ kernel, gain**2 * np.eye(20), atol=1e-5 * gain**2)
    assert not np.any(params["bias"])


def test_layer_norm_stands_between_a_layer_and_its_relu():
    critic = networks.Critic((5,), layer_norm=True)
    obs, action = jnp.array([0.3, -1.0]), jnp.array([0.5])
    found = critic.init(jax.random.key(0), obs, action)["params"]["Mlp_0"]
    scale, shift = jnp.linspace(0.5, 2.0, 5), jnp.linspace(-1.0, 1.0, 5)
    found = {**found, "LayerNorm_0": {"scale": scale, "bias": shift}}
    first, last = (found[f"Dense_{i}"]["Dense_0"] for i in range(2))
    x = np.concatenate([obs, action]) @ np.asarray(first["kernel"]) + np.asarray(first["bias"])
    x = (x - x.mean()) / np.sqrt(x.var() + 1e-6) * np.asarray(scale) + np.asarray(shift)
    expected = relu(x) @ np.asarray(last["kernel"]) + np.asarray(last["bias"])
    value = critic.apply({"params": {"Mlp_0": found}}, obs, action)
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)


def test_a_normal_actor_has_its_mean_in_the_box_and_one_deviation_within_its_range():
    actor = networks.NormalActor((8,), 3)
    obs = 100.0 * jax.random.normal(jax.random.key(1), (50, 4))
    params = actor.init(jax.random.key(0), obs[0])["params"]
    with jax.numpy_rank_promotion("allow"):  # distrax relies on it
        policy = actor.apply({"params": params}, obs)
        mean = np.tanh(networks.Mlp((8,), 3, "xavier").apply({"params": params["Mlp_0"]}, obs))
        np.testing.assert_allclose(policy.mode(), mean, rtol=1e-6)
        np.testing.assert_array_equal(policy.stddev(), 1.0)
        params = {**params, "log_std": jnp.array([-9.0, 0.5, 9.0])}
        found = actor.apply({"params": params}, obs).stddev()
    np.testing.assert_allclose(found, np.broadcast_to(np.exp([-5.0, 0.5, 2.0]), (50, 3)), rtol=1e-6)


def test_members_begin_apart_and_answer_as_each_would_alone():
    critic = networks.Critic((8,), layer_norm=True)
    obs, action = jnp.ones((6, 2)), jnp.zeros((6, 1))
    params = networks.init_members(jax.random.key(0), critic, 3, obs[0], action[0])
    values = networks.apply_members(critic, params, obs, action)
    assert values.shape == (3, 6)
    alone = critic.apply(jax.tree.map(lambda leaf: leaf[1], params), obs, action)
    np.testing.assert_allclose(values[1], alone, rtol=1e-6)
    assert len(np.unique(np.asarray(values[:, 0]))) == 3


def test_a_gaussian_actor_stays_in_the_box_with_the_density_of_a_squashed_normal():
    actor = networks.GaussianActor((8,), 2)
    obs = jax.random.normal(jax.random.key(1), (50, 3))
    params = actor.init(jax.random.key(0), obs[0])
    with jax.numpy_rank_promotion("allow"):  # distrax relies on it
        policy = actor.apply(params, obs)
        action, log_prob = policy.sample_and_log_prob(seed=jax.random.key(2))
        mean, std = policy.distribution.mean(), policy.distribution.stddev()
    assert np.all(np.abs(action) < 1)
    raw = np.arctanh(np.asarray(action, np.float64))
    normal = -0.5 * np.square((raw - mean) / std) - np.log(std) - 0.5 * np.log(2 * np.pi)
    expected = np.sum(normal - np.log(1 - np.square(np.asarray(action, np.float64))), axis=-1)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(networks.mode(policy), np.tanh(mean), rtol=1e-6)


def test_polyak_moves_the_target_by_its_rate():
    moved = networks.polyak({"w": jnp.array(10.0)}, {"w": jnp.array(2.0)}, rate=0.25)
    assert moved["w"] == 4.0


@pytest.mark.parametrize("features", [1, 2, 8, 9])
def test_a_layer_is_the_same_product_and_has_the_same_gradients_however_it_multiplies(features):
    inputs = jax.random.normal(jax.random.key(0), (4, 5, 7))
    layer = networks.Dense(features)
    params = layer.init(jax.random.key(1), inputs)

    def by_hand(params, inputs):
        inner = params["params"]["Dense_0"]
        return jnp.einsum("...i,io->...o", inputs, inner["kernel"]) + inner["bias"][None, None]

    weights = jnp.arange(features, dtype=jnp.float32)[None, None]
    answers = [
        jax.value_and_grad(lambda p, x, f=f: jnp.sum(weights * f(p, x) ** 2), argnums=(0, 1))
        for f in (layer.apply, by_hand)
    ]
    ours, theirs = (answer(params, inputs) for answer in answers)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), ours, theirs)
