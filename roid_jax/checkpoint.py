"""The door to disk for states: Orbax checkpoints, written in the background, whole or not at all.

A checkpoint holds a pytree of arrays, random keys included, notes, which are plain data such as the
configuration, and the rows reported so far. With them are checksums of all three, so that a disk
that changed a byte is found out. A run that is killed goes on from the last whole one.
"""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from roid_jax import directories, key_data, memory, orbax_checks, orbax_quiet, orbax_rows, packing

Notes = dict[str, Any]  # plain data, as JSON holds it

_CHECKSUM, _LAYOUT = "checksum", "layout"  # notes of its own: sums of its parts; which arrays
_CHANGED = "its bytes have changed"
_REMOVE = "remove it to go on from the one before, or take another directory"
_TAKE = "take another directory, or make it anew where it was made"


class Broken(ValueError):
    """A checkpoint is not what was saved."""


class NotSaved(OSError):
    """A checkpoint could not be written, for the reason `why`; those before it are as they were."""

    def __init__(self, message: str, why: str):
        super().__init__(message)
        self.why = why


class Checkpoints:
    """The checkpoints of one run, by step; the last `keep` of them stay, and the best.

    With `read_only` nothing in the directory is touched: it may be another run's.
    """

    def __init__(self, directory: str | os.PathLike, *, keep: int = 2, read_only: bool = False):
        orbax_quiet.settle()
        folder = pathlib.Path(directory).expanduser().absolute()
        self._keep, self._do = keep, _TAKE if read_only else _REMOVE
        # What a killed run left half written. Orbax would do it in a thread that nobody waits for,
        # which complains where a run ends at once.
        for half in () if read_only else folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(half, ignore_errors=True)
        steps = [one for one in folder.glob("*") if one.name.isdigit()]
        lost = [one for one in steps if not orbax_checks.can_be_listed(one)]
        self._moved = [] if read_only else [directories.put_aside(one) for one in lost]
        try:
            self._manager = ocp.CheckpointManager(
                folder, options=orbax_checks.options(keep, read_only)
            )
        except OSError as error:
            why = str(error.strerror)
            raise NotSaved(f"cannot keep checkpoints in {folder} ({why}).", why) from error
        except Exception as error:  # Orbax raises whatever its parts do
            raise ValueError(
                f"cannot open the checkpoints in {folder} ({type(error).__name__}); take another "
                "directory."
            ) from error

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: type | None, *_: Any) -> None:
        try:
            self.wait()
        except NotSaved:
            if kind is None:
                raise
        finally:
            with contextlib.suppress(Exception):  # it waits once more
                self._manager.close()

    def wait(self) -> None:
        """Waits until everything is on disk."""
        with self._writing():
            self._manager.wait_until_finished()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Orbax raises whatever its parts do
            why = str(error).split("; ")[-1].split("\n")[0]
            self._manager.reload()
            where = self._manager.directory
            raise NotSaved(
                f"cannot write a checkpoint to {where} ({why}); {self.in_words()}.", why
            ) from error

    def drop_broken(self) -> list[pathlib.Path]:
        """Puts checkpoints that are not what was saved out of the way; returns where they are now.

        Looks at those that a run would go on from. One that is whole but cannot be read here, for
        want of memory or for a fault of the disk, stays, and raises a ValueError of one line.
        """
        moved, self._moved = self._moved, []
        for step in self.recent():
            try:
                self._require_whole(step, self._state(step))
            except Broken:
                moved.append(directories.put_aside(self._folder(step)))
        if moved:
            self._manager.reload()
        return moved

    def in_words(self) -> str:
        """Returns which is the last whole checkpoint, as words of a sentence."""
        last = self.latest()
        return "there is none before it" if last is None else f"checkpoint {last} is whole"

    def latest(self) -> int | None:
        """Returns the step of the last whole checkpoint, or None."""
        return self._manager.latest_step()

    def recent(self) -> tuple[int, ...]:
        """Returns the steps of the last whole checkpoints, without the best if it is older."""
        return tuple(sorted(self._manager.all_steps())[-self._keep :])

    def best(self) -> int | None:
        """Returns the step with the highest score, the last of equals, or None."""
        return self._manager.best_step()

    def save(
        self, step: int, state: Any, notes: Notes, *, rows: Sequence[Notes] = (), score: float = 0.0
    ) -> None:
        """Begins to write a checkpoint; the state may be changed or given away at once."""
        self.wait()
        memory.give_back()  # what the last one and the compiler took: hundreds of MB
        plain = key_data.without_types(jax.tree.map(jnp.asarray, state))
        packed = packing.pack(plain)
        notes = {**notes, _LAYOUT: packing.layout(plain)}
        sums = orbax_checks.Sums.of(packed, notes, rows)
        with self._writing():
            args = ocp.args.Composite(
                state=ocp.args.StandardSave(packed),
                notes=ocp.args.JsonSave({**notes, _CHECKSUM: ":".join(sums)}),
                rows=orbax_rows.Save(rows),
            )
            self._manager.save(step, args=args, metrics={"score": score})

    def notes(self, step: int, /, **kinds: type) -> Notes:
        """Returns the notes of a checkpoint alone; those named must be there, of those types."""
        notes, *_ = self._noted(step)
        for name, kind in kinds.items():
            if not isinstance(notes.get(name), kind):
                raise ValueError(self._unreadable(step, f"its notes have no {name}"))
        return notes

    def rows(self, step: int) -> list[Notes]:
        """Returns the rows of a checkpoint."""
        _, _, sums = self._noted(step)
        if not sums.rows:
            raise ValueError(self._of_another("it has no rows of its own", step))
        with self._reading(step):
            args = ocp.args.Composite(rows=orbax_rows.Restore())
            rows = self._manager.restore(step, args=args)["rows"]
        if sums.rows != orbax_checks.rows_checksum(rows):
            raise Broken(self._unreadable(step, _CHANGED))
        return rows

    def restore(self, step: int, like: Any) -> Any:
        """Returns the state of a checkpoint, in the structure, shapes and types of `like`."""
        plain = jax.eval_shape(key_data.without_types, like)
        packed = self._state(step)
        saved, made = self._require_whole(step, packed), packing.layout(plain)
        for had, has in itertools.zip_longest(saved, made):
            if had != has:
                raise ValueError(self._of_another(f"it has {had!r} where {has!r} belongs", step))
        return key_data.with_types(packing.unpack(packed, plain), like)

    def _require_whole(self, step: int, packed: packing.Packed) -> list[str]:
        """Returns the layout; a ValueError of one line where anything is not what was saved."""
        _, layout, sums = self._noted(step)
        if sums.arrays != orbax_checks.checksum(packed):
            raise Broken(self._unreadable(step, _CHANGED))
        if sums.rows:
            self.rows(step)
        return layout

    def _state(self, step: int) -> packing.Packed:
        """Returns all arrays as they were saved, on whatever device is here."""
        place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        with self._reading(step):
            shapes = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
                orbax_checks.claimed(self._folder(step)),
            )
            args = ocp.args.Composite(state=ocp.args.StandardRestore(shapes))
            return self._manager.restore(step, args=args)["state"]

    def _noted(self, step: int) -> tuple[Notes, list[str], orbax_checks.Sums]:
        """Returns the notes, which must be what was saved, the arrays' layout, and all sums."""
        with self._reading(step):
            args = ocp.args.Composite(notes=ocp.args.JsonRestore())
            notes = self._manager.restore(step, args=args)["notes"]
        found = notes.pop(_CHECKSUM, None) if isinstance(notes, dict) else None
        sums = orbax_checks.Sums.read(found)
        if not sums.arrays or (sums.notes and sums.notes != orbax_checks.notes_checksum(notes)):
            raise Broken(self._unreadable(step, _CHANGED))
        return notes, notes.pop(_LAYOUT, []), sums

    @contextlib.contextmanager
    def _reading(self, step: int) -> Iterator[None]:
        try:
            yield
        except orbax_checks.TooLarge as error:
            raise ValueError(self._unreadable(step, str(error))) from error
        except Exception as error:  # Orbax raises whatever its parts do
            why = orbax_checks.in_short(error)
            if orbax_checks.is_of_this_machine(error):
                raise ValueError(self._unreadable(step, why, do="try again; it stays")) from error
            raise Broken(self._unreadable(step, why)) from error

    def _folder(self, step: int) -> pathlib.Path:
        return pathlib.Path(self._manager.directory) / str(step)

    def _of_another(self, how: str, step: int) -> str:
        do = "go on with that version, or take another directory"
        return f"the checkpoint {self._folder(step)} is another version's: {how}; {do}."

    def _unreadable(self, step: int, why: str, *, do: str = "") -> str:
        return f"cannot read the checkpoint {self._folder(step)} ({why}); {do or self._do}."


def require_same(saved: Notes, given: Notes, *, flag: str = "--workdir") -> None:
    """Raises a ValueError of one line that names the first field in which two runs differ.

    The flag is the one that named the checkpoint.
    """
    saved, given = (json.loads(json.dumps(notes)) for notes in (saved, given))  # no tuples
    for field in {**saved, **given}:
        if saved.get(field) != given.get(field):
            raise ValueError(
                f"the checkpoint was made with {field} = {saved.get(field)!r:.200}, not "
                f"{given.get(field)!r}; use that, or another {flag}."
            )
