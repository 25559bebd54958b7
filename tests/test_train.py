"""`experiments.train` as a user meets it, at tiny size."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import processes
import pytest
from smoke_runs import ROOT, call, command, environment, homes, rows, summary

from experiments import cli, profiles
from roid_jax.agents import named


def report(home, *words):
    return processes.call("experiments.report", *words, **homes(home))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("train")
    done = call(home, f"--workdir={home / 'whole'}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "roid (ids) on hopper: score" in done.stdout
    (home / "said").write_text(done.stdout)
    return home


def test_the_bar_ends_with_the_last_score(home):
    bars = [line for line in (home / "said").read_text().splitlines() if ", seed 0" in line]
    lasts = [rows(home / "whole")[i]["score"] for i in (1, -1)]
    assert [bar.split()[-1] for bar in bars] == [f"{score:.1f}" for score in lasts]


def test_there_is_a_row_for_every_evaluation_with_what_to_watch(home):
    found = [(row["phase"], row["step"]) for row in rows(home / "whole")]
    assert found == [
        ("offline", 50),
        ("offline", 100),
        ("online", 0),
        ("online", 50),
        ("online", 100),
    ]
    last = rows(home / "whole")[-1]
    watched = {
        "seed",
        "score",
        "returns",
        "td_loss",
        "spread",
        "clip_rate",
        "off_anchor",
        "regret",
        "information",
        "residual_information",
    }
    assert watched <= set(last) and len(last["returns"]) == 2


def test_the_summary_says_how_it_went(home):
    found = summary(home / "whole")
    scores = [row["score"] for row in rows(home / "whole") if row["phase"] == "online"]
    offline = [row["score"] for row in rows(home / "whole") if row["phase"] == "offline"]
    assert found["offline_score"] == offline[-1] and found["handover_score"] == scores[0]
    assert found["online_last"] == scores[-1]
    assert found["online_best"] == max(scores[1:])
    assert found["versions"]["mujoco"] and len(found["digest"]) == 64
    assert (home / "whole" / "learning_curve.png").stat().st_size > 5000
    config = json.loads((home / "whole" / "seed_0" / "config.json").read_text())
    assert config["config"]["agent"]["offline"]["num_members"] == 2


def test_a_finished_run_is_not_run_again(home):
    before = summary(home / "whole")
    mark, later = home / "whole" / ".met", time.time() + 86_400
    mark.touch()  # of several processes, by a clock that was ahead: nobody is waited for
    os.utime(mark, (later, later))
    # The task is the default one, named; its own data is not here, which is said.
    done = call(home, f"--workdir={home / 'whole'}", "--task=hopper-medium-v2")
    assert done.returncode == 0
    assert "d4rl:hopper-medium-v2 is not here; this is a look at embedded" in done.stdout
    assert {**summary(home / "whole"), "versions": 0} == {**before, "versions": 0}


def test_a_run_killed_again_and_again_ends_as_one_that_was_left_alone(home, tmp_path):
    checkpoints = tmp_path / "killed" / "seed_0" / "checkpoints"
    words = command(f"--workdir={tmp_path / 'killed'}")
    place = {"cwd": ROOT, "env": environment(tmp_path, compiled_anew=True)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for name in ("50", "101", "151"):  # offline, at the handover, online
        run = subprocess.Popen(words, **place, **quiet)
        deadline = time.monotonic() + 300
        while not any(checkpoints.glob(f"{name}*")) and run.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        run.send_signal(signal.SIGKILL)  # the checkpoint is being written, or just was
        assert run.wait() == -signal.SIGKILL
    kept = tmp_path / "cache" / "roid_jax" / "compiled"
    compiled = set(kept.rglob("*-cache"))
    assert len(compiled) >= 3
    assert subprocess.run(words, **place, **quiet, timeout=600, check=False).returncode == 0
    after = set(kept.rglob("*-cache"))
    # What was compiled before is found again. (On a busy machine some trifle may take long enough
    # to be kept.)
    large = ("jit_chunk", "jit__play", "jit__cross", "jit__init")
    assert not [file.name for file in after - compiled if file.name.startswith(large)]
    assert summary(tmp_path / "killed")["digest"] == summary(home / "whole")["digest"]


def test_a_run_that_is_no_longer_finite_stops_and_keeps_what_was_good(home, tmp_path):
    # The first update takes every weight far beyond all sense; the loss of the second is no number.
    wild = "--config.agent.offline.learning_rate=1e9", "--config.agent.offline.layer_norm=false"
    done = call(home, f"--workdir={tmp_path}", *wild, "--config.eval_interval=1")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    found = re.fullmatch(
        r"error: the run diverged: td_loss is (inf|nan) at offline step 1 of seed 0; "
        r"checkpoint 1 in \S+ is good\.\n",
        done.stderr,
    )
    assert found, done.stderr
    assert (tmp_path / "seed_0" / "checkpoints" / "1").is_dir()
    assert [row["step"] for row in rows(tmp_path)] == [1]


def test_seeds_can_be_added_to_a_run_and_each_goes_on_from_where_it_is(home, tmp_path):
    shutil.copytree(home / "whole", tmp_path / "more")
    done = call(home, f"--workdir={tmp_path / 'more'}", "--num_seeds=3")
    assert done.returncode == 0, done.stderr
    assert "2 seeds" in done.stdout and "mean" in done.stdout
    assert summary(tmp_path / "more")["digest"] == summary(home / "whole")["digest"]
    first, second = (summary(tmp_path / "more", seed) for seed in (1, 2))
    assert first["digest"] != second["digest"] and (first["seed"], second["seed"]) == (1, 2)
    # A run that ended may be made longer; what it has done stays.
    done = call(home, f"--workdir={tmp_path / 'more'}", "--config.online_steps=150")
    assert done.returncode == 0, done.stderr
    longer, before = rows(tmp_path / "more"), rows(home / "whole")
    assert longer[:-1] == before and longer[-1]["step"] == 150


def test_a_world_of_ones_own_with_data_of_ones_own(home, tmp_path):
    generator = np.random.default_rng(0)
    ends = np.zeros(400, bool)
    ends[199::200] = True
    with h5py.File(tmp_path / "mine.hdf5", "w") as file:
        file["observations"] = generator.normal(size=(400, 3)).astype(np.float32)
        file["actions"] = generator.uniform(-1, 1, (400, 1)).astype(np.float32)
        file["rewards"] = generator.normal(size=400).astype(np.float32)
        file["terminals"], file["timeouts"] = np.zeros(400, bool), ends
    mine = f"--dataset=hdf5:{tmp_path / 'mine.hdf5'}", "--env=gymnasium:Pendulum-v1"
    done = call(home, *mine, f"--workdir={tmp_path / 'run'}", "--config.online_steps=50")
    assert done.returncode == 0, done.stderr
    assert "roid (ids) on gymnasium:Pendulum-v1: return" in done.stdout
    assert summary(tmp_path / "run")["offline_score"] < -100  # plain returns
    done = call(home, *mine, f"--workdir={tmp_path / 'run'}")
    assert done.returncode == 0 and "its episode is cut, and a new one begins" in done.stdout
    assert rows(tmp_path / "run")[-1]["step"] == 100
    with h5py.File(tmp_path / "mine.hdf5", "r+") as file:
        file["rewards"][0] = 2.0
    done = call(home, *mine, f"--workdir={tmp_path / 'run'}")
    assert done.returncode == 2 and "was made with the sha256 of its data = " in done.stderr
    done = call(home, *mine, f"--workdir={tmp_path / 'run2'}", "--num_seeds=2")
    assert done.returncode == 2 and "keeps its state to itself" in done.stderr


def test_runs_stand_side_by_side_in_a_report(home, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(home / "whole", other, ignore=shutil.ignore_patterns("checkpoints", "offline"))
    shutil.copytree(other / "seed_0", other / "seed_1")
    about = json.loads((other / "seed_1" / "config.json").read_text())
    about["run"]["seed"] = 1
    (other / "seed_1" / "config.json").write_text(json.dumps(about))
    done = report(home, home / "whole", f"twice={other}", f"--out={tmp_path / 'out'}")
    assert done.returncode == 0, done.stderr
    first, *scores = [row["score"] for row in rows(home / "whole") if row["phase"] == "online"]
    (*_, offline) = (row["score"] for row in rows(home / "whole") if row["phase"] == "offline")
    numbers = offline, first, scores[-1], sum(scores) / 2, max(scores)
    with open(tmp_path / "out" / "scores.csv", encoding="utf-8") as file:
        whole, *_ = list(csv.reader(file))[1:]
    assert whole[1:8] == ["whole", "", *(f"{number:.1f}" for number in numbers)]
    offline, online = f"{offline:.1f}", f"{sum(scores) / 2:.1f}"
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("hopper")]
    assert [line[1:] for line in lines] == [
        ["whole", offline, online, "1"],
        ["twice", offline, online, f"[{online},", f"{online}]", "2"],
    ]
    written = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert written[0].startswith("run,task,seed,phase,step,score") and len(written) == 1 + 3 * 5
    for name in ("curves.png", "diagnostics.png"):
        assert (tmp_path / "out" / name).stat().st_size > 5000


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "name at least one workdir"),
        (("/nowhere",), "there are no results of experiments.train in '/nowhere'"),
        (("{whole}", "{whole}"), "is there twice; name one <name>="),
    ],
)
def test_a_report_of_nothing_is_refused_in_one_line(home, words, expected):
    done = report(home, *(word.format(whole=home / "whole") for word in words))
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ") and expected in done.stderr


def test_the_length_of_a_chunk_changes_no_number(home, tmp_path):
    assert call(home, f"--workdir={tmp_path}", "--config.chunk=10").returncode == 0
    assert summary(tmp_path)["digest"] == summary(home / "whole")["digest"]


def test_another_selector_takes_over_the_offline_phase(home, tmp_path):
    flags = f"--workdir={tmp_path}", f"--from_checkpoint={home / 'whole'}", "--selector=thompson"
    done = call(home, *flags)
    assert done.returncode == 0, done.stderr
    same, other = rows(home / "whole"), rows(tmp_path)
    keep = lambda row: {key: row[key] for key in row if "seconds" not in key}  # noqa: E731
    assert [keep(row) for row in same[:3]] == [keep(row) for row in other[:3]]
    assert same[-1]["regret"] != other[-1]["regret"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--agent=best",), "--agent=best: value should be one of"),
        (("--task=ant-medium-v2",), "--task=ant-medium-v2: value should be one of"),
        (("--dataset=hopper",), "unknown dataset 'hopper'; use one of"),
        (("--task=walker2d-medium-v2",), "'d4rl:walker2d-medium-v2' is not here; fetch it"),
        (
            ("--env=walker2d", "--dataset=embedded:hopper-medium"),
            "has 11 observations and 3 actions, but 'walker2d' has 17 and 6",
        ),
        (("--env=mars", "--dataset=embedded:hopper-medium"), "unknown environment 'mars'"),
        (("--env=walker2d",), "--env=walker2d needs --dataset"),
        (("--selector=ucb", "--config.agent.selector.name=ids"), "differ; give one of them"),
        (("--selector=best",), "--selector=best: value should be one of"),
        (("--agent=td3bc", "--selector=ids"), "--selector: td3bc has none"),
        (
            ("--agent=rlpd", "--config.offline_steps=10"),
            "rlpd has no offline phase; offline_steps must be 0, got 10",
        ),
        (
            ("--agent=pex", "--config.offline_steps=200"),
            "agent.offline.decay_steps must be 0 or at least offline_steps, 200",
        ),
        (
            ("--agent=odt", "--env=gymnasium:Pendulum-v1", "--dataset=minari:mine/pendulum-v0"),
            "odt must be told what to ask for there: --config.agent.evaluation_return",
        ),
        (
            ("--task=hopper-medium-v2", "--profile=cpu"),
            "'d4rl:hopper-medium-v2' is not here; fetch it",
        ),
        (
            ("--config.agent.offline_fraction=0",),
            "offline_fraction must be above 0 where logged rows are cloned",
        ),
        (("--from_checkpoint=~nobody-here/x",), "cannot tell whose home"),
        (
            ("--from_checkpoint={whole}", "--config.agent.offline.hidden=8"),
            "hidden = [16], not [8]; use that, or another --from_checkpoint",
        ),
        (("--agent=td3bc", "--from_checkpoint={whole}"), "made with agent = 'roid', not 'td3bc'"),
        (("--num_seeds=99999999",), "99999999 is not an integer in the range [1, 1000]"),
        (
            ("--config.agent.offline.hidden=99999999,99999999",),
            "there is not enough memory for this",
        ),
        (("--config.agent.updates=0",), "updates must be a whole number from 1"),
        (("--config.agent.selector.eta=-1",), "eta must be a finite number at least 0"),
        (("--config.offline_stps=1",), "did you mean 'offline_steps'"),
        (("--config.agent.offline.holdout=100000",), "a holdout of 100000 leaves nothing"),
        (("--from_checkpoint=/nowhere",), "there is no offline phase of seed 0 in '/nowhere'"),
        (
            ("--workdir={whole}", "--seed=0", "--config.agent.updates=3"),
            "the checkpoint was made with agent.updates = 2, not 3",
        ),
        (("--workdir={whole}", "--noresume"), "there is a run in this workdir"),
        (("--workdir=/proc/read_only",), "cannot write results to '/proc/read_only'"),
    ],
)
def test_a_mistake_gets_one_clear_line_and_a_bad_exit_code(home, tmp_path, flags, expected):
    chosen = [flag.format(whole=home / "whole") for flag in flags]
    if not any(flag.startswith("--workdir") for flag in chosen):
        chosen.append(f"--workdir={tmp_path}")
    done = call(home, *chosen)
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: ")
    assert expected in done.stderr


@pytest.mark.parametrize("agent", sorted(named.AGENTS))
@pytest.mark.parametrize("profile", profiles.PROFILES)
@pytest.mark.parametrize("task", ["hopper-medium-v2", "halfcheetah-medium-replay-v2"])
def test_every_profile_of_every_agent_is_a_configuration(agent, profile, task):
    config = profiles.find(agent, task, profile)
    assert config.replay_capacity >= config.online_steps


def test_the_paper_profile_has_the_papers_settings_for_each_task():
    hopper = profiles.find("roid", "hopper-medium-v2", "paper")
    assert (hopper.offline_steps, hopper.online_steps) == (500_000, 1_000_000)
    assert hopper.agent.selector.eta == 0.05 and hopper.agent.selector.q_max == 1e4
    assert hopper.agent.offline_fraction == 0.0 and hopper.agent.bc_anneal_steps == 0
    assert hopper.agent.warmup_steps == 25_000 and hopper.agent.updates == 5
    cheetah = profiles.find("roid", "halfcheetah-medium-replay-v2", "paper").agent
    assert cheetah.selector.eta == 0.5 and cheetah.selector.q_max == 1e3
    assert cheetah.offline_fraction == 0.5
    assert profiles.find("roid", "halfcheetah-medium-v2", "paper").agent.selector.eta == 0.05


@pytest.mark.parametrize(
    ("agent", "thousands"),
    [("roid", 500), ("td3bc", 1000), ("boorl", 1000), ("rlpd", 0), ("calql", 1000), ("odt", 5)],
)
def test_in_the_paper_profile_offline_training_is_as_long_as_its_authors(agent, thousands):
    assert profiles.find(agent, "hopper-medium-v2", "paper").offline_steps == 1000 * thousands


def test_the_transformer_has_the_settings_of_its_table():
    found = profiles.find("odt", "walker2d-medium-v2", "paper")
    assert found.offline_steps == 10_000
    assert (found.agent.learning_rate, found.agent.weight_decay) == (1e-3, 1e-3)
    assert (found.agent.evaluation_return, found.agent.exploration_return) == (5000, 10_000)
    cheetah = profiles.find("odt", "halfcheetah-medium-replay-v2", "paper").agent
    assert (cheetah.evaluation_return, cheetah.exploration_return) == (6000, 12_000)
    replayed = profiles.find("odt", "hopper-medium-replay-v2", "paper").agent
    assert (replayed.learning_rate, replayed.weight_decay) == (2e-3, 1e-4)


def test_the_agent_is_known_before_flags_are_parsed(monkeypatch):
    for words, expected in (
        (["--agent=td3bc"], "td3bc"),
        (["--agent", "td3bc"], "td3bc"),
        (["--agent=nobody"], "roid"),
        ([], "roid"),
    ):
        monkeypatch.setattr(sys, "argv", ["train", *words])
        assert cli.peek("agent", "roid", named.AGENTS) == expected
