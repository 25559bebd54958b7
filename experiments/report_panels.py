"""The panels of a report: curves, what there was to watch, profiles, and the candidates of IDS."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import report_runs, report_tables
from experiments.report_runs import Run
from roid_jax.report import statistics
from roid_jax.report.figures import Line, Panel

# What a row holds beside the score, and what it says.
WATCHED = {
    "spread": "spread of the values",
    "off_anchor": "share of steps off the anchor",
    "regret": "regret of what was chosen",
    "information": "information of it, nats",
    "residual_information": "information left, nats",
    "clip_rate": "share of values clipped",
    "off_best": "share of steps off the best member",
    "new_policy": "share of steps of the new policy",
    "entropy": "entropy of the policy, nats",
    "td_loss": "loss of the critics",
}


Panels = dict[str, list[Panel]]


def make(runs: Sequence[Run]) -> Panels:
    """Returns all panels of some runs by the name of their figure; none where there is nothing."""
    return {"curves": curves(runs), "profile": profiles(runs), "diagnostics": diagnostics(runs)}


def curves(runs: Sequence[Run]) -> list[Panel]:
    """Returns the score over online steps, a panel for each task."""
    return [_over_steps(runs, task, "score", "score") for task in report_runs.tasks(runs)]


def diagnostics(runs: Sequence[Run]) -> list[Panel]:
    """Returns what there was to watch over online steps, task by task."""
    watched = [(name, WATCHED[name]) for name in watched_in(runs)]
    tasks = report_runs.tasks(runs)
    return [_over_steps(runs, task, *what) for task in tasks for what in watched]


def watched_in(runs: Sequence[Run]) -> list[str]:
    """Returns which fields there were to watch."""
    seen = {name for run in runs for row in run.online for name in row}
    return [name for name in WATCHED if name in seen]


def _over_steps(runs: Sequence[Run], task: str, field: str, label: str) -> Panel:
    """Returns the mean over seeds of a field, as far as all seeds are.

    The band is the interval of a score, and of anything else one standard error.
    """
    lines = []
    for name in report_runs.names(runs):
        group = [run.online for run in runs if (run.task, run.name) == (task, name)]
        by_step = [{row["step"]: row[field] for row in rows if field in row} for rows in group]
        steps = sorted(set.intersection(*map(set, by_step))) if by_step else []
        if steps:
            scores = np.array([[one[step] for step in steps] for one in by_step])[:, None]
            lines.append(_line(name, np.array(steps), scores, is_score=field == "score"))
    return Panel(title=task, x_label="online steps", y_label=label, lines=lines)


def _line(name: str, steps: np.ndarray, scores: np.ndarray, *, is_score: bool) -> Line:
    """Returns the line of `[N, 1, E]` scores of seeds."""
    if is_score:
        found = statistics.estimate(statistics.mean, scores)
        return Line(name, steps, found.value, low=found.low, high=found.high)
    number = len(scores)
    error = np.std(scores[:, 0], axis=0, ddof=1) / np.sqrt(number) if number > 1 else None
    return Line(name, steps, np.mean(scores[:, 0], axis=0), error)


def profiles(runs: Sequence[Run]) -> list[Panel]:
    """Returns the share of runs above each score, over all tasks, where names can be compared."""
    found = report_runs.matrices(runs, report_tables.MAIN)
    if len(found) < 2:
        return []
    every = np.concatenate([scores.ravel() for scores in found.values()])
    low, high = np.min(every), np.max(every)
    room = 0.05 * (high - low) + 1e-6
    levels = np.linspace(low - room, high + room, 101)
    lines = []
    for name, scores in found.items():
        share = statistics.estimate(lambda drawn: statistics.profile(drawn, levels), scores)
        lines.append(Line(name, levels, share.value, low=share.low, high=share.high))
    label = "share of runs above"
    return [Panel("Performance profile", "score, mean of the last ten", label, lines)]


def of_run(run: Run) -> list[Panel]:
    """Returns the panels of one seed: its scores in both phases, and what there was to watch."""
    panels = []
    for phase in ("offline", "online"):
        rows = [row for row in run.rows if row["phase"] == phase]
        if rows:
            steps, scores, errors = _columns(rows, "step", "score", "score_error")
            line = Line("score and its standard error", steps, scores, errors)
            panels.append(Panel(phase, f"{phase} steps", "score", [line]))
    for name in watched_in([run]):
        steps, values = _columns([row for row in run.online if name in row], "step", name)
        panels.append(
            Panel(WATCHED[name], "online steps", "", [Line(WATCHED[name], steps, values)])
        )
    return panels


def _columns(rows: Sequence[dict[str, Any]], *fields: str) -> list[np.ndarray]:
    return [np.array([row[field] for row in rows], float) for field in fields]


def candidates(states: Sequence[dict[str, Any]], *, eta: float) -> list[Panel]:
    """Returns regret over information of the candidates at some states, the chosen one marked.

    Grey lines are levels of the ratio: regret = sqrt(psi (information + eta)); the solid one goes
    through the chosen candidate, so with IDS all others lie on it or above.
    """
    panels = []
    for number, state in enumerate(states):
        regret, information = (np.array(state[name]) for name in ("regret", "information"))
        chosen = state["chosen"]
        x = np.linspace(0.0, 1.05 * float(np.max(information)) + 1e-9, 60)
        ratio = (
            regret[chosen] ** 2 / (information[chosen] + eta) if eta + information[chosen] else 0
        )
        lines = [
            Line("levels of the ratio", x, np.sqrt(share * ratio * (x + eta)), style="--")
            for share in (0.25, 4.0)
        ]
        lines += [
            Line("the chosen one's level", x, np.sqrt(ratio * (x + eta))),
            Line("candidates", information, regret, style="o"),
            Line("the anchor", information[:1], regret[:1], style="*"),
            Line("chosen", information[[chosen]], regret[[chosen]], style="*"),
        ]
        panels.append(Panel(f"state {number + 1}", "information, nats", "regret", lines))
    return panels
