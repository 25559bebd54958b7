import hashlib
import json
import os
import time

import numpy as np
import pytest
from test_data import rows, write

from roid_jax.data import d4rl, load, minari, prepare, published, registry


@pytest.fixture(autouse=True)
def own_directories(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path / "d4rl"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    (tmp_path / "d4rl").mkdir()


def same(one, other):
    assert prepare.digest(one) == prepare.digest(other)


def test_the_second_time_the_copy_is_read(tmp_path, monkeypatch):
    path = write(tmp_path / "data.hdf5", rows())
    first = load.load(f"hdf5:{path}")

    def refuse(source):
        raise AssertionError("the file itself was read again")

    monkeypatch.setattr(load, "read", refuse)
    same(load.load(f"hdf5:{path}"), first)


def test_a_file_that_changed_is_read_again(tmp_path):
    path = write(tmp_path / "data.hdf5", rows())
    load.load(f"hdf5:{path}")
    changed = rows()
    changed["rewards"] = changed["rewards"] + 1
    write(path, changed)
    os.utime(path, ns=(time.time_ns(), time.time_ns() + 1))
    same(load.load(f"hdf5:{path}"), d4rl.read(path))


def test_a_dataset_whose_bounds_changed_is_read_again(tmp_path):
    recording = d4rl.read(write(tmp_path / "data.hdf5", rows()))
    path = tmp_path / "minari" / "mine" / "set-v0"
    minari.write(path, recording, dataset_id="mine/set-v0", provenance={})
    before = load.load("minari:mine/set-v0")
    metadata = json.loads((path / "data" / "metadata.json").read_text())
    space = json.loads(metadata["action_space"])
    space |= {"low": [4.0 * bound for bound in space["low"]]}
    space |= {"high": [4.0 * bound for bound in space["high"]]}
    metadata["action_space"] = json.dumps(space)
    (path / "data" / "metadata.json").write_text(json.dumps(metadata))
    after = load.load("minari:mine/set-v0")
    np.testing.assert_allclose(after.actions, before.actions / 4.0, atol=1e-6)


def test_a_damaged_copy_is_made_afresh(tmp_path):
    path = write(tmp_path / "data.hdf5", rows())
    whole = load.load(f"hdf5:{path}")
    (copy,) = load.cache_directory().iterdir()
    content = copy.read_bytes()
    for damaged in (b"", content[: len(content) // 2], b"no" * 500, content[:-400] + bytes(400)):
        copy.write_bytes(damaged)
        same(load.load(f"hdf5:{path}"), whole)


def test_loading_works_where_no_copy_can_be_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = write(tmp_path / "data.hdf5", rows())
    same(load.load(f"hdf5:{path}"), d4rl.read(path))


def test_the_second_time_is_much_faster(tmp_path):
    number = 100_000
    recording = d4rl.Recording(
        observations=np.zeros((number, 11), np.float32),
        actions=np.zeros((number, 3), np.float32),
        rewards=np.zeros(number, np.float32),
        terminals=np.zeros(number, bool),
        timeouts=np.arange(number) % 250 == 249,
        next_observations=np.zeros((number, 11), np.float32),
    )
    path = tmp_path / "minari" / "mine" / "set-v0"
    minari.write(path, recording, dataset_id="mine/set-v0", provenance={})
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        load.load("minari:mine/set-v0")
        seconds.append(time.perf_counter() - start)
    assert seconds[1] < seconds[0] / 3


def test_an_imported_d4rl_set_is_found_by_its_name_and_is_the_same(tmp_path):
    path = write(tmp_path / "d4rl" / "walker2d_expert-v2.hdf5", rows())
    name = "d4rl:walker2d-expert-v2"
    from_file = load.load(name)
    entry = published.find("walker2d-expert-v2")._replace(sha256=None)  # it cannot be the real one
    target = load.import_file(path, registry.imported_id(entry), entry)
    assert registry.locate(name) == ("minari", target)
    same(load.load(name), from_file)
    made = minari.provenance(target)
    assert made["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert made["physics"] == "d4rl" and made["source"] == path.name
    assert made["versions"]["roid_jax"]


def test_a_file_that_is_not_what_d4rl_publishes_is_not_imported_as_it(tmp_path):
    path = write(tmp_path / "d4rl" / "hopper_medium-v2.hdf5", rows())
    entry = published.find("hopper-medium-v2")
    with pytest.raises(ValueError, match=r"sha256 .* but D4RL publishes 5bdf1bc4a713"):
        load.import_file(path, registry.imported_id(entry), entry)
    assert not registry.minari_path(registry.imported_id(entry)).exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minari:mine/absent-v0", "fetch it with 'minari download mine/absent-v0'"),
        ("minari:../../etc-v0", "no name of a Minari dataset"),
        ("collected:absent", "make it with 'python -m experiments.collect'"),
        ("collected:../x", "no name of a Minari dataset"),
        ("embedded:absent", "choose from"),
        ("embedded:../embedded", "there is no"),
    ],
)
def test_a_set_that_is_not_here_gets_the_ways_to_get_it(name, message):
    with pytest.raises(ValueError, match=message) as error:
        load.load(name)
    assert "\n" not in str(error.value)
