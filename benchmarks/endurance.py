"""Does a long run stay as it began: online steps for hours, and memory and rate on the way.

    python -m benchmarks.endurance --minutes=120
    python -m benchmarks.endurance --minutes=120 --json > endurance.json

ROID at a small setting acts, steps hopper, remembers and learns in compiled chunks, as a training
does between two evaluations. What is compared are medians of the first and the last quarter of the
time. Beside the rate by the clock stands the rate by the process's own time, which neighbours on
the machine disturb less.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import rich.console
from absl import flags

from benchmarks import soak, update
from experiments import cli
from roid_jax import config as cfg
from roid_jax import results, training
from roid_jax.agents import roid, roid_learner
from roid_jax.agents.ensemble import EnsembleConfig
from roid_jax.agents.selector import SelectorConfig
from roid_jax.envs import named
from roid_jax.envs.base import Environment
from roid_jax.report import tables

QUARTERS = 4


class Mark(NamedTuple):
    """Where a run was: steps done, MB that the process has, and steps a second since the last."""

    minutes: float
    steps: int
    megabytes: float
    rate: float
    own_rate: float  # by the process's own time


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_string("env", "hopper", "The world by name.")
    flags.DEFINE_float("minutes", 120.0, "How long.", lower_bound=0.01, upper_bound=1e5)
    flags.DEFINE_integer("marks", 120, "How often it is looked at.", lower_bound=2 * QUARTERS)
    flags.DEFINE_integer("chunk", 500, "Steps in one compiled call.", lower_bound=2)
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")


def main() -> None:
    """Steps for as long as it was told to and prints one table."""
    values = flags.FLAGS
    console = rich.console.Console(highlight=False, quiet=values.json)
    with cli.border():
        env = named.make(values.env)
        cfg.check(values.minutes > 0, "minutes", "above 0", values.minutes)
    with cli.track("online steps", values.minutes, console, unit="minutes") as advance:
        how = {"minutes": values.minutes, "number": values.marks, "chunk": values.chunk}
        marks = endure(env, **how, report=advance)
    if values.json:
        rows = [mark._asdict() for mark in marks]
        print(json.dumps({"marks": rows, "drift": drift(marks), "versions": results.versions()}))
    else:
        tables.show(make_table(marks), console)


def endure(
    env: Environment,
    *,
    minutes: float,
    number: int,
    chunk: int,
    report: Callable[[float], None] = lambda minutes: None,
) -> list[Mark]:
    """Returns marks on the way, as evenly in time as chunks allow."""
    run = _make_run(env, chunk)
    run(0)  # compiles
    began, done, marks = time.perf_counter(), 0, []
    last = began, time.process_time(), 0
    while len(marks) < number:
        run(done)
        done += chunk
        now = time.perf_counter()
        if (now - began) / 60.0 < minutes * (len(marks) + 1) / number:
            continue
        own, steps = time.process_time(), done - last[2]
        rates = steps / (now - last[0]), steps / (own - last[1])
        marks.append(Mark((now - began) / 60.0, done, soak.memory(), *rates))
        report((now - last[0]) / 60.0)
        last = now, own, done
    return marks


def _make_run(env: Environment, chunk: int) -> Callable[[int], None]:
    """Returns a function that takes a chunk of online steps, from the step that it is told."""
    config = roid_learner.RoidConfig(
        offline=EnsembleConfig(hidden=(32, 32), batch_size=32, num_members=2, holdout=50),
        selector=SelectorConfig(candidates=8, wide_candidates=16),
        updates=1,
        warmup_steps=0,
    )
    agent, dataset = roid.roid(config, env.spec), update.make_dataset(env.spec)
    keys = jax.random.split(jax.random.key(0), 4)
    state = agent.handover(keys[1], agent.init(keys[0], dataset), dataset)
    online = training.begin_online(keys[2], agent, state, env, capacity=100_000)
    program = training.make_online(agent, env, length=chunk, learn=True)

    def run(start: int) -> None:
        nonlocal online
        online, log = program(keys[3], online, start, dataset)
        jax.device_get(log)  # as a training does

    return run


def quarters(marks: list[Mark]) -> list[dict[str, float]]:
    """Returns the last minute and step of each quarter, and medians of the rest."""
    size = len(marks) / QUARTERS
    found = []
    for i in range(QUARTERS):
        part = marks[round(i * size) : round((i + 1) * size)]
        middle = map(statistics.median, zip(*part, strict=True))
        ends = {"minutes": part[-1].minutes, "steps": part[-1].steps}
        found.append({**dict(zip(Mark._fields, middle, strict=True)), **ends})
    return found


def drift(marks: list[Mark]) -> dict[str, float]:
    """Returns the last quarter's median over the first's, of memory and of both rates."""
    first, *_, last = quarters(marks)
    return {name: last[name] / first[name] for name in ("megabytes", "rate", "own_rate")}


def make_table(marks: list[Mark]) -> tables.Table:
    """Returns the medians of each quarter, and how the last compares with the first."""
    body: list[tuple[str, ...]] = [
        (
            f"to minute {part['minutes']:.0f}",
            *(f"{part[name]:,.0f}" for name in ("steps", "megabytes", "rate", "own_rate")),
        )
        for part in quarters(marks)
    ]
    changes = [f"{ratio:.3f}" for ratio in drift(marks).values()]
    body += [(), ("last / first", "", *changes)]
    heads = ("online steps, medians", "steps", "MB", "steps/s", "steps/s of its own time")
    versions = results.versions()
    notes = (f"{versions['device']}, jax {versions['jax']}, MuJoCo {versions['mujoco']}.",)
    return tables.Table("A long run", heads, tuple(body), notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
