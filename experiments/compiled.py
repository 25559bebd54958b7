"""Compiled programs on disk, for the next run."""

import contextlib
import hashlib
import os
import pathlib
import platform
import zlib

import jax

_LARGEST_CACHE = 2**30  # bytes of compiled programs
_IN_DOUBT = 8  # of the newest files: as many runs may have been killed while they wrote one


def keep() -> None:
    """Keeps what is compiled on disk, for the next run; JAX's own variables can say otherwise.

    `JAX_COMPILATION_CACHE_DIR` names another place, `JAX_ENABLE_COMPILATION_CACHE=false` none.
    """
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    if jax.config.jax_compilation_cache_dir is None:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        folder = pathlib.Path(home, "roid_jax", "compiled", _processor()).expanduser()
        with contextlib.suppress(OSError):  # where nothing can be kept, nothing is
            folder.mkdir(parents=True, exist_ok=True)
            jax.config.update("jax_compilation_cache_dir", str(folder))
            prune(folder)


def prune(folder: pathlib.Path, largest: int = _LARGEST_CACHE) -> None:
    """Removes what a killed run left half written, and the oldest files where more than fit.

    JAX never replaces a file that is there: without this a broken one would be warned of, and its
    program compiled anew, in every run. JAX's own limit needs filelock.
    """
    with contextlib.suppress(OSError):  # another process may be at it
        files = sorted(folder.glob("*-cache"), key=lambda file: file.stat().st_mtime)
        for file in files[-_IN_DOUBT:]:
            if not _is_whole(file):
                file.unlink(missing_ok=True)
                files.remove(file)
        excess = sum(file.stat().st_size for file in files) - largest
        for file in files:
            if excess <= 0:
                return
            excess -= file.stat().st_size
            file.unlink(missing_ok=True)


def _is_whole(file: pathlib.Path) -> bool:
    """Whether a file can be unpacked; of what is not packed by zlib only whether it is empty."""
    packed = file.read_bytes()
    if not packed.startswith(b"\x78"):
        return bool(packed)
    try:
        zlib.decompress(packed)
    except zlib.error:
        return False
    return True


def _processor() -> str:
    """Returns a name for what this processor can do: another may not run what it compiled."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    able = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()}-{hashlib.sha256(able.encode()).hexdigest()[:8]}"
