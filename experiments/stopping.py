"""How a process is asked to end, and ends once what it is at is safe: Ctrl-C, and SIGTERM."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

INTERRUPTED = 130  # what shells say of a process that Ctrl-C ended
PREEMPTED = 75  # what sysexits.h calls a temporary failure: start it again

_interrupted = threading.Event()
_preempted = threading.Event()


class Stopped(Exception):
    """The process was asked to end, and what it was at is safe; `code` is what it ends with."""

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


def mind_preemption() -> None:
    """From here on SIGTERM is no longer the end: `raise_if_asked` says when it is."""
    signal.signal(signal.SIGTERM, lambda number, frame: _preempted.set())


def mind_interrupt() -> None:
    """From here on neither is Ctrl-C, unless it comes twice: compiled code may be calling back."""
    signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: Any) -> None:
    del number, frame
    if _interrupted.is_set():
        os._exit(INTERRUPTED)  # files are written whole or not at all
    _interrupted.set()
    print("\nstopping at the next safe point; once more to stop at once.", file=sys.stderr)


@contextlib.contextmanager
def passing_on(send: Callable[[int], None]) -> Iterator[None]:
    """Has both go on, as SIGTERM, to a process that this one waits for.

    A terminal's Ctrl-C reaches that one anyhow, and a second would end it without saving.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def both(number: int, frame: Any) -> None:
        before[number](number, frame)
        send(signal.SIGTERM)

    for number in before:
        signal.signal(number, both)
    try:
        if is_asked():  # it came before there was one
            send(signal.SIGTERM)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_asked() -> bool:
    """Whether Ctrl-C or SIGTERM came."""
    return is_interrupted() or _preempted.is_set()


def is_interrupted() -> bool:
    """Whether Ctrl-C came."""
    return _interrupted.is_set()


def raise_if_asked() -> None:
    """Ends the process if either came, once those who wait for that have cleared up."""
    if is_asked():
        raise Stopped(INTERRUPTED if is_interrupted() else PREEMPTED)


def pause(seconds: float) -> None:
    """Sleeps, and lets Ctrl-C and SIGTERM act."""
    time.sleep(seconds)
    raise_if_asked()
