"""The numbers of the bandits: regret beside the closed form and the paper's, as rows."""

from typing import Any, NamedTuple

import numpy as np

from experiments import quoted
from roid_jax.linear import hidden_mode, play

_QUOTED = {"hidden_mode": quoted.HIDDEN_MODE, "biased_linear": quoted.BIASED_LINEAR}


class Study(NamedTuple):
    """One bandit's regrets, `[S, N, A, T]`, and what made them."""

    problem: str
    config: Any
    methods: tuple[play.Method, ...]
    regret: np.ndarray
    phase: Any  # the same bandit over a fine grid of N, where there is a phase transition

    @property
    def totals(self) -> np.ndarray:
        """`[S, N, A]` regret after the last step, summed in double precision."""
        return self.regret.sum(axis=-1, dtype=np.float64)


def label(method: play.Method) -> str:
    """Returns the name of a method as tables and figures show it."""
    if method.eta is None:
        return {"ucb": "UCB", "thompson": "TS"}.get(method.name, method.name)
    name = "randomised IDS" if method.name == "ids_randomised" else "IDS"
    return f"{name} {method.eta:g}"


def is_papers(study: Study) -> bool:
    """Returns whether all that the paper says about the bandit is so here."""
    config = study.config
    if study.problem == "hidden_mode":
        default = hidden_mode.HiddenModeConfig()
        fields = ("rewards", "reveal_rate", "prior", "horizon", "ucb_scale")
        return all(getattr(config, field) == getattr(default, field) for field in fields)
    shape = config.feature_map
    dims = (shape.state_dim, shape.action_dim, shape.feature_dim)
    return dims == (16, 4, 128) and (config.bias, config.noise, config.horizon) == (6.0, 0.05, 200)


def make_rows(study: Study) -> list[dict[str, Any]]:
    """Returns one row per method, eta and N."""
    seeds = study.regret.shape[0]
    totals = study.totals
    forms = analytic(study)
    printed = _QUOTED[study.problem] if is_papers(study) else {}
    rows = []
    for j, method in enumerate(study.methods):
        for i, size in enumerate(study.config.offline_rows):
            rows.append(
                {
                    "problem": study.problem,
                    "method": method.name,
                    "eta": method.eta,
                    "N": size,
                    "mean": float(totals[:, i, j].mean()),
                    "std": float(totals[:, i, j].std(ddof=1)) if seeds > 1 else None,
                    "seeds": seeds,
                    "paper": printed.get(method, {}).get(size),
                    "analytic": None if forms is None else float(forms[i, j]),
                    "horizon": study.config.horizon,
                }
            )
    return rows


def analytic(study: Study) -> np.ndarray | None:
    """Returns `[N, A]` the closed form of each method's regret, where there is one."""
    if study.problem != "hidden_mode":
        return None
    return hidden_mode.analytic_regret(study.config, study.methods)
