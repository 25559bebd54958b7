"""Binaries in processes of their own, without the seconds that Python takes to import JAX.

They are forked off a process that has imported every binary and computed nothing; what follows is
what `python -m <module>` does. Handles are like those of `subprocess`.
"""

import atexit
import functools
import multiprocessing
import os
import pathlib
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
BINARIES = [
    f"experiments.{path.stem}"
    for path in sorted((ROOT / "experiments").glob("*.py"))
    if "cli.run(" in path.read_text()
]


def _fork(target, *given):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [*BINARIES, "matplotlib.figure", "matplotlib.backends.backend_agg"]
    )
    process = context.Process(target=target, args=given)
    process.start()
    return process


class Started:
    """A binary that runs, or ran."""

    def __init__(self, words, environment):
        folder = tempfile.mkdtemp(dir=_said_by_all())
        self._said = [pathlib.Path(folder, name) for name in ("stdout", "stderr")]
        self._process = _fork(_become, list(map(str, words)), environment, self._said)
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self.returncode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a binary", timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def said(self):
        return self._said[0].read_text(encoding="utf-8") if self._said[0].exists() else ""

    def communicate(self, timeout=None):
        self.wait(timeout)
        return [path.read_text(encoding="utf-8") for path in self._said]


@functools.cache
def _said_by_all():
    """A directory for what binaries say, which goes when the tests end."""
    folder = tempfile.mkdtemp(prefix="roid_jax-said-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _become(words, environment, said):
    """Is the binary from here on; nothing of the tests is left but what is imported."""
    os.chdir(ROOT)
    for number, path in enumerate(said, start=1):
        with open(path, "wb") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [p for p in environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    if "JAX_PLATFORMS" in environment:  # JAX read it when it was imported
        import jax

        jax.config.update("jax_platforms", environment["JAX_PLATFORMS"])
    binary, sys.argv = words[0], words
    sys.modules.pop(binary, None)
    runpy.run_module(binary, run_name="__main__", alter_sys=True)


def optimised(function, *given):
    """Returns what a function finds in a process whose compiler tries: for what computes long."""
    reader, writer = multiprocessing.get_context("forkserver").Pipe(duplex=False)
    process = _fork(_find, writer, function, given)
    writer.close()  # ours: where the process dies, there is nothing to wait for
    with reader:
        found = reader.recv()
    process.join()
    return found


def _find(writer, function, given):
    del os.environ["XLA_FLAGS"]
    writer.send(function(*given))


def start(binary, *flags, **environment):
    """Starts `python -m <binary> <flags>` with these variables beside those that are set."""
    whole = os.environ | {"JAX_PLATFORMS": "cpu", "COLUMNS": "100"} | environment
    return Started([binary, *flags], whole)


def call(binary, *flags, timeout=600, **environment):
    """Runs it to its end, and returns what `subprocess.run` does."""
    run = start(binary, *flags, **environment)
    try:
        stdout, stderr = run.communicate(timeout)
    finally:
        if run.returncode is None:
            run.send_signal(signal.SIGKILL)
    return subprocess.CompletedProcess([binary, *flags], run.returncode, stdout, stderr)


def wait_for(condition, run):
    """Waits until something is so, while a process runs."""
    deadline = time.monotonic() + 300
    while not condition():
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
