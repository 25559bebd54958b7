import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax.linear import features

STATE, ACTION = jnp.array([1.0, 2.0]), jnp.array([3.0, 5.0])


def test_squares_are_states_actions_their_squares_and_products_between():
    expanded = features.expand(STATE, ACTION, terms="squares")
    np.testing.assert_allclose(expanded, [1, 2, 3, 5, 1, 4, 9, 25, 3, 5, 6, 10])


def test_products_are_states_actions_action_pairs_and_products_between():
    expanded = features.expand(STATE, ACTION, terms="products")
    np.testing.assert_allclose(expanded, [1, 2, 3, 5, 9, 15, 25, 3, 5, 6, 10])


@pytest.mark.parametrize("terms, inputs", [("squares", 104), ("products", 94)])
def test_the_projection_has_the_papers_size_and_the_stated_spread(terms, inputs):
    config = features.FeatureConfig(terms=terms)
    projection = features.draw_projection(jax.random.key(0), config)
    assert projection.shape == (inputs, 128)
    np.testing.assert_allclose(jnp.std(projection), 0.3 / inputs**0.5, rtol=0.03)


def test_features_are_the_tanh_of_the_projection_at_unit_norm():
    config = features.FeatureConfig(state_dim=2, action_dim=2, feature_dim=6)
    projection = features.draw_projection(jax.random.key(1), config)
    ours = features.featurise(projection, STATE, ACTION, terms="squares")
    inputs = np.array([1, 2, 3, 5, 1, 4, 9, 25, 3, 5, 6, 10.0])
    squashed = np.tanh(inputs @ np.asarray(projection, np.float64))
    np.testing.assert_allclose(ours, squashed / np.linalg.norm(squashed), rtol=1e-5)


def test_features_of_nothing_are_nothing():
    config = features.FeatureConfig(state_dim=2, action_dim=2, feature_dim=6)
    projection = features.draw_projection(jax.random.key(1), config)
    nothing = features.featurise(projection, jnp.zeros(2), jnp.zeros(2), terms="squares")
    np.testing.assert_array_equal(nothing, np.zeros(6))


def test_the_same_seed_is_the_same_map():
    config = features.FeatureConfig()
    first, second = (features.draw_projection(jax.random.key(7), config) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_unknown_terms_are_refused_in_one_line():
    with pytest.raises(ValueError, match="terms must be one of squares, products, got 'cubes'"):
        features.FeatureConfig(terms="cubes")
