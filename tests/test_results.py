import json
import os

import pytest

from roid_jax import results

ROWS = [{"N": 1, "eta": None, "mean": 0.5}, {"N": 2, "eta": 0.1, "mean": 1.5, "note": "x,y"}]


def test_rows_come_back_as_they_were_written(tmp_path):
    results.write_rows(tmp_path / "rows.jsonl", ROWS)
    assert results.read_rows(tmp_path / "rows.jsonl") == ROWS


def test_csv_has_every_column_and_leaves_nothing_empty(tmp_path):
    results.write_csv(tmp_path / "rows.csv", ROWS)
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert lines == ["N,eta,mean,note", "1,,0.5,", '2,0.1,1.5,"x,y"']


def test_not_a_number_is_refused_and_the_old_file_kept(tmp_path):
    path = tmp_path / "rows.jsonl"
    results.write_rows(path, ROWS)
    with pytest.raises(ValueError):
        results.write_rows(path, [{"mean": float("nan")}])
    assert results.read_rows(path) == ROWS


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "file"
    results.write_bytes(path, b"old")

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError):
        results.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_configuration_is_written_with_command_and_versions(tmp_path):
    results.write_config(tmp_path / "config.json", {"steps": 3})
    record = json.loads((tmp_path / "config.json").read_text())
    assert record["config"] == {"steps": 3}
    assert record["versions"]["jax"] and record["versions"]["device"]
    assert isinstance(record["command"], list)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": NaN}', "NaN is no finite number"),
        ('{"a": 1e999}', "1e999 is no finite number"),
        ('{"a": 10000000000000000000}', "is too large"),
        ('{"a": 1', "as JSON"),
        ("[1]", "no plain JSON object"),
        ("[" * 100_000, "as JSON"),
        ('{"a":' * 40 + "1" + "}" * 40, "no plain JSON object"),
        ("\udcff", "is no text"),
    ],
)
def test_rows_that_nobody_writes_are_refused_in_one_line(tmp_path, line, message):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=message) as error:
        results.read_rows(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_a_file_that_is_none_or_too_long_is_refused_unread(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="there is no file"):
        results.read_record(tmp_path / "pipe")
    with open(tmp_path / "long", "wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match="results at most"):
        results.read_record(tmp_path / "long")
