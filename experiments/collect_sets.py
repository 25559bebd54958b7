"""The sets that `experiments.collect` makes: from a replay, to Minari, and as a table."""

import pathlib
from typing import Any

import numpy as np

from experiments import behaviour
from roid_jax import config as cfg
from roid_jax import replay, results
from roid_jax.data import d4rl, minari, prepare, registry
from roid_jax.report import tables

SETS = ("random", "medium-replay", "medium", "expert")  # in the order they are made


def replayed(problem: behaviour.Problem, memory: replay.Replay) -> d4rl.Recording:
    """Returns the rows of a replay that never went round, in the order they were lived."""
    layout = replay.Layout(problem.env.spec.obs_dim, problem.env.spec.action_dim)
    rows = layout.unpack(np.asarray(memory.rows)[: int(memory.count)])
    terminals = rows.discount < 0.5
    timeouts = d4rl.infer_timeouts(rows.obs, terminals, rows.next_obs)
    timeouts[-1] = not terminals[-1]  # the training stopped here
    return d4rl.Recording(
        observations=rows.obs,
        actions=rows.action,
        rewards=rows.reward,
        terminals=terminals,
        timeouts=timeouts,
        next_observations=rows.next_obs,
    )


def write(
    problem: behaviour.Problem,
    name: str,
    kind: str,
    recording: d4rl.Recording,
    state: behaviour.Progress,
    *,
    replace: bool,
) -> pathlib.Path:
    """Writes a set with its provenance; returns where."""
    dataset_id = registry.collected_id(f"{name}-{kind}")
    path = registry.minari_path(dataset_id)
    provenance = {
        "source": "experiments.collect",
        "run": identity(problem),
        "level": kind,
        "training_steps": 0 if kind == "random" else state.step,
        "policy_score": None if kind == "random" else state.rows[-1]["score"],
        "digest": prepare.digest(recording),
        "versions": results.versions(),
    }
    minari.write(path, recording, dataset_id=dataset_id, provenance=provenance, replace=replace)
    return path


def make_table(problem: behaviour.Problem, name: str, sets: list[str]) -> tables.Table:
    """Returns what is in each set that was asked for."""
    body = []
    for kind in (kind for kind in SETS if kind in sets):
        path = registry.minari_path(registry.collected_id(f"{name}-{kind}"))
        recording, made = minari.read(path), minari.provenance(path)
        returns = prepare.returns(recording)
        steps = "" if kind == "random" else f"{made['training_steps']:,}"
        spread = f"{problem.score(returns).mean():.1f} ± {problem.score(returns).std():.1f}"
        numbers = steps, f"{len(recording):,}", f"{len(returns):,}", spread
        body.append((f"collected:{name}-{kind}", *numbers))
    what = "score" if problem.has_scores else "return"
    columns = ("set", "trained for", "rows", "episodes", what)
    notes = (
        f"Minari datasets in {registry.minari_directory()}; ± is the spread over episodes.",
        "Describe one with: python -m experiments.data describe <set>",
    )
    return tables.Table(f"Collected from {problem.task}", columns, tuple(body), notes)


def identity(problem: behaviour.Problem) -> dict[str, Any]:
    """Returns what a set depends on, as JSON gives it back."""
    fields = {**problem.identity(), **cfg.flatten(problem.config)}
    return {key: list(x) if isinstance(x, tuple) else x for key, x in fields.items()}
