"""What an ensemble believes about its candidates: at states of the data, for pictures of a run."""

import functools
import json
import pathlib
from typing import Any

import jax
import numpy as np

from experiments.driver import Problem, Progress
from roid_jax import results
from roid_jax.types import Array, Key

FILE = "candidates.json"
_STATES = 6


def sample_states(problem: Problem, number: int) -> Array:
    """Returns `[number, O]` observations of the data, the same for every seed."""
    rows = problem.dataset.rows
    places = np.linspace(0, len(rows) - 1, number).astype(int)
    return rows[places, : problem.env.spec.obs_dim]


def write(problem: Problem, progress: Progress, folders: dict[int, pathlib.Path]) -> None:
    """Writes what each seed believes at some states, if its agent can tell."""
    if problem.agent.explain is None or progress.phase != "online":
        return
    explain = problem.compile(functools.partial(_explain, problem), 0, 0, None)
    found = explain(problem.key("evaluate"), progress.state.agent, sample_states(problem, _STATES))
    eta = problem.config.agent.selector.eta
    about = {"when": f"after {progress.step:,} online steps", "eta": eta}
    for i, seed in enumerate(problem.seeds):
        mine = jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i], np.float64), found)
        states = [_one(mine, j) for j in range(_STATES)]
        content = json.dumps({**about, "states": states}, allow_nan=False)
        results.write_bytes(folders[seed] / FILE, f"{content}\n".encode())


def _explain(problem: Problem, key: Key, state: Any, obs: Array) -> dict[str, Array]:
    return problem.agent.explain(key, state, obs)


def _one(found: dict[str, np.ndarray], i: int) -> dict[str, Any]:
    """Returns one state's numbers, to five digits, for a file."""
    lists = {
        name: [float(f"{number:.5g}") for number in found[name][i]]
        for name in ("regret", "information")
    }
    return {**lists, "chosen": int(found["chosen"][i])}
