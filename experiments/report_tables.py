"""The tables of a report: by task, over all tasks, which beats which, and every seed."""

from collections.abc import Sequence

import numpy as np

from experiments import quoted, report_runs
from experiments.report_runs import Run
from roid_jax.report import statistics, tables
from roid_jax.report.statistics import Estimate

SCORES = {
    "offline_score": "offline",
    "handover_score": "handover",
    "online_last": "last",
    "online_mean_of_last_10": "last 10",
    "online_best": "best",
}
MAIN = "online_mean_of_last_10"  # what runs are compared by
_STATISTICS = {"mean": statistics.mean, "IQM": statistics.interquartile_mean}
_INTERVALS = (
    f"95% intervals: percentiles of {statistics.REPEATS:,} stratified bootstrap draws over seeds "
    "(rliable); with fewer than five seeds they are too narrow, with one there are none."
)


def make(runs: Sequence[Run]) -> dict[str, tables.Table]:
    """Returns every table by the name of its files."""
    found = {"scores": by_task(runs)}
    overall = over_tasks(runs)
    if overall.rows:
        found["overall"] = overall
    improvement = which_beats_which(runs)
    if improvement.rows:
        found["improvement"] = improvement
    return {**found, "seeds": by_seed(runs)}


def by_task(runs: Sequence[Run]) -> tables.Table:
    """Returns a line for each task, run and statistic, beside what the paper has."""
    body: list[tuple[str, ...]] = []
    task_before = None
    for (task, name), group in report_runs.groups(runs).items():
        if task_before not in (None, task):
            body.append(())
        task_before = task
        values = [[run.scores[field] for field in SCORES] for run in group]
        scores = np.array(values, float)[:, None]  # seeds, one task, scores
        found = statistics.estimate(_both, scores)
        about = (_quoted(task, group[0]), str(len(group)), _budget(group[0]))
        for i, kind in enumerate(_STATISTICS if len(group) > 1 else [""]):
            cells = [_cell(found, (i, j)) for j in range(len(SCORES))]
            body.append((task, name, kind, *cells, *about))
    heads = "task", "run", "", *SCORES.values(), "quoted", "seeds", "steps"
    notes = (
        "Scores. Offline: the policy that offline learning ended with; handover: what goes online, "
        "before its first step; last 10: the mean of the last ten evaluations, or of all that are "
        "online; best: the highest of them, which no one would know without evaluating.",
        _INTERVALS,
        "Quoted: what the paper prints for that agent on D4RL's data, offline \u2192 online, at a "
        "budget of its own.",
    )
    return tables.Table("Offline to online", heads, tuple(body), notes, text_columns=3)


def brief(runs: Sequence[Run]) -> tables.Table:
    """Returns what fits a terminal: a line for each task and run, the mean over its seeds."""
    body = []
    for (task, name), group in report_runs.groups(runs).items():
        scores = [[run.scores[field] for field in ("offline_score", MAIN)] for run in group]
        found = statistics.estimate(statistics.mean, np.array(scores, float)[:, None])
        offline, online = f"{found.value[0]:.1f}", _cell(found, (1,))
        body.append((task, name, offline, online, str(len(group))))
    heads = "task", "run", "offline", "online, last 10", "seeds"
    notes = ("Means over seeds, with 95% intervals where there are several; index.html has more.",)
    return tables.Table("Offline to online", heads, tuple(body), notes, text_columns=2)


def _both(scores: np.ndarray) -> np.ndarray:
    """Returns each statistic, one after another."""
    return np.stack([statistic(scores) for statistic in _STATISTICS.values()])


def _cell(found: Estimate, i: tuple[int, ...] = ()) -> str:
    """Returns `value [low, high]`."""
    value = f"{found.value[i]:.1f}"
    if found.low is None or found.high is None:
        return value
    return f"{value} [{found.low[i]:.1f}, {found.high[i]:.1f}]"


def _quoted(task: str, run: Run) -> str:
    """Returns what the paper prints for what this is: that agent and selector, on D4RL's data."""
    which = run.about["run"]
    offline, online = quoted.D4RL.get(task, {}).get(which["agent"], (None, None))
    selector = run.about["config"].get("agent", {}).get("selector", {}).get("name", "ids")
    if online is None or which["dataset"] != f"d4rl:{task}" or selector != "ids":
        return ""
    return f"{offline:g} \u2192 {online:g}" if offline is not None else f"{online:g}"


def _budget(run: Run) -> str:
    offline = max((row["step"] for row in run.rows if row["phase"] == "offline"), default=0)
    return f"{offline:,} + {run.online[-1]['step']:,}"


def over_tasks(runs: Sequence[Run]) -> tables.Table:
    """Returns a line for each name that is on all tasks, where there are several tasks."""
    found = report_runs.matrices(runs, MAIN) if len(report_runs.tasks(runs)) > 1 else {}
    body = []
    for name, scores in found.items():
        both = statistics.estimate(_both, scores)
        cells = [_cell(both, (i,)) for i in range(len(_STATISTICS))]
        body.append((name, *cells, f"{scores.shape[0]} x {scores.shape[1]}"))
    heads = "run", *_STATISTICS, "seeds x tasks"
    notes = ("Of the mean of the last ten evaluations.", _INTERVALS)
    return tables.Table("Over all tasks", heads, tuple(body), notes)


def which_beats_which(runs: Sequence[Run]) -> tables.Table:
    """Returns how likely a run of the first name beats one of another, over all tasks."""
    found = report_runs.matrices(runs, MAIN)
    body = []
    for i, (first, scores) in enumerate(found.items()):
        for second, others in list(found.items())[i + 1 :]:
            chance = statistics.estimate(statistics.probability_of_improvement, scores, others)
            text = f"{chance.value:.2f}"
            if chance.low is not None and chance.high is not None:
                text += f" [{chance.low:.2f}, {chance.high:.2f}]"
            body.append((first, second, text))
    heads = "run", "over", "probability of improvement"
    notes = ("Of the mean of the last ten evaluations on a task; ties count half.", _INTERVALS)
    return tables.Table("Which beats which", heads, tuple(body), notes, text_columns=2)


def by_seed(runs: Sequence[Run]) -> tables.Table:
    """Returns a line for each seed, its page's name last."""
    body: list[tuple[str, ...]] = []
    for (task, name), group in report_runs.groups(runs).items():
        for run in group:
            cells = [f"{run.scores[field]:.1f}" for field in (*SCORES, "online_lowest")]
            body.append((run.slug, task, name, str(run.seed), *cells, _budget(run)))
        body.append(())
    heads = "page", "task", "run", "seed", *SCORES.values(), "lowest", "steps"
    notes = ("Lowest: of all online evaluations.",)
    return tables.Table("Every seed", heads, tuple(body[:-1]), notes, text_columns=3)
