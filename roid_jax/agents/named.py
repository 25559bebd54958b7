"""Agents by name; a configuration of its own makes each."""

from typing import Any

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

_TD3BC = ensemble.EnsembleConfig(
    num_members=1, mask_probability=1.0, holdout=0, normalise_states=True
)

AGENTS = {
    "roid": (roid.roid, roid_learner.RoidConfig()),
    "td3bc": (td3bc.td3bc, _TD3BC),
    "boorl": (boorl.boorl, boorl.BoorlConfig()),
    "rlpd": (rlpd.rlpd, rlpd.RlpdConfig()),
    "calql": (calql.calql, calql.CalqlConfig()),
    "cql": (calql.calql, calql.CalqlConfig(calibrated=False)),
    "pex": (pex.pex, pex.PexConfig()),
    "iql": (pex.pex, pex.PexConfig(expands=False)),
    "odt": (odt.odt, odt_learner.OdtConfig()),
}


def find(name: str) -> Any:
    """Returns an agent's own configuration, as its paper has it."""
    if name not in AGENTS:
        raise ValueError(f"unknown agent {name!r}; choose from {', '.join(AGENTS)}.")
    return AGENTS[name][1]


def make(name: str, config: Any, spec: Spec) -> base.Agent:
    """Returns the agent of that name for an environment."""
    find(name)
    return AGENTS[name][0](config, spec)
