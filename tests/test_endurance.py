import pytest

from benchmarks import endurance
from benchmarks.endurance import Mark
from roid_jax.envs import named


def test_online_steps_go_on_without_growing():
    marks = endurance.endure(named.make("hopper"), minutes=0.1, number=8, chunk=20)
    assert [mark.steps for mark in marks] == sorted({mark.steps for mark in marks})
    assert marks[-1].minutes >= 0.1
    assert 0.9 < endurance.drift(marks)["megabytes"] < 1.1
    assert len(endurance.make_table(marks).rows) == 6


def test_a_run_that_grows_or_slows_down_is_seen():
    marks = [Mark(i, 100 * i, 100.0 + i, 50.0 - i, 40.0) for i in range(8)]
    drift = endurance.drift(marks)
    assert drift["megabytes"] == pytest.approx(106.5 / 100.5)
    assert drift["rate"] == pytest.approx(43.5 / 49.5) and drift["own_rate"] == 1.0
