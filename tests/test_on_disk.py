"""What a checkpoint is on disk: what is opened, what is believed, what is heard of Orbax."""

import json
import os
from types import SimpleNamespace

import hypothesis
import jax
import jax.numpy as jnp
import pytest
import tensorstore
from hypothesis import strategies as st

from roid_jax import checkpoint, results
from roid_jax.on_disk import checks, lines, quiet, seal

STATE = {"weights": jnp.arange(4.0)}
ROWS = [{"step": 0, "score": 1.5}, {"step": 5, "score": 1 / 3, "returns": [1e-30, 2.0]}]
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=8)
PLAIN = st.recursive(LEAVES, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x))
NOTES = st.dictionaries(st.text(max_size=8), PLAIN, max_size=4)


@hypothesis.given(notes=NOTES, key=st.text(max_size=8), value=PLAIN)
def test_notes_are_whole_until_one_of_them_changes(notes, key, value):
    sealed = json.loads(json.dumps(seal.add(notes, ["a"], STATE, ROWS)))
    noted = seal.read(sealed)
    assert noted.is_whole and noted.layout == ["a"] and noted.sums.rows == lines.checksum(ROWS)
    if not {"checksum", "layout"} & {*notes, key}:
        assert noted.notes == notes
        before, after = (json.dumps(one, sort_keys=True) for one in (notes, {**notes, key: value}))
        assert seal.read({**sealed, key: value}).is_whole == (before == after)


@hypothesis.given(PLAIN)
def test_whatever_lies_where_notes_belong_is_not_whole(found):
    assert not seal.read(found).is_whole
    assert not seal.read({"checksum": found}).is_whole


@hypothesis.given(st.lists(NOTES, max_size=3))
def test_rows_have_the_same_sum_once_they_have_been_to_disk(rows):
    again = [json.loads(line) for line in results.lines(rows)]
    assert lines.checksum(again) == lines.checksum(rows)


PLACES = [
    "_CHECKPOINT_METADATA",
    "metrics/metrics",
    "notes/metadata",
    "rows/rows.jsonl",
    "state/_METADATA",
    "state/manifest.ocdbt",
]


def put_pipe(file):
    file.unlink()
    os.mkfifo(file)


def put_loop(file):
    file.unlink()
    file.symlink_to(file.name)


def put_deep_json(file):
    file.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)


def put_terabyte(file):
    os.truncate(file, 2**40)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("put", [put_pipe, put_loop, put_deep_json, put_terabyte])
def test_what_would_be_read_for_ever_is_not_opened_and_the_one_before_is_there(
    tmp_path, put, place
):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, STATE, {}, rows=ROWS)
        checkpoints.save(2, STATE, {}, rows=ROWS)
    put(tmp_path / "2" / place)
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        if put is put_terabyte and place.startswith(("notes", "rows")):  # those may be large
            with pytest.raises(ValueError, match=r"its (notes|rows) have 1,099,511,627,776 bytes"):
                checkpoints.drop_broken()
        else:
            assert [path.name for path in checkpoints.drop_broken()] == ["2.broken"]
            assert checkpoints.latest() == 1 and checkpoints.rows(1) == ROWS


def test_a_file_with_the_name_of_a_checkpoint_is_put_aside_and_said(tmp_path):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, STATE, {})
    (tmp_path / "2").write_text("mine")
    with pytest.raises(ValueError, match=r"cannot open .* \(2 is not what was written\)"):
        checkpoint.Checkpoints(tmp_path, read_only=True)
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        assert [path.name for path in checkpoints.drop_broken()] == ["2.broken"]
    assert (tmp_path / "2.broken").read_text() == "mine"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileNotFoundError(2, "gone"), False),
        (NotADirectoryError(20, "a file"), False),
        (ValueError("data loss"), False),
        (ValueError("UNKNOWN: Error reading local file [OS error 5: Input/output error]"), True),
        (OSError(24, "too many open files"), True),
        (OSError(5, "input/output error"), True),
        (MemoryError(), True),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED"), True),
    ],
)
def test_what_this_machine_cannot_do_is_not_the_checkpoints_fault(error, expected):
    assert checks.is_of_this_machine(error) == expected


@pytest.mark.parametrize(("place", "is_heard"), [("/x/orbax/y.py", False), ("/x/mine.py", True)])
def test_what_orbax_left_on_its_way_is_not_heard_of_as_python_ends(monkeypatch, place, is_heard):
    heard, names = [], {}
    monkeypatch.setattr(quiet, "_before", [heard.append])
    exec(compile("async def read(): pass", place, "exec"), names)
    reading = names["read"]()
    quiet._hook(SimpleNamespace(exc_type=Exception, exc_value=Exception(), object=reading))
    reading.close()
    assert bool(heard) == is_heard


def test_the_words_of_a_place_are_those_of_tensorstore(tmp_path):
    quiet.word_places_itself()
    quiet.word_places_itself()  # once is enough
    place = {"driver": "file", "path": f"{tmp_path}/it's {chr(233)}/"}
    locked = {**place, "file_io_locking": {"mode": "non_atomic"}}
    for spec in (place, locked, {"driver": "memory", "path": "a/"}):
        assert tensorstore.KvStore.Spec(spec).to_json() == spec
    whole = tensorstore.KvStore.Spec(place).to_json(include_defaults=True)
    assert whole["file_io_sync"] == "file_io_sync"
