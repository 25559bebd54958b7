"""What every binary shares: flags from configurations, and one clear line for a user's mistake."""

import contextlib
import os
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

import jax
import ml_collections
import rich.console
from absl import app, flags, logging
from ml_collections import config_flags

from experiments import compiled, stopping
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
    except (AttributeError, KeyError, ValueError):  # already here, for a path that is not there
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


def console(*, quiet: bool = False) -> rich.console.Console:
    """Returns where lines and tables go, as they are: a name may have brackets or colons in it."""
    return rich.console.Console(highlight=False, markup=False, emoji=False, quiet=quiet)


@contextlib.contextmanager
def track(
    title: str, total: float, console: rich.console.Console, *, unit: str, done: float = 0
) -> Iterator[Callable[[float, str], None]]:
    """Shows a bar as `progress.track` does, and lets Ctrl-C act where it advances."""
    with progress.track(title, total, console, unit=unit, done=done) as show:

        def advance(steps: float, score: str = "") -> None:
            show(steps, score)
            if stopping.is_interrupted():
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
        for flag in map(flags.FLAGS.__getitem__, flags.FLAGS):
            if flag.present and flag.value in ("", []):
                fail(f"--{flag.name} is empty; give it a value, or leave it out.")
        words = rest[1:]
        if arguments is not None and len(words) > len(arguments):
            extra = words[len(arguments)]
            fail(f"unexpected argument {extra!r}; every option is a flag, see --help.")
        return rest

    def guarded(argv: list[str]) -> None:
        stopping.mind_interrupt()
        compiled.keep()
        memory.keep_little()
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # no chatter about backends that are not there
        with _ending_at_once():
            main(*argv[1:])

    define_flags()
    app.run(guarded, flags_parser=_with_help(parse))


_NO_MEMORY = "RESOURCE_EXHAUSTED", "Out of memory"  # one of them is in what XLA says then


@contextlib.contextmanager
def _ending_at_once() -> Iterator[None]:
    """Ends the process on the spot, in one line, where what it does ends before its end.

    Compiled code may still be calling back, and would wait for a Python that is shutting down; and
    Orbax has threads that wait for a save that failed. Files are written whole or not at all.
    """
    try:
        yield
    except SystemExit as ended:
        if isinstance(ended.code, str):
            _complain(ended.code)
        _leave(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except KeyboardInterrupt:
        _complain("interrupted; files already written are whole.")
        _leave(stopping.INTERRUPTED)
    except stopping.Stopped as stopped:
        why = "preempted" if stopped.code == stopping.PREEMPTED else "interrupted"
        _complain(f"{why}; all is saved, and the same command goes on from here.")
        _leave(stopped.code)
    except OSError as error:  # a disk that is full, gone, or not to be written to
        _complain(str(error))
        _leave(1)
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        is_of_memory = any(words in str(error) for words in _NO_MEMORY)
        if isinstance(error, jax.errors.JaxRuntimeError) and not is_of_memory:
            raise
        said = str(error).split("\n")[0] or "nothing is left"
        _complain(f"there is not enough memory for this ({said}); ask for less at once.")
        _leave(1)


def _leave(code: int) -> NoReturn:
    """Ends the process without waiting for anything."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # it may be closed, or full
        sys.stdout.flush()
    os._exit(code)


def _with_help(parse: Callable[[list[str]], list[str]]) -> Callable[[list[str]], list[str]]:
    """Lets absl's own --help act before anything else is complained about, and end well."""

    def parser(argv: list[str]) -> list[str]:
        app.define_help_flags()
        try:
            return parse(argv)
        except SystemExit as ended:
            sys.exit(0 if ended.code == 1 else ended.code)  # absl ends its help with 1

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
