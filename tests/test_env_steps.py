import gymnasium
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
