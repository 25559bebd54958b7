"""Agents by name; a configuration of its own makes each."""

from collections.abc import Callable
from typing import Any, NamedTuple

from roid_jax.agents import (
    base,
    boorl,
    calql,
    ensemble,
    odt,
    odt_learner,
    pex,
    rlpd,
    roid,
    roid_learner,
    td3bc,
)
from roid_jax.envs.base import Spec


class Entry(NamedTuple):
    """An agent, and what a reader should know of it.

    make: `(config, spec) -> Agent`; config: its defaults.
    paper: where it comes from; needs: of data and time; source: of its defaults.
    """

    make: Callable[[Any, Spec], base.Agent]
    config: Any
    paper: str
    needs: str
    source: str


_TD3BC = ensemble.EnsembleConfig(
    num_members=1, mask_probability=1.0, holdout=0, normalise_states=True
)
_ITS_CODE = "its authors' code"

AGENTS = {
    "roid": Entry(
        roid.roid,
        roid_learner.RoidConfig(),
        paper="Information-Directed Offline-to-Online RL",
        needs="transitions; some held out to calibrate on",
        source="the paper's tables, per task",
    ),
    "td3bc": Entry(
        td3bc.td3bc,
        _TD3BC,
        paper="Fujimoto and Gu, 2021",
        needs="transitions",
        source=_ITS_CODE,
    ),
    "boorl": Entry(
        boorl.boorl,
        boorl.BoorlConfig(),
        paper="Hu et al., 2024",
        needs="transitions",
        source=_ITS_CODE,
    ),
    "rlpd": Entry(
        rlpd.rlpd,
        rlpd.RlpdConfig(),
        paper="Ball et al., 2023",
        needs="transitions; no offline phase, 20 updates a step",
        source=f"{_ITS_CODE}, locomotion",
    ),
    "calql": Entry(
        calql.calql,
        calql.CalqlConfig(),
        paper="Nakamoto et al., 2023",
        needs="episodes, for returns to go",
        source=f"{_ITS_CODE}; sizes and weight from others' CQL, as it has no locomotion",
    ),
    "cql": Entry(
        calql.calql,
        calql.CalqlConfig(calibrated=False),
        paper="Kumar et al., 2020",
        needs="transitions",
        source="as calql's, without the floor",
    ),
    "pex": Entry(
        pex.pex,
        pex.PexConfig(),
        paper="Zhang et al., 2023",
        needs="episodes, to scale rewards by their returns",
        source=f"{_ITS_CODE}; offline IQL's own",
    ),
    "iql": Entry(
        pex.pex,
        pex.PexConfig(expands=False),
        paper="Kostrikov et al., 2022",
        needs="episodes, to scale rewards by their returns",
        source=f"{_ITS_CODE}, locomotion",
    ),
    "odt": Entry(
        odt.odt,
        odt_learner.OdtConfig(),
        paper="Zheng et al., 2022",
        needs="episodes, and a return to ask for; a transformer, so time",
        source="its authors' code; rates and returns per task from scripts of others",
    ),
}


def find(name: str) -> Any:
    """Returns an agent's own configuration, as its paper has it."""
    return _entry(name).config


def make(name: str, config: Any, spec: Spec) -> base.Agent:
    """Returns the agent of that name for an environment."""
    return _entry(name).make(config, spec)


def _entry(name: str) -> Entry:
    if name not in AGENTS:
        raise ValueError(f"unknown agent {name!r}; choose from {', '.join(AGENTS)}.")
    return AGENTS[name]
