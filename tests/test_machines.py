"""Seeds over devices and over processes: each run ends as it does alone, to the bit."""

import json
import os
import shutil
import socket

import processes
import pytest
import smoke_runs

from experiments import machines

SHORT = ["--config.offline_steps=20", "--config.online_steps=40", "--config.eval_interval=20"]


def start(home, *flags, devices=1):
    forced = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    own = {**smoke_runs.homes(home), "XLA_FLAGS": forced}
    return processes.start("experiments.train", "--profile=smoke", *SHORT, *flags, **own)


def end(process):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert err == ""
    return out


def digests(workdir, *numbers):
    folders = [workdir / f"seed_{n}" / "summary.json" for n in numbers]
    return [json.loads(file.read_text())["digest"] for file in folders]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("machines")
    for seed in (0, 1):
        end(start(home, f"--workdir={home / 'alone'}", f"--seed={seed}"))
    return home


def test_devices_share_the_seeds(home):
    end(start(home, f"--workdir={home / 'devices'}", "--num_seeds=2", devices=2))
    assert digests(home / "devices", 0, 1) == digests(home / "alone", 0, 1)


def test_processes_share_the_seeds_and_the_first_reports(home):
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    flags = f"--workdir={home / 'processes'}", "--num_seeds=2", f"--coordinator=localhost:{port}"
    flags += ("--num_processes=2",)
    half = "--config.online_steps=20"
    for more in ([half], []):  # the second time both go on from what they saved
        both = [start(home, *flags, f"--process_id={i}", *more) for i in range(2)]
        first, second = map(end, both)
    assert digests(home / "processes", 0, 1) == digests(home / "alone", 0, 1)
    assert "mean of last 2" in first and second == ""
    assert (home / "processes" / "learning_curve.png").exists()


def test_a_process_that_died_is_started_again_alone(home):
    shutil.copytree(home / "alone", home / "again")
    summary = home / "again" / "seed_1" / "summary.json"
    summary.unlink()
    flags = f"--workdir={home / 'again'}", "--num_seeds=2", "--num_processes=2"
    assert end(start(home, *flags, "--process_id=1")) == ""  # the first one reports
    assert digests(home / "again", 1) == digests(home / "alone", 1)
    assert "mean of last 2" in end(start(home, *flags, "--process_id=0"))


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, [[3, 4, 5, 6, 7]]), (2, [[3, 4, 5], [6, 7]]), (5, [[3], [4], [5], [6], [7]])],
)
def test_every_seed_has_one_process(count, expected):
    places = [machines.Place(i, count) for i in range(count)]
    assert [list(machines.share(range(3, 8), place)) for place in places] == expected


def test_there_is_a_seed_for_every_process():
    with pytest.raises(ValueError, match=r"3 processes cannot share --num_seeds=2; give more\."):
        machines.share(range(2), machines.Place(0, 3))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--num_processes=2"], "go together"),
        (["--coordinator=here:1"], "go together"),
        (["--coordinator=here:1", "--num_processes=2", "--process_id=2"], "must be below"),
        (["--coordinator=auto"], "the processes did not meet"),
    ],
)
def test_mistakes_are_one_line(tmp_path, flags, expected):
    process = start(tmp_path, f"--workdir={tmp_path}", *flags)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2 and expected in err
    assert err.startswith("error: ") and err.count("\n") == 1, err
