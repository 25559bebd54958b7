"""How much memory there is, so that a claim can be refused; and giving back what is free."""

import contextlib
import ctypes
import os
import pathlib
import resource

_CONTAINER = pathlib.Path("/sys/fs/cgroup/memory.max")  # a number, "max", or not there
_OWN = pathlib.Path("/proc/self/statm")  # in pages, what the process has mapped first

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # their numbers in malloc.h
_LARGE = 2**22  # bytes: a training's copies are larger, what one step needs is smaller


def room() -> int:
    """Returns the bytes that this process can have: the machine's, its container's, its limit's."""
    page = os.sysconf("SC_PAGE_SIZE")
    bounds = [page * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError, ValueError):
        bounds.append(int(_CONTAINER.read_text(encoding="ascii")))
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        mapped = int(_OWN.read_text(encoding="ascii").split()[0]) if _OWN.is_file() else 0
        bounds.append(max(limit - page * mapped, 0))
    return min(bounds)


def room_for_json() -> int:
    """Returns the bytes of JSON that this process can read: as objects `[]` is 64 and more."""
    return room() // 32


def held(process: int | str = "self") -> float:
    """Returns the MB that a process has for itself now, 0 where the system does not say.

    Without what it reads from files, libraries above all: the system drops that and reads it again
    as it likes.
    """
    file = pathlib.Path(f"/proc/{process}/statm")
    if not file.is_file():
        return 0.0
    _, resident, of_files, *_ = map(int, file.read_text(encoding="ascii").split())
    return (resident - of_files) * resource.getpagesize() / 2**20


def keep_little() -> None:
    """Tells the C library to give every large buffer back to the system as soon as it is freed.

    glibc learns from the first ones that are freed to keep such as these, in as many places as
    there are threads: then what a process has depends on which of them did what, and only grows.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGE)
        set_option(_TRIM_THRESHOLD, 8 * _LARGE)
        set_option(_ARENA_MAX, 2)  # places that threads take memory from; each keeps some


def give_back() -> None:
    """Gives what was freed and kept back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
