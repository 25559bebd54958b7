"""Directories: opened for results, held by one process, exchanged whole."""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import platform
import tempfile
from collections.abc import Iterator

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE in fcntl.h and stdio.h


class InUse(ValueError):
    """Another process, `who`, has a directory to itself."""

    def __init__(self, folder: pathlib.Path, who: str):
        super().__init__(
            f"{str(folder)!r} is in use by {who}; wait for it, or name another --workdir."
        )
        self.who = who


def expand(path: str | os.PathLike) -> pathlib.Path:
    """Returns a path with its `~` made plain, or raises a ValueError of one line."""
    try:
        return pathlib.Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(
            f"cannot tell whose home {str(path)!r} is in; write it in full."
        ) from error


def open_workdir(path: str | os.PathLike, *, flag: str = "--workdir") -> pathlib.Path:
    """Makes the directory if it is not there, and returns it if it can be written to.

    The flag is the one that named it.
    """
    workdir = expand(path)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=workdir):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write results to {str(workdir)!r} ({error.strerror}); "
            f"name a directory you can write to with {flag}."
        ) from error
    return workdir


@contextlib.contextmanager
def hold(folder: pathlib.Path) -> Iterator[None]:
    """Keeps a directory to this process while the block runs; raises `InUse` if another has it.

    The lock is the system's, so it ends with the process, however that ends. (On disks that know
    no locks there is none.)
    """
    with _lock_file(folder / ".lock") as file, _opened(folder, os.O_RDONLY) as whole:
        # The directory as well, so that removing the file lets nobody in; not the directory alone,
        # since NFS locks only what is open for writing.
        for one in (file, whole):
            try:
                fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                who = os.pread(file, 200, 0).decode(errors="replace").strip() or "another process"
                raise InUse(folder, who) from None
            except OSError:
                pass
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
        yield


@contextlib.contextmanager
def _lock_file(path: pathlib.Path) -> Iterator[int]:
    """Opens the file, which may be no link: that may lead out of the directory."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ValueError(f"{str(path)!r} is not a plain file, as a lock is; remove it.")
    with _opened(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW) as handle:
        yield handle


@contextlib.contextmanager
def _opened(path: pathlib.Path, flags: int) -> Iterator[int]:
    handle = os.open(path, flags, 0o644)
    try:
        yield handle
    finally:
        os.close(handle)


def put_in_place(made: pathlib.Path, path: pathlib.Path) -> None:
    """Gives a directory another's name; the other, if there is one, gets its.

    In one step where the system can, so that a kill at any time leaves the one or the other there.
    """
    if not path.exists():
        made.rename(path)
    elif not _exchange(made, path):
        aside = made.with_name(f"{made.name}.before")
        path.rename(aside)
        try:
            made.rename(path)
        except OSError:
            aside.rename(path)
            raise
        aside.rename(made)


def _exchange(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Has two directories change names; whether this system and disk can do that."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)  # Linux's
    return rename is not None and not rename(
        _HERE, os.fsencode(one.absolute()), _HERE, os.fsencode(other.absolute()), _EXCHANGE
    )


def put_aside(folder: pathlib.Path) -> pathlib.Path:
    """Renames a directory that cannot be read; returns where it is now."""
    path = folder.with_name(f"{folder.name}.broken")
    number, free = 0, path
    while free.exists():
        number, free = number + 1, path.with_name(f"{path.name}-{number + 1}")
    return folder.rename(free)
