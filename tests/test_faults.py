"""What a training does when it is stopped, its workdir is shared, or its files are damaged."""

import os
import resource
import shutil
import signal
import subprocess

import damages
import h5py
import numpy as np
import pytest
import smoke_runs
from processes import wait_for
from smoke_runs import call, summary

MORE = "--config.online_steps=110"  # a run that ended goes on for some steps


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("faults")
    done = call(home, f"--workdir={home / 'whole'}")
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(scope="module")
def longer(home):
    """The digest of the run that went on undisturbed."""
    shutil.copytree(home / "whole", home / "longer")
    done = call(home, f"--workdir={home / 'longer'}", MORE)
    assert done.returncode == 0, done.stderr
    return summary(home / "longer")["digest"]


def test_a_name_may_have_brackets(home, tmp_path):
    workdir = tmp_path / "one[" / "red]:smile:"
    shutil.copytree(home / "whole", workdir)
    damages.DAMAGES["rows"](workdir / "seed_0" / "checkpoints" / "201")
    done = call(home, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    assert f"201 in {workdir}/seed_0/checkpoints cannot be read" in done.stdout
    assert f"are in {workdir}/" in done.stdout


def assert_one_line(done, code, *words):
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_run_that_is_asked_to_stop_saves_at_once_and_ends_the_same(home, tmp_path, number, code):
    workdir = tmp_path / "stopped"
    run = smoke_runs.start(home, f"--workdir={workdir}", "--config.chunk=5")
    checkpoints = workdir / "seed_0" / "checkpoints"
    wait_for(lambda: (checkpoints / "101").is_dir(), run)
    run.send_signal(number)
    _, said = run.communicate(timeout=300)
    assert run.returncode == code
    assert "all is saved, and the same command goes on" in said and "Traceback" not in said
    done = call(home, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    assert summary(workdir)["digest"] == summary(home / "whole")["digest"]


def test_two_processes_do_not_share_a_workdir(home, tmp_path):
    workdir = tmp_path / "shared"
    run = smoke_runs.start(home, f"--workdir={workdir}")
    lock = workdir / "seed_0" / ".lock"
    wait_for(lambda: lock.is_file() and lock.read_text(), run)
    second = call(home, f"--workdir={workdir}")
    assert_one_line(second, 2, "is in use by process", str(run.pid))
    other_seed = call(home, f"--workdir={workdir}", "--seed=1", "--config.offline_steps=0")
    assert other_seed.returncode == 0, other_seed.stderr
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said
    assert summary(workdir)["digest"] == summary(home / "whole")["digest"]


@pytest.mark.parametrize("damage", ["flipped", "half deleted"])  # the others: test_checkpoint
def test_a_broken_checkpoint_is_put_aside_and_the_one_before_goes_on(
    home, longer, tmp_path, damage
):
    workdir = tmp_path / "broken"
    shutil.copytree(home / "whole", workdir)
    checkpoints = workdir / "seed_0" / "checkpoints"
    damages.DAMAGES[damage](checkpoints / "201")
    done = call(home, f"--workdir={workdir}", MORE)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    said = " ".join(done.stdout.split())
    assert "201 in" in said and "cannot be read; it is now 201.broken" in said
    assert (checkpoints / "201.broken").is_dir()
    assert summary(workdir)["digest"] == longer


def fill_disk(run):
    """From here on the process can write rows, and nothing as large as a checkpoint."""
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (20 * 1024, resource.RLIM_INFINITY))


def finish(run):
    said, complained = run.communicate(timeout=300)
    return subprocess.CompletedProcess([], run.returncode, said, complained)


def test_a_disk_that_is_full_is_said_in_one_line_and_loses_nothing(home, tmp_path):
    workdir = tmp_path / "full"
    run = smoke_runs.start(home, f"--workdir={workdir}")
    fill_disk(run)
    assert_one_line(finish(run), 1, "cannot write a checkpoint")
    done = call(home, f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    assert summary(workdir)["digest"] == summary(home / "whole")["digest"]


def test_a_stop_that_cannot_be_saved_is_not_called_saved(home, longer, tmp_path):
    workdir = tmp_path / "full"
    shutil.copytree(home / "whole", workdir)
    run = smoke_runs.start(home, f"--workdir={workdir}", MORE)
    wait_for(lambda: not (workdir / "seed_0" / "summary.json").exists(), run)  # no longer ended
    fill_disk(run)
    run.send_signal(signal.SIGTERM)
    assert_one_line(finish(run), 1, "cannot write a checkpoint", "checkpoint 201 is whole")
    done = call(home, f"--workdir={workdir}", MORE)
    assert done.returncode == 0, done.stderr
    assert summary(workdir)["digest"] == longer


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (damages.flip, "its bytes have changed"),
        (damages.cut, "its files are not what was written"),
    ],
)
def test_an_offline_phase_that_is_broken_is_not_taken_over(home, tmp_path, damage, why):
    other = tmp_path / "other"
    shutil.copytree(home / "whole" / "seed_0" / "offline", other / "seed_0" / "offline")
    damage(damages.largest(other))
    done = call(home, f"--workdir={tmp_path / 'mine'}", f"--from_checkpoint={other}")
    assert_one_line(done, 2, "cannot read the checkpoint", why, "take another")
    assert [one.name for one in (other / "seed_0" / "offline").iterdir()] == ["100"]


