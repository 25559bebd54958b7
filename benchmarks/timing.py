"""How rows of one table are measured: in turn, in rounds as long as one another, by the best."""

import json
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO

import jax
import jax.numpy as jnp


class Way(NamedTuple):
    """A way to do some work: `run(times)` does it that often, `times` of them are one round."""

    run: Callable[[int], object]
    times: int


def rates(
    ways: Mapping[str, Way], rounds: int, *, as_long_as: str | None = None
) -> dict[str, float]:
    """Returns how often a second each way does its work.

    The ways take turns and a way's figure is its best round, so that a busy machine harms all
    alike. Each is run once before, so that compilation is not measured.

    Args:
      ways: by name.
      rounds: how often each is measured.
      as_long_as: names a way. Shorter ones are repeated within a round until theirs is as long:
        the best of short rounds finds moments of quiet that the best of long ones cannot.
    """
    for way in ways.values():
        way.run(way.times)
    if as_long_as is not None:
        once = {name: seconds(way) for name, way in ways.items()}
        often = {name: max(1, round(once[as_long_as] / took)) for name, took in once.items()}
        ways = {name: way._replace(times=way.times * often[name]) for name, way in ways.items()}
    best = dict.fromkeys(ways, 0.0)
    for _ in range(rounds):
        for name, way in ways.items():
            best[name] = max(best[name], way.times / seconds(way))
    return best


def seconds(way: Way) -> float:
    """Returns how long one round of it takes."""
    start = time.perf_counter()
    way.run(way.times)
    return time.perf_counter() - start


def matmul(size: int = 2048) -> tuple[Way, float]:
    """Returns a large product of matrices, the machine's practical peak, and its GFLOP."""
    left, right = (jax.random.normal(jax.random.key(i), (size, size)) for i in range(2))
    product = jax.jit(jnp.matmul)

    def run(times: int) -> None:
        for _ in range(times):
            jax.block_until_ready(product(left, right))

    return Way(run, 3), 2e-9 * size**3


@contextmanager
def peers(
    python: str | None, question: str, sizes: Mapping[str, Any], times: int
) -> Iterator[dict[str, Way]]:
    """Lends the ways of other tools, which wait in a process of their own; none without a Python.

    Args:
      python: has the extra `bench`.
      question: `update` or `select`.
      sizes: of the work.
      times: how often it is done in a round.
    """
    if python is None:
        yield {}
        return
    # -P: what lies beside the file, such as `select.py`, is not a module of the library.
    file = pathlib.Path(__file__).with_name("peers.py")
    command = [python, "-P", str(file), question, json.dumps(sizes)]
    # Libraries say much that is of no interest, unless they fail.
    with tempfile.TemporaryFile("w+") as said, _start(command, said) as process:
        names = process.stdout.readline()
        if not names:
            process.wait()
            said.seek(0)
            why = (said.read().splitlines() or ["it said nothing"])[-1]
            raise ValueError(f"{python} could not run the other tools, it needs torch: {why}")

        def ask(name: str) -> Callable[[int], None]:
            def run(times: int) -> None:
                process.stdin.write(f"{name} {times}\n")
                process.stdin.flush()
                if not process.stdout.readline():
                    raise ValueError(f"{name} ended before its round did.")

            return run

        yield {name: Way(ask(name), times) for name in json.loads(names)}
        process.stdin.close()


def _start(command: list[str], said: TextIO) -> subprocess.Popen:
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=said, text=True)
    except OSError as error:
        raise ValueError(f"--peers names no Python: {error}.") from None
