"""What Orbax does beside its work, left out: words of its failures, answers that stay in memory."""

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import tensorstore

_CLOSED = "Event loop is closed"
_ORBAX = f"{os.sep}orbax{os.sep}"  # in the path of each of its files


def settle() -> None:
    """Does what is below, for the rest of this process."""
    hear_it_once()
    count_nothing()
    word_places_itself()


def hear_it_once() -> None:
    """Drops what Orbax's threads print of a failure beside raising it: one line says it all.

    It leaves its event loop at the first array that cannot be read; those still on their way then
    find it closed, and say so, or fail as Python ends. What cannot be written it logs, with where
    in itself that was, and what of its own it can do without.
    """
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    logging.getLogger("absl").addFilter(_is_news)
    if sys.unraisablehook is not _hook:
        _before[:] = [sys.unraisablehook]
        sys.unraisablehook = _hook


def count_nothing() -> None:
    """Has TensorStore say that it counted nothing, for the rest of this process.

    Orbax asks it four times a save, for its log. The lists in which it answers are never given back
    (0.1.86): 14 KB with every checkpoint.
    """
    tensorstore.experimental_collect_matching_metrics = lambda *_, **__: []


def word_places_itself() -> None:
    """Has TensorStore not word the place of plain files, for the rest of this process.

    Orbax asks it for that five times a save. What it answers in JSON is never given back (0.1.86):
    3 KB with every checkpoint. The words of a plain place are known without asking.
    """
    if _worded:
        return
    asked = tensorstore.KvStore.Spec.to_json

    def to_json(self: tensorstore.KvStore.Spec, include_defaults: bool = False) -> Any:
        plain = {"driver": "file", "path": self.path}
        is_file = self.url.startswith("file:") and not include_defaults
        if is_file and self == tensorstore.KvStore.Spec(plain):
            return plain
        return asked(self, include_defaults)

    tensorstore.KvStore.Spec.to_json = to_json
    _worded.append(to_json)


def _is_news(record: logging.LogRecord) -> bool:
    is_failure = record.exc_info or record.levelno >= logging.WARNING
    return not (is_failure and _ORBAX in record.pathname)


_before: list[Callable] = []
_worded: list[Callable] = []


def _hook(raised: Any) -> None:
    is_closed = raised.exc_type is RuntimeError and str(raised.exc_value) == _CLOSED
    on_its_way = getattr(raised.object, "cr_code", None)  # of a coroutine
    if not is_closed and not (on_its_way and _ORBAX in on_its_way.co_filename):
        _before[0](raised)
