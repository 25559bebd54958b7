"""Finished or running trainings side by side: a page to look at, tables with intervals, figures.

    python -m experiments.report runs/roid-hopper-medium-v2-cpu --out=runs/report
    python -m experiments.report gentle=runs/a literal=runs/b --out=runs/report
    python -m experiments.report runs/d4rl_table-cpu runs/bandits   # a sweep, a study beside it

Each argument is the workdir of `experiments.train`, with a name before it where the directory's own
will not do; or that of a whole `experiments.sweep`; the same name twice puts tasks side by side.
Workdirs of `experiments.bandits` and `experiments.certificates` add their tables and figures. Only
result files are read, but for `--video`, which plays an episode of each run's last checkpoint.
Writes index.html, a page for each run, the tables as Markdown, CSV and LaTeX, the figures as PNG
and SVG, and results.csv.
"""

import pathlib
import shutil
from collections.abc import Sequence

from absl import flags

from experiments import cli, report_pages, report_panels, report_runs, report_tables, videos
from experiments.report_runs import Run
from roid_jax import directories, results
from roid_jax.envs import render
from roid_jax.report import figures, tables


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_string("out", "runs/report", "Where the report lands.")
    flags.DEFINE_bool("video", False, "Play and record an episode of each run that has none.")


def main(*words: str) -> None:
    """Reads the runs, writes the report and shows its table."""
    console = cli.console()
    with cli.border():
        studies = [word for word in words if is_study(word)]
        others = [word for word in words if word not in studies]
        runs = report_runs.read(others) if others or not studies else []
        out = directories.open_workdir(flags.FLAGS.out, flag="--out")
        if flags.FLAGS.video:
            render.require()
            for run in runs:
                videos.record_missing(run.folder, console)
        made = report_tables.make(runs)
        write(out, runs, made, studies)
    if runs:
        tables.show(report_tables.brief(runs), console)
    if "overall" in made:
        tables.show(made["overall"], console)
    console.print(f"The report is in {out}/; open {out}/index.html.", soft_wrap=True)


def is_study(word: str) -> bool:
    """Whether it is a workdir with tables and figures of the linear path."""
    return (report_runs.split(word)[1] / "tables.md").is_file()


def write(
    out: pathlib.Path, runs: Sequence[Run], made: dict[str, tables.Table], studies: Sequence[str]
) -> None:
    """Writes the whole report into a directory."""
    results.write_csv(out / "results.csv", report_runs.flatten(runs))
    for name, table in made.items():
        for suffix, written in _TABLES.items():
            results.write_bytes(out / f"{name}.{suffix}", written(table).encode())
    panels = report_panels.make(runs)
    draw(out, panels)
    pages = directories.open_workdir(out / "runs")
    for run in runs:
        video = run.folder / videos.FILE
        copy = pages / f"{run.slug}.gif" if video.is_file() else None
        if copy is not None:
            shutil.copyfile(video, copy)
        content = report_pages.of_run(run, copy)
        results.write_bytes(pages / f"{run.slug}.html", content.encode())
    results.write_bytes(
        out / "index.html", report_pages.index(runs, made, panels, studies).encode()
    )


_TABLES = {"md": tables.to_markdown, "csv": tables.to_csv, "tex": tables.to_latex}


def draw(out: pathlib.Path, panels: report_panels.Panels) -> None:
    """Writes the figures, as PNG and as SVG."""
    for name, drawn in panels.items():
        columns, width = (4, 4.4) if name == "diagnostics" else (3, 6.0)
        for form in ("png", "svg") if drawn else ():
            how = {"columns": min(columns, len(drawn)), "width": width, "form": form}
            results.write_bytes(out / f"{name}.{form}", figures.draw(drawn, title="", **how))


if __name__ == "__main__":
    cli.run(main, define_flags, arguments=None)
