"""Runs brought back from their files, to be looked at: their problem, and how far they had come."""

import json
import pathlib

from experiments import driver, saved
from experiments.driver import Problem, Progress
from experiments.profiles import TrainConfig
from roid_jax import config as cfg
from roid_jax.agents import named
from roid_jax.checkpoint import Checkpoints


def problem_of(folder: pathlib.Path, *, dataset: str | None = None) -> Problem:
    """Returns what a run was to learn, from the files of its seed; on other data, if named."""
    try:
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        which, given = about["run"], about["config"]
        agent, seed = which["agent"], which["seed"]
        names = agent, which["env"], dataset or which["dataset"]
    except (OSError, ValueError, LookupError, TypeError):
        raise ValueError(f"{folder} is not what experiments.train writes.") from None
    config = cfg.from_dict(TrainConfig(agent=named.find(agent)), given)
    return driver.make_problem(*names, [seed], config)


def latest(problem: Problem, folder: pathlib.Path) -> Progress:
    """Returns the run as it was saved last."""
    place = folder / "checkpoints"
    if not place.is_dir():
        raise ValueError(f"there is no checkpoint in {folder}.")
    with Checkpoints(place, read_only=True) as store:
        step = store.latest()
        if step is None:
            raise ValueError(f"there is no whole checkpoint in {place}.")
        return saved.restore(problem, {problem.seeds[0]: store}, step)


def at_handover(problem: Problem, folder: pathlib.Path) -> Progress:
    """Returns the run as it goes online: the end of its offline phase, handed over."""
    return driver.hand_over(problem, saved.take_over(problem, [folder / "offline"]))
