import json
import random

from benchmarks import kills


def test_runs_that_were_killed_are_compared_with_one_that_was_not(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = kills.harass("td3bc", tmp_path, random.Random(1), most=2)
    assert found.is_same and 0 < found.anywhere + found.while_saving <= 2
    # A digest that differs is a harm.
    summary = tmp_path / "alone" / "seed_0" / "summary.json"
    record = json.loads(summary.read_text())
    summary.write_text(json.dumps({**record, "digest": "another"}))
    again = kills.harass("td3bc", tmp_path, random.Random(0), most=0)
    assert not again.is_same
    table = kills.make_table([found, again])
    (row,) = table.rows
    assert row[0] == "td3bc" and row[-2:] == ("2", "1")


def test_a_run_that_cannot_go_on_is_harmed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "alone" / "seed_0").mkdir(parents=True)
    (tmp_path / "alone" / "seed_0" / "summary.json").write_text('{"seconds": 1, "digest": "a"}')
    found = kills.harass("td3bc", tmp_path, random.Random(0), most=0, more=["--task=nothing"])
    assert found == kills.Chain("td3bc", 0, 0, is_same=False)
