"""Logged data: what there is, what is in it, and which physics made it.

    python -m experiments.data list
    python -m experiments.data download d4rl:hopper-medium-v2
    python -m experiments.data describe hdf5:data/hopper_medium-v2.hdf5
    python -m experiments.data verify hdf5:data/hopper_medium-v2.hdf5 --json
    python -m experiments.data import hdf5:data/mine.hdf5 --to=mine/hopper-v0

A dataset is named d4rl:<name>, a file in $D4RL_DATASET_DIR or ~/.d4rl/datasets; hdf5:<path>;
minari:<id>; collected:<name>, what experiments.collect made; or embedded:hopper-medium. `import`
turns a file of D4RL's into a Minari dataset, in $MINARI_DATASETS_PATH or ~/.minari/datasets.
`verify` needs the simulator's states, which D4RL's own files have: it makes recorded steps once
more under each physics (5000 of them, spread evenly) and prints how far they end from the recorded
next state.
"""

import json
import re

import numpy as np
from absl import flags

from experiments import cli, data_download
from roid_jax import evaluation
from roid_jax.data import d4rl, load, prepare, published, registry
from roid_jax.envs import physics, recorded, tasks
from roid_jax.report import tables

COMMANDS = ("list", "download", "import", "describe", "verify")
MATCHES = 1e-3  # a larger error of one step is another physics
_BARS = " ▁▂▃▄▅▆▇█"


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_enum("task", None, list(tasks.TASKS), "The task, where the name does not tell it.")
    flags.DEFINE_string("to", None, "Minari's name for what `import` makes, as in mine/hopper-v0.")
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")
    flags.DEFINE_bool("force", False, "Download afresh what is there already.")


def main(command: str = "", name: str = "") -> None:
    """Runs one command."""
    console = cli.console()
    with cli.border():
        if command not in COMMANDS:
            raise ValueError(f"unknown command {command!r}; choose from {', '.join(COMMANDS)}.")
        if command == "list":
            if name:
                raise ValueError(f"list takes no name, got {name!r}; describe takes one.")
            tables.show(list_table(), console)
            return
        if command == "download":
            data_download.run(name, console, force=flags.FLAGS.force)
            return
        if not name:
            raise ValueError(f"{command} needs a dataset, as in hdf5:<path>.")
        if command == "import":
            console.print(import_set(name, flags.FLAGS.to), soft_wrap=True)
            return
        task = flags.FLAGS.task or registry.task_of(name)
        found = describe(load.load(name), task) if command == "describe" else verify(name, task)
        make_table = describe_table if command == "describe" else verify_table
        if flags.FLAGS.json:
            print(json.dumps(found, allow_nan=False))
        else:
            tables.show(make_table(name, found), console)


def list_table() -> tables.Table:
    """Returns the known sets and where each is."""
    body = [(f"embedded:{name}", "", "in the package") for name in registry.embedded()]
    for entry in published.entries():
        size = f"{entry.bytes / 1e6:.0f} MB" if entry.bytes else ""
        try:
            place = str(registry.locate(f"d4rl:{entry.name}").path)
        except ValueError:
            place = ""
        body.append((f"d4rl:{entry.name}", size, place))
    for dataset_id in registry.minari_ids():
        collected = re.fullmatch("collected/(.+)-v0", dataset_id)
        name = f"collected:{collected[1]}" if collected else f"minari:{dataset_id}"
        body.append((name, "", str(registry.minari_path(dataset_id))))
    looked = ", ".join(map(str, [*registry.directories(), registry.minari_directory()]))
    notes = (
        f"Looked in {looked}. Any other file of the layout: hdf5:<path>.",
        "To fetch one of D4RL's: python -m experiments.data download <name>",
    )
    return tables.Table("Datasets", ("name", "size", "place"), tuple(body), notes, text_columns=3)


def describe(recording: d4rl.Recording, task: str | None) -> dict:
    """Returns what is in a recording, as plain numbers."""
    _check_widths(recording, task)
    spans, returns = prepare.episodes(recording), prepare.returns(recording)
    lengths = spans.stops - spans.starts
    found = {
        "task": task,
        "rows": len(recording),
        "transitions": int(np.sum(~recording.timeouts[:-1])),
        "episodes": len(returns),
        "cut_off": int(np.sum(~spans.is_whole)),
        "terminals": int(recording.terminals.sum()),
        "timeouts": int(recording.timeouts.sum()),
        "length": _spread(lengths),
        "return": _spread(returns),
        "histogram": np.histogram(returns - returns.min(), bins=20)[0].tolist(),
        "action_low": recording.actions.min(axis=0).tolist(),
        "action_high": recording.actions.max(axis=0).tolist(),
        "actions_at_bounds": float(np.mean(np.abs(recording.actions) >= 0.999)),
        "directions_covered": _directions(recording.observations),
    }
    if task is not None:
        found["score"] = _spread(evaluation.normalised_score(task, returns))
    return found


