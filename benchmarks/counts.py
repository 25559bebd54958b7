"""What a step costs without a clock: operations, bytes and launches, counted in the programs.

    python -m benchmarks.counts
    python -m benchmarks.counts --agents=roid,rlpd --profile=cpu --json

For each agent, an update of the offline phase, and an online step without its world: the choice of
an action and all updates, at the sizes of a profile. Operations are those of matrix products,
counted in the traced program; launches are the compiled program's kernels and bytes what these read
and write, each loop as often as it is run. A branch counts as the mean of its ways. (The compiled
program is this machine's: a GPU's fuses a little differently.) Scatters are of the whole step.
"""

import functools
import json
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.extend
import numpy as np
from absl import flags

from benchmarks import update
from experiments import cli, profiles
from roid_jax import compiler, replay, results, training
from roid_jax.agents import named
from roid_jax.envs import named as worlds
from roid_jax.envs.base import Environment
from roid_jax.report import tables


class Count(NamedTuple):
    """What one run of a program takes."""

    gflop: float
    megabytes: float
    launches: float
    scatters: float


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_list("agents", list(named.AGENTS), "Which agents, between commas.")
    flags.DEFINE_enum("profile", "paper", profiles.PROFILES, "Sizes of networks and batches.")
    flags.DEFINE_bool("json", False, "Print JSON instead of a table.")


def main() -> None:
    """Counts every agent's updates and prints one table."""
    values = flags.FLAGS
    with cli.border():
        configs = {
            name: profiles.find(name, "hopper-medium-v2", values.profile).agent
            for name in values.agents
        }
    env = worlds.make("hopper", physics="d4rl")
    found = {name: count_agent(name, config, env) for name, config in configs.items()}
    if values.json:
        plain = {
            name: {phase: one._asdict() for phase, one in phases.items()}
            for name, phases in found.items()
        }
        print(json.dumps({"counts": plain, "versions": results.versions()}))
    else:
        tables.show(make_table(values.profile, found), cli.console())


def count_agent(name: str, config: Any, env: Environment) -> dict[str, Count]:
    """Returns what an update offline takes, and what an online step takes beside the world."""
    agent, key = named.make(name, config, env.spec), jax.random.key(0)
    dataset = update.make_dataset(env.spec)
    state = jax.eval_shape(agent.init, key, dataset)
    found = {}
    if agent.offline_update is not None:
        found["offline"] = count(agent.offline_update, key, 1, state, dataset)
    state = jax.eval_shape(agent.handover, key, state, dataset)
    layout = replay.Layout(env.spec.obs_dim, env.spec.action_dim)
    memory = jax.eval_shape(lambda: replay.init(layout, 10_000))

    def step(key: Any, step: Any, state: Any, memory: Any, dataset: Any, obs: Any) -> Any:
        begun = jax.vmap(agent.begin_episode)(key[None])
        chosen = agent.act(key, state, begun, obs, explore=True)
        return chosen, agent.online_update(key, step, state, memory, dataset)

    obs = np.zeros((1, env.spec.obs_dim), np.float32)
    begin = functools.partial(training.begin_online, agent=agent, env=env, capacity=10_000)
    lived = jax.eval_shape(lambda key, state: begin(key, state=state), key, state)
    chunk = compiler.plain(training.make_online(agent, env, length=2, learn=True))
    whole = jax.jit(chunk).trace(key, lived, 1, dataset).jaxpr.jaxpr
    made = count(step, key, 1, state, memory, dataset, obs)
    found["online"] = made._replace(scatters=scatters(whole) / 2)
    return found


def count(function: Callable, *inputs: Any) -> Count:
    """Returns what a call takes."""
    traced = compiler.jit(function).trace(*inputs)
    launches, size = _Text(traced.lower().compile().as_text()).count("ENTRY")
    program = traced.jaxpr.jaxpr
    return Count(1e-9 * operations(program), 1e-6 * size, launches, scatters(program))


def operations(jaxpr: Any) -> float:
    """Returns the floating-point operations of a traced program's matrix products."""

    def of_product(equation: Any) -> float:
        if equation.primitive.name != "dot_general":
            return 0.0
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        summed = math.prod(shape[axis] for axis in contracted)
        return 2.0 * summed * math.prod(equation.outvars[0].aval.shape)

    return total(jaxpr, of_product)


