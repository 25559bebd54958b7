"""Files that are damaged, or made to do harm, are read as they should be or refused in one line."""

import contextlib
import io
import json
import pathlib
import pickle
import random
import subprocess
import sys

import h5py
import hypothesis
import made_runs
import numpy as np
import pytest
from hypothesis import strategies as st

from benchmarks import fuzz, fuzz_damage, fuzz_data, fuzz_kinds, fuzz_runs, fuzz_worker
from experiments import report, report_runs, report_tables
from roid_jax import directories
from roid_jax.data import d4rl, load

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.filterwarnings("default")  # as for a user, to whom warnings are no errors
@pytest.mark.parametrize("name", ["copy", "minari", "results", "config"])
def test_damaged_files_end_in_data_or_in_one_line(tmp_path, name):
    kind, root = fuzz_kinds.KINDS[name], tmp_path / name
    fuzz_worker.prepare(kind, root)
    found = [fuzz_worker.run_case(name, kind, root, 0, case) for case in range(3, 15)]
    assert [one for one in found if one.ending == "failed"] == []
    assert {one.ending for one in found} <= {"loaded", "refused"}


@pytest.mark.parametrize(("name", "cases"), [("d4rl", 30), ("checkpoint", 17)])
def test_every_damage_ends_so_in_a_process_with_little_memory(tmp_path, name, cases):
    found = fuzz.run(name, range(cases), tmp_path / name, seed=0)
    assert [one.case for one in found] == list(range(cases))
    assert [one for one in found if one.ending == "failed"] == []
    assert set(fuzz_kinds.KINDS[name].damages) <= {one.damage for one in found}


def test_a_case_is_the_same_whenever_it_is_run(tmp_path):
    kind = fuzz_kinds.KINDS["d4rl"]
    fuzz_worker.prepare(kind, tmp_path / "d4rl")
    contents = []
    for case in (40, 41, 40):
        found = fuzz_worker.run_case("d4rl", kind, tmp_path / "d4rl", 3, case)
        contents.append((found, (tmp_path / "d4rl" / "case" / "data.hdf5").read_bytes()))
    assert contents[0] == contents[2] != contents[1]


def raise_it(error):
    raise error


def swallow(folder):
    with contextlib.suppress(Exception):
        pickle.loads(pickle.dumps(1))


