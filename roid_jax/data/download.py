"""Fetches a published file: from several mirrors, resumed, checked, and whole or not at all.

The file grows as <name>.part beside its target and gets its own name only once its length and
checksum are right. Whoever writes the .part holds a lock on it, so two downloads never mix.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import pathlib
import shutil
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

import h5py

from roid_jax.data import transfer
from roid_jax.data.published import Entry

KEYS = ("observations", "actions", "rewards", "terminals")


class Patience(NamedTuple):
    """How long to bear with a mirror.

    stall: seconds of silence before a connection is given up.
    tries: attempts in a row that may bring next to nothing.
    pause: seconds before another attempt, doubled after each that brought next to nothing.
    """

    stall: float = 20.0
    tries: int = 3
    pause: float = 0.5


USUAL = Patience()


class _Job(NamedTuple):
    """One download: what to fetch, the .part it grows in, how, and who is told of it."""

    entry: Entry
    file: BinaryIO
    patience: Patience
    report: Callable[[int, int], None]
    say: Callable[[str], None]


def fetch(
    entry: Entry,
    directory: pathlib.Path,
    *,
    mirrors: Sequence[str],
    force: bool = False,
    patience: Patience = USUAL,
    report: Callable[[int, int], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> pathlib.Path:
    """Returns the file's path once it is there and right, or raises a ValueError of one line.

    Args:
      entry: what is known of the file.
      directory: where it belongs; made if it is not there.
      mirrors: http or https addresses that its name is appended to, tried in turn.
      force: fetches afresh what is there already, which stays until the new file is right.
      patience: when to give a mirror up.
      report: told the bytes so far and in all, as they come.
      say: told in a line what the user should know.
    """
    target, part = directory / entry.file, directory / f"{entry.file}.part"
    url = f"{mirrors[-1]}{entry.file}"
    try:
        if _is_there(target, entry, force=force):
            return target
        directory.mkdir(parents=True, exist_ok=True)
        with _own(part) as file:
            if _is_there(target, entry, force=force):  # another process just brought it
                return target
            _check_space(directory, file, entry)
            reasons = _from_any(_Job(entry, file, patience, report, say), mirrors)
            if reasons:
                raise ValueError(
                    f"could not download {entry.file} ({reasons}); download {url} by hand into "
                    f"{directory}, or name the file's place with hdf5:<path>."
                )
            os.fsync(file.fileno())
            os.replace(part, target)
    except OSError as error:
        raise ValueError(
            f"cannot keep {entry.file} in {directory} ({error.strerror or error}); name another "
            f"directory with $D4RL_DATASET_DIR, or download {url} by hand and name its place "
            "with hdf5:<path>."
        ) from error
    return target


def flaw(path: pathlib.Path, entry: Entry) -> str:
    """Returns what is wrong with a file that should be the published one; '' where nothing is.

    Where no checksum is known, its length if known and its layout are all that can be checked.
    """
    if not path.is_file():
        return "is no file"
    size = path.stat().st_size
    if entry.bytes is not None and size != entry.bytes:
        return f"has {size} bytes instead of {entry.bytes}"
    if entry.sha256 is None:
        return _layout_flaw(path)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return "" if digest == entry.sha256 else "has another sha256 than the published file"


def _layout_flaw(path: pathlib.Path) -> str:
    try:
        with h5py.File(path, "r", locking=False) as file:  # we may hold its lock ourselves
            missing = [key for key in KEYS if key not in file]
    except (OSError, RuntimeError):
        return "does not open as HDF5"
    return f"has no {missing[0]!r}" if missing else ""


def _is_there(target: pathlib.Path, entry: Entry, *, force: bool) -> bool:
    """Returns whether the right file is there; a wrong one is the user's to remove or force."""
    if not target.exists() or (force and target.is_file()):
        return False
    wrong = flaw(target, entry)
    if wrong:
        raise ValueError(
            f"{target} is there but {wrong}; remove it, or fetch it afresh with --force."
        )
    return True


@contextlib.contextmanager
def _own(part: pathlib.Path) -> Iterator[BinaryIO]:
    """Opens the .part as its only writer; one that stays empty is removed."""
    with contextlib.ExitStack() as stack:
        while True:
            file = stack.enter_context(open(part, "a+b"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ValueError(
                    f"another process is downloading {part.stem}; wait until it has ended."
                ) from error
            if _is_at(file, part):
                break  # otherwise its last owner renamed or removed it before we had the lock
        try:
            yield file
        finally:
            if _is_at(file, part) and transfer.size(file) == 0:
                part.unlink()


def _is_at(file: BinaryIO, path: pathlib.Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _check_space(directory: pathlib.Path, file: BinaryIO, entry: Entry) -> None:
    if shutil.disk_usage(directory).free < (entry.bytes or 0) - transfer.size(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _from_any(job: _Job, mirrors: Sequence[str]) -> str:
    """Completes the .part from the first mirror that can; returns '' or why none could."""
    reasons = []
    for i, mirror in enumerate(mirrors):
        try:
            _from_one(job, f"{mirror}{job.entry.file}")
            return ""
        except transfer.Failure as failure:
            parts = urllib.parse.urlsplit(mirror)
            reasons.append(f"{parts.scheme}://{parts.netloc}: {failure}")
            if i + 1 < len(mirrors):
                job.say(f"{reasons[-1]}; trying the next mirror")
    return "; ".join(reasons)


def _from_one(job: _Job, url: str) -> None:
    """Tries one mirror until it brought the file, or too often brought next to nothing."""
    reached, tries = transfer.size(job.file), 0
    while True:
        try:
            return _attempt(job, url)
        except transfer.Failure as failure:
            size = transfer.size(job.file)
            tries = 0 if size >= reached + transfer.BLOCK else tries + 1
            reached = max(reached, size)
            if not failure.is_passing or tries >= job.patience.tries:
                raise
        time.sleep(job.patience.pause * 2**tries)


def _attempt(job: _Job, url: str) -> None:
    """Completes the .part and checks it; a wrong one is emptied, so that nothing is built on it."""
    entry, file = job.entry, job.file
    before = transfer.size(file)
    if entry.sha256 is None or before > (entry.bytes or transfer.LIMIT_BYTES):
        file.truncate(0)  # without a checksum nothing could tell a mixture of two files
        before = 0
    if before != entry.bytes:
        sender = transfer.append(
            file, url, length=entry.bytes, stall=job.patience.stall, report=job.report
        )
        if entry.sha256 is None and sender.startswith("http:"):
            job.say(f"{entry.file} comes over plain http, and no checksum of it is known")
    wrong = flaw(pathlib.Path(file.name), entry)
    if wrong:
        file.truncate(0)
        raise transfer.Failure(f"its file {wrong}", is_passing=before > 0)
