import pytest

from benchmarks import endurance
from benchmarks.endurance import Mark


def test_a_training_goes_on_without_growing(tmp_path):
    marks = endurance.endure(tmp_path, minutes=0.001, interval=10)
    assert [mark.steps for mark in marks] == sorted({mark.steps for mark in marks})
    assert len(marks) == 8 and marks[-1].minutes > 0.001
    assert 0.5 < endurance.drift(marks)["megabytes"] < 2.0  # it has only just begun
    assert len(endurance.make_table(marks).rows) == 6


def test_a_training_that_ends_is_not_waited_for(tmp_path):
    with pytest.raises(endurance.Ended, match=r"ended with 2: error: .*eval_interval"):
        endurance.endure(tmp_path, minutes=1.0, interval=-1)


def test_a_run_that_grows_or_slows_down_is_seen():
    marks = [Mark(i, 100 * i, 100.0 + i, 50.0 - i, 40.0) for i in range(8)]
    drift = endurance.drift(marks)
    assert drift["megabytes"] == pytest.approx(106.5 / 100.5)
    assert drift["rate"] == pytest.approx(43.5 / 49.5) and drift["own_rate"] == 1.0
    assert endurance.complaint(drift) == "memory grew to 1.060 of what it was, above 1.02."
    slower = endurance.complaint(drift | {"megabytes": 1.02})
    assert slower == "steps a second fell to 0.879 of what they were, below 0.95."
    assert endurance.complaint({"megabytes": 1.02, "rate": 0.95, "own_rate": 0.1}) == ""
