"""`experiments.train` in processes of its own, at tiny size."""

import json
import os
import pathlib
import sys

import processes

ROOT = pathlib.Path(__file__).parent.parent


def command(*flags):
    return [sys.executable, "-m", "experiments.train", "--profile=smoke", *map(str, flags)]


def homes(home):
    return {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}


def environment(home, *, compiled_anew=False):
    left_out = ("JAX_COMPILATION_CACHE_DIR",) if compiled_anew else ()
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return kept | {"JAX_PLATFORMS": "cpu", "COLUMNS": "100"} | homes(home)


def start(home, *flags):
    return processes.start("experiments.train", "--profile=smoke", *flags, **homes(home))


def call(home, *flags):
    return processes.call("experiments.train", "--profile=smoke", *flags, **homes(home))


def summary(workdir, seed=0):
    return json.loads((workdir / f"seed_{seed}" / "summary.json").read_text())


def rows(workdir):
    lines = (workdir / "seed_0" / "results.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
