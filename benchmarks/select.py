"""How long one choice takes: all candidates under all critics, regret, information, the smallest.

    python -m benchmarks.select
    python -m benchmarks.select --peers=<python with torch>
    python -m benchmarks.select --json --times=5000          # on a GPU

At the paper's setting: ten critics of 256 x 256, 64 candidates among 256. Ours is measured inside a
scan, where training runs it, and called from Python one choice at a time, as on a robot.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks import flops, timing
from benchmarks.timing import Way
from experiments import cli
from roid_jax import compiler, networks, results
from roid_jax.agents import selector
from roid_jax.report import tables

IN_SCAN = "ours, in a scan"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much there is to evaluate."""

    obs_dim: int = 11
    action_dim: int = 3
    hidden: tuple[int, ...] = (256, 256)
    critics: int = 10
    candidates: int = 64
    wide_candidates: int = 256


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_integer("times", 200, "Choices of a row and round.", lower_bound=1)
    flags.DEFINE_integer("rounds", 5, "How often each row is measured.", lower_bound=1)
    flags.DEFINE_integer("critics", 10, "How many critics, K.", lower_bound=1)
    flags.DEFINE_integer("candidates", 64, "How many candidates, M.", lower_bound=1)
    flags.DEFINE_integer("wide_candidates", 256, "Of so many, M_V*.", lower_bound=1)
    flags.DEFINE_string("peers", None, "A Python with the extra `bench`, for PyTorch's row.")
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")


def main() -> None:
    """Measures every row and prints one table."""
    values = flags.FLAGS
    sizes = Sizes(
        critics=values.critics,
        candidates=values.candidates,
        wide_candidates=values.wide_candidates,
    )
    with cli.border():
        found = measure(sizes, values.times, values.rounds, peers=values.peers)
    if values.json:
        print(json.dumps({"milliseconds": found, "versions": results.versions()}))
    else:
        tables.show(make_table(sizes, found), cli.console())


def measure(sizes: Sizes, times: int, rounds: int, *, peers: str | None) -> dict[str, float]:
    """Returns the milliseconds of a choice in each row."""
    own = ways(sizes, times)
    with timing.peers(peers, "select", dataclasses.asdict(sizes), times) as others:
        rates = timing.rates({**own, **others}, rounds)
    return {name: 1e3 / rate for name, rate in rates.items()}


def ways(sizes: Sizes, times: int) -> dict[str, Way]:
    """Returns our two rows and NumPy's, all with the same networks."""
    config = selector.SelectorConfig(
        candidates=sizes.candidates, wide_candidates=sizes.wide_candidates
    )
    actor = networks.Actor(sizes.hidden, sizes.action_dim)
    critic = networks.Critic(sizes.hidden)
    key = jax.random.key(0)
    obs = jax.random.normal(key, (1000, sizes.obs_dim))
    policy = actor.init(key, obs[0])
    values = networks.init_members(key, critic, sizes.critics, obs[0], jnp.zeros(sizes.action_dim))

    def choose(policy: Any, values: Any, key: Any, obs: jax.Array) -> jax.Array:
        def evaluate(actions: jax.Array) -> jax.Array:
            same = jnp.broadcast_to(obs, (len(actions), sizes.obs_dim))
            return networks.apply_members(critic, values, same, actions)

        anchor = actor.apply(policy, obs)
        return selector.choose(key, anchor, jnp.int32(0), evaluate, jnp.ones(()), config).action

    @compiler.jit
    def scan(policy: Any, values: Any) -> jax.Array:
        def step(total: jax.Array, t: jax.Array) -> tuple[jax.Array, None]:
            return total + choose(policy, values, jax.random.fold_in(key, t), obs[t % 1000]), None

        return jax.lax.scan(step, jnp.zeros(sizes.action_dim), jnp.arange(times))[0]

    one, keys = compiler.jit(choose), list(jax.random.split(key, 100))
    observations = list(obs)

    def called(times: int) -> None:
        for i in range(times):
            one(policy, values, keys[i % 100], observations[i % 1000]).block_until_ready()

    return {
        IN_SCAN: Way(lambda times: scan(policy, values).block_until_ready(), times),
        "ours, called from Python": Way(called, times),
        "NumPy": Way(in_numpy(layers(policy), layers(values), np.asarray(obs), config), times),
    }


def layers(params: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns the kernels and biases of a network's layers, first to last."""
    leaves = jax.tree.leaves(params)  # of each layer the bias, then the kernel
    return [(np.asarray(k), np.asarray(b)) for b, k in zip(leaves[::2], leaves[1::2], strict=True)]


def in_numpy(
    policy: Sequence[tuple[np.ndarray, np.ndarray]],
    critics: Sequence[tuple[np.ndarray, np.ndarray]],
    observations: np.ndarray,
    config: selector.SelectorConfig,
) -> Callable[[int], None]:
    """Returns the same choices in NumPy, the critics as batched products."""
    generator = np.random.default_rng(0)

    def run(times: int) -> None:
        for i in range(times):
            choose_in_numpy(generator, policy, critics, observations[i % 1000], config)

    return run


def choose_in_numpy(generator, policy, critics, obs, config) -> np.ndarray:
    """Returns one action, noise included."""
    anchor = np.tanh(_forward(policy, obs[None]))[0]
    noise = generator.normal(size=(config.wide_candidates - 1, len(anchor)))
    noise = config.candidate_noise * noise.astype(np.float32)
    wide = np.concatenate([anchor[None], np.clip(anchor + noise, -1, 1)])
    inputs = np.concatenate([np.broadcast_to(obs, (len(wide), len(obs))), wide], axis=1)
    values = np.clip(_forward(critics, inputs)[..., 0], -config.q_max, config.q_max)
    near = values[:, : config.candidates]
    regret = np.maximum(values.max(axis=1).mean() - near.mean(axis=0), 0.0)
    information = 0.5 * np.log1p(near.var(axis=0))
    index = np.argmin(regret**2 / (information + config.eta))
    action = wide[index] + config.execution_noise * generator.normal(size=len(anchor))
    return np.clip(action, -1.0, 1.0)


def _forward(layers: Sequence[tuple[np.ndarray, np.ndarray]], inputs: np.ndarray) -> np.ndarray:
    for i, (kernel, bias) in enumerate(layers):
        inputs = inputs @ kernel + bias[..., None, :]
        if i < len(layers) - 1:
            inputs = np.maximum(inputs, 0.0)
    return inputs


def make_table(sizes: Sizes, found: dict[str, float]) -> tables.Table:
    """Returns milliseconds a choice, and their ratio to ours in a scan."""
    shape = sizes.obs_dim, sizes.action_dim, sizes.hidden
    gflop = 1e-9 * flops.select(*shape, sizes.wide_candidates, sizes.critics)
    body = tuple(
        (name, f"{took:.2f}", f"{took / found[IN_SCAN]:.2f}", f"{1e3 * gflop / took:.0f}")
        for name, took in found.items()
    )
    heads = (f"{sizes.candidates} of {sizes.wide_candidates} x {sizes.critics}", "ms", "/ ours")
    versions = results.versions()
    notes = (f"{versions['device']}, jax {versions['jax']}.",)
    return tables.Table("One choice", (*heads, "GFLOPS"), body, notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
