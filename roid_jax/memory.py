"""How much memory there is, so that a claim can be refused; and giving back what is free."""

import contextlib
import ctypes
import os
import pathlib
import resource

_CONTAINER = pathlib.Path("/sys/fs/cgroup/memory.max")  # a number, "max", or not there
_OWN = pathlib.Path("/proc/self/statm")  # in pages, what the process has mapped first


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


def give_back() -> None:
    """Gives freed memory back to the system, where the C library would keep it, as glibc does."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
