"""`experiments.data` as a user meets it, on files made here."""

import functools
import json

import h5py
import mujoco
import numpy as np
import processes
import pytest

from roid_jax.envs import physics, tasks

call = functools.partial(processes.call, "experiments.data")


def record(path, name, kind, steps=150):
    """Records random actions under one physics, in D4RL's layout, an episode every 50 steps."""
    task = tasks.find(name)
    model = physics.load(task, physics=kind)
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    rows = {key: [] for key in ("observations", "actions", "infos/qpos", "infos/qvel")}
    for t in range(steps):
        if t % 50 == 0:
            mujoco.mj_resetData(model, data)
        action = rng.uniform(-1, 1, task.action_dim).astype(np.float32)
        observation = tasks.observe(np, task, data.qpos, data.qvel)
        values = (observation, action, data.qpos.copy(), data.qvel.copy())
        for column, value in zip(rows.values(), values, strict=True):
            column.append(value)
        data.ctrl[:] = action
        mujoco.mj_step(model, data, nstep=task.frame_skip)
    with h5py.File(path, "w") as file:
        for key, value in rows.items():
            file[key] = np.array(value)
        file["rewards"] = np.ones(steps)
        file["terminals"] = np.zeros(steps, bool)
        file["timeouts"] = np.arange(steps) % 50 == 49
    return path


@pytest.mark.parametrize("kind", physics.PHYSICS)
def test_verify_tells_which_physics_made_a_walker2d_file(tmp_path, kind):
    path = record(tmp_path / "mine.hdf5", "walker2d", kind)
    done = call("verify", f"hdf5:{path}", "--task=walker2d", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["physics"]
    (other,) = set(physics.PHYSICS) - {kind}
    for where in ("median_flight", "median_contact"):
        assert found[kind][where] < 1e-5 < found[other][where]
    assert f"It matches {kind}" in call("verify", f"hdf5:{path}", "--task=walker2d").stdout


def test_describe_prints_a_table_and_no_warning(tmp_path):
    path = record(tmp_path / "hopper_mine.hdf5", "hopper", "d4rl")
    done = call("describe", f"hdf5:{path}")
    assert done.returncode == 0 and done.stderr == ""
    for text in (
        "150, 147 of them transitions",
        "3, 0 cut off",
        "0 terminals, 3 timeouts",
        "score",
    ):
        assert text in done.stdout
    found = json.loads(call("describe", f"hdf5:{path}", "--json").stdout)
    assert found["return"] == {"mean": 50.0, "std": 0.0, "min": 50.0, "max": 50.0}


def test_list_names_every_set_and_where_it_looked(tmp_path):
    done = call("list", D4RL_DATASET_DIR=str(tmp_path), MINARI_DATASETS_PATH=str(tmp_path))
    assert done.returncode == 0
    assert "d4rl:walker2d-medium-expert-v2" in done.stdout and "hdf5:<path>" in done.stdout


@pytest.mark.parametrize(
    "words, expected",
    [
        ((), "unknown command ''; choose from list, download, import, describe"),
        (("download",), "download needs the name of a set, d4rl:<name>"),
        (
            ("download", "hopper"),
            "'hopper' is nothing to download; D4RL's sets are, as d4rl:<name>",
        ),
        (("download", "hdf5:x.hdf5"), "'hdf5:x.hdf5' is nothing to download"),
        (("download", "d4rl:hopper-medium-v9"), "unknown D4RL set 'hopper-medium-v9'; choose from"),
        (("describe",), "describe needs a dataset"),
        (("describe", "hopper"), "unknown dataset 'hopper'; use one of d4rl:<name>, hdf5:"),
        (("describe", "d4rl:hopper-medium-v2"), "put hopper_medium-v2.hdf5 into"),
        (("verify", "d4rl:hopper-medium-v2"), "experiments.data download d4rl:hopper-medium-v2'"),
        (("describe", "hdf5:setup.py"), "cannot read 'setup.py' as HDF5"),
        (("verify", "hdf5:hopper.hdf5"), "there is no file 'hopper.hdf5'"),
        (("verify", "hdf5:mine.hdf5"), "the name does not tell the task; give it with --task"),
        (("import", "hdf5:mine.hdf5"), "give the Minari dataset a name with --to"),
        (("import", "hdf5:setup.py", "--to=../x"), "no name of a Minari dataset"),
        (("describe", "x", "y"), "unexpected argument 'y'"),
        (("list", "--task=ant"), "--task=ant: value should be one of"),
    ],
)
def test_a_mistake_gets_one_clear_line_and_a_bad_exit_code(tmp_path, words, expected):
    done = call(*words, D4RL_DATASET_DIR=str(tmp_path), MINARI_DATASETS_PATH=str(tmp_path))
    assert done.returncode != 0 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and expected in done.stderr


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({}, "is there but has 5 bytes instead of 152756557; remove it, or fetch it afresh with"),
        ({"ROID_JAX_MIRRORS": "ftp://host/"}, "ROID_JAX_MIRRORS has 'ftp://host/'; a mirror is"),
        ({"D4RL_DATASET_DIR": "/dev/null/x"}, "cannot keep hopper_medium-v2.hdf5 in /dev/null/x"),
    ],
)
def test_a_download_that_cannot_begin_gets_one_clear_line(tmp_path, environment, expected):
    (tmp_path / "hopper_medium-v2.hdf5").write_text("wrong")
    chosen = {"D4RL_DATASET_DIR": str(tmp_path), "HOME": str(tmp_path)} | environment
    done = call("download", "d4rl:hopper-medium-v2", **chosen)
    assert done.returncode != 0 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and expected in done.stderr


