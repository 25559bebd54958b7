"""`experiments.sweep`: cells that are run once, one that fails, and the table of them."""

import io
import os
import pathlib
import signal

import numpy as np
import processes
import pytest
import rich.console
from processes import wait_for
from smoke_runs import homes, rows, summary

from experiments import stopping, suites, sweep
from experiments.report_runs import Run
from experiments.suites import SweepConfig
from roid_jax import directories


def call(home, *flags):
    return processes.call("experiments.sweep", "--profile=smoke", *flags, **homes(home))


def test_every_selector_goes_on_from_one_offline_phase_and_finished_cells_are_skipped(tmp_path):
    workdir = tmp_path / "study"
    asked = (
        "--suite=selector_study",
        "--selectors=ids,greedy",
        "--num_seeds=2",
        "--dataset=embedded:{world}-medium",
        f"--workdir={workdir}",
        "--",
        "--config.online_steps=50",
    )
    done = call(tmp_path, *asked)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "1 of 2: ids on hopper-medium-v2" in done.stdout
    folder = workdir / "hopper-medium-v2"
    one, other = (summary(folder / name, seed=1) for name in ("ids", "greedy"))
    assert one["offline_score"] == other["offline_score"] and one["digest"] != other["digest"]
    written = {path.name for path in workdir.glob("[!.]*.*")}
    drawn = ("curves", "diagnostics", "profile")
    figures = {f"{name}.{form}" for name in drawn for form in ("png", "svg")}
    assert written == {"table.md", "results.csv"} | figures
    assert "| hopper-medium-v2 | greedy | 2 |" in (workdir / "table.md").read_text()
    again = call(tmp_path, *asked)
    assert again.stdout.count("is there.") == 2 and "offline, 2 seeds" not in again.stdout
    lost = folder / "greedy" / "seed_0" / "results.jsonl"
    whole = lost.read_bytes()
    lost.write_bytes(whole[:-30])
    again = call(tmp_path, *asked)
    assert again.stdout.count("is there.") == 1 and lost.read_bytes() == whole, again.stderr
    longer = call(tmp_path, *asked[:-2], "--selectors=ids", "--", "--config.online_steps=100")
    assert longer.returncode == 0 and "is there." not in longer.stdout
    assert rows(folder / "ids")[-1]["step"] == 100


def test_a_training_that_fails_is_named_and_the_others_are_in_the_table(tmp_path):
    asked = ("--suite=d4rl_table", "--agents=rlpd", "--num_seeds=1")
    asked += ("--tasks=hopper-medium-v2,walker2d-medium-v2", "--dataset=embedded:hopper-medium")
    asked += (f"--workdir={tmp_path / 'table'}",)
    folder = directories.open_workdir(tmp_path / "table" / "hopper-medium-v2" / "rlpd" / "seed_0")
    with directories.hold(folder):  # as a training has it that outlived its sweep
        run = processes.start("experiments.sweep", "--profile=smoke", *asked, **homes(tmp_path))
        wait_for(lambda: f"waiting for process {os.getpid()} on" in run.said(), run)
    _, said = run.communicate(timeout=300)
    assert run.returncode == 1 and "Traceback" not in said
    last = said.splitlines()[-1]
    assert last == "error: 1 of 2 trainings failed: rlpd on walker2d-medium-v2."
    assert "| hopper-medium-v2 | rlpd | 1 |" in (tmp_path / "table" / "table.md").read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_sweep_that_is_asked_to_stop_asks_its_training_to(tmp_path, number, code):
    asked = ("--suite=d4rl_table", "--agents=rlpd", "--tasks=hopper-medium-v2", "--num_seeds=1")
    asked += ("--dataset=embedded:hopper-medium", f"--workdir={tmp_path / 'table'}", "--")
    folder = tmp_path / "table" / "hopper-medium-v2" / "rlpd" / "seed_0"
    sweep_words = ("experiments.sweep", "--profile=smoke", *asked, "--config.online_steps=1000")
    run = processes.start(*sweep_words, **homes(tmp_path))
    wait_for((folder / "checkpoints" / "1").is_dir, run)
    run.send_signal(number)  # to the sweep alone; a terminal sends SIGINT to both
    run.communicate(timeout=300)
    assert run.returncode == code and not (folder / "summary.json").exists()
    assert directories.hold(folder).__enter__() is None, "its training has ended too"


