"""Functions of the host by name: in place, batched, and their errors told."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax.envs import host_call


def add_one(words):
    return np.concatenate([words, words[..., :1]], axis=-1) + np.uint32(1)


def stumble(words):
    raise ArithmeticError(f"cannot step {words.shape}")


@pytest.fixture(params=["by name", "by address"])
def way(request, monkeypatch):
    if request.param == "by address":
        monkeypatch.setattr(host_call, "_version", lambda: (9, 9))
    elif host_call._version() != host_call._VERSION:
        pytest.skip(f"this JAX speaks version {host_call._version()} of the interface")
    return request.param


def test_the_host_sees_and_fills_the_arrays_of_compiled_code(way):
    words = jnp.arange(6, dtype=jnp.uint32).reshape(2, 3)

    @jax.jit
    def twice(words):
        once = host_call.call(f"add {way}", add_one, words, 4)
        return host_call.call(f"add {way}", add_one, once[:, :3], 4)

    np.testing.assert_array_equal(twice(words), add_one(add_one(np.asarray(words))[:, :3]))


def test_under_vmap_all_rows_come_in_one_call(way):
    shapes = []

    def look(words):
        shapes.append(words.shape)
        return words

    run = jax.jit(jax.vmap(lambda words: host_call.call(f"look {way}", look, words, 3)))
    words = jnp.arange(24, dtype=jnp.uint32).reshape(4, 2, 3)
    np.testing.assert_array_equal(run(words), words)
    assert shapes == [(4, 2, 3)]


def test_an_error_on_the_host_is_an_error_of_the_program(way):
    run = jax.jit(lambda words: host_call.call(f"stumble {way}", stumble, words, 1))
    with pytest.raises(Exception, match=r"ArithmeticError: cannot step \(1, 2\)"):
        run(jnp.zeros((1, 2), jnp.uint32)).block_until_ready()


def test_a_program_that_calls_by_name_holds_no_address():
    if host_call._version() != host_call._VERSION:
        pytest.skip("this JAX speaks another version of the interface")
    words = jnp.zeros((1, 2), jnp.uint32)
    texts = [
        jax.jit(lambda words: host_call.call("same", lambda words: words, words, 2))
        .lower(words)
        .as_text()
        for _ in range(2)
    ]
    assert texts[0] == texts[1] and "custom_call @same(" in texts[0]
