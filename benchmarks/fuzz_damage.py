"""Damage to files: to the bytes of any, to JSON, and to what is in a directory."""

import json
import os
import pathlib
import pickle
import random
import shutil
from collections.abc import Callable
from typing import Any

Damage = Callable[[pathlib.Path, random.Random], None]  # (the sample's directory, what draws it)


class Wrong(Exception):
    """Something was loaded that is not right."""


def one_file(folder: pathlib.Path, draw: random.Random) -> pathlib.Path:
    """Returns any file of a directory, in an order that is the same everywhere."""
    return draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))


def _span(content: bytes, draw: random.Random) -> tuple[int, int]:
    """Returns where a part of some bytes begins and ends."""
    start = draw.randrange(len(content) + 1)
    return start, min(start + draw.choice((1, 2, 8, 64, 512)), len(content))


def flip(content: bytes, draw: random.Random) -> bytes:
    """Returns the bytes with some bits the other way."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 16)) if content else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def overwrite(content: bytes, draw: random.Random) -> bytes:
    """Returns the bytes with one replaced by a value at the edge of something."""
    start, _ = _span(content, draw)
    return content[:start] + bytes([draw.choice(b'\0\1\x7f\x80\xff09-.e"')]) + content[start + 1 :]


def truncate(content: bytes, draw: random.Random) -> bytes:
    """Returns the beginning."""
    return content[: draw.randrange(len(content) + 1)]


def insert(content: bytes, draw: random.Random) -> bytes:
    """Returns the bytes with others among them."""
    start, _ = _span(content, draw)
    return content[:start] + draw.randbytes(draw.choice((1, 2, 8, 512))) + content[start:]


def swap(content: bytes, draw: random.Random) -> bytes:
    """Returns the bytes with two parts of the same length in each other's place."""
    length = max(1, len(content) // draw.choice((4, 16, 64)))
    first, second = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    length = min(length, second - first, len(content) - second)
    one, other = content[first : first + length], content[second : second + length]
    between = content[first + length : second]
    return content[:first] + other + between + one + content[second + length :]


def zero(content: bytes, draw: random.Random) -> bytes:
    """Returns the bytes with a part of zeros."""
    start, stop = _span(content, draw)
    return content[:start] + bytes(stop - start) + content[stop:]


BYTES = {
    "flipped": flip,
    "overwritten": overwrite,
    "truncated": truncate,
    "inserted": insert,
    "swapped": swap,
    "zeroed": zero,
}


def damage_bytes(folder: pathlib.Path, draw: random.Random, change: Callable) -> None:
    """Changes the bytes of one file of a directory."""
    file = one_file(folder, draw)
    file.write_bytes(change(file.read_bytes(), draw))


def remove(folder: pathlib.Path, draw: random.Random) -> None:
    """Removes a file."""
    one_file(folder, draw).unlink()


def make_directory(folder: pathlib.Path, draw: random.Random) -> None:
    """Puts a directory where a file was."""
    file = one_file(folder, draw)
    file.unlink()
    file.mkdir()


def make_pickle(folder: pathlib.Path, draw: random.Random) -> None:
    """Puts a pickle where a file was, one that would leave a mark if it were loaded."""
    one_file(folder, draw).write_bytes(pickle.dumps(Mark(str(folder.parent / "unpickled"))))


class Mark:
    """Something whose pickle makes a directory when it is loaded."""

    def __init__(self, path: str):
        self._path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (self._path,)


def make_pipe(folder: pathlib.Path, draw: random.Random) -> None:
    """Puts a pipe where a file was: who opens it waits for ever."""
    file = one_file(folder, draw)
    file.unlink()
    os.mkfifo(file)


def make_huge(folder: pathlib.Path, draw: random.Random) -> None:
    """Makes a file a terabyte long, which takes no room on the disk."""
    os.truncate(one_file(folder, draw), 2**40)


def repeat(folder: pathlib.Path, draw: random.Random) -> None:
    """Puts a file where another was."""
    source, target = one_file(folder, draw), one_file(folder, draw)
    if source != target:
        shutil.copyfile(source, target)


_STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**12, 10**30, 10**400, 1e300, float("nan"), float("inf"), "", "NaN"),
    *("../../outside", "/etc/passwd", "..", "a\nb", "x" * 100_000, "\ud800", [], {}, [[]]),
    *([1, "2", None], {"..": 1}, [10**12]),
)


def strange_json(text: str, draw: random.Random) -> str:
    """Returns JSON with something else in one place, or without it."""
    found = json.loads(text)
    place = found
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return json.dumps(draw.choice(_STRANGE))
        key = draw.choice(keys)
        inner = place[key]
        if not isinstance(inner, dict | list) or draw.random() < 0.3:
            break
        place = inner
    if draw.random() < 0.2:
        del place[key]
    elif isinstance(inner, str) and inner.startswith("{") and draw.random() < 0.8:
        place[key] = strange_json(inner, draw)  # Minari keeps JSON in JSON
    else:
        place[key] = draw.choice(_STRANGE)
    return json.dumps(found)


def odd_json(text: str, draw: random.Random) -> str:
    """Returns text that JSON may or may not be."""
    return draw.choice(
        (
            "[" * 100_000,
            '{"a":' * 100_000,
            "[" * 500 + "]" * 500,
            '{"a":' * 100 + "1" + "}" * 100,
            "[]",
            "null",
            "1e999",
            "9" * 5000,
            "",
            "\n\n",
            f"\ufeff{text}",
            text.replace(":", ": 1e999,", 1),
            text * 2,
        )
    )


def _damage_json(change: Callable[[str, random.Random], str]) -> Damage:
    """Makes a damage to a directory of one to the JSON in a file, or in one line of it."""

    def damage(folder: pathlib.Path, draw: random.Random) -> None:
        files = sorted(path for path in folder.rglob("*") if path.is_file() and _is_json(path))
        file = draw.choice(files)
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines() if file.suffix == ".jsonl" else [text]
        i = draw.randrange(len(lines))
        lines[i] = change(lines[i], draw)
        file.write_text("\n".join([*lines, ""]), encoding="utf-8", errors="replace")

    return damage


def _is_json(path: pathlib.Path) -> bool:
    try:
        json.loads(
            path.read_bytes().splitlines()[0] if path.suffix == ".jsonl" else path.read_bytes()
        )
    except (ValueError, LookupError):
        return False
    return True


FILES: dict[str, Damage] = {
    "a file is missing": remove,
    "a directory for a file": make_directory,
    "a pickle for a file": make_pickle,
    "a file for another": repeat,
}
SPECIAL: dict[str, Damage] = {"a pipe for a file": make_pipe, "a terabyte": make_huge}
JSON: dict[str, Damage] = {
    "json: strange": _damage_json(strange_json),
    "json: odd": _damage_json(odd_json),
}
