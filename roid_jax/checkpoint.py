"""The door to disk for states: Orbax checkpoints, written in the background, whole or not at all.

A checkpoint holds a pytree of arrays, random keys included, and notes: plain data such as the rows
reported so far and the configuration. A run that is killed goes on from the last whole one.
"""

import json
import os
import pathlib
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy

Notes = dict[str, Any]  # plain data, as JSON holds it


class Checkpoints:
    """The checkpoints of one run, by step; the last `keep` of them stay, and the best.

    With `read_only` nothing in the directory is touched: it may be another run's.
    """

    def __init__(self, directory: str | os.PathLike, *, keep: int = 2, read_only: bool = False):
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

    def __exit__(self, *_: Any) -> None:
        self._manager.wait_until_finished()
        self._manager.close()

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
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(plain), notes=ocp.args.JsonSave(notes)
            ),
            metrics={"score": score},
        )

    def notes(self, step: int) -> Notes:
        """Returns the notes of a checkpoint alone."""
        return self._read(step, notes=ocp.args.JsonRestore())["notes"]

    def restore(self, step: int, like: Any) -> Any:
        """Returns the state of a checkpoint, in the structure, shapes and types of `like`."""
        place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
            jax.eval_shape(without_key_types, like),
        )
        found = self._read(step, state=ocp.args.StandardRestore(shapes))["state"]
        return jax.tree.map(_with_type, found, like)

    def _read(self, step: int, **what: Any) -> Any:
        try:
            return self._manager.restore(step, args=ocp.args.Composite(**what))
        except Exception as error:  # Orbax raises whatever its parts do
            folder = self._manager.directory / str(step)
            raise ValueError(
                f"cannot read the checkpoint {folder} ({type(error).__name__}); remove it to go on "
                "from the one before, or take another directory."
            ) from error


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
