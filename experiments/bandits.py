"""The paper's two bandits, with every method and eta, beside its own tables.

    python -m experiments.bandits --problem=all --seeds=20 --workdir=runs/bandits

Prints the main table and both full eta sweeps with our numbers, their standard errors, the closed
form where there is one and the paper's value. Writes results.jsonl and results.csv (one row per
method, eta and N), tables.md, config.json, phase.jsonl and the figures.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rich.console
from absl import flags

from experiments import bandit_report, bandit_rows, cli, suites
from roid_jax import config as cfg
from roid_jax import directories, results
from roid_jax.linear import biased_linear, hidden_mode, play
from roid_jax.report import tables

PROBLEMS = ("hidden_mode", "biased_linear")


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_enum("problem", "all", [*PROBLEMS, "all"], "Which bandit to run.")
    flags.DEFINE_enum("preset", "default", list(suites.BANDITS), "Which open choices to make.")
    flags.DEFINE_integer("seeds", 20, "How many seeds.", lower_bound=1, upper_bound=2**20)
    flags.DEFINE_integer("first_seed", 0, "The first of them.", lower_bound=0, upper_bound=2**30)
    flags.DEFINE_string("workdir", "runs/bandits", "Where the results land.")
    cli.define_config(suites.BANDITS["default"])
    flags.declare_key_flag("config")  # so that --help lists it with these


def main() -> None:
    """Runs the chosen bandits, prints their tables and writes everything."""
    console = cli.console()
    with cli.border():
        config = cli.configured(suites.BANDITS[flags.FLAGS.preset])
        workdir = directories.open_workdir(flags.FLAGS.workdir)
    chosen = PROBLEMS if flags.FLAGS.problem == "all" else (flags.FLAGS.problem,)
    seeds = np.arange(flags.FLAGS.first_seed, flags.FLAGS.first_seed + flags.FLAGS.seeds)
    studies = [run(problem, config, seeds, console) for problem in chosen]
    with cli.border():
        write(workdir, studies, config)
    for study in studies:
        for table in bandit_report.make_tables(study):
            tables.show(table, console)
    console.print(f"Results, tables and figures are in {workdir}/")


def run(
    problem: str, config: suites.BanditsConfig, seeds: np.ndarray, console: rich.console.Console
) -> bandit_rows.Study:
    """Returns the regret of every method, eta and N of one bandit."""
    if problem == "hidden_mode":
        part, simulate, at_once = config.hidden_mode, hidden_mode.regret, 1000
    else:
        part, simulate, at_once = config.biased_linear, biased_linear.regret, 4
    if jax.default_backend() != "cpu":
        at_once = len(seeds)
    methods = play.methods_for(part.etas)
    with cli.track(problem, len(seeds), console, unit="seeds") as advance:
        parts = []
        for regret in in_chunks(simulate, seeds, at_once, config=part, methods=methods):
            parts.append(regret)
            advance(len(regret), score_so_far(parts, methods))
    phase = hidden_mode_phase(part, seeds) if problem == "hidden_mode" else None
    return bandit_rows.Study(
        problem=problem, config=part, methods=methods, regret=np.concatenate(parts), phase=phase
    )


def in_chunks(simulate: Callable[..., Any], seeds: np.ndarray, at_once: int, **constants: Any):
    """Yields `[chunk, N, A, T]` regrets; every chunk has one shape, so it is compiled once."""
    size = min(at_once, len(seeds))
    for start in range(0, len(seeds), size):
        chunk = seeds[start : start + size]
        padded = np.pad(chunk, (0, size - len(chunk)), mode="edge")
        yield np.asarray(simulate(jnp.asarray(padded), **constants))[: len(chunk)]


def score_so_far(parts: Sequence[np.ndarray], methods: Sequence[play.Method]) -> str:
    """Returns the regret so far of Thompson sampling and vanilla IDS at the first N."""
    totals = np.concatenate(parts)[:, 0].sum(axis=-1).mean(axis=0)
    scores = {
        bandit_rows.label(method): total for method, total in zip(methods, totals, strict=True)
    }
    return ", ".join(f"{name} {scores[name]:.2f}" for name in ("TS", "IDS 0") if name in scores)


def hidden_mode_phase(config: hidden_mode.HiddenModeConfig, seeds: np.ndarray) -> bandit_rows.Study:
    """Returns the same bandit over a fine grid of N, for the phase transition."""
    rows = tuple(range(50, 3001, 50))
    fine = cfg.override(config, {"offline_rows": rows, "etas": (0.0, 0.01)})
    methods = play.methods_for(fine.etas)
    regret = [
        chunk.sum(-1, keepdims=True)
        for chunk in in_chunks(hidden_mode.regret, seeds, 200, config=fine, methods=methods)
    ]
    return bandit_rows.Study(
        problem="hidden_mode",
        config=fine,
        methods=methods,
        regret=np.concatenate(regret),
        phase=None,
    )


def write(
    workdir: pathlib.Path, studies: Sequence[bandit_rows.Study], config: suites.BanditsConfig
) -> None:
    """Writes rows, tables, figures and the resolved configuration."""
    rows = [row for study in studies for row in bandit_rows.make_rows(study)]
    results.write_rows(workdir / "results.jsonl", rows)
    results.write_csv(workdir / "results.csv", rows)
    results.write_config(workdir / "config.json", cfg.to_dict(config))
    texts = [
        tables.to_markdown(table) for study in studies for table in bandit_report.make_tables(study)
    ]
    results.write_bytes(workdir / "tables.md", "\n".join(texts).encode())
    for study in studies:
        if study.phase is not None:
            results.write_rows(workdir / "phase.jsonl", bandit_rows.make_rows(study.phase))
        for name, image in bandit_report.make_figures(study).items():
            results.write_bytes(workdir / f"{name}.png", image)


if __name__ == "__main__":
    cli.run(main, define_flags)
