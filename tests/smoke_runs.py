"""`experiments.train` in processes of its own, at tiny size."""

import json

import processes


def homes(home):
    return {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}


def start(home, *flags):
    return processes.start("experiments.train", "--profile=smoke", *flags, **homes(home))


def call(home, *flags):
    return processes.call("experiments.train", "--profile=smoke", *flags, **homes(home))


def summary(workdir, seed=0):
    return json.loads((workdir / f"seed_{seed}" / "summary.json").read_text())


def rows(workdir):
    lines = (workdir / "seed_0" / "results.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
