"""Does the bridge hold: very many callback steps inside scans, and what they do to memory.

    python -m benchmarks.soak --steps=200000

Every call steps a whole batch. A bridge that hangs never ends; one that leaks grows.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from absl import flags

from experiments import cli
from roid_jax import memory, results
from roid_jax.envs import mujoco_c, tasks
from roid_jax.report import tables


class Soak(NamedTuple):
    """What so many calls did; memory is the process's own, in MB, after some calls and at last."""

    size: int
    calls: int
    episodes: int
    seconds: float
    memory_before: float
    memory_after: float


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_enum("task", "hopper", list(tasks.TASKS), "Which task.")
    flags.DEFINE_integer("steps", 200_000, "Calls at each size.", lower_bound=1)
    flags.DEFINE_multi_integer("size", [1, 64], "Environments in a call.", lower_bound=1)
    flags.DEFINE_integer("threads", 2, "Threads of a batch.", lower_bound=1)


def main() -> None:
    """Soaks each size and prints one table."""
    console = cli.console()
    found = []
    for size in flags.FLAGS.size:
        title = f"batch {size}"
        with cli.track(title, flags.FLAGS.steps, console, unit="calls") as advance:
            found.append(
                soak(
                    flags.FLAGS.task,
                    size,
                    flags.FLAGS.steps,
                    threads=flags.FLAGS.threads,
                    report=advance,
                )
            )
    tables.show(make_table(found), console)


def soak(
    task: str,
    size: int,
    calls: int,
    *,
    threads: int,
    chunk: int = 500,
    report: Callable[[int], None] = lambda calls: None,
) -> Soak:
    """Steps a batch of environments that many times, with random actions, in chunks."""
    env = mujoco_c.make(task, threads=threads)

    @jax.jit
    def run(state, start):
        def step(state, t):
            key = jax.random.fold_in(jax.random.key(0), t)
            action = jax.random.uniform(key, (size, env.spec.action_dim), minval=-1.0)
            return env.step(state, action), None

        return jax.lax.scan(step, state, start + jnp.arange(chunk))[0]

    state = jax.jit(env.reset)(jax.random.split(jax.random.key(1), size))
    done, before, started = 0, 0.0, time.perf_counter()
    while done < calls:
        state = jax.block_until_ready(run(state, done))
        done += chunk
        before = before or memory.held()  # after the first chunk, which compiles
        report(chunk)
    return Soak(
        size=size,
        calls=done,
        episodes=int(state.episode.sum()),
        seconds=time.perf_counter() - started,
        memory_before=before,
        memory_after=memory.held(),
    )


def make_table(found: list[Soak]) -> tables.Table:
    """Returns what the calls did."""
    body = tuple(
        (
            f"{soak.size}",
            f"{soak.calls:,}",
            f"{soak.calls * soak.size:,}",
            f"{soak.episodes:,}",
            f"{soak.seconds:.0f}",
            f"{soak.memory_after - soak.memory_before:.1f}",
        )
        for soak in found
    )
    columns = ("batch", "calls", "steps", "episodes", "seconds", "MB grown")
    versions = results.versions()
    notes = (f"{versions['device']}, jax {versions['jax']}, MuJoCo {versions['mujoco']}.",)
    return tables.Table("Callback steps inside scans", columns, body, notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