def test_results_without_a_checkpoint_are_not_overwritten(home, tmp_path):
    workdir = tmp_path / "lost"
    shutil.copytree(home / "whole", workdir)
    before = (workdir / "seed_0" / "results.jsonl").read_bytes()
    shutil.rmtree(workdir / "seed_0" / "checkpoints")
    done = call(home, f"--workdir={workdir}")
    assert_one_line(done, 2, "no checkpoint that can be read", "remove it to begin again")
    assert (workdir / "seed_0" / "results.jsonl").read_bytes() == before
    for name in ("results.jsonl", "summary.json"):  # what offline learning left is a result too
        (workdir / "seed_0" / name).unlink()
        again = call(home, f"--workdir={workdir}")
        assert_one_line(again, 2, "no checkpoint that can be read")


def test_a_run_that_took_over_an_offline_phase_goes_on_after_a_kill(home, tmp_path):
    flags = f"--workdir={tmp_path}", f"--from_checkpoint={home / 'whole'}"
    run = smoke_runs.start(home, *flags)
    wait_for((tmp_path / "seed_0" / "results.jsonl").is_file, run)
    run.send_signal(signal.SIGKILL)  # before anything of its own is saved
    run.wait()
    done = call(home, *flags)
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path)["digest"] == summary(home / "whole")["digest"]


FRAIL = """
import gymnasium
import numpy as np


class Frail(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    count = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.count += 1
        if self.count == 60:
            raise RuntimeError("the arm is stuck")
        return np.zeros(3, np.float32), 1e5, False, False, {}


gymnasium.register("Frail-v0", Frail, max_episode_steps=10)
"""


@pytest.fixture
def frail(tmp_path, monkeypatch):
    """A user's own world, which breaks, and data from it with rewards as large as its own."""
    (tmp_path / "frail.py").write_text(FRAIL)
    paths = [str(tmp_path), os.environ["PYTHONPATH"]]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    generator = np.random.default_rng(0)
    with h5py.File(tmp_path / "mine.hdf5", "w") as file:
        file["observations"] = generator.normal(size=(400, 3)).astype(np.float32)
        file["actions"] = generator.uniform(-1, 1, (400, 1)).astype(np.float32)
        file["rewards"] = np.full(400, 1e5, np.float32)
        file["terminals"], file["timeouts"] = np.zeros(400, bool), np.arange(400) % 10 == 9
    return "--env=gymnasium:frail:Frail-v0", f"--dataset=hdf5:{tmp_path / 'mine.hdf5'}"


def test_a_world_that_breaks_ends_a_run_with_where_and_why(home, tmp_path, frail):
    done = call(home, *frail, f"--workdir={tmp_path / 'run'}")
    said = "failed at online step 59 of seed 0: RuntimeError: the arm is stuck; checkpoint 151 in"
    assert_one_line(done, 1, "frail:Frail-v0", said, "is good.")
    assert "rewards in hdf5:" in done.stdout and "are about 1e+05 in size" in done.stdout
    assert (tmp_path / "run" / "seed_0" / "checkpoints" / "151").is_dir()
