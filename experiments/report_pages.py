"""The pages of a report: one for all runs, and one for each."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from experiments import candidates, report_panels, report_runs, report_tables
from experiments.report_runs import Run
from roid_jax import results
from roid_jax.report import page, plots, tables

_FIGURES = {
    "curves": (
        "Learning curves",
        "Mean over seeds with its 95% bootstrap interval; where there is one seed the line is its "
        "own. The first point is what goes online, before its first step.",
    ),
    "profile": (
        "Performance profile",
        "Share of seeds and tasks whose score is above a level, with 95% intervals.",
    ),
    "diagnostics": (
        "What to watch",
        "Means over seeds and one standard error, as far as all seeds are.",
    ),
}


def index(
    runs: Sequence[Run],
    made: dict[str, tables.Table],
    panels: report_panels.Panels,
    studies: Sequence[str],
) -> str:
    """Returns the page of all runs: tables, curves, profiles, and what was run."""
    links = {run.slug: f"runs/{run.slug}.html" for run in runs}
    grouped = _without_repeats([made[key] for key in made if key != "seeds"])
    parts = [page.Section("Scores", "".join(map(tables.to_html, grouped)))] if runs else []
    for name, (title, note) in _FIGURES.items():
        if panels[name]:
            content = plots.figure(panels[name]) + page.paragraph(note)
            parts.append(page.Section(title, content))
    if runs:
        parts.append(page.Section("Runs", tables.to_html(made["seeds"], links=links)))
    parts += [page.Section(*study) for study in map(_study, studies)]
    if runs:
        parts.append(page.Section("What was run", tables.to_html(_settings(runs))))
    names, tasks = report_runs.names(runs), report_runs.tasks(runs)
    about = f"{len(runs)} runs: {', '.join(names)} on {', '.join(tasks)}." if runs else ""
    return page.render("Offline to online", about, parts)


def _without_repeats(made: Sequence[tables.Table]) -> list[tables.Table]:
    """Returns the tables with every note under the first that has it."""
    said: set[str] = set()
    found = []
    for table in made:
        new = tuple(note for note in table.notes if note not in said)
        found.append(dataclasses.replace(table, notes=new))
        said.update(table.notes)
    return found


def _settings(runs: Sequence[Run]) -> tables.Table:
    """Returns what every number of a group depends on: agent, data, budget, versions."""
    body = []
    for (task, name), group in report_runs.groups(runs).items():
        about = group[0].about
        config, versions, which = about["config"], about["versions"], about["run"]
        body.append(
            (
                task,
                name,
                which["agent"],
                which["dataset"],
                ", ".join(str(run.seed) for run in group),
                f"{config['offline_steps']:,} + {config['online_steps']:,}",
                f"{config['eval_episodes']} every {config['eval_interval']:,}",
                f"{versions['roid_jax']}, jax {versions['jax']}, mujoco {versions['mujoco']}",
                versions["device"],
            )
        )
    heads = "task", "run", "agent", "data", "seeds", "steps asked", "episodes", "roid_jax", "device"
    return tables.Table("What was run", heads, tuple(body), text_columns=len(heads))


def _study(folder: str) -> tuple[str, str]:
    """Returns the title and content of a study of bandits or certificates: tables and figures."""
    name, path = report_runs.split(folder)
    try:
        made = tables.from_markdown((path / "tables.md").read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{path / 'tables.md'} is not what experiments.bandits writes.") from None
    pictures = [
        page.picture(file.read_bytes(), file.stem.replace("_", " "))
        for file in sorted(path.glob("*.png"))
    ]
    return f"Study: {name or path.name}", "".join([*map(tables.to_html, made), *pictures])


def of_run(run: Run, video: pathlib.Path | None) -> str:
    """Returns the page of one seed."""
    labels = {**report_tables.SCORES, "online_lowest": "lowest"}
    fields = [
        (labels[name], f"{value:.2f}") for name, value in run.scores.items() if value is not None
    ]
    scores = tables.Table("Scores", ("score", "value"), tuple(fields))
    parts = [page.Section("Scores", tables.to_html(scores))]
    if video is not None:
        content = f'<img alt="an episode of the policy" src="{video.name}">'
        parts.append(page.Section("An episode", content))
    parts.append(page.Section("Curves", plots.figure(report_panels.of_run(run))))
    seen = show_candidates(run)
    if seen:
        parts.append(page.Section("Regret against information", seen))
    command = " ".join(run.about["command"])
    settings = json.dumps(
        {"config": run.about["config"], "versions": run.about["versions"]}, indent=2
    )
    parts.append(page.Section("Settings", page.code(command) + page.code(settings)))
    title = f"{run.name} on {run.task}, seed {run.seed}"
    which = run.about["run"]
    about = f"{which['agent']} from {which['dataset']}."
    return page.render(title, about, parts, back="../index.html")


def show_candidates(run: Run) -> str:
    """Returns what a training wrote of its candidates, as HTML; none if it cannot be read."""
    try:
        seen = results.read_record(run.folder / candidates.FILE)
        note = (
            f"Candidates at states of the data, {seen['when']}, with eta = {seen['eta']:g}. The "
            "solid line is the level of the chosen one's ratio."
        )
        panels = report_panels.candidates(seen["states"], eta=seen["eta"])
        return plots.figure(panels) + page.paragraph(note)
    except (OSError, ValueError, TypeError, LookupError):
        return ""
