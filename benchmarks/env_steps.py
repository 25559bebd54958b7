"""How many environment steps a second: raw MuJoCo, Gymnasium, and ours inside a scan.

    python -m benchmarks.env_steps --task=hopper --steps=2000
    python -m benchmarks.env_steps --task=hopper --steps=200000 --mjx_size=4096  # on a GPU

Every row steps the same task with random actions, resets included. Rows are measured in turn, in
several rounds, and a row's figure is its best round, so that a busy machine harms all alike.
"""

import importlib.util
import json
import warnings
from collections.abc import Callable

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from absl import flags

from benchmarks import timing
from experiments import cli
from roid_jax import results
from roid_jax.envs import base, mjx, mujoco_c, physics, tasks
from roid_jax.report import tables

GYMNASIUM_IDS = {
    "hopper": "Hopper-v4",
    "walker2d": "Walker2d-v4",
    "halfcheetah": "HalfCheetah-v4",
}


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_enum("task", "hopper", list(tasks.TASKS), "Which task.")
    flags.DEFINE_integer(
        "steps", 2000, "Steps of a row and round; a batch makes at least 100 calls.", lower_bound=1
    )
    flags.DEFINE_integer("rounds", 3, "How often each row is measured.", lower_bound=1)
    flags.DEFINE_integer("threads", 2, "Threads of our batches.", lower_bound=1)
    flags.DEFINE_integer("mjx_size", 256, "Environments of the MJX row.", lower_bound=1)
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")


def main() -> None:
    """Measures every row and prints one table."""
    console = cli.console()
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # Gymnasium's, about v4
    rates = measure(
        flags.FLAGS.task,
        flags.FLAGS.steps,
        flags.FLAGS.rounds,
        threads=flags.FLAGS.threads,
        mjx_size=flags.FLAGS.mjx_size,
    )
    if flags.FLAGS.json:
        print(json.dumps({"steps_per_second": rates, "versions": results.versions()}))
    else:
        tables.show(make_table(flags.FLAGS.task, rates), console)


def measure(
    task: str, steps: int, rounds: int, *, threads: int, mjx_size: int
) -> dict[str, float | None]:
    """Returns the best steps a second of each way to step; None where a way is not installed."""
    ours = mujoco_c.make(task, physics="stock", threads=threads)
    ways: dict[str, tuple[int, Callable[[int], None]]] = {
        "mj_step loop": (1, raw_loop(task)),
        "gymnasium": (1, gymnasium_loop(task)),
        "gymnasium SyncVectorEnv, 64": (64, vector_loop(task, 64)),
        **{f"ours in a scan, {size}": (size, scan(ours, size)) for size in (1, 10, 64)},
    }
    mjx_way = f"ours on MJX in a scan, {mjx_size}"
    if importlib.util.find_spec("mujoco.mjx") is not None:
        ways[mjx_way] = (mjx_size, scan(mjx.make(task, physics="stock"), mjx_size))
    calls = {
        name: timing.Way(run, max(100, steps // size) if size > 10 else steps)
        for name, (size, run) in ways.items()
    }
    rates = timing.rates(calls, rounds)
    found: dict[str, float | None] = {name: size * rates[name] for name, (size, _) in ways.items()}
    return {**found, mjx_way: found.get(mjx_way)}


def raw_loop(name: str) -> Callable[[int], None]:
    """Steps MuJoCo itself, without observation, reward or end."""
    task = tasks.find(name)
    model = physics.load(task, physics="stock")
    data = mujoco.MjData(model)
    actions = np.random.default_rng(0).uniform(-1, 1, (1000, task.action_dim))

    def run(steps: int) -> None:
        mujoco.mj_resetData(model, data)
        for t in range(steps):
            data.ctrl[:] = actions[t % 1000]
            mujoco.mj_step(model, data, nstep=task.frame_skip)

    return run


def gymnasium_loop(name: str) -> Callable[[int], None]:
    """Steps one environment of Gymnasium's."""
    physics.mute()
    env = gymnasium.make(GYMNASIUM_IDS[name])
    actions = _actions(name, 1)

    def run(steps: int) -> None:
        env.reset(seed=0)
        for t in range(steps):
            _, _, terminated, truncated, _ = env.step(actions[t % 1000, 0])
            if terminated or truncated:
                env.reset()

    return run


def vector_loop(name: str, size: int) -> Callable[[int], None]:
    """Steps Gymnasium's own batch, one after another in one process."""
    makers = [lambda: gymnasium.make(GYMNASIUM_IDS[name])] * size
    physics.mute()
    env = gymnasium.vector.SyncVectorEnv(makers)
    actions = _actions(name, size)

    def run(steps: int) -> None:
        env.reset(seed=0)
        for t in range(steps):
            env.step(actions[t % 1000])

    return run


def scan(env: base.Environment, size: int) -> Callable[[int], None]:
    """Steps our batch inside a compiled scan."""
    actions = jnp.asarray(_actions(env.spec.name, size))
    start = env.reset(jax.random.split(jax.random.key(0), size))

    @jax.jit
    def many(state, ticks):
        return jax.lax.scan(lambda s, t: (env.step(s, actions[t % 1000]), None), state, ticks)[0]

    return lambda steps: jax.block_until_ready(many(start, jnp.arange(steps)).reward)


def _actions(name: str, size: int) -> np.ndarray:
    shape = (1000, size, tasks.find(name).action_dim)
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def make_table(task: str, rates: dict[str, float | None]) -> tables.Table:
    """Returns the rates with their ratios to the vector environment of Gymnasium."""
    vector = next(rate for name, rate in rates.items() if "SyncVectorEnv" in name)
    body = tuple(
        (name, "not installed: pip install roid_jax[mjx]", "", "")
        if rate is None
        else (name, f"{rate:,.0f}", f"{rate / vector:.2f}", f"{1e6 / rate:.0f}")
        for name, rate in rates.items()
    )
    columns = (f"{task}, random actions", "steps/s", "/ SyncVectorEnv", "us a step")
    versions = results.versions()
    notes = (f"{versions['device']}, jax {versions['jax']}, MuJoCo {mujoco.__version__}.",)
    return tables.Table("Environment steps a second", columns, body, notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
