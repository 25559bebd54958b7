"""Is anything lost: runs killed again and again, and compared with runs that were left alone.

    python -m benchmarks.kills --kills=100
    python -m benchmarks.kills --agents=roid,odt --kills=20 --json

For each agent a smoke run is left alone. Others are killed (SIGKILL: no warning, no clean end) and
started again until they end; half of the kills come at any time, half as a checkpoint is being
written. A run whose digest is not that of the first was harmed. What was found is kept in the
workdir, so that a benchmark that is itself stopped goes on.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import rich.console
from absl import flags

from experiments import cli, train_report
from roid_jax import results
from roid_jax.agents import named
from roid_jax.report import tables


class Chain(NamedTuple):
    """One run from its start to its end: how often it was killed, and whether it ended the same."""

    agent: str
    anywhere: int
    while_saving: int
    is_same: bool


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_list("agents", list(named.AGENTS), "Which agents, between commas.")
    flags.DEFINE_integer("kills", 100, "Of each agent's runs.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Of the moments.", lower_bound=0)
    flags.DEFINE_string("workdir", "runs/kills", "Where the runs are, and what was found.")
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")


def main() -> None:
    """Kills each agent's runs and prints one table."""
    values = flags.FLAGS
    with cli.border():
        for agent in values.agents:
            named.find(agent)
        workdir = results.open_workdir(values.workdir)
        file = workdir / "chains.jsonl"
        chains = [Chain(**row) for row in results.read_rows(file)] if file.is_file() else []
    console = rich.console.Console(highlight=False, quiet=values.json)
    for agent in values.agents:
        done = sum(c.anywhere + c.while_saving for c in chains if c.agent == agent)
        with cli.track(agent, values.kills, console, unit="kills", done=done) as advance:
            while done < values.kills:
                generator = random.Random(f"{values.seed} {agent} {done}")
                one = harass(agent, workdir / agent, generator, most=values.kills - done)
                chains.append(one)
                results.write_rows(file, [chain._asdict() for chain in chains])
                killed = one.anywhere + one.while_saving
                done += killed
                advance(killed, "" if one.is_same else "harmed")
    found = [chain for chain in chains if chain.agent in values.agents]
    if values.json:
        rows = [chain._asdict() for chain in found]
        print(json.dumps({"chains": rows, "versions": results.versions()}))
    else:
        tables.show(make_table(found), console)


def harass(
    agent: str,
    folder: pathlib.Path,
    generator: random.Random,
    *,
    most: int,
    more: Sequence[str] = (),
) -> Chain:
    """Kills a run at most so often before it ends; the one left alone is made first, once."""
    alone, killed = folder / "alone", folder / "killed"
    if not _summary(alone).is_file():
        _start(agent, alone, more).wait()
    shutil.rmtree(killed, ignore_errors=True)
    seconds = json.loads(_summary(alone).read_text(encoding="utf-8"))["seconds"]
    anywhere = while_saving = 0
    while not _summary(killed).is_file():
        process = _start(agent, killed, more)
        if anywhere + while_saving >= most:
            if process.wait() != 0:
                return Chain(agent, anywhere, while_saving, is_same=False)
            continue
        at_save = generator.random() < 0.5
        # A process begins, with what was compiled before, in some seconds.
        wait = generator.uniform(0.0, 0.05) if at_save else generator.uniform(0.0, 5.0 + seconds)
        if at_save and not _wait_for_save(killed, process):
            continue
        try:
            code = process.wait(timeout=wait)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            anywhere, while_saving = anywhere + (not at_save), while_saving + at_save
            continue
        if code != 0:
            return Chain(agent, anywhere, while_saving, is_same=False)
    digests = {
        json.loads(_summary(one).read_text(encoding="utf-8"))["digest"] for one in (alone, killed)
    }
    return Chain(agent, anywhere, while_saving, is_same=len(digests) == 1)


def _summary(workdir: pathlib.Path) -> pathlib.Path:
    return train_report.summary_file(workdir / "seed_0")


def _start(agent: str, workdir: pathlib.Path, more: Sequence[str]) -> subprocess.Popen:
    command = [sys.executable, "-m", "experiments.train", "--profile=smoke", f"--agent={agent}"]
    return subprocess.Popen(
        [*command, f"--workdir={workdir}", *more],
        env=os.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _wait_for_save(workdir: pathlib.Path, process: subprocess.Popen) -> bool:
    """Waits until a checkpoint is begun; returns whether one was before the process ended."""
    place = workdir / "seed_0" / "checkpoints"

    def names() -> set[str]:
        return {entry.name for entry in place.iterdir()} if place.is_dir() else set()

    before = names()
    while process.poll() is None:
        if names() - before:
            return True
        time.sleep(0.002)
    return False


def make_table(chains: Sequence[Chain]) -> tables.Table:
    """Returns a line for each agent."""
    body = []
    for agent in dict.fromkeys(chain.agent for chain in chains):
        mine = [chain for chain in chains if chain.agent == agent]
        counts = (
            sum(chain.anywhere for chain in mine),
            sum(chain.while_saving for chain in mine),
            len(mine),
            sum(not chain.is_same for chain in mine),
        )
        body.append((agent, *map(str, counts)))
    heads = ("agent", "kills at any time", "while saving", "runs", "harmed")
    versions = results.versions()
    notes = (f"{versions['device']}, jax {versions['jax']}.",)
    return tables.Table("Killed and started again", heads, tuple(body), notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
