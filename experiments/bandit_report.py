"""Tables and figures of the bandits, from their regrets."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments import bandit_rows, quoted
from roid_jax.linear import play
from roid_jax.report import figures, tables

_TITLES = {"hidden_mode": "Hidden-mode bandit", "biased_linear": "Biased linear bandit"}
_MAIN = {
    "hidden_mode": ("greedy", "UCB", "TS", "IDS 0"),
    "biased_linear": ("greedy", "UCB", "TS", "IDS 0.5"),
}


def make_tables(study: bandit_rows.Study) -> list[tables.Table]:
    """Returns the paper's main table and its full eta sweep, ours beside."""
    cells = {
        (bandit_rows.label(play.Method(r["method"], r["eta"])), r["N"]): r
        for r in bandit_rows.make_rows(study)
    }
    count = study.regret.shape[0]
    seeds = f"{count} seed{'s' * (count > 1)}"
    title = f"{_TITLES[study.problem]}: regret over T = {study.config.horizon}, {seeds}"
    return [_main_table(f"{title} (main table)", study, cells), _sweep_table(title, study, cells)]


def _main_table(title: str, study: bandit_rows.Study, cells: dict) -> tables.Table:
    """N down, methods across, ours above the closed form above the paper's: as it is printed."""
    names = [
        bandit_rows.label(method)
        for method in study.methods
        if bandit_rows.label(method) in _MAIN[study.problem]
    ]
    body: list[tuple[str, ...]] = []
    for size, shown in zip(study.config.offline_rows, _sizes(study), strict=True):
        rows = [cells[name, size] for name in names]
        body += [(shown, "ours", *map(_ours, rows))]
        if _has(rows, "analytic"):
            body += [("", "closed form", *(tables.number(row["analytic"]) for row in rows))]
        if _has(rows, "paper"):
            body += [("", "paper", *map(_paper, rows))]
        body += [()]
    return tables.Table(title, ("N", "", *names), tuple(body[:-1]), _notes(study), text_columns=2)


def _sweep_table(title: str, study: bandit_rows.Study, cells: dict) -> tables.Table:
    """One line per N and method, the columns being ours, the closed form and the paper's."""
    has_form = _has(cells.values(), "analytic")
    body: list[tuple[str, ...]] = []
    for size, shown in zip(study.config.offline_rows, _sizes(study), strict=True):
        for j, method in enumerate(study.methods):
            row = cells[bandit_rows.label(method), size]
            form = (tables.number(row["analytic"]),) if has_form else ()
            body += [
                ("" if j else shown, bandit_rows.label(method), _ours(row), *form, _paper(row))
            ]
        body += [()]
    columns = ("N", "method", "ours", *(("closed form",) if has_form else ()), "paper")
    notes = ("The paper has no randomised IDS.",)
    full = f"{title} (full eta sweep)"
    return tables.Table(full, columns, tuple(body[:-1]), notes, text_columns=2)


def _has(rows: Iterable[dict[str, Any]], field: str) -> bool:
    return any(row[field] is not None for row in rows)


def _sizes(study: bandit_rows.Study) -> list[str]:
    if study.problem != "hidden_mode":
        return [str(size) for size in study.config.offline_rows]
    chances = study.config.residual_probability()
    pairs = zip(study.config.offline_rows, chances, strict=True)
    return [f"{size} (p = {chance:.3g})" for size, chance in pairs]


def _ours(row: dict[str, Any]) -> str:
    return tables.with_error(row["mean"], row["std"] and row["std"] / np.sqrt(row["seeds"]))


def _paper(row: dict[str, Any]) -> str:
    if row["paper"] is None:
        return ""
    if row["problem"] == "hidden_mode":
        return f"{row['paper']:.2f}"
    spread = quoted.BIASED_LINEAR_SPREAD[row["method"], row["eta"]][row["N"]]
    return tables.with_error(row["paper"], spread / np.sqrt(quoted.BIASED_LINEAR_SEEDS))


