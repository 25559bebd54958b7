"""Makes datasets as D4RL's were made, where none can be had or for an environment of one's own.

    python -m experiments.collect --task=hopper --sets=medium,medium-replay
    python -m experiments.collect --task=gymnasium:Pendulum-v1 --config.medium=-400 \\
        --config.tolerance=100

A soft actor-critic learns until its policy scores near the level of the set. Then
  medium          is fresh rollouts of that policy,
  medium-replay   is all it lived through on the way there,
  expert          is fresh rollouts from a later level,
  random          is rollouts of random actions.
They are Minari datasets, in $MINARI_DATASETS_PATH or ~/.minari/datasets, and load by the name
collected:<task>-<set>. A run that was killed goes on where it was saved when it is started again.
"""

import pathlib
from typing import Any

import jax
import numpy as np
import rich.console
from absl import flags

from experiments import behaviour, cli, suites
from roid_jax import checkpoint, replay, results, rollout
from roid_jax import config as cfg
from roid_jax.agents import base
from roid_jax.data import d4rl, minari, prepare, registry
from roid_jax.envs import physics
from roid_jax.report import progress, tables

SETS = ("random", "medium-replay", "medium", "expert")  # in the order they are made


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_string("task", "hopper", "hopper, walker2d, halfcheetah, or gymnasium:<id>.")
    flags.DEFINE_list("sets", ["medium", "medium-replay"], f"Any of {', '.join(SETS)}.")
    flags.DEFINE_string("name", None, "What the sets' names begin with; the task, if not given.")
    flags.DEFINE_enum("physics", "d4rl", physics.PHYSICS, "Which MuJoCo the tasks have.")
    flags.DEFINE_enum("preset", None, ["smoke"], "Tiny sizes, for a try.")
    flags.DEFINE_integer("seed", 0, "Seed of everything.", lower_bound=0, upper_bound=2**30)
    flags.DEFINE_bool("force", False, "Replace sets of these names that are there already.")
    flags.DEFINE_string("workdir", None, "Where the training lands; runs/collect/<name>, if none.")
    cli.define_config(suites.COLLECT["hopper"])
    flags.declare_key_flag("config")  # so that --help lists it with these


def main() -> None:
    """Trains to each level that is asked for, and writes the sets."""
    console = rich.console.Console(highlight=False)
    with cli.border():
        values = flags.FLAGS
        config = cli.configured(suites.COLLECT.get(values.preset or values.task, _own()))
        problem = behaviour.make_problem(values.task, values.physics, values.seed, config)
        name = values.name or values.task.removeprefix("gymnasium:").replace("/", "-")
        wanted = plan(problem, name, values.sets)
        workdir = results.open_workdir(values.workdir or f"runs/collect/{name}")
        results.write_config(workdir / "config.json", cfg.to_dict(config))
    with checkpoint.Checkpoints(workdir / "checkpoints") as checkpoints:
        with cli.border():
            state = behaviour.begin(problem, checkpoints)
        for kind in wanted:
            state = reach(problem, kind, state, checkpoints, console)
            recording = record(problem, kind, state, console)
            with cli.border():
                write(problem, name, kind, recording, state)
                results.write_rows(workdir / "results.jsonl", state.rows)
    tables.show(make_table(problem, name, values.sets), console)


def _own() -> suites.CollectConfig:
    return suites.CollectConfig()


def plan(problem: behaviour.Problem, name: str, sets: list[str]) -> list[str]:
    """Returns the sets still to be made, in order; refuses what cannot be made or replaced."""
    for kind in sets:
        cfg.check_one_of("sets", kind, SETS)
        level = _level(kind)
        if level and getattr(problem.config, level) is None:
            raise ValueError(
                f"{problem.task!r} has no known {level} level; give a return with "
                f"--config.{level}=<number> and how near to come with --config.tolerance."
            )
    if not sets:
        raise ValueError(f"there is nothing to make; give --sets, of {', '.join(SETS)}.")
    wanted = []
    for kind in (kind for kind in SETS if kind in sets):
        path = registry.minari_path(registry.collected_id(f"{name}-{kind}"))
        is_there = path.exists()
        if is_there and minari.provenance(path).get("run") == _run(problem):
            continue
        if is_there and not flags.FLAGS.force:
            raise ValueError(
                f"there is another 'collected:{name}-{kind}' already, in {path}; replace it with "
                "--force, or choose another --name."
            )
        wanted.append(kind)
    return wanted


