"""How a binary ends: at once, whatever it is at, and whoever else is at work in it."""

import os
import signal
import subprocess
import sys

import pytest
from processes import ROOT, wait_for

NOTHING_IS_IMPORTED_FOR_LONG = """
import pathlib, time
pathlib.Path(__file__).with_name("begun").touch()
time.sleep(600)
"""

A_THREAD_WAITS = """
import threading
from experiments import cli

def main():
    threading.Thread(target=threading.Event().wait).start()
    {}

cli.run(main, lambda: None)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_binary_that_still_imports_ends_at_once_and_says_nothing(tmp_path, number):
    (tmp_path / "jax.py").write_text(NOTHING_IS_IMPORTED_FOR_LONG)
    before = signal.signal(number, signal.SIG_DFL)  # it inherits this, as from a terminal's shell
    try:
        run = subprocess.Popen(
            [sys.executable, "-m", "experiments.train"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    finally:
        signal.signal(number, before)
    wait_for((tmp_path / "begun").exists, run)
    run.send_signal(number)
    said = run.communicate(timeout=300)
    assert run.returncode == -number and said == (b"", b"")


@pytest.mark.parametrize(
    ("end", "code", "line"),
    [
        ("cli.fail('it did not work.')", 2, "error: it did not work."),
        ("raise OSError('the disk is full')", 1, "error: the disk is full"),
        ("import sys; sys.stdout.close(); cli.fail('no.')", 2, "error: no."),
        ("raise SystemExit('no.')", 1, "error: no."),
        ("raise MemoryError('9 GB')", 1, "error: there is not enough memory for this (9 GB);"),
    ],
)
def test_a_thread_that_waits_for_ever_does_not_keep_a_binary_that_failed(end, code, line):
    done = subprocess.run(
        [sys.executable, "-c", A_THREAD_WAITS.format(end)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code and done.stdout == ""
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1