def _check_widths(recording: d4rl.Recording, task: str | None) -> None:
    if task is None:
        return
    given = recording.observations.shape[1], recording.actions.shape[1]
    wanted = tasks.find(task).obs_dim, tasks.find(task).action_dim
    if given != wanted:
        raise ValueError(
            f"the data has {given[0]} observations and {given[1]} actions a row, {task} has "
            f"{wanted[0]} and {wanted[1]}; if it is another task's, say so with --task."
        )


def _spread(values: np.ndarray) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def _directions(observations: np.ndarray) -> float:
    """Returns how many directions the states vary in: exp of the entropy of their variances."""
    scaled = observations.astype(np.float64) - observations.mean(axis=0, dtype=np.float64)
    scaled = scaled / np.maximum(scaled.std(axis=0), 1e-6)
    shares = np.maximum(np.linalg.eigvalsh(scaled.T @ scaled / len(scaled)), 0.0)
    if shares.sum() <= 0:
        return 0.0
    shares = shares / shares.sum()
    return float(np.exp(-np.sum(shares * np.log(np.maximum(shares, 1e-12)))))


def describe_table(name: str, found: dict) -> tables.Table:
    """Returns a description as a table."""
    peak = max(found["histogram"])
    bars = "".join(_BARS[-(-8 * count // peak)] for count in found["histogram"])
    spread = "{mean:.1f} ± {std:.1f}  ({min:.1f} to {max:.1f})".format
    low, high = min(found["action_low"]), max(found["action_high"])
    dims = len(found["action_low"])
    body = [
        ("rows", f"{found['rows']:,}, {found['transitions']:,} of them transitions"),
        ("episodes", f"{found['episodes']:,}, {found['cut_off']} cut off at the end of the file"),
        ("ends", f"{found['terminals']:,} terminals, {found['timeouts']:,} timeouts"),
        ("length", spread(**found["length"])),
        ("return", spread(**found["return"])),
        *([("score", spread(**found["score"]))] if "score" in found else []),
        ("histogram", f"{bars}  returns, from least to most"),
        ("actions", f"{dims} of them, from {low:.3f} to {high:.3f}"),
        ("at bounds", f"{100 * found['actions_at_bounds']:.1f}% of action values"),
        ("coverage", f"{found['directions_covered']:.1f} directions that states vary in"),
    ]
    return tables.Table(name, ("", ""), tuple(body), text_columns=2)


def verify(name: str, task: str | None) -> dict:
    """Returns the median one-step error of each physics, in flight and in contact."""
    if task is None:
        raise ValueError("the name does not tell the task; give it with --task.")
    recording = _with_states(registry.locate(name))
    found = {}
    for kind in physics.PHYSICS:
        errors = recorded.step_errors(tasks.find(task), recording, kind=kind)
        found[kind] = {
            "median_flight": errors.median(in_contact=False),
            "median_contact": errors.median(in_contact=True),
            "steps": len(errors.error),
        }
    return {"task": task, "physics": found}


def _with_states(source: registry.Source) -> d4rl.Recording:
    if source.kind != "hdf5":
        raise ValueError("a Minari dataset has no simulator states; verify the file it came from.")
    return d4rl.read(source.path, states=True)


def import_set(name: str, dataset_id: str | None) -> str:
    """Makes a Minari dataset of a file in D4RL's layout; returns a sentence about it."""
    kind, _, rest = name.partition(":")
    source = registry.locate(name)
    if source.kind != "hdf5":
        raise ValueError(f"{name!r} is a Minari dataset already, in {source.path}.")
    if dataset_id is None and kind != "d4rl":
        raise ValueError("give the Minari dataset a name with --to, as in --to=mine/hopper-v0.")
    entry = published.find(rest) if kind == "d4rl" else None
    dataset_id = dataset_id or registry.imported_id(entry)
    registry.minari_path(dataset_id)  # a wrong name is told before the file is read
    path = load.import_file(source.path, dataset_id, entry)
    return f"{name} is now minari:{path.relative_to(registry.minari_directory())}, in {path}"


def _verdict(found: dict) -> str:
    """Returns which physics the recording matches, if any."""
    errors = {}
    for kind, row in found["physics"].items():
        known = [row[name] for name in ("median_contact", "median_flight") if row[name] is not None]
        errors[kind] = max(known)
    best = min(errors, key=errors.get)
    if errors[best] > MATCHES or sum(error <= MATCHES for error in errors.values()) > 1:
        return "It matches " + ("neither." if errors[best] > MATCHES else "both.")
    return f"It matches {best}."


def verify_table(name: str, found: dict) -> tables.Table:
    """Returns a verification as a table."""
    shown = lambda error: "" if error is None else f"{error:.1e}"  # noqa: E731
    body = tuple(
        (kind, shown(row["median_flight"]), shown(row["median_contact"]), str(row["steps"]))
        for kind, row in found["physics"].items()
    )
    notes = (f"Median error of one step, in positions and velocities. {_verdict(found)}",)
    columns = ("physics", "in flight", "in contact", "steps")
    return tables.Table(name, columns, body, notes)


if __name__ == "__main__":
    cli.run(main, define_flags, arguments=("command", "dataset"))
