"""How long a run takes to begin: cold, and going on with what was compiled before.

    python -m benchmarks.startup
    python -m benchmarks.startup --profile=cpu --json

Every row is a process of its own, timed from its start to its end. `cold` is a whole run with an
empty compilation cache, of the smoke profile as it is, or a short one at the sizes of another;
`again` the same run with that cache; `going on` takes up the first run where it ended, for a few
online steps and an evaluation more, and says on the way when its first updates were made.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

from absl import flags

from experiments import cli
from roid_jax import results
from roid_jax.report import tables

STEPS = 25  # online steps of a run that goes on: one chunk of the smoke profile


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_enum("profile", "smoke", ["smoke", "demo", "cpu"], "Sizes of the networks.")
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")


def main() -> None:
    """Measures every row and prints one table."""
    with cli.border():
        found = measure(flags.FLAGS.profile)
    if flags.FLAGS.json:
        print(json.dumps({"seconds": found, "versions": results.versions()}))
    else:
        tables.show(make_table(flags.FLAGS.profile, found), cli.console())


def measure(profile: str) -> dict[str, float]:
    """Returns the seconds of each way to begin."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for row in ("cold", "again"):
            found[row] = _timed(profile, folder / row, folder / "cache")
        going_on = folder / "going on"
        shutil.copytree(folder / "cold", going_on)
        more = _online_steps(going_on) + STEPS
        found["updated"], found["going on"] = _timed_update(
            profile, going_on, folder / "cache", f"--config.online_steps={more}"
        )
    return found


def _online_steps(workdir: pathlib.Path) -> int:
    return results.read_rows(workdir / "seed_0" / "results.jsonl")[-1]["step"]


def _timed(profile: str, workdir: pathlib.Path, cache: pathlib.Path) -> float:
    """Returns the seconds of a short run, from the start of its process to its end."""
    start = time.perf_counter()
    code = subprocess.run(
        [sys.executable, "-m", "experiments.train", *_words(profile, workdir)],
        env=_environment(cache),
        stdout=subprocess.DEVNULL,
        check=False,
    ).returncode
    if code:
        raise ValueError(f"a run could not be measured: its process ended with {code}.")
    return time.perf_counter() - start


def _environment(cache: pathlib.Path) -> dict[str, str]:
    """Returns variables by which a run keeps what it compiles in a folder, and nowhere else."""
    kept = {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_ENABLE_COMPILATION_CACHE": "true"}
    return os.environ | kept


# A training that says when its first chunk of updates has come back.
_TELLING = """
import runpy, sys
import jax
from experiments import phases

make = phases._make_advance

def telling(problem, phase):
    advance = make(problem, phase)
    def tell(state, step, length, learn):
        found = jax.block_until_ready(advance(state, step, length, learn))
        print("updated" if learn else "", file=sys.stderr, flush=True)
        return found
    return tell

phases._make_advance = telling
runpy.run_module("experiments.train", run_name="__main__")
"""


def _timed_update(
    profile: str, workdir: pathlib.Path, cache: pathlib.Path, more: str
) -> tuple[float, float]:
    """Returns the seconds of a run until its first updates are made, and until its end."""
    start, updated = time.perf_counter(), None
    with subprocess.Popen(
        [sys.executable, "-c", _TELLING, *_words(profile, workdir), more],
        env=_environment(cache),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        said = []
        for line in process.stderr:
            said.append(line)
            if line == "updated\n" and updated is None:
                updated = time.perf_counter() - start
    if process.returncode or updated is None:
        raise ValueError(f"a run did not go on: {' '.join(map(str.strip, said))}")
    return updated, time.perf_counter() - start


def _words(profile: str, workdir: pathlib.Path) -> list[str]:
    sizes = {}
    if profile != "smoke":
        sizes = {"offline_steps": 2 * STEPS, "online_steps": 2 * STEPS, "eval_interval": STEPS}
        sizes |= {"eval_episodes": 1, "chunk": STEPS, "agent.warmup_steps": STEPS}
    changes = [f"--config.{name}={value}" for name, value in sizes.items()]
    return [f"--profile={profile}", *changes, f"--workdir={workdir}"]


def make_table(profile: str, found: dict[str, Any]) -> tables.Table:
    """Returns the seconds of each row, and their ratio to the cold one."""
    names = {
        "cold": "cold, both phases",
        "again": "again, with the cache",
        "updated": "going on, to the first updates",
        "going on": f"going on for {STEPS} steps",
    }
    body = tuple(
        (names[row], f"{took:.1f}", f"{took / found['cold']:.2f}") for row, took in found.items()
    )
    versions = results.versions()
    notes = (f"{versions['device']}, jax {versions['jax']}.",)
    return tables.Table("Starting", (f"a {profile} run", "seconds", "/ cold"), body, notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
