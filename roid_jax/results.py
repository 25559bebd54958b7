"""The door to disk for results: rows, the resolved configuration, versions; whole or not at all."""

import csv
import importlib.metadata
import io
import json
import math
import os
import pathlib
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax

import roid_jax
from roid_jax import memory

Row = Mapping[str, Any]

_LIMIT_BYTES = 256 * 2**20  # of a file with JSON; ours have a thousandth

_PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "mujoco",
    "gymnasium",
    "minari",
    "numpy",
    "chex",
    "orbax-checkpoint",
)


def versions() -> dict[str, str]:
    """Returns what the numbers depend on: packages, Python, platform and device."""
    device = jax.devices()[0]
    return {
        "roid_jax": roid_jax.__version__,
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": f"{len(jax.devices())} x {device.platform} ({device.device_kind})",
    }


def write_bytes(path: pathlib.Path, content: bytes | memoryview) -> None:
    """Writes a whole file or leaves what was there: to a temporary name, to disk, then renamed."""
    _write(path, [content])


def _write(path: pathlib.Path, parts: Iterable[bytes | memoryview]) -> None:
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _unwritten(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp keeps its files private
        os.replace(temporary, path)
    except OSError as error:
        os.unlink(temporary)
        raise _unwritten(path, error) from error
    except BaseException:
        os.unlink(temporary)
        raise


def _unwritten(path: pathlib.Path, error: OSError) -> OSError:
    return OSError(f"cannot write {str(path)!r} ({error.strerror})")


def lines(rows: Iterable[Row]) -> Iterator[bytes]:
    """Yields each row as it is written; not-a-number is refused, `None` becomes null."""
    return (f"{json.dumps(dict(row), allow_nan=False)}\n".encode() for row in rows)


def write_rows(path: pathlib.Path, rows: Sequence[Row]) -> None:
    """Writes one JSON object a line."""
    _write(path, lines(rows))


def read_record(path: pathlib.Path) -> dict[str, Any]:
    """Returns the object in a JSON file, or raises a ValueError of one line."""
    return _parse(_text(path), path)


def read_rows(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the rows that `write_rows` wrote, or raises a ValueError of one line."""
    plain = {"parse_float": _finite, "parse_int": _whole, "parse_constant": _finite}
    return [_parse(line, path, **plain) for line in _text(path).splitlines()]


def _text(path: pathlib.Path) -> str:
    """Returns what is in a file, if it is one, and not larger than any of ours would be."""
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r}.")
    most = min(_LIMIT_BYTES, memory.room_for_json())
    if path.stat().st_size > most:
        size = f"{path.stat().st_size:,} bytes"
        raise ValueError(f"{str(path)!r} has {size}, results at most {most:,}.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(path)!r} is no text: {error}.") from error


def _parse(text: str, path: pathlib.Path, **how: Callable) -> dict[str, Any]:
    try:
        found = json.loads(text, **how)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"cannot read {str(path)!r} as JSON: {error}") from error
    if not isinstance(found, dict) or not _is_shallow(found):
        raise ValueError(f"{str(path)!r} holds no plain JSON object where one belongs.")
    return found


def _is_shallow(found: Any, levels: int = 32) -> bool:
    """Whether lists and objects are nested no deeper than any of ours."""
    inner = found.values() if isinstance(found, dict) else found
    if not isinstance(found, dict | list):
        return True
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in inner)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _whole(text: str) -> int:
    if len(text) > 19:  # beyond 64 bits
        raise ValueError(f"{text[:20]}... is too large")
    return int(text)


def write_csv(path: pathlib.Path, rows: Sequence[Row]) -> None:
    """Writes the rows as CSV, with every key that occurs as a column; `None` is left empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_bytes(path, buffer.getvalue().encode())


def write_config(path: pathlib.Path, config: Mapping[str, Any], **about: Any) -> None:
    """Writes the resolved configuration with the command, the versions and more beside it."""
    command = [pathlib.Path(sys.argv[0]).stem, *sys.argv[1:]]
    record = {"command": command, **about, "config": config, "versions": versions()}
    write_bytes(path, f"{json.dumps(record, indent=2)}\n".encode())
