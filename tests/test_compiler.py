import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import compiler


@pytest.fixture
def fresh_options():
    compiler.options.cache_clear()
    yield
    compiler.options.cache_clear()


def test_small_products_on_a_cpu_are_left_to_the_library_that_is_faster_for_them():
    if jax.default_backend() != "cpu":
        pytest.skip("there is one library on an accelerator")
    matrices = jnp.ones((4, 64, 64))
    text = compiler.jit(jnp.matmul).lower(matrices, matrices).compile().as_text()
    assert " dot(" in text and "ynn" not in text


def test_a_compiler_that_does_not_know_an_option_is_left_alone(monkeypatch, fresh_options):
    monkeypatch.setattr(compiler, "_SMALL_PRODUCTS", {"xla_no_such_option": ""})
    assert compiler.options() == {}
    np.testing.assert_array_equal(compiler.jit(lambda x: 2 * x)(jnp.arange(3)), [0, 2, 4])


def test_what_was_compiled_is_found_again_as_it_was_written():
    def double(x):
        return 2 * x

    assert compiler.plain(compiler.jit(double, donate=0)) is double
    doubles = jax.vmap(double)
    assert compiler.plain(doubles) is doubles, "though it wraps another"