def test_the_embedded_set_is_described_without_a_network_or_a_warning(tmp_path):
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = call("describe", "embedded:hopper-medium", "--json", **home)
    assert done.returncode == 0 and done.stderr == ""
    found = json.loads(done.stdout)
    assert found["task"] == "hopper" and found["rows"] > 40_000 and found["cut_off"] == 0
    assert abs(found["score"]["mean"] - 44.3) < 5.0  # D4RL's medium level


def test_what_is_imported_is_listed_and_described_as_the_file_was(tmp_path):
    path = record(tmp_path / "hopper.hdf5", "hopper", "d4rl")
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home["MINARI_DATASETS_PATH"] = str(tmp_path / "minari")
    done = call("import", f"hdf5:{path}", "--to=mine/hopper-v0", **home)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "minari:mine/hopper-v0" in done.stdout
    assert "minari:mine/hopper-v0" in call("list", **home).stdout
    described = [
        json.loads(call("describe", name, "--json", **home).stdout)
        for name in (f"hdf5:{path}", "minari:mine/hopper-v0")
    ]
    assert described[0] == described[1]
    again = call("import", f"hdf5:{path}", "--to=mine/hopper-v0", **home)
    assert again.returncode != 0 and "there is a dataset 'mine/hopper-v0' already" in again.stderr
    verified = call("verify", "minari:mine/hopper-v0", **home)
    assert verified.returncode != 0 and "no simulator states" in verified.stderr


def write_rows(path, number=5, width=11, actions=3, **changes):
    content = {
        "observations": np.zeros((number, width)),
        "actions": np.zeros((number, actions)),
        "rewards": np.zeros(number),
        "terminals": np.zeros(number),
        **changes,
    }
    with h5py.File(path, "w") as file:
        for key, value in content.items():
            file[key] = value
    return path


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize("width", [1, 11])
def test_odd_but_legal_data_is_described_without_a_warning(tmp_path, number, width):
    path = write_rows(tmp_path / "mine.hdf5", number, width)
    done = call("describe", f"hdf5:{path}", "--json", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0 and done.stderr == ""
    assert json.loads(done.stdout)["directions_covered"] == 0.0  # all states are alike


def test_returns_that_are_large_and_alike_are_described(tmp_path):
    large = {"rewards": np.full(5, 3e38, np.float32)}
    path = write_rows(tmp_path / "mine.hdf5", 5, 1, **large)
    done = call("describe", f"hdf5:{path}", "--json", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert sum(json.loads(done.stdout)["histogram"]) == json.loads(done.stdout)["episodes"]


def test_data_of_another_width_than_its_task_is_refused(tmp_path):
    path = write_rows(tmp_path / "hopper.hdf5", width=7)
    done = call("describe", f"hdf5:{path}", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode != 0 and done.stderr.count("\n") == 1
    assert "the data has 7 observations and 3 actions a row, hopper has 11 and 3" in done.stderr


def test_states_that_are_not_those_of_the_rows_get_no_verdict(tmp_path):
    path = record(tmp_path / "hopper.hdf5", "hopper", "d4rl")
    with h5py.File(path, "a") as file:
        file["infos/qpos"][:] = file["infos/qpos"][:] + 1.0
    done = call("verify", f"hdf5:{path}")
    assert done.returncode != 0 and "not those of its rows" in done.stderr
    with h5py.File(path, "a") as file:
        file["infos/qpos"][:] = file["infos/qpos"][:] - 1.0
        file["timeouts"][:] = True
    done = call("verify", f"hdf5:{path}")
    assert done.returncode != 0 and "there is no step to try" in done.stderr


def test_a_physics_that_is_neither_is_said_to_be_neither(tmp_path):
    path = record(tmp_path / "hopper.hdf5", "hopper", "d4rl")
    with h5py.File(path, "a") as file:
        file["actions"][:] = -file["actions"][:]
    assert "It matches neither." in call("verify", f"hdf5:{path}").stdout


def test_names_with_brackets_are_printed_as_they_are(tmp_path):
    folder = tmp_path / "[red]x[/tmp]"
    folder.mkdir(parents=True)
    path = write_rows(folder / "mine.hdf5")
    done = call("describe", f"hdf5:{path}", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0 and "[red]x[/tmp]" in done.stdout


def test_numbers_are_never_cut_in_a_narrow_terminal(tmp_path):
    path = record(tmp_path / "hopper.hdf5", "hopper", "d4rl")
    home = {"MINARI_DATASETS_PATH": str(tmp_path / "minari"), "COLUMNS": "80"}
    name = "mine/a/very/long/name/for/a/dataset/of/the/hopper-v0"
    assert call("import", f"hdf5:{path}", f"--to={name}", **home).returncode == 0
    done = call("list", **home)
    assert "…" not in done.stdout
    assert "153 MB" in done.stdout and name in "".join(done.stdout.split())
