import resource

import gymnasium
import jax
import jax.numpy as jnp
import pytest

from benchmarks import env_steps
from roid_jax.envs import mujoco_c


@pytest.mark.filterwarnings("ignore:.*is out of date.*")
def test_the_benchmark_measures_every_way_to_step(monkeypatch):
    # MJX itself takes long to compile and has its own tests; the row is measured all the same.
    monkeypatch.setattr(env_steps.importlib.util, "find_spec", lambda name: "installed")
    monkeypatch.setattr(env_steps.mjx, "make", mujoco_c.make)
    rates = env_steps.measure("hopper", 64, 1, threads=1, mjx_size=16)
    assert len(rates) == 7 and all(rate > 0 for rate in rates.values())
    assert len(env_steps.make_table("hopper", rates).rows) == 7
    assert gymnasium.spec(env_steps.GYMNASIUM_IDS["hopper"]).max_episode_steps == 1000


@pytest.mark.filterwarnings("ignore:.*is out of date.*")
def test_without_mjx_its_row_says_so(monkeypatch):
    monkeypatch.setattr(env_steps.importlib.util, "find_spec", lambda name: None)
    rates = env_steps.measure("hopper", 1, 1, threads=1, mjx_size=16)
    assert rates["ours on MJX in a scan, 16"] is None
    *_, row = env_steps.make_table("hopper", rates).rows
    assert row[1] == "not installed: pip install roid_jax[mjx]"


@pytest.mark.parametrize("size", [1, 64])
def test_many_callbacks_neither_hang_nor_grow(size):
    env = mujoco_c.make("hopper", threads=2)
    start = env.reset(jax.random.split(jax.random.key(0), size))
    action = jnp.zeros((size, 3))
    many = jax.jit(
        lambda state, ticks: jax.lax.scan(lambda s, _: (env.step(s, action), None), state, ticks)[0]
    )
    ticks = jnp.arange(500 if size == 1 else 150)
    state = jax.block_until_ready(many(start, ticks))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kB, the peak so far
    for _ in range(4 if size > 1 else 10):
        state = jax.block_until_ready(many(state, ticks))
    assert int(state.episode.min()) > 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024
