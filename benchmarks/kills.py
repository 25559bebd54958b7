"""Is anything lost: runs killed again and again, and compared with runs that were left alone.

    python -m benchmarks.kills --kills=100
    python -m benchmarks.kills --agents=roid,odt --kills=20 --json

For each agent a smoke run is left alone. Others are killed (SIGKILL: no warning, no clean end) and
started again until they end; half of the kills come at any time, half as a checkpoint is being
written. A run was harmed where its digest is not that of the first, where a checkpoint was found
broken, or where rows that a whole checkpoint had are not there later with the very seconds they
took: then something was lost and done again. This ends with 1 where one was. What was found is kept
in the workdir, so that a benchmark that is itself stopped goes on.

Runs are forked off a process that has imported everything and computed nothing, so that kills come
while a run works and not while Python starts.
"""

import json
import multiprocessing
import operator
import os
import pathlib
import random
import shutil
import sys
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from absl import flags

from experiments import cli, train, train_report
from roid_jax import directories, results
from roid_jax.agents import named
from roid_jax.report import tables

_BEGINNING = 3.0  # seconds until a run computes, with what was compiled before
_LIVES = 3  # at least, of a run that is killed at any time
_QUIET = "ignore:resource_tracker"  # a killed process cannot give its semaphores back


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
        workdir = directories.open_workdir(values.workdir)
        file = workdir / "chains.jsonl"
        chains = [Chain(**row) for row in results.read_rows(file)] if file.is_file() else []
    console = cli.console(quiet=values.json)
    for agent in values.agents:
        done = sum(c.anywhere + c.while_saving for c in chains if c.agent == agent)
        with cli.track(agent, values.kills, console, unit="kills", done=done) as advance:
            while done < values.kills:
                generator = random.Random(f"{values.seed} {agent} {len(chains)}")
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
    if not all(chain.is_same for chain in found):
        sys.exit(1)


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
        _start(agent, folder / "compiled", more).join()  # so that the next one's time is its work's
        _start(agent, alone, more).join()
    shutil.rmtree(killed, ignore_errors=True)
    seconds = json.loads(_summary(alone).read_text(encoding="utf-8"))["seconds"]
    anywhere = while_saving = 0
    kept: list[Any] = []  # rows of the last whole checkpoint
    while not _summary(killed).is_file():
        process = _start(agent, killed, more)
        if anywhere + while_saving < most:
            at_save = generator.random() < 0.5
            wait = generator.uniform(0.0, 0.05 if at_save else _BEGINNING + seconds / _LIVES)
            if not at_save or _wait_for_save(killed, process):
                process.join(wait)
            if process.is_alive():
                process.kill()
                anywhere, while_saving = anywhere + (not at_save), while_saving + at_save
                process.join()
                if not _goes_on(killed, kept):
                    return Chain(agent, anywhere, while_saving, is_same=False)
                kept = _saved_rows(killed)
                continue
        process.join()
        if process.exitcode != 0:
            return Chain(agent, anywhere, while_saving, is_same=False)
    digests = {
        json.loads(_summary(one).read_text(encoding="utf-8"))["digest"] for one in (alone, killed)
    }
    is_same = len(digests) == 1 and _goes_on(killed, kept)
    return Chain(agent, anywhere, while_saving, is_same=is_same)


def _goes_on(workdir: pathlib.Path, kept: Sequence[Any]) -> bool:
    """Whether what was saved before is still there: its rows, as far as they are written again."""
    file = workdir / "seed_0" / "results.jsonl"
    rows = results.read_rows(file) if file.is_file() else []
    is_broken = any((workdir / "seed_0" / "checkpoints").glob("*.broken*"))
    return not is_broken and all(map(operator.eq, rows, kept))


def _saved_rows(workdir: pathlib.Path) -> list[Any]:
    """Returns the rows in the last whole checkpoint."""
    steps = (workdir / "seed_0" / "checkpoints").glob("*/rows/rows.jsonl")
    whole = {int(file.parts[-3]): file for file in steps if file.parts[-3].isdigit()}
    return results.read_rows(whole[max(whole)]) if whole else []


def _summary(workdir: pathlib.Path) -> pathlib.Path:
    return train_report.summary_file(workdir / "seed_0")


def _start(agent: str, workdir: pathlib.Path, more: Sequence[str]) -> BaseProcess:
    if _QUIET not in sys.warnoptions:
        sys.warnoptions.append(_QUIET)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["experiments.train"])
    words = ["train", "--profile=smoke", f"--agent={agent}", f"--workdir={workdir}", *more]
    process = context.Process(target=_train, args=(words,))
    process.start()
    return process


def _train(words: list[str]) -> None:
    """Runs a training as its command does, in silence; ends the process."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    sys.argv = words
    cli.run(train.main, train.define_flags)


def _wait_for_save(workdir: pathlib.Path, process: BaseProcess) -> bool:
    """Waits until a checkpoint is begun; returns whether one was before the process ended."""
    place = workdir / "seed_0" / "checkpoints"

    def names() -> set[str]:
        return {entry.name for entry in place.iterdir()} if place.is_dir() else set()

    before = names()
    while process.is_alive():
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
