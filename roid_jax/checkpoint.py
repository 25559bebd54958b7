"""The door to disk for states: Orbax checkpoints, written in the background, whole or not at all.

A checkpoint holds a pytree of arrays, random keys included, and notes: plain data such as the rows
reported so far and the configuration. With them is a checksum of every array, so that a disk that
changed a byte is found out. A run that is killed goes on from the last whole one.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

from roid_jax import orbax_quiet

Notes = dict[str, Any]  # plain data, as JSON holds it

_CHECKSUM = "checksum"  # its name among the notes on disk


class NotSaved(OSError):
    """A checkpoint could not be written; those before it are as they were."""


class Checkpoints:
    """The checkpoints of one run, by step; the last `keep` of them stay, and the best.

    With `read_only` nothing in the directory is touched: it may be another run's.
    """

    def __init__(self, directory: str | os.PathLike, *, keep: int = 2, read_only: bool = False):
        orbax_quiet.hear_it_once()
        folder = pathlib.Path(directory).expanduser().absolute()
        self._keep = keep
        # What a killed run left half written. Orbax would do it in a thread that nobody waits for,
        # which complains where a run ends at once.
        for half in () if read_only else folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(half, ignore_errors=True)
        self._manager = ocp.CheckpointManager(
            folder,
            options=ocp.CheckpointManagerOptions(
                best_fn=_score,
                preservation_policy=preservation_policy.AnyPreservationPolicy(
                    [
                        preservation_policy.LatestN(keep),
                        preservation_policy.BestN(get_metric_fn=_score, n=1),
                    ]
                ),
                enable_async_checkpointing=True,
                create=not read_only,
                save_root_metadata=False,  # its own thread may outlive a run that ends at once
            ),
        )

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
            words = str(error).split("; ")[-1].split("\n")[0]
            self._manager.reload()
            steps = self._manager.all_steps()
            kept = f"checkpoint {max(steps)} is whole" if steps else "there is none before it"
            raise NotSaved(
                f"cannot write a checkpoint to {self._manager.directory} ({words}); {kept}."
            ) from error

    def drop_broken(self) -> list[pathlib.Path]:
        """Puts checkpoints that cannot be read out of the way; returns where they are now.

        Looks at those that a run would go on from.
        """
        moved = []
        for step in self.recent():
            try:
                self._require_whole(step, self._read(step, state=ocp.args.StandardRestore()))
            except ValueError:
                folder = pathlib.Path(self._manager.directory) / str(step)
                moved.append(_free(folder.with_name(f"{step}.broken")))
                folder.rename(moved[-1])
        if moved:
            self._manager.reload()
        return moved

    def latest(self) -> int | None:
        """Returns the step of the last whole checkpoint, or None."""
        return self._manager.latest_step()

    def recent(self) -> tuple[int, ...]:
        """Returns the steps of the last whole checkpoints, without the best if it is older."""
        return tuple(sorted(self._manager.all_steps())[-self._keep :])

    def best(self) -> int | None:
        """Returns the step with the highest score, the last of equals, or None."""
        return self._manager.best_step()

    def save(self, step: int, state: Any, notes: Notes, *, score: float = 0.0) -> None:
        """Begins to write a checkpoint; the state may be changed or given away at once."""
        plain = jax.tree.map(jnp.copy, without_key_types(state))
        notes = {**notes, _CHECKSUM: checksum(plain)}
        with self._writing():
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(plain), notes=ocp.args.JsonSave(notes)
                ),
                metrics={"score": score},
            )

    def notes(self, step: int) -> Notes:
        """Returns the notes of a checkpoint alone."""
        notes = dict(self._read(step, notes=ocp.args.JsonRestore())["notes"])
        notes.pop(_CHECKSUM, None)
        return notes

    def restore(self, step: int, like: Any) -> Any:
        """Returns the state of a checkpoint, in the structure, shapes and types of `like`."""
        place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
            jax.eval_shape(without_key_types, like),
        )
        found = self._read(step, state=ocp.args.StandardRestore(shapes))
        self._require_whole(step, found)
        return jax.tree.map(_with_type, found["state"], like)

    def _require_whole(self, step: int, found: Any) -> None:
        """Raises a ValueError of one line where arrays are not what was saved."""
        noted = self._read(step, notes=ocp.args.JsonRestore())["notes"]
        if not isinstance(noted, dict) or noted.get(_CHECKSUM) != checksum(found["state"]):
            raise ValueError(self._unreadable(step, "its bytes have changed"))

    def _read(self, step: int, **what: Any) -> Any:
        try:
            return self._manager.restore(step, args=ocp.args.Composite(**what))
        except Exception as error:  # Orbax raises whatever its parts do
            raise ValueError(self._unreadable(step, type(error).__name__)) from error

    def _unreadable(self, step: int, why: str) -> str:
        return (
            f"cannot read the checkpoint {self._manager.directory / str(step)} ({why}); remove it "
            "to go on from the one before, or take another directory."
        )


def _free(path: pathlib.Path) -> pathlib.Path:
    """Returns the path, with a number after it where there is something."""
    number, found = 0, path
    while found.exists():
        number, found = number + 1, path.with_name(f"{path.name}-{number + 1}")
    return found


def checksum(plain: Any) -> str:
    """Returns a sha256 over all arrays, whatever the containers they are in."""
    sums = []
    for leaf in jax.tree.leaves(plain):
        array = np.ascontiguousarray(leaf)
        head = f"{array.dtype}{array.shape}".encode()
        sums.append(hashlib.sha256(head + array.tobytes()).hexdigest())
    return hashlib.sha256("".join(sorted(sums)).encode()).hexdigest()


def _score(metrics: dict[str, float]) -> float:
    return metrics["score"]


def without_key_types(tree: Any) -> Any:
    """Returns a pytree whose random keys are plain numbers."""
    return jax.tree.map(_without_type, tree)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_type(leaf: Any) -> Any:
    """Returns a random key as its numbers, and any other array as it is."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _with_type(leaf: Any, like: Any) -> Any:
    """Returns the numbers of a random key as a key again."""
    return jax.random.wrap_key_data(leaf) if _is_key(like) else leaf


def require_same(saved: Notes, given: Notes, *, flag: str = "--workdir") -> None:
    """Raises a ValueError of one line that names the first field in which two runs differ.

    The flag is the one that named the checkpoint.
    """
    saved, given = (json.loads(json.dumps(notes)) for notes in (saved, given))  # no tuples
    for field in {**saved, **given}:
        if saved.get(field) != given.get(field):
            raise ValueError(
                f"the checkpoint was made with {field} = {saved.get(field)!r}, not "
                f"{given.get(field)!r}; use that, or another {flag}."
            )
