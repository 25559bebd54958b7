"""How many gradient steps a second: ours, how near to the machine's peak, and other tools.

    python -m benchmarks.update
    python -m benchmarks.update --peers=<python with torch and d3rlpy>
    python -m benchmarks.update --json --steps=2000          # on a GPU

TD3+BC as its authors sized it (256 x 256, batches of 256), one member and five at once, and the
online update of ten critics. Useful GFLOP are those of the matrix products that an ideal program
needs; the peak is a large product, measured in the same run.
"""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from absl import flags

from benchmarks import flops, timing
from benchmarks.timing import Way
from experiments import cli
from roid_jax import config as cfg
from roid_jax import replay, results, training
from roid_jax.agents import ensemble, roid, roid_learner, td3bc
from roid_jax.envs.base import Spec
from roid_jax.report import tables
from roid_jax.types import Transitions

CHUNK = 100  # updates in one compiled call
PEAK = "large matrix product"


class Row(NamedTuple):
    """One way to update: units of work in a step, and their useful operations where known."""

    name: str
    way: Way
    members: int
    gflop: float | None


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_integer("steps", 100, "Updates of a row and round, at least.", lower_bound=1)
    flags.DEFINE_integer("rounds", 15, "How often each row is measured.", lower_bound=1)
    flags.DEFINE_list("hidden", ["256", "256"], "Sizes of the hidden layers.")
    flags.DEFINE_integer("batch_size", 256, "Rows of a batch.", lower_bound=1)
    flags.DEFINE_string("peers", None, "A Python with the extra `bench`, for rows of other tools.")
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")


def main() -> None:
    """Measures every row and prints one table."""
    values = flags.FLAGS
    with cli.border():
        hidden = read_sizes(values.hidden)
        sizes = {"obs_dim": 11, "action_dim": 3, "hidden": hidden, "batch_size": values.batch_size}
        gflop = 1e-9 * flops.td3bc_update(*sizes.values())
        with timing.peers(values.peers, "update", sizes, values.steps) as others:
            rows = ours(**sizes, steps=values.steps)
            rows += [Row(name, way, 1, gflop) for name, way in others.items()]
            found = measure(rows, values.rounds)
    if values.json:
        print(json.dumps({"rows": found, "versions": results.versions()}))
    else:
        tables.show(make_table(found), cli.console())


def read_sizes(words: Sequence[str]) -> tuple[int, ...]:
    """Returns the sizes that a flag names."""
    is_right = bool(words) and all(word.isdecimal() and int(word) > 0 for word in words)
    cfg.check(is_right, "hidden", "whole numbers above 0 between commas", ",".join(words))
    return tuple(map(int, words))


def measure(rows: list[Row], rounds: int) -> list[dict[str, float | str | None]]:
    """Returns each row's rate, in steps and in members' steps, and its share of the peak."""
    product, gflop = timing.matmul()
    ways = {PEAK: product, **{row.name: row.way for row in rows}}
    rates = timing.rates(ways, rounds, as_long_as=rows[1].name)
    peak = rates.pop(PEAK) * gflop
    found = []
    for row in rows:
        gflops = None if row.gflop is None else rates[row.name] * row.gflop
        found.append(
            {
                "name": row.name,
                "steps_per_second": rates[row.name],
                "member_steps_per_second": rates[row.name] * row.members,
                "gflops": gflops,
                "share_of_peak": None if gflops is None else gflops / peak,
            }
        )
    return [*found, {"name": PEAK, "gflops": peak}]


def ours(
    obs_dim: int, action_dim: int, hidden: tuple[int, ...], batch_size: int, *, steps: int
) -> list[Row]:
    """Returns our rows: one member, five at once, and ten critics online."""
    spec = Spec("benchmark", obs_dim, action_dim, 1000)
    dataset = make_dataset(spec)
    gflop = 1e-9 * flops.td3bc_update(obs_dim, action_dim, hidden, batch_size)
    online = 1e-9 * flops.online_update(obs_dim, action_dim, hidden, batch_size, 10)
    one = ensemble.EnsembleConfig(
        hidden=hidden, batch_size=batch_size, num_members=1, mask_probability=1.0, holdout=0
    )
    five = ensemble.EnsembleConfig(hidden=hidden, batch_size=batch_size, holdout=100)
    return [
        Row("ours, offline, 1 member", offline(one, spec, dataset, steps), 1, gflop),
        Row("ours, offline, 5 members", offline(five, spec, dataset, steps), 5, 5 * gflop),
        Row("ours, online, 10 critics", online_way(five, spec, dataset, steps), 1, online),
    ]


