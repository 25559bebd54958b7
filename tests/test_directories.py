import os
import sys

import pytest

from roid_jax import directories


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("../outside")])
def test_a_lock_that_is_no_plain_file_is_refused_and_not_followed(tmp_path, make):
    (tmp_path / "outside").write_text("mine")
    (tmp_path / "run").mkdir()
    make(tmp_path / "run" / ".lock")
    with pytest.raises(ValueError, match=r"\.lock' is not a plain file"):
        directories.hold(tmp_path / "run").__enter__()
    assert (tmp_path / "outside").read_text() == "mine"


def test_a_directory_that_is_held_stays_so_when_its_lock_is_removed(tmp_path):
    with directories.hold(tmp_path):
        (tmp_path / ".lock").unlink()
        with pytest.raises(ValueError, match="is in use by another process"):
            directories.hold(tmp_path).__enter__()
    with directories.hold(tmp_path):
        assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} on ")


@pytest.mark.parametrize("is_able", [True, False])
def test_a_directory_takes_anothers_place_and_name(tmp_path, monkeypatch, is_able):
    if not is_able:
        monkeypatch.setattr(directories, "_exchange", lambda one, other: False)
    for name in ("first", "second"):
        (tmp_path / "made").mkdir(exist_ok=True)
        (tmp_path / "made" / name).touch()
        directories.put_in_place(tmp_path / "made", tmp_path / "there")
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert found == ["made", "made/first", "there", "there/second"]


def test_a_directory_that_cannot_take_anothers_place_leaves_it_there(tmp_path, monkeypatch):
    monkeypatch.setattr(directories, "_exchange", lambda one, other: False)
    (tmp_path / "there").mkdir()
    with pytest.raises(OSError):
        directories.put_in_place(tmp_path / "never made", tmp_path / "there")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it takes several steps")
def test_directories_change_names_in_one_step_on_linux(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert directories._exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "other").exists() and (tmp_path / "other" / "one").exists()
    assert not directories._exchange(tmp_path / "one", tmp_path / "nothing")


def test_a_workdir_is_made_and_one_that_cannot_be_is_refused_in_one_line(tmp_path):
    assert directories.open_workdir(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot write results to .*file.*--workdir"):
        directories.open_workdir(tmp_path / "file")
