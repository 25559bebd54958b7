"""Runs brought back from their files, to be looked at: their problem, and how far they had come."""

import pathlib
from typing import NamedTuple

from experiments import driver, saved
from experiments.driver import Problem, Progress
from experiments.profiles import TrainConfig
from roid_jax import config as cfg
from roid_jax import results
from roid_jax.agents import named
from roid_jax.checkpoint import Checkpoints


class Asked(NamedTuple):
    """Which run it was: the names of its agent, world and data, its seed, its configuration."""

    agent: str
    env: str
    dataset: str
    seed: int
    config: TrainConfig


def problem_of(folder: pathlib.Path, *, dataset: str | None = None) -> Problem:
    """Returns what a run was to learn, from the files of its seed; on other data, if named."""
    asked = asked_of(folder)
    names = asked.agent, asked.env, dataset or asked.dataset
    return driver.make_problem(*names, [asked.seed], asked.config)


def asked_of(folder: pathlib.Path) -> Asked:
    """Returns what a run was asked for, or raises a ValueError of one line."""
    try:
        about = results.read_record(folder / "config.json")
        names = [about["run"][name] for name in ("agent", "env", "dataset")]
        seed, given = about["run"]["seed"], about["config"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, LookupError) else str(error)
        raise ValueError(
            f"{folder} is not what experiments.train writes ({reason}); name the folder of a seed."
        ) from error
    is_named = all(isinstance(name, str) and len(name) < 500 for name in names)
    if not is_named or type(seed) is not int:
        raise ValueError(f"{folder} has a config.json that does not say which run it is.")
    return Asked(*names, seed, cfg.from_dict(TrainConfig(agent=named.find(names[0])), given))


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
    found = saved.take_over(problem, [folder / saved.OFFLINE], flag="--checkpoint")
    return driver.hand_over(problem, found)