def make_dataset(spec: Spec) -> replay.Dataset:
    """Returns random transitions, as many as make sampling them no different from real ones."""
    generator = np.random.default_rng(0)
    draw = lambda *shape: generator.normal(size=shape).astype(np.float32)  # noqa: E731
    number = 100_000
    rows = Transitions(
        obs=draw(number, spec.obs_dim),
        action=np.tanh(draw(number, spec.action_dim)),
        reward=draw(number),
        discount=np.ones(number, np.float32),
        next_obs=draw(number, spec.obs_dim),
    )
    layout = replay.Layout(spec.obs_dim, spec.action_dim)
    return replay.make_dataset(jax.random.key(0), layout, rows)


def offline(
    config: ensemble.EnsembleConfig, spec: Spec, dataset: replay.Dataset, steps: int
) -> Way:
    """Returns the updates of the offline phase, in compiled chunks."""
    agent = td3bc.td3bc(config, spec)
    chunk = training.make_pretrain(agent, length=min(CHUNK, steps))
    state = jax.jit(agent.init)(jax.random.key(1), dataset)
    return _in_chunks(lambda state, t: chunk(jax.random.key(2), state, t, dataset), state, steps)


def online_way(
    config: ensemble.EnsembleConfig, spec: Spec, dataset: replay.Dataset, steps: int
) -> Way:
    """Returns the updates of the online phase alone, one a step, without a world."""
    settings = roid_learner.RoidConfig(offline=config, updates=1)
    agent = roid.roid(settings, spec)
    start = jax.jit(agent.init)(jax.random.key(1), dataset)
    state = jax.jit(agent.handover)(jax.random.key(2), start, dataset)
    memory = replay.Replay(rows=dataset.rows, count=np.int32(len(dataset.rows)))
    updating = agent._replace(
        offline_update=lambda key, t, state, dataset: agent.online_update(
            key, t, state, memory, dataset
        )
    )
    chunk = training.make_pretrain(updating, length=min(CHUNK, steps))
    return _in_chunks(lambda state, t: chunk(jax.random.key(3), state, t, dataset), state, steps)


def _in_chunks(chunk: Callable, state: object, steps: int) -> Way:
    """Returns a way whose state goes on from call to call."""
    state = jax.tree.map(lambda leaf: leaf.copy(), state)  # nothing shared is given away

    size = min(CHUNK, steps)

    def run(times: int) -> None:
        nonlocal state
        for t in range(0, times, size):
            state, _ = chunk(state, t)
        jax.block_until_ready(state)

    return Way(run, -(-steps // size) * size)


def make_table(found: list[dict]) -> tables.Table:
    """Returns the rates, those of TD3+BC with their ratio to one member of ours."""
    *rows, peak = found
    first = rows[0]["member_steps_per_second"]
    body = [
        (
            row["name"],
            f"{row['steps_per_second']:,.0f}",
            f"{row['member_steps_per_second']:,.0f}",
            "" if "online" in row["name"] else f"{row['member_steps_per_second'] / first:.2f}",
            f"{row['gflops']:.0f}",
            f"{100 * row['share_of_peak']:.0f}%",
        )
        for row in rows
    ]
    body.append((PEAK, "", "", "", f"{peak['gflops']:.0f}", "100%"))
    heads = ("update", "steps/s", "member steps/s", "/ 1 member", "GFLOPS", "of peak")
    versions = results.versions()
    notes = (f"{versions['device']}, jax {versions['jax']}; {versions['roid_jax']}.",)
    return tables.Table("Updates a second", heads, tuple(body), notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
