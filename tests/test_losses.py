import jax
import jax.numpy as jnp
import numpy as np

from roid_jax import losses


def test_a_target_bootstraps_unless_the_world_ended():
    target = losses.td_target(
        jnp.array([1.0, 1.0]), jnp.array([1.0, 0.0]), jnp.array([10.0, 10.0]), gamma=0.9
    )
    np.testing.assert_allclose(target, [10.0, 1.0])


def test_no_gradient_goes_through_a_target():
    def total(value):
        return losses.td_target(jnp.ones(2), jnp.ones(2), value, gamma=0.9).sum()

    np.testing.assert_array_equal(jax.grad(total)(jnp.ones(2)), 0.0)


def test_a_soft_value_adds_the_entropys_worth():
    soft = losses.soft_value(jnp.array([2.0]), jnp.array([-3.0]), temperature=jnp.array(0.5))
    np.testing.assert_allclose(soft, [3.5])


def test_a_normalised_value_has_size_one_and_is_nothing_where_nothing_is_kept():
    values, mask = jnp.array([[3.0, -1.0], [4.0, 2.0]]), jnp.array([[1.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(losses.normalised(values, mask), [0.5, 0.0])
    np.testing.assert_array_equal(losses.normalised(jnp.zeros((1, 2)), jnp.ones((1, 2))), 0.0)
    slope = jax.grad(lambda x: losses.normalised(x, jnp.ones(2)))(jnp.array([3.0, -1.0]))
    np.testing.assert_allclose(slope, [0.25, 0.25])  # the size below has no gradient
