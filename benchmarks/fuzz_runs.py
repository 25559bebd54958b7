"""What trainings leave, with its damages: checkpoints, results, configurations."""

import json
import pathlib
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorstore as ts

from benchmarks import fuzz_damage
from benchmarks.fuzz_damage import Wrong
from experiments import profiles, report_runs, revive, saved
from roid_jax import checkpoint, directories, key_data, results
from roid_jax import config as cfg


def _state() -> dict[str, Any]:
    return {
        "key": jax.random.key(3),
        "weights": jnp.arange(600.0).reshape(20, 30),
        "n": jnp.int32(7),
    }


_NOTES = {"identity": {"agent": "roid", "sizes": [1, 2]}, "phase": "online", "step": 5}
_NOTES |= {"pending": {"loss": [0.25]}, "seconds": 2.5}
_ROWS = [{"step": 0, "score": 1.5}, {"step": 5, "score": 2.5}]


def write_checkpoint(folder: pathlib.Path) -> None:
    """Writes a checkpoint of three arrays, some notes and two rows."""
    with checkpoint.Checkpoints(folder / "steps") as store:
        store.save(5, _state(), _NOTES, rows=_ROWS, score=1.0)


def read_checkpoint(folder: pathlib.Path) -> None:
    """Reads as another's checkpoint, then as one's own; both come to the same."""
    said = []
    try:
        _restore(checkpoint.Checkpoints(folder / "steps", read_only=True))
    except ValueError as error:
        said.append(error)
    with checkpoint.Checkpoints(folder / "steps") as store:
        moved = store.drop_broken()
    if said:
        raise said[0]
    if moved:
        raise Wrong("a checkpoint that can be read was put aside")


def _restore(opened: checkpoint.Checkpoints) -> None:
    with opened as store:
        latest = store.latest()
        if latest is None:
            raise ValueError("there is no whole checkpoint.")
        notes = store.notes(latest, **saved.NOTES)
        checkpoint.require_same(notes["identity"], _NOTES["identity"])
        state, rows = key_data.without_types(store.restore(latest, _state())), store.rows(latest)
    if latest == 5 and (notes, rows) != (_NOTES, _ROWS):
        raise Wrong("the notes or the rows are not what was saved")
    expected = key_data.without_types(_state())
    if not jax.tree.all(jax.tree.map(np.array_equal, state, expected)):
        raise Wrong("the state is not what was saved")


def other_notes(folder: pathlib.Path, draw: random.Random) -> None:
    """A checkpoint that is whole, with other notes than a training's."""
    notes = json.loads(fuzz_damage.strange_json(json.dumps(_NOTES), draw))
    notes = notes if isinstance(notes, dict) else {}
    with checkpoint.Checkpoints(folder / "steps") as store:
        store.save(6, _state(), notes)


def other_state(folder: pathlib.Path, draw: random.Random) -> None:
    """A checkpoint that is whole, of another state."""
    shape = draw.choice(((20, 31), (600,), (1,), (40, 30)))
    state = _state() | {"weights": jnp.zeros(shape, draw.choice((jnp.float32, jnp.int32)))}
    if draw.random() < 0.3:
        del state["n"]
    with checkpoint.Checkpoints(folder / "steps") as store:
        store.save(6, state, _NOTES)


def large_state(folder: pathlib.Path, draw: random.Random) -> None:
    """A checkpoint whose array claims far more than is there."""
    rows = draw.choice((10**9, 10**12))
    place = str(folder / "steps" / "5" / "state")
    kvstore = {"driver": "ocdbt", "base": f"file://{place}", "path": "float32/"}
    spec = {"driver": "zarr", "kvstore": kvstore}
    spec |= {"metadata": {"shape": [rows], "chunks": [rows // draw.choice((1, 1000))]}}
    spec["metadata"]["dtype"] = "<f4"
    ts.open(spec, create=True, delete_existing=True).result()


def write_config(folder: pathlib.Path) -> None:
    """Writes the configuration of a training alone."""
    place = folder / "run" / "seed_0"
    place.mkdir(parents=True)
    names = {"agent": "roid", "env": "hopper", "dataset": "d4rl:hopper-medium-v2", "seed": 0}
    about = {
        "command": ["train", "--agent=roid"],
        "run": names,
        "config": cfg.to_dict(profiles.find("roid", "hopper-medium-v2", "smoke")),
        "versions": {"roid_jax": "0.1.0", "jax": "0.10.2", "mujoco": "4.0.0", "device": "cpu"},
    }
    (place / "config.json").write_text(json.dumps(about, indent=2), encoding="utf-8")


def write_run(folder: pathlib.Path) -> None:
    """Writes what a training of six evaluations leaves for reports."""
    write_config(folder)
    place = folder / "run" / "seed_0"
    rows = [
        {"seed": 0, "phase": phase, "step": 10 * i, "score": 3.0 + i, "score_error": 0.5}
        | {"returns": [1.0, 2.0], "td_loss": 0.25, "seconds": 1.0, "eval_seconds": 0.5}
        for phase in ("offline", "online")
        for i in range(3)
    ]
    results.write_rows(place / "results.jsonl", rows)


def read_run(folder: pathlib.Path) -> None:
    """Reads as a report does, and names a page as it would be named."""
    (run,) = report_runs.read([str(folder / "run")])
    numbers = [value for row in run.rows for value in row.values() if isinstance(value, float)]
    numbers += [score for score in run.scores.values() if score is not None]
    if not numbers or not np.all(np.isfinite(np.array(numbers, float))):
        raise Wrong("a score is not finite")
    report_runs.matrices([run], "offline_score")
    pages = directories.open_workdir(folder / "pages")
    results.write_bytes(pages / f"{run.slug}.html", b"")


def read_config(folder: pathlib.Path) -> None:
    """Reads the configuration as one that brings a run back does."""
    asked = revive.asked_of(folder / "run" / "seed_0")
    if not isinstance(asked.config, profiles.TrainConfig) or type(asked.seed) is not int:
        raise Wrong("the configuration is of another kind")
    json.dumps(cfg.to_dict(asked.config), allow_nan=False)
