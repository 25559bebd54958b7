"""What an online step costs, and what of it is choosing, the world, the memory and learning.

    python -m benchmarks.online_step
    python -m benchmarks.online_step --only=whole,memory,seeds
    python -m benchmarks.online_step --json --env=mjx:hopper     # on a GPU

At the paper's setting: ten critics of 256 x 256, 256 candidates, five updates of 256 rows a step.
The parts are measured alone, each in a compiled scan, interleaved with the whole step; the rest of
the table changes one size at a time.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags

from benchmarks import flops, timing, update
from benchmarks.timing import Way
from experiments import cli
from roid_jax import replay, results, seeds, training
from roid_jax.agents import roid, roid_learner
from roid_jax.envs import named
from roid_jax.envs.base import Environment
from roid_jax.report import tables

AXES = replay.Dataset(rows=None, order=None)


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_string("env", "hopper", "The world by name.")
    # Seeds that take turns hand over their memories once a round, as they do once a chunk of 500.
    flags.DEFINE_integer("steps", 100, "Steps of a row and round.", lower_bound=1)
    flags.DEFINE_integer("rounds", 2, "How often each row is measured.", lower_bound=1)
    flags.DEFINE_integer("capacity", 1_000_000, "The largest memory.", lower_bound=20_000)
    flags.DEFINE_integer("seeds", 4, "Runs side by side in the last rows.", lower_bound=1)
    flags.DEFINE_list("only", [], "Rows whose names hold one of these words; all, if not given.")
    flags.DEFINE_bool("small", False, "Tiny networks, to try the benchmark itself.")
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")


def main() -> None:
    """Measures every row and prints one table."""
    values = flags.FLAGS
    with cli.border():
        env = named.make(values.env)
        if env.keeps_state:
            raise ValueError(f"{values.env} is stepped by one program only; name another --env.")
        found = measure(
            env,
            settings(small=values.small),
            steps=values.steps,
            rounds=values.rounds,
            capacity=values.capacity,
            number=values.seeds,
            only=values.only,
        )
    if values.json:
        print(json.dumps({"rows": found, "versions": results.versions()}))
    else:
        tables.show(make_table(values.env, found), cli.console())


def settings(*, small: bool = False) -> roid_learner.RoidConfig:
    """Returns the paper's setting, without its warm-up; or a tiny one."""
    config = roid_learner.RoidConfig(warmup_steps=0)
    if not small:
        return config
    offline = dataclasses.replace(config.offline, hidden=(8,), batch_size=8, holdout=50)
    return dataclasses.replace(config, offline=offline)


