"""The numbers of the certificates: what was measured beside what the theory says, as rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import suites
from roid_jax.linear import certificates, episodic, hidden_mode, play, separation, theory

# A ratio counts as exceeded only beyond what float32 can round.
ROUNDING = 1e-5


class Cell(NamedTuple):
    """One (H, d): what was measured, for every number of offline rows and method."""

    config: episodic.EpisodicConfig
    methods: tuple[play.Method, ...]
    measured: certificates.Measured  # leaves [S, N, A]
    identities: certificates.Identities
    episodes: episodic.Episode  # leaves [S, N, R, A, T, ...]


class Contest(NamedTuple):
    """The separation instance: cumulative regret `[S, N, A, T]` of Thompson sampling and IDS."""

    config: hidden_mode.HiddenModeConfig
    methods: tuple[play.Method, ...]
    curves: np.ndarray


class Report(NamedTuple):
    """Everything one run of the certificates measured."""

    config: suites.CertificatesConfig
    cells: Sequence[Cell]
    contest: Contest


def score(cell: Cell) -> str:
    """Returns the regret so far of Thompson sampling and IDS, for the progress bar."""
    regret = cell.measured.regret.mean(axis=(0, 1))
    size = f"H={cell.config.horizon} d={cell.config.feature_dim}"
    return f"{size}: {cell.methods[0].name} {regret[0]:.1f}, {cell.methods[1].name} {regret[1]:.1f}"


def make_rows(report: Report) -> list[dict[str, Any]]:
    """Returns every number of the report, one row each, told apart by `kind`."""
    bounds = [row for cell in report.cells for row in bound_rows(cell)]
    ratios = [row for cell in report.cells for row in ratio_rows(cell)]
    identities = [row for cell in report.cells for row in identity_rows(cell)]
    thresholds = threshold_rows(report.config)
    return (
        bounds
        + ratios
        + [probe_ratio_row()]
        + identities
        + thresholds
        + contest_rows(report.contest)
    )


def bound_rows(cell: Cell) -> list[dict[str, Any]]:
    """Returns regret and bounds of each n and method, averaged over problems."""
    problems, runs = cell.episodes.regret.shape[0], cell.episodes.regret.shape[2]
    rows = []
    for i, n in enumerate(cell.config.offline_rows):
        for j, method in enumerate(cell.methods):
            at = {name: np.asarray(leaf)[:, i, j] for name, leaf in cell.measured.items()}
            is_below = at["regret"] <= np.minimum(at["elliptical"], at["covered"])
            rows.append(
                {
                    "kind": "bound",
                    **_size(cell, n),
                    "method": method.name,
                    "eta": method.eta,
                    "regret": float(at["regret"].mean()),
                    "regret_error": float(np.sqrt((at["regret_error"] ** 2).sum()) / problems),
                    "information": float(at["information"].mean()),
                    "master_bound": float(at["master"].mean()),
                    "elliptical_bound": float(at["elliptical"].mean()),
                    "coverage_bound": float(at["covered"].mean()),
                    "coverage": float(at["coverage"].mean()),
                    "share_of_bound": float((at["regret"] / at["master"]).mean()),
                    "problems_below_bound": int(is_below.sum()),
                    "problems": problems,
                    "runs": runs,
                }
            )
    return rows


def ratio_rows(cell: Cell) -> list[dict[str, Any]]:
    """Returns, over all episodes, where each IDS rule satisfies the certificate and where not."""
    ratios = cell.episodes.certificate
    constant = theory.reference_ratio_constant(
        horizon=cell.config.horizon, dim=cell.config.feature_dim
    )
    rows = []
    for i, n in enumerate(cell.config.offline_rows):
        for e, eta in enumerate(cell.config.etas):
            reference = np.asarray(ratios.reference)[:, i, ..., e]
            for name, leaf in (("ids", ratios.single), ("ids_randomised", ratios.mixed)):
                ratio = np.asarray(leaf)[:, i, ..., e]
                is_positive = reference > 0.0  # where TS has no regret left, IDS has none either
                quotient = ratio[is_positive] / reference[is_positive]
                rows.append(
                    {
                        "kind": "ratio",
                        **_size(cell, n),
                        "method": name,
                        "eta": eta,
                        "steps": int(ratio.size),
                        "violations": int((ratio > (1.0 + ROUNDING) * reference).sum()),
                        "worst": float(np.max(quotient, initial=0.0)),
                        "thompson_share_of_constant": float(reference.max() / constant),
                    }
                )
    return rows


def probe_ratio_row() -> dict[str, Any]:
    """Returns the ratios on the hidden-mode bandit at N = 1000, where the rules part."""
    config = hidden_mode.HiddenModeConfig(offline_rows=(1000,))
    ratios = hidden_mode.ratios(config, eta=0.0)
    return {
        "kind": "probe_ratio",
        "N": 1000,
        "ids": float(ratios.single[0]),
        "ids_randomised": float(ratios.mixed[0]),
        "thompson": float(ratios.reference[0]),
    }


def identity_rows(cell: Cell) -> list[dict[str, Any]]:
    """Returns the largest relative error of each identity at one size."""
    return [
        {
            "kind": "identity",
            "H": cell.config.horizon,
            "d": cell.config.feature_dim,
            "identity": name,
            "error": float(value),
        }
        for name, value in cell.identities.items()
    ]


def threshold_rows(config: suites.CertificatesConfig) -> list[dict[str, Any]]:
    """Returns N_star of the concrete instance for each q and c."""
    return [
        {
            "kind": "threshold",
            "q": rate,
            "c": cost,
            "N_star": separation.concrete_threshold(cost, reveal_rate=rate),
        }
        for rate in config.reveal_rates
        for cost in config.probe_costs
    ]


def contest_rows(contest: Contest) -> list[dict[str, Any]]:
    """Returns measured regrets and the theorem's bounds at T = ceil(1/p), for each N."""
    gaps = separation.gaps_of(contest.config.rewards)
    rows = []
    for i, n in enumerate(contest.config.offline_rows):
        p = float(contest.config.residual_probability()[i])
        episodes = min(int(np.ceil(1.0 / p)), contest.config.horizon)
        thompson, ids = contest.curves[:, i, :, episodes - 1].T
        says = separation.separation(p, gaps, episodes=episodes)
        rows.append(
            {
                "kind": "separation",
                "N": n,
                "p": p,
                "T": episodes,
                "ids_regret": float(ids.mean()),
                "ids_bound": float(says.ids_bound) if says.ids_probes else None,
                "thompson_regret": float(thompson.mean()),
                "thompson_error": float(thompson.std(ddof=1) / np.sqrt(len(thompson))),
                "thompson_bound": float(says.thompson_bound),
                "thompson_floor": float(says.thompson_floor),
                "ids_probes": says.ids_probes,
                "separates": says.separates,
            }
        )
    return rows


def _size(cell: Cell, n: int) -> dict[str, int]:
    return {
        "H": cell.config.horizon,
        "d": cell.config.feature_dim,
        "n": n,
        "T": cell.config.episodes,
    }
