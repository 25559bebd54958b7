"""What can be watched while a run runs: event files, lines on the terminal, Weights & Biases."""

import io
import sys
import types

import pytest
import rich.console
from tensorboardX import proto  # noqa: F401  (its event format is what is read below)

from experiments import live
from experiments.driver import Progress
from roid_jax import results

ROW = {
    "seed": 0,
    "phase": "online",
    "step": 100,
    "score": 12.5,
    "score_error": 1.25,
    "returns": [1.0],
    "off_anchor": 0.5,
    "seconds": 2.0,
    "eval_seconds": 1.0,
}


class Problem:
    seeds = (0,)

    class config:
        eval_interval = 100

    def names(self, seed):
        return {"agent": "roid", "env": "hopper", "dataset": "d", "seed": seed}


def progress(*rows):
    return Progress("online", 100, None, [list(rows)])


@pytest.fixture
def opened(tmp_path):
    console = rich.console.Console(file=io.StringIO(), width=100)
    return live.Live(Problem(), {0: tmp_path}, console), tmp_path, console


def read_events(folder):
    """(tag, step, value) of every scalar in a folder of event files."""
    from tensorboardX.proto import event_pb2

    found = []
    for file in sorted(folder.glob("events*")):
        data = file.read_bytes()
        place = 0
        while place < len(data):  # length, its checksum, the event, its checksum
            length = int.from_bytes(data[place : place + 8], "little")
            event = event_pb2.Event.FromString(data[place + 12 : place + 12 + length])
            found += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
            place += 16 + length
    return found


def test_rows_are_on_disk_in_tensorboard_and_on_the_terminal(opened):
    watched, folder, console = opened
    watched.begin(progress())
    watched.add(progress(ROW))
    watched.close()
    assert results.read_rows(folder / "results.jsonl") == [ROW]
    events = read_events(folder / live.EVENTS)
    assert ("online/score", 100, 12.5) in events
    assert ("online/off_anchor", 100, 0.5) in events
    assert not any("returns" in tag for tag, _, _ in events)
    head, line = console.file.getvalue().splitlines()
    assert head.split()[:4] == ["seed", "phase", "step", "score"]
    assert line.split() == ["0", "online", "100", "12.5", "1.2", "0.5", "50"]


def test_a_disk_that_is_full_is_an_error_at_once_and_closing_is_none(opened, monkeypatch):
    watched, _, _ = opened
    watched.begin(progress())

    def full():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(watched._writers[0], "flush", full)
    for _ in range(20):  # nobody waits for a thread that is gone
        with pytest.raises(OSError, match="No space left"):
            watched.add(progress(ROW))
    watched.close()
    monkeypatch.undo()
    watched.close()


def test_a_run_that_goes_on_has_each_row_once(opened):
    watched, folder, _ = opened
    watched.begin(progress())
    watched.add(progress(ROW))
    watched.close()
    again = live.Live(Problem(), {0: folder}, rich.console.Console(file=io.StringIO()))
    again.begin(progress(ROW))
    again.add(progress(ROW, {**ROW, "step": 200}))
    again.close()
    steps = [step for tag, step, _ in read_events(folder / live.EVENTS) if tag == "online/score"]
    assert steps == [100, 200]


def test_without_weights_and_biases_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match="pip install wandb"):
        live.Live(Problem(), {0: tmp_path}, rich.console.Console(), wandb=True)


def test_weights_and_biases_are_told_the_same_numbers(tmp_path, monkeypatch):
    logged, ended = [], []
    run = types.SimpleNamespace(log=logged.append, finish=lambda: ended.append(True))
    module = types.SimpleNamespace(init=lambda **about: run)
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(live.cfg, "to_dict", lambda config: {})
    console = rich.console.Console(file=io.StringIO())
    watched = live.Live(Problem(), {0: tmp_path}, console, wandb=True)
    watched.begin(progress())
    watched.add(progress(ROW))
    watched.close()
    assert logged[0]["online/score"] == 12.5 and logged[0]["online/step"] == 100
    assert ended == [True]