def reach(
    problem: behaviour.Problem,
    kind: str,
    state: behaviour.Progress,
    checkpoints: checkpoint.Checkpoints,
    console: rich.console.Console,
) -> behaviour.Progress:
    """Returns the training at the level that a set needs."""
    if not _level(kind):
        return state
    target = getattr(problem.config, _level(kind))
    least = target - problem.config.tolerance
    most = np.inf if kind == "expert" else target + problem.config.tolerance
    is_reached = lambda score: least <= score <= most  # noqa: E731
    if behaviour.is_at(state, is_reached):
        return state
    title, total = f"training to a score of {target:g}", problem.config.max_steps
    with progress.track(title, total, console, unit="steps", done=state.step) as advance:
        state = behaviour.train_until(problem, state, is_reached, checkpoints, advance)
    with cli.border():
        if not behaviour.is_at(state, is_reached):
            best = max(row["score"] for row in state.rows)
            raise ValueError(
                f"the policy never scored near {target:g} in {total} steps, its best was "
                f"{best:.1f}; give it more with --config.max_steps, in another --workdir."
            )
    return state


def record(
    problem: behaviour.Problem,
    kind: str,
    state: behaviour.Progress,
    console: rich.console.Console,
) -> d4rl.Recording:
    """Returns what goes into a set."""
    if kind == "medium-replay":
        return replayed(problem, state.online.replay)
    act = base.random_act(problem.env.spec.action_dim) if kind == "random" else problem.agent.act

    def policy(key: jax.Array, agent: Any, obs: jax.Array) -> jax.Array:
        return act(key, agent, (), obs, explore=True)[0]

    key = jax.random.fold_in(problem.keys()["record"], SETS.index(kind))
    rows = problem.config.rows
    with progress.track(f"recording {kind}", rows, console, unit="rows") as advance:
        return rollout.record(
            key, problem.wide, policy, state.online.agent, rows=rows, report=advance
        )


def replayed(problem: behaviour.Problem, memory: replay.Replay) -> d4rl.Recording:
    """Returns the rows of a replay that never went round, in the order they were lived."""
    layout = replay.Layout(problem.env.spec.obs_dim, problem.env.spec.action_dim)
    rows = layout.unpack(np.asarray(memory.rows)[: int(memory.count)])
    terminals = rows.discount < 0.5
    timeouts = d4rl.infer_timeouts(rows.obs, terminals, rows.next_obs)
    timeouts[-1] = not terminals[-1]  # the training stopped here
    return d4rl.Recording(
        observations=rows.obs,
        actions=rows.action,
        rewards=rows.reward,
        terminals=terminals,
        timeouts=timeouts,
        next_observations=rows.next_obs,
    )


def write(
    problem: behaviour.Problem,
    name: str,
    kind: str,
    recording: d4rl.Recording,
    state: behaviour.Progress,
) -> pathlib.Path:
    """Writes a set with its provenance; returns where."""
    dataset_id = registry.collected_id(f"{name}-{kind}")
    path = registry.minari_path(dataset_id)
    provenance = {
        "source": "experiments.collect",
        "run": _run(problem),
        "level": kind,
        "training_steps": 0 if kind == "random" else state.step,
        "policy_score": None if kind == "random" else state.rows[-1]["score"],
        "digest": prepare.digest(recording),
        "versions": results.versions(),
    }
    replace = flags.FLAGS.force
    minari.write(path, recording, dataset_id=dataset_id, provenance=provenance, replace=replace)
    return path


def make_table(problem: behaviour.Problem, name: str, sets: list[str]) -> tables.Table:
    """Returns what is in each set that was asked for."""
    body = []
    for kind in (kind for kind in SETS if kind in sets):
        path = registry.minari_path(registry.collected_id(f"{name}-{kind}"))
        recording, made = minari.read(path), minari.provenance(path)
        returns = prepare.returns(recording)
        steps = "" if kind == "random" else f"{made['training_steps']:,}"
        spread = f"{problem.score(returns).mean():.1f} ± {problem.score(returns).std():.1f}"
        numbers = steps, f"{len(recording):,}", f"{len(returns):,}", spread
        body.append((f"collected:{name}-{kind}", *numbers))
    columns = ("set", "trained for", "rows", "episodes", "score")
    notes = (
        f"Minari datasets in {registry.minari_directory()}; ± is the spread over episodes.",
        "Describe one with: python -m experiments.data describe <set>",
    )
    return tables.Table(f"Collected from {problem.task}", columns, tuple(body), notes)


def _level(kind: str) -> str | None:
    """Returns the level that a set's policy must have."""
    return {"random": None, "medium-replay": "medium"}.get(kind, kind)


def _run(problem: behaviour.Problem) -> dict[str, Any]:
    """Returns what a set depends on, as JSON gives it back."""
    fields = {**problem.identity(), **cfg.flatten(problem.config)}
    return {key: list(x) if isinstance(x, tuple) else x for key, x in fields.items()}


if __name__ == "__main__":
    cli.run(main, define_flags)
