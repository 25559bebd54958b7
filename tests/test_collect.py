"""`experiments.collect` as a user meets it, at tiny size."""

import json
import shutil
import signal
import time
import types

import processes
import pytest
import rich.console

from experiments import behaviour, collect, collect_sets, stopping, suites
from roid_jax import checkpoint, directories
from roid_jax.data import load, minari, prepare, registry

SETS = ("random", "medium", "medium-replay", "expert")


def call(home, *flags):
    where = {"MINARI_DATASETS_PATH": str(home / "minari")}
    return processes.call("experiments.collect", *flags, **where)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("collect")
    flags = ("--preset=smoke", f"--sets={','.join(SETS)}", f"--workdir={home / 'work'}")
    done = call(home, *flags)
    assert done.returncode == 0, done.stderr
    assert "collected:hopper-smoke-medium-replay" in done.stdout
    assert done.stderr == ""
    return home


@pytest.fixture
def own_directories(home, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(home / "minari"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))


@pytest.mark.parametrize("kind", SETS)
def test_every_set_loads_by_its_name_with_its_provenance(home, own_directories, kind):
    recording = load.load(f"collected:hopper-smoke-{kind}")
    made = minari.provenance(registry.locate(f"collected:hopper-smoke-{kind}").path)
    assert made["digest"] == prepare.digest(recording)
    assert made["run"]["physics"] == "d4rl" and made["run"]["sac.hidden"] == [16]
    assert made["versions"]["mujoco"] and made["level"] == kind
    spans = prepare.episodes(recording)
    assert spans.is_whole.all()
    if kind == "medium-replay":
        assert len(recording) == made["training_steps"] == 100
    else:
        assert 300 <= len(recording) < 1300


def test_a_second_run_makes_nothing_anew(home):
    before = {path: path.stat().st_mtime_ns for path in (home / "minari").rglob("*.hdf5")}
    done = call(home, "--preset=smoke", "--sets=medium,random", f"--workdir={home / 'work'}")
    assert done.returncode == 0 and "training" not in done.stdout.replace("trained for", "")
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_the_same_command_makes_the_same_data_again(home, tmp_path):
    flags = ("--preset=smoke", "--sets=medium,medium-replay", f"--workdir={tmp_path / 'work'}")
    assert call(tmp_path, *flags).returncode == 0
    for kind in ("medium", "medium-replay"):
        digests = {
            minari.provenance(place / "minari" / "collected" / f"hopper-smoke-{kind}-v0")["digest"]
            for place in (home, tmp_path)
        }
        assert len(digests) == 1


def test_ctrl_c_stops_at_a_safe_point_and_keeps_what_was_saved(tmp_path):
    flags = ("--preset=smoke", "--config.medium=1e6", "--config.max_steps=100000", "--sets=medium")
    where = {"MINARI_DATASETS_PATH": str(tmp_path / "minari")}
    run = processes.start("experiments.collect", *flags, f"--workdir={tmp_path / 'work'}", **where)
    deadline = time.monotonic() + 200
    while not (tmp_path / "work" / "checkpoints" / "100").exists():
        assert time.monotonic() < deadline and run.poll() is None
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=100)
    assert run.returncode == 130
    assert "Traceback" not in said and "Fatal" not in said
    assert said.strip().splitlines()[-1].startswith("error: interrupted;")


def test_a_set_that_is_being_recorded_is_given_up_when_asked_to_stop(monkeypatch):
    problem = behaviour.make_problem("hopper", "d4rl", 0, suites.COLLECT["smoke"])
    agent = types.SimpleNamespace(online=types.SimpleNamespace(agent=()))
    monkeypatch.setattr(stopping, "is_asked", lambda: True)
    console = rich.console.Console(quiet=True)
    with pytest.raises(stopping.Stopped):
        collect.record(problem, "random", agent, console)


def test_a_directory_that_cannot_be_written_is_told_before_the_training(tmp_path):
    (tmp_path / "minari").write_text("in the way")
    done = call(tmp_path, "--preset=smoke", f"--workdir={tmp_path / 'work'}")
    assert done.returncode != 0 and not (tmp_path / "work").exists()
    assert "cannot write datasets to" in done.stderr and done.stderr.count("\n") == 1


