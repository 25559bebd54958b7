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
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from roid_jax import directories, key_data, memory, packing
from roid_jax.on_disk import checks, files, kept, lines, quiet, seal

Notes = dict[str, Any]  # plain data, as JSON holds it

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
        quiet.settle()
        folder = pathlib.Path(directory).expanduser().absolute()
        self._keep, self._do = keep, _TAKE if read_only else _REMOVE
        self._moved = [] if read_only else files.clear(folder)
        files.require_open(folder)
        try:
            self._manager = ocp.CheckpointManager(
                folder, options=kept.options(keep, read_only=read_only)
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
            said = str(error).split("; ")[-1].split("\n")[0]
            why = checks.refusal(error) or said
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
                if self._require_whole(step, self._state(step)).sums.rows:
                    self.rows(step)
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
        sealed = seal.add(notes, packing.layout(plain), packed, rows)
        with self._writing():
            args = ocp.args.Composite(
                state=ocp.args.StandardSave(packed),
                notes=ocp.args.JsonSave(sealed),
                rows=lines.Save(rows),
            )
            self._manager.save(step, args=args, metrics={"score": score})

    def notes(self, step: int, /, **kinds: type) -> Notes:
        """Returns the notes of a checkpoint alone; those named must be there, of those types."""
        notes = self._noted(step).notes
        for name, kind in kinds.items():
            if not isinstance(notes.get(name), kind):
                raise ValueError(self._unreadable(step, f"its notes have no {name}"))
        return notes

    def rows(self, step: int) -> list[Notes]:
        """Returns the rows of a checkpoint."""
        expected = self._noted(step).sums.rows
        if not expected:
            raise ValueError(self._of_another("it has no rows of its own", step))
        with self._reading(step):
            args = ocp.args.Composite(rows=lines.Restore())
            rows = self._manager.restore(step, args=args)["rows"]
        if expected != lines.checksum(rows):
            raise Broken(self._unreadable(step, _CHANGED))
        return rows

    def restore(self, step: int, like: Any) -> Any:
        """Returns the state of a checkpoint, in the structure, shapes and types of `like`."""
        plain = jax.eval_shape(key_data.without_types, like)
        packed = self._state(step)
        saved, made = self._require_whole(step, packed).layout, packing.layout(plain)
        for had, has in itertools.zip_longest(saved, made):
            if had != has:
                raise ValueError(self._of_another(f"it has {had!r} where {has!r} belongs", step))
        return key_data.with_types(packing.unpack(packed, plain), like)

    def _require_whole(self, step: int, packed: packing.Packed) -> seal.Noted:
        """Returns what was noted; a ValueError of one line where the arrays are not as saved."""
        noted = self._noted(step)
        if noted.sums.arrays != checks.checksum(packed):
            raise Broken(self._unreadable(step, _CHANGED))
        return noted

    def _state(self, step: int) -> packing.Packed:
        """Returns all arrays as they were saved, on whatever device is here."""
        place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        with self._reading(step):
            shapes = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
                checks.claimed(self._folder(step)),
            )
            args = ocp.args.Composite(state=ocp.args.StandardRestore(shapes))
            return self._manager.restore(step, args=args)["state"]

    def _noted(self, step: int) -> seal.Noted:
        """Returns what was noted, which must be what was saved."""
        with self._reading(step):
            files.require_room(self._folder(step))
            args = ocp.args.Composite(notes=ocp.args.JsonRestore())
            noted = seal.read(self._manager.restore(step, args=args)["notes"])
        if noted.sums.others:
            raise ValueError(self._of_another("it has parts that are not known here", step))
        if not noted.is_whole:
            raise Broken(self._unreadable(step, _CHANGED))
        return noted

    @contextlib.contextmanager
    def _reading(self, step: int) -> Iterator[None]:
        try:
            yield
        except checks.TooLarge as error:
            raise ValueError(self._unreadable(step, str(error))) from error
        except Exception as error:  # Orbax raises whatever its parts do
            why = checks.in_short(error)
            if checks.is_of_this_machine(error):
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
