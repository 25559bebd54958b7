"""The paper's theory, run: regret under its bounds, the ratio certificate, the separation.

    python -m experiments.certificates --workdir=runs/certificates

For each horizon H, feature dimension d and number n of offline rows a stage: the measured Bayesian
regret of Thompson sampling and of both IDS rules, the bounds, the coverage, the information ratios
and the errors of the identities behind them. Then the separation theorem on its concrete instance.
Writes results.jsonl, results.csv, tables.md, config.json and a figure of each.
"""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from experiments import certificate_report, certificate_rows, cli, suites
from roid_jax import config as cfg
from roid_jax import directories, results
from roid_jax.linear import certificates, episodic, hidden_mode, play, separation
from roid_jax.report import tables


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_enum("preset", "default", list(suites.CERTIFICATES), "Which sizes to run.")
    flags.DEFINE_integer(
        "first_seed", 0, "Seed of the first problem.", lower_bound=0, upper_bound=2**30
    )
    flags.DEFINE_string("workdir", "runs/certificates", "Where the results land.")
    cli.define_config(suites.CERTIFICATES["default"])
    flags.declare_key_flag("config")  # so that --help lists it with these


def main() -> None:
    """Runs the episodic model at every size, then the separation, and writes everything."""
    console = cli.console()
    with cli.border():
        config = cli.configured(suites.CERTIFICATES[flags.FLAGS.preset])
        workdir = directories.open_workdir(flags.FLAGS.workdir)
    seeds = np.arange(flags.FLAGS.first_seed, flags.FLAGS.first_seed + config.problems)
    cells = []
    with cli.track("episodic model", len(config.sizes()), console, unit="sizes") as advance:
        for horizon, dim in config.sizes():
            cells.append(run_size(config.episodic, horizon, dim, seeds))
            advance(1, certificate_rows.score(cells[-1]))
    contest = run_separation(config.separation, seeds[0])
    report = certificate_rows.Report(config=config, cells=cells, contest=contest)
    with cli.border():
        write(workdir, report)
    for table in certificate_report.make_tables(report):
        tables.show(table, console)
    console.print(f"Results, tables and figures are in {workdir}/")


def run_size(
    base: episodic.EpisodicConfig, horizon: int, dim: int, seeds: np.ndarray
) -> certificate_rows.Cell:
    """Plays the episodic model at one size and measures it against the theory."""
    config = dataclasses.replace(base, horizon=horizon, feature_dim=dim)
    rules = [play.Method(name, eta) for name in ("ids", "ids_randomised") for eta in config.etas]
    methods = (play.Method("thompson"), *rules)
    outcome = episodic.simulate(jnp.asarray(seeds), config=config, methods=methods)
    etas = jnp.array([method.eta or 0.0 for method in methods])
    return certificate_rows.Cell(
        config=config,
        methods=methods,
        measured=jax.device_get(
            certificates.measure(*outcome, etas, precision=config.prior_precision)
        ),
        identities=jax.device_get(
            certificates.check_identities(*outcome, precision=config.prior_precision)
        ),
        episodes=jax.device_get(outcome[2]),
    )


def run_separation(config: suites.SeparationConfig, seed: int) -> certificate_rows.Contest:
    """Plays the concrete instance of the separation theorem for every N, up to the longest T."""
    bandit = hidden_mode.HiddenModeConfig(
        rewards=separation.concrete_rewards(config.probe_cost),
        offline_rows=config.offline_rows,
        reveal_rate=config.reveal_rate,
        horizon=config.horizon,
        etas=(0.0,),
    )
    methods = (play.Method("thompson"), play.Method("ids", 0.0))
    seeds = jnp.arange(seed, seed + config.seeds)
    regret = hidden_mode.regret(seeds, config=bandit, methods=methods)
    curves = np.cumsum(np.asarray(regret, np.float64), axis=-1)
    return certificate_rows.Contest(config=bandit, methods=methods, curves=curves)


def write(workdir: pathlib.Path, report: certificate_rows.Report) -> None:
    """Writes rows, tables, figures and the resolved configuration."""
    rows = certificate_rows.make_rows(report)
    results.write_rows(workdir / "results.jsonl", rows)
    results.write_csv(workdir / "results.csv", rows)
    results.write_config(workdir / "config.json", cfg.to_dict(report.config))
    texts = [tables.to_markdown(table) for table in certificate_report.make_tables(report)]
    results.write_bytes(workdir / "tables.md", "\n".join(texts).encode())
    for name, image in certificate_report.make_figures(report).items():
        results.write_bytes(workdir / f"{name}.png", image)


if __name__ == "__main__":
    cli.run(main, define_flags)
