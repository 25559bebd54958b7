"""What every binary shares: flags from configurations, and one clear line for a user's mistake."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

import ml_collections
import rich.console
from absl import app, flags, logging
from ml_collections import config_flags

from experiments import compiled
from roid_jax import config as cfg
from roid_jax import memory
from roid_jax.envs.base import Failed
from roid_jax.report import progress


def define_config(default: Any) -> None:
    """Makes every field of `default` a flag, `--config.<path>=<value>`."""
    tree = ml_collections.ConfigDict(cfg.to_dict(default))
    paths = cfg.flatten(default)
    try:
        config_flags.DEFINE_config_dict(
            "config", tree, "Any of these fields, by its path; a profile changes them."
        )
    except (AttributeError, KeyError):  # raised here, at definition, for a path that is not there
        fail(_unknown_field(default))
    lines = (f"--config.{path}={value}" for path, value in paths.items())
    flags.FLAGS["config"].default_as_str = "\n".join(lines)


def configured(base: Any) -> Any:
    """Returns `base` with the fields that the user set by flags replaced, and checked."""
    return cfg.override(base, config_flags.get_override_values(flags.FLAGS["config"]))


@contextlib.contextmanager
def border() -> Iterator[None]:
    """Where the user's input comes in: a ValueError here ends in one line, not in a traceback."""
    try:
        yield
    except ValueError as error:
        fail(str(error))
    except (OSError, Failed) as error:  # no mistake of the user's
        fail(str(error), code=1)


_stopping = threading.Event()
_preempted = threading.Event()

PREEMPTED = 75  # what sysexits.h calls a temporary failure: start it again


class Stopped(Exception):
    """The process was asked to end, and what it was at is safe; `code` is what it ends with."""

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


def mind_preemption() -> None:
    """From here on SIGTERM is no longer the end: `stop_if_asked` says when it is."""
    signal.signal(signal.SIGTERM, lambda number, frame: _preempted.set())


@contextlib.contextmanager
def passing_on(send: Callable[[int], None]) -> Iterator[None]:
    """Has a SIGTERM that comes go on to a process that this one waits for, too."""

    def both(number: int, frame: Any) -> None:
        del frame
        _preempted.set()
        send(number)

    before = signal.signal(signal.SIGTERM, both)
    try:
        if _preempted.is_set():  # it came before there was one
            send(signal.SIGTERM)
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def is_asked_to_stop() -> bool:
    """Whether Ctrl-C or SIGTERM came."""
    return _stopping.is_set() or _preempted.is_set()


def stop_if_asked() -> None:
    """Ends the process if Ctrl-C or SIGTERM came, once those who wait for that have cleared up."""
    if is_asked_to_stop():
        raise Stopped(PREEMPTED if _preempted.is_set() else 130)


def _interrupt(number: int, frame: Any) -> None:
    """Ctrl-C: stop at the next safe point, since compiled code may be calling back; twice: now."""
    del number, frame
    if _stopping.is_set():
        os._exit(130)  # files are written whole or not at all
    _stopping.set()
    print("\nstopping at the next safe point; once more to stop at once.", file=sys.stderr)


def pause(seconds: float) -> None:
    """Sleeps, and lets Ctrl-C and SIGTERM act."""
    time.sleep(seconds)
    stop_if_asked()


@contextlib.contextmanager
def track(
    title: str, total: float, console: rich.console.Console, *, unit: str, done: float = 0
) -> Iterator[Callable[[float, str], None]]:
    """Shows a bar as `progress.track` does, and lets Ctrl-C act where it advances."""
    with progress.track(title, total, console, unit=unit, done=done) as show:

        def advance(steps: float, score: str = "") -> None:
            show(steps, score)
            if _stopping.is_set():
                raise KeyboardInterrupt

        yield advance


def peek(flag: str, default: str, choices: Collection[str]) -> str:
    """Returns what the command line gives a flag, before flags are parsed; the parser complains.

    For a flag that decides which other flags there are.
    """
    words = sys.argv[1:]
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, _, value = word.lstrip("-").partition("=")
        if name == flag and word.startswith("-"):
            given = value or following
            return given if given in choices else default
    return default


def run(
    main: Callable[..., None],
    define_flags: Callable[[], None],
    *,
    arguments: tuple[str, ...] | None = (),
) -> NoReturn:
    """Defines the flags, parses the command line and runs `main`.

    Args:
      main: called with the words of the command line that are no flags.
      define_flags: declares the flags.
      arguments: names of those words; later ones may be left out. None for any number of them.
    """

    def parse(argv: list[str]) -> list[str]:
        try:
            rest = flags.FLAGS(argv, known_only=False)
        except flags.Error as error:
            fail(str(error))
        words = rest[1:]
        if arguments is not None and len(words) > len(arguments):
            extra = words[len(arguments)]
            fail(f"unexpected argument {extra!r}; every option is a flag, see --help.")
        return rest

    def guarded(argv: list[str]) -> None:
        signal.signal(signal.SIGINT, _interrupt)
        compiled.keep()
        memory.keep_little()
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # no chatter about backends that are not there
        try:
            main(*argv[1:])
        except KeyboardInterrupt:
            # At once, since compiled code may still be calling back, and would wait for a Python
            # that is shutting down; files are written whole or not at all.
            _complain("interrupted; files already written are whole.")
            _leave(130)
        except Stopped as stopped:
            why = "preempted" if stopped.code == PREEMPTED else "interrupted"
            _complain(f"{why}; all is saved, and the same command goes on from here.")
            _leave(stopped.code)
        except OSError as error:  # a disk that is full, gone, or not to be written to
            fail(str(error), code=1)

    define_flags()
    app.run(guarded, flags_parser=_with_help(parse))


def _leave(code: int) -> NoReturn:
    """Ends the process without waiting for anything."""
    sys.stdout.flush()
    os._exit(code)


def _with_help(parse: Callable[[list[str]], list[str]]) -> Callable[[list[str]], list[str]]:
    """Lets absl's own --help act before anything else is complained about."""

    def parser(argv: list[str]) -> list[str]:
        app.define_help_flags()
        return parse(argv)

    return parser


def _unknown_field(default: Any) -> str:
    """Returns the sentence about the first `--config.` path that does not exist."""
    for argument in sys.argv[1:]:
        path, _, value = argument.lstrip("-").partition("=")
        if path.startswith("config."):
            try:
                cfg.override(default, {path.removeprefix("config."): value})
            except ValueError as error:
                if "unknown field" in str(error):
                    return str(error)
            except TypeError:
                pass  # the path is there; its value is checked once it is parsed
    return "unknown configuration field; --help lists them."


def fail(message: str, *, code: int = 2) -> NoReturn:
    """Prints one line to standard error and ends the process."""
    _complain(message)
    sys.exit(code)


def _complain(message: str) -> None:
    line = " ".join(message.split())
    print(f"error: {line}", file=sys.stderr, flush=True)
