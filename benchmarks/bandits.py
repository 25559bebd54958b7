"""The bandits' sweeps against a NumPy loop, and all tables from a cold start.

    python -m benchmarks.bandits
    python -m benchmarks.bandits --json --seeds=200          # on a GPU

The sweep is the biased linear bandit's: greedy, UCB, Thompson and IDS at every eta, for every N and
seed. The loop plays a method at a time, with the same rank-one update of the arms' square root, so
that no step costs a product of matrices more than ours; it draws normal numbers for each method,
ours once for all. The cold start is `python -m experiments.bandits` in a process of its own without
a compilation cache: every table of both bandits, randomised IDS and figures included.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks import timing
from benchmarks.timing import Way
from experiments import cli, suites
from roid_jax import results
from roid_jax.linear import biased_linear, play, posterior
from roid_jax.linear.biased_linear import BiasedLinear, BiasedLinearConfig
from roid_jax.report import tables

OURS, LOOP = "ours", "NumPy loop"


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_enum("preset", "default", list(suites.BANDITS), "Which open choices to make.")
    flags.DEFINE_integer("seeds", 4, "Seeds of a round.", lower_bound=1)
    flags.DEFINE_integer("rounds", 3, "How often each row is measured.", lower_bound=1)
    flags.DEFINE_bool("cold", True, "Also measure all tables from a cold start.")
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")


def main() -> None:
    """Measures every row and prints one table."""
    values = flags.FLAGS
    config = suites.BANDITS[values.preset].biased_linear
    found = {"seeds_per_second": measure(config, values.seeds, values.rounds)}
    with cli.border():
        found["cold_seconds"] = cold_start(values.preset) if values.cold else None
    if values.json:
        print(json.dumps({**found, "versions": results.versions()}))
    else:
        tables.show(make_table(found), cli.console())


def measure(config: BiasedLinearConfig, seeds: int, rounds: int) -> dict[str, float]:
    """Returns how many seeds of the whole sweep a second brings."""
    methods = [one for one in play.methods_for(config.etas) if one.name != "ids_randomised"]
    numbers = jnp.arange(seeds)
    keys = [jax.random.split(jax.random.key(seed))[0] for seed in range(seeds)]
    problems = [jax.device_get(biased_linear.draw_problem(key, config)) for key in keys]
    ours = lambda _: np.asarray(  # noqa: E731
        biased_linear.regret(numbers, config=config, methods=tuple(methods))
    )
    begun = [starts(one, config) for one in problems]
    loop = lambda _: [  # noqa: E731
        regret_in_numpy(one, arms, config, methods)
        for one, arms in zip(problems, begun, strict=True)
    ]
    return timing.rates({OURS: Way(ours, seeds), LOOP: Way(loop, seeds)}, rounds)


def starts(problem: BiasedLinear, config: BiasedLinearConfig) -> list[posterior.Posterior]:
    """Returns what the offline rows say about the arms, for each N; not part of the loop."""
    found = []
    for rows in config.offline_rows:
        start = posterior.warm_start(
            problem.features[:rows],
            problem.rewards[:rows],
            precision=config.prior_precision,
            noise=config.model_noise,
        )
        found.append(jax.device_get(posterior.project(start, problem.arms)))
    return found


def regret_in_numpy(
    problem: BiasedLinear,
    begun: Sequence[posterior.Posterior],
    config: BiasedLinearConfig,
    methods: Sequence[play.Method],
) -> np.ndarray:
    """Returns `[N, A]` the regret of each method after the horizon."""
    generator = np.random.default_rng(0)
    return np.array(
        [
            [play_in_numpy(generator, problem, arms, config, method) for method in methods]
            for arms in begun
        ]
    )


def play_in_numpy(
    generator: np.random.Generator,
    problem: BiasedLinear,
    arms: posterior.Posterior,
    config: BiasedLinearConfig,
    method: play.Method,
) -> float:
    """Returns the regret of one method after the horizon."""
    root, centre = np.array(arms.root), np.array(arms.centre)
    precision, total = precision_of(config), 0.0
    best = problem.values.max()
    for _ in range(config.horizon):
        index = choose_in_numpy(generator, root, centre, config, method)
        total += best - problem.values[index]
        reward = problem.values[index] + np.float32(config.noise * generator.normal())
        row = root[index].copy()
        surprise = np.sqrt(1.0 + precision * (row @ row))
        shrink = precision / (surprise * (1.0 + surprise))
        centre += precision * reward * row
        centre -= shrink * (row @ centre) * row
        root -= np.outer(root @ row, shrink * row)
    return float(total)


def choose_in_numpy(
    generator: np.random.Generator,
    root: np.ndarray,
    centre: np.ndarray,
    config: BiasedLinearConfig,
    method: play.Method,
) -> int:
    """Returns the arm that a method takes, computing only what it needs."""
    mean = root @ centre
    if method.name == "greedy":
        return np.argmax(mean)
    if method.name == "thompson":
        return np.argmax(mean + root @ generator.standard_normal(len(centre), np.float32))
    variance = np.einsum("md,md->m", root, root)
    if method.name == "ucb":
        return np.argmax(mean + config.ucb_scale * np.sqrt(variance))
    draws = generator.standard_normal((len(centre), config.posterior_draws), np.float32)
    values = mean[:, None] + root @ draws
    regret = np.maximum(values.max(axis=0).mean() - values.mean(axis=1), 0.0)
    information = 0.5 * np.log1p(precision_of(config) * variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nanargmin(regret**2 / (information + method.eta))


def precision_of(config: BiasedLinearConfig) -> np.float32:
    """Returns one over the variance that the posterior takes the noise to have."""
    return np.float32(1.0 / config.model_noise**2)


def cold_start(preset: str) -> float:
    """Returns the seconds of a process that makes every table, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "experiments.bandits", f"--workdir={folder}"]
        start = time.perf_counter()
        code = subprocess.run(
            [*command, f"--preset={preset}"],
            env=os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"},
            stdout=subprocess.DEVNULL,
            check=False,
        ).returncode
        if code:
            raise ValueError(
                f"the cold start could not be measured: its process ended with {code}."
            )
        return time.perf_counter() - start


def make_table(found: dict[str, Any]) -> tables.Table:
    """Returns seconds a seed, the ratio to ours, and the seconds of the cold start."""
    rates = found["seeds_per_second"]
    body = [
        (name, f"{1.0 / rate:.2f}", f"{rates[OURS] / rate:.2f}") for name, rate in rates.items()
    ]
    if found["cold_seconds"] is not None:
        body += [(), ("all tables of both bandits, cold", f"{found['cold_seconds']:.1f}", "")]
    versions = results.versions()
    notes = (f"{versions['device']}, jax {versions['jax']}.",)
    heads = ("biased linear bandit, one seed of the sweep", "seconds", "/ ours")
    return tables.Table("Bandits", heads, tuple(body), notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