def _notes(study: bandit_rows.Study) -> tuple[str, ...]:
    if not bandit_rows.is_papers(study):
        return ("This is not the paper's setting, so its numbers are left out.",)
    if study.problem == "hidden_mode":
        return (
            "± is one standard error; only TS and randomised IDS are random.",
            "The paper's TS cells are one draw of ten seeds each.",
            "500 p_1000 = 3.30499, which is 3.30 to two places; the paper prints 3.31.",
        )
    return (
        "± is one standard error; the paper's is worked out from the spread it prints.",
        "The paper leaves the laws of weights, states, actions and behaviour open, and seeds "
        "differ widely: the shape of its table can be reproduced, its cells only roughly.",
    )


def make_figures(study: bandit_rows.Study) -> dict[str, bytes]:
    """Returns the figures of one bandit as PNG, by file name."""
    pictures = {
        f"{study.problem}_regret": _regret_curves(study),
        f"{study.problem}_eta": _eta_sweep(study),
    }
    if study.phase is not None:
        pictures["hidden_mode_phase"] = _phase_transition(study.phase)
    return pictures


def _error(samples: np.ndarray) -> np.ndarray:
    """Returns the standard error over the first axis; zeros for a single sample."""
    if len(samples) < 2:
        return np.zeros(samples.shape[1:])
    return samples.std(axis=0, ddof=1) / np.sqrt(len(samples))


def _regret_curves(study: bandit_rows.Study) -> bytes:
    shown = [j for j, method in enumerate(study.methods) if method.name != "ids_randomised"]
    steps = np.arange(1, study.config.horizon + 1)
    panels = []
    for i, size in enumerate(study.config.offline_rows):
        curves = np.cumsum(study.regret[:, i], axis=-1, dtype=np.float64)
        lines = [
            figures.Line(
                bandit_rows.label(study.methods[j]),
                steps,
                curves[:, j].mean(0),
                _error(curves[:, j]),
            )
            for j in shown
        ]
        panels.append(
            figures.Panel(f"N = {size}", "online step", "cumulative regret", lines, y_scale="log")
        )
    title = f"{_TITLES[study.problem]}: regret of every method"
    return figures.draw(panels, columns=_columns(panels), title=title)


def _eta_sweep(study: bandit_rows.Study) -> bytes:
    etas = study.config.etas
    positions = np.arange(len(etas))
    panels = []
    for i, size in enumerate(study.config.offline_rows):
        totals = {method: study.totals[:, i, j] for j, method in enumerate(study.methods)}
        lines = []
        for name in ("greedy", "ucb", "thompson"):
            method = play.Method(name)
            level = np.full(len(etas), totals[method].mean())
            lines.append(figures.Line(bandit_rows.label(method), positions, level, None, "--"))
        for name, shown in (("ids", "IDS"), ("ids_randomised", "randomised IDS")):
            samples = np.stack([totals[play.Method(name, eta)] for eta in etas], axis=1)
            lines.append(figures.Line(shown, positions, samples.mean(0), _error(samples), "o-"))
        panels.append(
            figures.Panel(
                f"N = {size}",
                "eta",
                f"regret after {study.config.horizon} steps",
                lines,
                y_scale="log",
                ticks=[f"{eta:g}" for eta in etas],
            )
        )
    title = f"{_TITLES[study.problem]}: sweep over eta"
    return figures.draw(panels, columns=_columns(panels), title=title)


def _columns(panels: Sequence[figures.Panel]) -> int:
    """Returns three a row, or two where that fills the grid better."""
    return min(len(panels), 2 if len(panels) == 4 else 3)


def _phase_transition(phase: bandit_rows.Study) -> bytes:
    sizes = np.array(phase.config.offline_rows)
    every = slice(1, None, 4)
    analytic = bandit_rows.analytic(phase)
    lines = []
    for j, method in enumerate(phase.methods):
        if method.name == "ids_randomised" and method.eta:
            continue  # it lies on deterministic IDS at the same eta
        samples = phase.totals[:, every, j]
        lines.append(figures.Line(bandit_rows.label(method), sizes, analytic[:, j]))
        lines.append(
            figures.Line(
                bandit_rows.label(method), sizes[every], samples.mean(0), _error(samples), "o"
            )
        )
    title = "Hidden-mode bandit: closed forms (lines) and measured regret (dots)"
    y_label = f"regret after {phase.config.horizon} steps"
    panel = figures.Panel("", "offline rows N", y_label, lines, y_scale="log")
    return figures.draw([panel], columns=1, title=title, width=8.5)