def measure(
    env: Environment,
    config: roid_learner.RoidConfig,
    *,
    steps: int,
    rounds: int,
    capacity: int,
    number: int,
    only: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Returns the milliseconds of each row, and the useful GFLOP of the whole step."""
    selector = config.selector
    fewer = dataclasses.replace(selector, wide_candidates=selector.candidates)
    half = dataclasses.replace(config.offline, num_members=max(1, config.offline.num_members // 2))
    make = functools.partial(whole, env, steps=steps)
    with_half, with_fewer = (
        dataclasses.replace(config, **change) for change in ({"offline": half}, {"selector": fewer})
    )
    rows = {
        "whole step": lambda: make(config, 10_000),
        f"memory of {capacity:,}": lambda: make(config, capacity),
        "choose, world and memory": lambda: make(config, 10_000, learn=False),
        "world": lambda: world(env, steps),
        "memory": lambda: memory(env, config, steps, 10_000),
        f"{2 * half.num_members} critics": lambda: make(with_half, 10_000),
        f"{fewer.wide_candidates} candidates": lambda: make(with_fewer, 10_000),
    }
    for size in (10_000, capacity) if number > 1 else ():
        of = "" if size == 10_000 else f", memory of {capacity:,}"
        together = functools.partial(make, config, size, number=number)
        rows[f"{number} seeds, in turns{of}"] = together
        rows[f"{number} seeds, vmapped{of}"] = functools.partial(together, vmapped=True)
    ways = {name: way() for name, way in _asked_for(rows, only).items()}
    product, gflop = timing.matmul()
    rates = timing.rates({update.PEAK: product, **ways}, rounds, as_long_as="whole step")
    peak = rates.pop(update.PEAK) * gflop
    floor = useful_gflop(env, config) / peak
    found = [{"name": name, "milliseconds": 1e3 / rate} for name, rate in rates.items()]
    return [*found, {"name": "floor of the whole step", "milliseconds": 1e3 * floor}]


def _asked_for(rows: dict[str, Callable[[], Way]], only: Sequence[str]) -> dict[str, Callable]:
    """Returns the whole step and the rows whose names hold one of the words; all without words."""
    for word in only:
        if not any(word in name for name in rows):
            raise ValueError(f"--only={word} is in no row's name; there are {'; '.join(rows)}.")
    return {
        name: way
        for name, way in rows.items()
        if name == "whole step" or not only or any(word in name for word in only)
    }


def useful_gflop(env: Environment, config: roid_learner.RoidConfig) -> float:
    """Returns the useful operations of one environment step."""
    offline, critics = config.offline, 2 * config.offline.num_members
    sizes = env.spec.obs_dim, env.spec.action_dim, offline.hidden
    learn = flops.online_update(*sizes, offline.batch_size, critics, offline.policy_delay)
    choose = flops.select(*sizes, config.selector.wide_candidates, critics)
    return 1e-9 * (config.updates * learn + choose)


def whole(
    env: Environment,
    config: roid_learner.RoidConfig,
    capacity: int,
    *,
    steps: int,
    learn: bool = True,
    number: int = 1,
    vmapped: bool = False,
) -> Way:
    """Returns online steps of so many seeds, with a full memory.

    As a training takes them, or vmapped on one device (the same thing on a GPU).
    """
    agent = roid.roid(config, env.spec)
    dataset = update.make_dataset(env.spec)
    mesh = seeds.make_mesh(1 if vmapped else number)
    keys = jax.random.split(jax.random.key(0), number)

    def begin(key: Any) -> training.Online:
        state = agent.handover(key, agent.init(key, dataset), dataset)
        start = training.begin_online(key, agent, state, env, capacity=capacity)
        full = start.replay.replace(count=jnp.int32(capacity))
        return start.replace(replay=full)

    axes = training.ONLINE_AXES
    state = seeds.over(begin, mesh, (0,), axes)(keys)
    chunk = training.make_online(agent, env, length=steps, learn=learn)
    in_axes, out_axes = (0, axes, None, AXES), (axes, 0)
    if vmapped:
        run = seeds.beside(chunk, in_axes, out_axes, donate=1)
    else:
        run = seeds.over(chunk, mesh, in_axes, out_axes, donate=1)
    return _going_on(lambda state: run(keys, state, 0, dataset)[0], state, steps)


def world(env: Environment, steps: int) -> Way:
    """Returns steps of one environment alone."""
    action = jnp.zeros((1, env.spec.action_dim))
    state = env.reset(jax.random.split(jax.random.key(0), 1))
    run = jax.jit(
        lambda state: jax.lax.scan(lambda s, _: (env.step(s, action), None), state, length=steps)[0]
    )
    return _going_on(run, state, steps)


def memory(env: Environment, config: roid_learner.RoidConfig, steps: int, capacity: int) -> Way:
    """Returns what the memory does in a step: a row added, the rows of the updates drawn."""
    layout = replay.Layout(env.spec.obs_dim, env.spec.action_dim)
    full = replay.init(layout, capacity).replace(count=jnp.int32(capacity))
    row = jnp.ones((1, layout.width))

    def step(carry: tuple[replay.Replay, Any], t: Any) -> tuple[tuple[replay.Replay, Any], None]:
        state, total = carry
        state = replay.add(state, row)
        key = jax.random.fold_in(jax.random.key(0), t)
        drawn, _ = replay.sample(key, state, config.updates, config.offline.batch_size)
        return (state, total + jnp.sum(drawn)), None  # a sum, so that nothing is left out

    run = jax.jit(lambda carry: jax.lax.scan(step, carry, jnp.arange(steps))[0], donate_argnums=0)
    return _going_on(run, (full, jnp.zeros(())), steps)


def _going_on(run: Callable, state: Any, steps: int) -> Way:
    """Returns a way whose state goes on from call to call."""

    def again(times: int) -> None:
        nonlocal state
        for _ in range(times // steps):
            state = run(state)
        jax.block_until_ready(state)

    return Way(again, steps)


def make_table(env: str, found: list[dict[str, Any]]) -> tables.Table:
    """Returns milliseconds a step, and their ratio to the whole step's."""
    whole_step = found[0]["milliseconds"]
    body = tuple(
        (row["name"], f"{row['milliseconds']:.2f}", f"{row['milliseconds'] / whole_step:.3f}")
        for row in found
    )
    versions = results.versions()
    notes = (f"{versions['device']}, jax {versions['jax']}.",)
    heads = (f"online step on {env}", "ms", "/ whole step")
    return tables.Table("What an online step costs", heads, body, notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