HARMS = {
    "a traceback": (lambda folder: raise_it(KeyError("rewards")), "KeyError: 'rewards'"),
    "no line": (lambda folder: raise_it(ValueError("")), "no clear line"),
    "two lines": (lambda folder: raise_it(ValueError("a\nb")), "no clear line"),
    "a page": (lambda folder: raise_it(ValueError("a" * 2000)), "no clear line"),
    "memory": (lambda folder: raise_it(MemoryError()), "MemoryError"),
    "wrong data": (lambda folder: raise_it(fuzz_damage.Wrong("two widths")), "Wrong: two widths"),
    "a pickle": (lambda folder: pickle.loads(pickle.dumps(1)), "a pickle was loaded"),
    "a pickle in silence": (swallow, "a pickle was loaded"),
    "a file outside": (lambda folder: (folder.parent / "new").write_text(""), "wrote to"),
    "a changed file": (lambda folder: (folder / "../sentinel").write_text("other"), "wrote to"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_every_harm_is_a_failure(tmp_path, harm):
    read, said = HARMS[harm]
    good = fuzz_kinds.KINDS["config"]
    fuzz_worker.prepare(good, tmp_path / "config")
    found = fuzz_worker.run_case("config", good._replace(read=read), tmp_path / "config", 0, 0)
    assert found.ending == "failed" and said in found.why


SLOW = """
import sys, time
from benchmarks import fuzz_kinds, fuzz_worker

pauses = iter((0, 60))  # the sample is read once, undamaged, before the cases are
kind = fuzz_kinds.KINDS["config"]
fuzz_kinds.KINDS["config"] = kind._replace(read=lambda folder: time.sleep(next(pauses)))
fuzz_worker.main(*sys.argv[1:])
"""


def test_a_case_that_takes_too_long_is_a_failure_and_the_next_one_is_run(tmp_path, monkeypatch):
    def start(words, log):
        command = [sys.executable, "-c", SLOW, *map(str, words)]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)

    monkeypatch.setattr(fuzz, "_start", start)
    found = fuzz.run("config", range(2), tmp_path / "config", seed=0, seconds=0.2)
    assert [(one.case, one.ending) for one in found] == [(0, "failed"), (1, "failed")]
    assert "it took more than" in found[0].why


def test_a_process_that_dies_is_told_by_its_signal():
    assert fuzz._cause(-11, 20.0) == "the process died of SIGSEGV"


def test_memory_is_bounded():
    program = "from benchmarks import fuzz_worker as w; w.bound_memory(); bytearray(3 * 2**30)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "MemoryError" in done.stderr


def test_the_table_counts_endings():
    endings = ("loaded", "refused", "refused", "failed")
    found = [fuzz_worker.Outcome("d4rl", i, "", ending, "") for i, ending in enumerate(endings)]
    found.append(fuzz_worker.Outcome("copy", 0, "", "loaded", ""))
    table = fuzz.make_table(found)
    assert table.rows[0] == ("d4rl", "4", "1", "2", "1")
    assert table.rows[-1] == ("all", "5", "2", "2", "1")


@pytest.fixture
def data(tmp_path):
    fuzz_data.write_d4rl(tmp_path)
    return tmp_path / "data.hdf5"


def refused(path):
    with pytest.raises(ValueError) as error:
        d4rl.read(path, states=True)
    assert "\n" not in str(error.value)
    return str(error.value)


def replace(path, key, **how):
    with h5py.File(path, "a") as file:
        del file[key]
        file.create_dataset(key, **how)


@pytest.mark.parametrize("packed", [None, "gzip"])
def test_a_trillion_rows_that_are_not_there_are_refused(data, packed):
    how = {"dtype": "f4", "chunks": (1000, 3), "compression": packed}
    replace(data, "observations", shape=(10**12, 3), **how)
    assert "too many for the memory here" in refused(data)
    replace(data, "observations", shape=(10**6, 3), **how)
    assert "has 0 bytes of them" in refused(data)


def test_a_checkpoint_that_claims_a_trillion_rows_is_refused_and_stays(tmp_path):
    fuzz_runs.write_checkpoint(tmp_path)
    fuzz_runs.large_state(tmp_path, random.Random(0))
    with pytest.raises(ValueError, match="more than the memory here"):
        fuzz_runs.read_checkpoint(tmp_path)
    assert (tmp_path / "steps" / "5").is_dir()


def test_a_few_rows_in_a_part_that_claims_gigabytes_are_refused(data, monkeypatch):
    monkeypatch.setattr(d4rl.hdf5.memory, "room", lambda: 2**30)
    how = {"maxshape": (None,), "chunks": (2**28,), "compression": "gzip"}
    replace(data, "rewards", shape=(24,), dtype="f4", **how)
    assert "too many for the memory here" in refused(data)


@pytest.mark.parametrize("key", ["rewards", "infos/qpos", "infos"])
def test_a_link_into_another_file_is_not_followed(data, tmp_path, key):
    other = tmp_path / "other.hdf5"
    other.write_bytes(data.read_bytes())
    assert len(d4rl.read(other, states=True)) == 24
    with h5py.File(data, "a") as file:
        del file[key]
        file[key] = h5py.ExternalLink("other.hdf5", f"/{key}")
    assert "a link to elsewhere" in refused(data)


def test_numbers_that_are_kept_in_another_file_are_not_read(data, tmp_path):
    (tmp_path / "secret").write_bytes(bytes(96))
    replace(data, "rewards", shape=(24,), dtype="f4", external=[("secret", 0, 96)])
    assert "in other files" in refused(data)
    with h5py.File(data, "a") as file:
        layout = h5py.VirtualLayout((24,), "f4")
        layout[...] = h5py.VirtualSource("other.hdf5", "rewards", (24,))
        del file["rewards"]
        file.create_virtual_dataset("rewards", layout)
    assert "in other files" in refused(data)


def test_a_pickled_object_in_a_copy_is_not_loaded(data, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    whole = load.load(f"hdf5:{data}")
    (copy,) = load.cache_directory().iterdir()
    mark = fuzz_damage.Mark(str(tmp_path / "unpickled"))
    array = np.empty(1, object)
    array[0] = mark
    for content in (array, np.zeros((24, 3), np.float64)):
        buffer = io.BytesIO()
        fields = {name: one for name, one in vars(whole).items() if one is not None}
        np.savez(buffer, allow_pickle=True, **fields | {"observations": content})
        copy.write_bytes(buffer.getvalue())
        np.testing.assert_array_equal(load.load(f"hdf5:{data}").observations, whole.observations)
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize("word", ["../../outside", "/etc/outside", "..", "a/../../outside"])
def test_names_that_lead_out_of_a_directory_do_not(tmp_path, word):
    made_runs.write(tmp_path / "run", name="roid", task="hopper-medium-v2", seed=0)
    file = tmp_path / "run" / "seed_0" / "config.json"
    about = json.loads(file.read_text())
    about["run"] |= {"dataset": f"d4rl:{word}", "env": word}
    file.write_text(json.dumps(about))
    runs = report_runs.read([str(tmp_path / "run")])
    out = directories.open_workdir(tmp_path / "out")
    report.write(out, runs, report_tables.make(runs), [])
    (page,) = (out / "runs").iterdir()
    assert page.parent == out / "runs" and page.suffix == ".html"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    fuzz_data.write_d4rl(folder)
    return folder / "data.hdf5"


changes = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=8)


@hypothesis.given(changes=changes, kept=st.floats(0.0, 1.0), at_its_end=st.booleans())
def test_a_file_with_any_bytes_changed_is_read_whole_or_refused(whole, changes, kept, at_its_end):
    content = bytearray(whole.read_bytes())
    for place, value in changes:
        content[place % len(content)] = value
    length = len(content) if at_its_end else int(kept * len(content))
    path = whole.with_name("changed.hdf5")
    path.write_bytes(content[:length])
    ending, said = fuzz_worker.judge(
        lambda folder: fuzz_data.check(d4rl.read(path, states=True)), path.parent
    )
    assert ending != "failed", said


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@hypothesis.given(row=st.dictionaries(st.sampled_from(["step", "score", "phase", "x"]), plain))
def test_rows_of_any_json_are_read_as_numbers_that_can_be_shown_or_refused(tmp_path_factory, row):
    folder = tmp_path_factory.getbasetemp() / "rows"
    if not folder.exists():
        made_runs.write(folder, name="roid", task="hopper-medium-v2", seed=0, evaluations=2)
    file = folder / "seed_0" / "results.jsonl"
    rows = file.read_text().splitlines()
    changed = {**json.loads(rows[-1]), **row}
    (folder / "changed").mkdir(exist_ok=True)
    other = folder / "changed" / "results.jsonl"
    other.write_text("\n".join([*rows[:-1], json.dumps(changed)]))
    (folder / "changed" / "config.json").write_text((file.parent / "config.json").read_text())

    def read(_):
        for score in report_runs.read_seed("roid", other).scores.values():
            assert score is None or np.isfinite(score)

    ending, said = fuzz_worker.judge(read, folder)
    assert ending != "failed", said