def test_a_training_that_another_was_before_waits_for_that(tmp_path, monkeypatch):
    cell = sweep.Cell("a", "hopper-medium-v2", tmp_path, ())
    other = directories.hold(directories.open_workdir(tmp_path / "seed_0"))
    codes = [2, 0]

    def train(*_):
        if len(codes) == 2:  # one that outlived its sweep, and was still loading its data
            other.__enter__()
        return codes.pop(0)

    monkeypatch.setattr(sweep, "_train", train)
    monkeypatch.setattr(stopping, "pause", lambda _: other.__exit__(None, None, None))
    console = rich.console.Console(file=io.StringIO(), width=1000)
    config = SweepConfig(tasks=(cell.task,), agents=("rlpd",), num_seeds=1)
    assert sweep._run(cell, [cell], config, (), console) and codes == []
    said = console.file.getvalue().splitlines()
    begun, waiting = "1 of 1: a on hopper-medium-v2", f"waiting for process {os.getpid()} on"
    assert said[0] == said[2] == begun and said[1].startswith(waiting)


def test_a_sweep_that_is_asked_to_stop_before_its_training_has_begun_begins_no_other(tmp_path):
    asked = ("--suite=d4rl_table", "--agents=rlpd,td3bc", "--tasks=hopper-medium-v2")
    asked += ("--num_seeds=1", "--dataset=embedded:hopper-medium")
    asked += (f"--workdir={tmp_path / 'table'}",)
    with directories.hold(directories.open_workdir(tmp_path / "table")):
        refused = call(tmp_path, *asked)
    assert refused.returncode == 2 and "is in use by process" in refused.stderr
    run = processes.start("experiments.sweep", "--profile=smoke", *asked, **homes(tmp_path))
    wait_for(lambda: "1 of 2" in run.said(), run)
    run.send_signal(signal.SIGTERM)
    said, complained = run.communicate(timeout=300)
    assert run.returncode == 75 and "2 of 2" not in said, complained
    assert complained.splitlines()[-1].startswith("error: preempted; all is saved")


def test_data_that_is_not_there_is_said_once_before_anything_is_run(tmp_path):
    done = call(tmp_path, "--profile=cpu", f"--workdir={tmp_path / 'table'}")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == ""
    assert "'d4rl:hopper-medium-v2' is not here; fetch it" in done.stderr


def test_the_interval_is_students():
    assert sweep.interval(np.array([1.0, 2.0, 3.0])) == "2.0 ± 2.5"  # 4.303 / sqrt(3)
    assert sweep.interval(np.array([7.0])) == "7.0"


def test_a_line_of_the_table_is_a_mean_over_seeds():
    def rows(offline, *scores):
        online = [offline, *scores]
        return [
            {"phase": "online", "step": 10 * i, "score": score} for i, score in enumerate(online)
        ]

    runs = [
        Run("a", "hopper", 0, rows(10.0, 20.0, 30.0), {}, pathlib.Path()),
        Run("a", "hopper", 1, rows(20.0, 40.0, 50.0), {}, pathlib.Path()),
    ]
    line = sweep.make_table(runs).rows[0]
    assert line[:3] == ("hopper", "a", "2") and line[-1] == "20"
    assert [cell.split(" ")[0] for cell in line[3:7]] == ["15.0", "40.0", "35.0", "20.0"]


def test_the_papers_table_has_all_its_agents_and_tasks():
    table = suites.SWEEPS["d4rl_table"]
    assert table.agents == ("roid", "boorl", "rlpd", "calql", "pex", "odt")
    assert len(table.tasks) == 6 and table.num_seeds == 10
    assert len(suites.SWEEPS["selector_study"].selectors) >= 6


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"agents": ("roid", "nobody")}, "agents must be one of"),
        ({"tasks": ()}, "tasks and agents must be at least one"),
        ({"agents": ("pex",), "selectors": ("ids",)}, "agents must be roid alone"),
    ],
)
def test_a_wrong_suite_is_refused(changes, expected):
    with pytest.raises(ValueError, match=expected):
        SweepConfig(**{"tasks": ("hopper-medium-v2",), **changes})
