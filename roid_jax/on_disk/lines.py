"""A run's rows in its checkpoints: a file of lines, so that no copy of all of them is ever made.

As notes they would be copied, as text, some five times with every checkpoint.
"""

import dataclasses
import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any

import orbax.checkpoint as ocp

from roid_jax import results

_FILE = "rows.jsonl"


class RowsHandler(ocp.CheckpointHandler):
    """How Orbax writes and reads them."""

    def save(self, directory: pathlib.Path, args: "Save") -> None:
        """Writes the rows."""
        results.write_rows(pathlib.Path(directory) / _FILE, args.rows)

    def restore(self, directory: pathlib.Path, args: "Restore") -> list[dict[str, Any]]:
        """Returns the rows, or raises a ValueError of one line."""
        return results.read_rows(pathlib.Path(directory) / _FILE)


@ocp.args.register_with_handler(RowsHandler, for_save=True)
@dataclasses.dataclass
class Save(ocp.args.CheckpointArgs):
    """What is to be written."""

    rows: Sequence[results.Row]


@ocp.args.register_with_handler(RowsHandler, for_restore=True)
@dataclasses.dataclass
class Restore(ocp.args.CheckpointArgs):
    """That it is to be read."""


def checksum(rows: Sequence[results.Row]) -> str:
    """Returns a sha256 over the rows, the same once they have been to disk."""
    sums = hashlib.sha256()
    for line in results.lines(rows):
        sums.update(line)
    return sums.hexdigest()
