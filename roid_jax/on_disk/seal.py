"""What a checkpoint notes of itself beside a run's notes: sums of its parts, and its arrays."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roid_jax.on_disk import checks, lines

_CHECKSUM, _LAYOUT = "checksum", "layout"  # two notes of its own
_SUM = re.compile("[0-9a-f]{64}(:[0-9a-f]{64})*")


class Sums(NamedTuple):
    """The checksums of a checkpoint's parts, each empty where it was saved without.

    The first versions had none of their notes, or of their rows, which were notes, and a later one
    may have more parts: such checkpoints are other, but not broken.
    """

    arrays: str = ""
    notes: str = ""
    rows: str = ""
    others: str = ""


class Noted(NamedTuple):
    """What is noted in a checkpoint.

    notes: a run's own; layout: the names, types and shapes of the arrays; sums: of all parts.
    is_whole: whether the notes are those that were saved.
    """

    notes: dict[str, Any]
    layout: list[str]
    sums: Sums
    is_whole: bool


def add(
    notes: dict[str, Any], layout: list[str], packed: Any, rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns a run's notes with those of the checkpoint itself."""
    notes = {**notes, _LAYOUT: layout}
    sums = checks.checksum(packed), _checksum(notes), lines.checksum(rows)
    return {**notes, _CHECKSUM: ":".join(sums)}


def read(found: Any) -> Noted:
    """Returns what `add` returned, apart again."""
    notes = dict(found) if isinstance(found, dict) else {}
    words = notes.pop(_CHECKSUM, None)
    is_sum = isinstance(words, str) and _SUM.fullmatch(words)
    sums = Sums(*words.split(":", 3)) if is_sum else Sums()
    is_whole = bool(sums.arrays) and (not sums.notes or sums.notes == _checksum(notes))
    return Noted(layout=notes.pop(_LAYOUT, []), notes=notes, sums=sums, is_whole=is_whole)


def _checksum(notes: dict[str, Any]) -> str:
    """Returns a sha256 over plain data with words as keys, the same once it has been to disk."""
    return hashlib.sha256(json.dumps(notes, sort_keys=True).encode()).hexdigest()