def test_a_world_of_ones_own_begins_a_new_episode_when_it_resumes(tmp_path, monkeypatch):
    levels = ("--config.medium=-1000", "--config.tolerance=5000")
    flags = ("--task=gymnasium:Pendulum-v1", "--preset=smoke", *levels)
    work = f"--workdir={tmp_path / 'work'}"
    assert call(tmp_path, *flags, "--sets=medium", work).returncode == 0
    raised = ("--config.medium=1e6", "--config.tolerance=1", "--config.max_steps=1000")
    done = call(tmp_path, *flags[:2], *raised, "--sets=expert", "--config.expert=1e6", work)
    assert "the episode it was in is cut there" in done.stdout
    assert "never scored near" in done.stderr
    with checkpoint.Checkpoints(tmp_path / "work" / "checkpoints") as checkpoints:
        latest = checkpoints.latest()
        problem = behaviour.make_problem(
            "gymnasium:Pendulum-v1", "d4rl", 0, suites.COLLECT["smoke"]
        )
        memory = behaviour.begin(problem, checkpoints).online.replay
    assert latest == 1000
    recording = collect_sets.replayed(problem, memory)
    spans = prepare.episodes(recording)
    # 100 steps and a cut, then episodes of 200, which is the world's own limit.
    assert (spans.stops - spans.starts).tolist() == [100, 200, 200, 200, 200, 100]


def test_a_policy_without_sense_stops_the_training_in_one_line(tmp_path):
    wild = "--config.sac.learning_rate=1e20"
    done = call(tmp_path, "--preset=smoke", wild, f"--workdir={tmp_path / 'work'}")
    said = "hopper failed: it was given an action that is no number; nothing was saved."
    assert done.returncode == 1 and done.stderr == f"error: {said}\n"


def test_results_without_a_checkpoint_are_not_overwritten_nor_shared(home, tmp_path):
    shutil.copytree(home / "work", tmp_path / "work")
    flags = "--preset=smoke", "--name=another", f"--workdir={tmp_path / 'work'}"
    with directories.hold(tmp_path / "work"):
        assert "is in use by process" in call(tmp_path, *flags).stderr
    shutil.rmtree(tmp_path / "work" / "checkpoints")
    done = call(tmp_path, *flags)
    assert done.returncode == 2 and "no checkpoint that can be read" in done.stderr


def test_the_evaluations_are_kept(home):
    rows = [json.loads(line) for line in (home / "work" / "results.jsonl").read_text().splitlines()]
    assert rows[0]["step"] == 100 and len(rows[0]["returns"]) == 2


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--preset=smoke", "--seed=1"), "another 'collected:hopper-smoke-medium-replay' already"),
        (("--sets=large",), "sets must be one of random, medium-replay, medium, expert"),
        (("--sets=",), "--sets is empty; give it a value"),
        (("--task=ant",), "unknown environment 'ant'; choose from hopper"),
        (("--task=gymnasium:Pendulum-v1",), "give a return with --config.medium"),
        (("--task=gymnasium:Nothing-v0", "--config.medium=1"), "cannot make 'Nothing-v0'"),
        (("--name=../x",), "no name of a Minari dataset"),
        (("--config.interval=7",), "interval must be a multiple of sac.warmup_steps"),
        (("--config.sac.polyak=0",), "polyak must be a finite number above 0"),
        (
            ("--preset=smoke", "--seed=1", "--name=mine", "--workdir={work}"),
            "the checkpoint was made with seed = 0, not 1",
        ),
        (
            (
                "--preset=smoke",
                "--name=far",
                "--config.medium=1e6",
                "--config.max_steps=100",
                "--workdir={work}/far",
            ),
            "the policy never scored near 1e+06 in 100 steps",
        ),
        (("--task=gymnasium:nomodule:Foo-v0", "--config.medium=1"), "cannot make 'nomodule:Foo"),
    ],
)
def test_a_mistake_gets_one_clear_line_and_a_bad_exit_code(home, flags, expected):
    done = call(home, *(flag.format(work=home / "work") for flag in flags))
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: ")
    assert expected in done.stderr