def scatters(jaxpr: Any) -> float:
    """Returns how many scatters a traced program makes: what a GPU may add up in any order."""
    return total(jaxpr, lambda equation: float(equation.primitive.name.startswith("scatter")))


def total(jaxpr: Any, cost: Callable[[Any], float]) -> float:
    """Returns the cost of a traced program's equations, of loops as often as they are run."""
    found = 0.0
    for equation in jaxpr.eqns:
        params, name = equation.params, equation.primitive.name
        inner = [total(one, cost) for one in jax.extend.core.jaxprs_in_params(params)]
        if name == "scan":
            found += params["length"] * sum(inner)
        elif name == "cond":
            found += float(np.mean(inner))
        else:
            found += cost(equation) + (0.0 if name.startswith("scatter") else sum(inner))
    return found


# Instructions that only name or group what others made.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota"}
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}


class _Text:
    """A compiled program, as the text that XLA prints."""

    def __init__(self, text: str):
        self._parts: dict[str, list[str]] = {}
        self._sizes: dict[str, float] = {}
        for line in text.splitlines():
            if begun := re.match(r"(ENTRY )?%([\w.\-]+) .*\{$", line):
                part = self._parts[begun[2]] = []
                if begun[1]:
                    self._parts["ENTRY"] = part
            elif made := re.match(r"\s+(?:ROOT )?%([\w.\-]+) = (.*)", line):
                part.append(made[2])
                self._sizes[made[1]] = _size(re.split(r" [\w\-]+\(", made[2], maxsplit=1)[0])

    def count(self, name: str) -> tuple[float, float]:
        """Returns the kernels that a part launches, and the bytes that they read and write."""
        launches = size = 0.0
        for line in self._parts[name]:
            kind = re.search(r" ([\w\-]+)\(", line)[1]
            if kind in _FREE:
                continue
            times, inner = self._inner(kind, line)
            if inner:
                found = np.mean([self.count(one) for one in inner], axis=0)
                launches, size = launches + times * found[0], size + times * found[1]
                continue
            made = re.split(rf" {kind}\(", line, maxsplit=1)
            read = re.findall(r"%([\w.\-]+)", made[1].split(")")[0])
            launches += 1.0
            size += _size(made[0]) + sum(self._sizes.get(one, 0.0) for one in read)
        return launches, size

    def _inner(self, kind: str, line: str) -> tuple[float, list[str]]:
        """Returns how often a loop, a call or one of some branches is run, and their parts.

        Loops without a product make random numbers, for which a GPU has one kernel.
        """
        if kind == "call":
            return 1.0, re.findall(r"to_apply=%([\w.\-]+)", line)
        if kind == "conditional":
            listed = re.search(r"branch_computations=\{([^}]*)\}", line)
            found = listed[1] if listed else " ".join(re.findall(r"_computation=(%[\w.\-]+)", line))
            return 1.0, re.findall(r"%([\w.\-]+)", found)
        if kind == "while":
            body = re.search(r"body=%([\w.\-]+)", line)[1]
            times = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            return float(times[1]) if times and self._multiplies(body) else 1.0, [body]
        return 0.0, []

    def _multiplies(self, name: str) -> bool:
        """Whether there is a product in a part, or in one that it is made of."""
        lines = self._parts.get(name, [])
        inner = {one for line in lines for one in re.findall(r"%([\w.\-]+)", line)} & {*self._parts}
        return any(" dot(" in line for line in lines) or any(map(self._multiplies, inner))


def _size(shapes: str) -> float:
    """Returns the bytes of the arrays that a text names, as `f32[5,256]` does."""
    found = re.findall(r"(\w+)\[([\d,]*)\]", shapes)
    return sum(
        float(_BYTES.get(kind, 4) * math.prod(int(axis) for axis in axes.split(",") if axis))
        for kind, axes in found
    )


def make_table(profile: str, found: dict[str, dict[str, Count]]) -> tables.Table:
    """Returns a line for each agent and phase."""
    body = [
        (name, phase, f"{one.gflop:,.2f}", *(f"{number:,.0f}" for number in one[1:]))
        for name, phases in found.items()
        for phase, one in phases.items()
    ]
    heads = ("agent", "phase", "GFLOP", "MB", "launches", "scatters")
    versions = results.versions()
    notes = (f"The {profile} profile on hopper; compiled for {versions['device']}.",)
    return tables.Table("What a step takes", heads, tuple(body), notes)


if __name__ == "__main__":
    cli.run(main, define_flags)
