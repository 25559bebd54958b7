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

import contextlib
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import rich.console
from absl import flags

from experiments import behaviour, cli, collect_sets, saved, stopping, suites, train_report
from experiments.collect_sets import SETS
from experiments.driver import Diverged
from roid_jax import checkpoint, directories, results, rollout
from roid_jax import config as cfg
from roid_jax.agents import base
from roid_jax.data import d4rl, minari, registry
from roid_jax.envs import physics
from roid_jax.envs.base import Failed
from roid_jax.report import tables


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
    console = cli.console()
    stopping.mind_preemption()
    with contextlib.ExitStack() as stack:
        with cli.border():
            values = flags.FLAGS
            config = cli.configured(suites.COLLECT.get(values.preset or values.task, _own()))
            problem = behaviour.make_problem(values.task, values.physics, values.seed, config)
            name = values.name or _default_name(values.task, values.preset)
            wanted = plan(problem, name, values.sets)
            workdir = directories.open_workdir(values.workdir or f"runs/collect/{name}")
            stack.enter_context(directories.hold(workdir))
            checkpoints = stack.enter_context(checkpoint.Checkpoints(workdir / "checkpoints"))
            saved.drop_broken(checkpoints, console)
            has_results = train_report.count_rows(workdir) > 0
            saved.require_one(checkpoints, workdir, has_results=has_results)
            state = behaviour.begin(problem, checkpoints)
            results.write_config(workdir / "config.json", cfg.to_dict(config))
        _say_if_cut(problem, state, console)
        try:
            for kind in wanted:
                state = reach(problem, kind, state, checkpoints, console)
                results.write_rows(workdir / "results.jsonl", state.rows)
                check_level(problem, kind, state)
                recording = record(problem, kind, state, console)
                with cli.border():
                    collect_sets.write(problem, name, kind, recording, state, replace=values.force)
        except (Diverged, Failed) as error:
            kept = checkpoints.latest()
            good = "nothing was saved" if kept is None else f"checkpoint {kept} is good"
            cli.fail(f"{error}; {good}.", code=1)
    tables.show(collect_sets.make_table(problem, name, values.sets), console)


def _default_name(task: str, preset: str | None) -> str:
    """Returns what sets are called after; a try with tiny sizes never takes a real one's name."""
    plain = re.sub(r"[^-\w]", "-", task.removeprefix("gymnasium:"))
    return f"{plain}-{preset}" if preset else plain


def _say_if_cut(
    problem: behaviour.Problem, state: behaviour.Progress, console: rich.console.Console
) -> None:
    if state.step and problem.task.startswith("gymnasium:"):
        console.print(
            f"Going on at step {state.step}; {problem.task} keeps its state to itself, so the "
            "episode it was in is cut there and a new one begins.",
            soft_wrap=True,
        )


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
    minari.check_writable(registry.minari_directory())
    wanted = []
    for kind in (kind for kind in SETS if kind in sets):
        path = registry.minari_path(registry.collected_id(f"{name}-{kind}"))
        is_there = path.exists()
        if is_there and minari.provenance(path).get("run") == collect_sets.identity(problem):
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
    is_reached = _is_reached(problem, kind)
    if behaviour.is_at(state, is_reached):
        return state
    passed = [row["step"] for row in state.rows if is_reached(row["score"])]
    if passed and kind != "expert":
        cli.fail(
            f"the training in this workdir was at the {_level(kind)} level at step {passed[0]} and "
            "has gone on since; make this set in another --workdir."
        )
    what = "score" if problem.has_scores else "return"
    title = f"training to a {what} of {getattr(problem.config, _level(kind)):g}"
    total = problem.config.max_steps
    with cli.track(title, total, console, unit="steps at most", done=state.step) as advance:
        return behaviour.train_until(problem, state, is_reached, checkpoints, advance)


def check_level(problem: behaviour.Problem, kind: str, state: behaviour.Progress) -> None:
    """Ends with one line where the training did not stop at the level that a set needs."""
    is_reached = _is_reached(problem, kind)
    if not _level(kind) or behaviour.is_at(state, is_reached):
        return
    best = max(row["score"] for row in state.rows)
    cli.fail(
        f"the policy never scored near {getattr(problem.config, _level(kind)):g} in {state.step} "
        f"steps, its best was {best:.1f}; widen --config.tolerance, or give it more with "
        "--config.max_steps in another --workdir."
    )


def _is_reached(problem: behaviour.Problem, kind: str) -> Callable[[float], bool]:
    """Returns (score) -> whether a set may be recorded from a policy that scores so."""
    target = getattr(problem.config, _level(kind) or "medium") or 0.0
    least = target - problem.config.tolerance
    most = np.inf if kind == "expert" else target + problem.config.tolerance
    return lambda score: least <= score <= most


def record(
    problem: behaviour.Problem,
    kind: str,
    state: behaviour.Progress,
    console: rich.console.Console,
) -> d4rl.Recording:
    """Returns what goes into a set."""
    if kind == "medium-replay":
        return collect_sets.replayed(problem, state.online.replay)
    act = base.random_act(problem.env.spec.action_dim) if kind == "random" else problem.agent.act

    def policy(key: jax.Array, agent: Any, obs: jax.Array) -> jax.Array:
        return act(key, agent, (), obs, explore=True)[0]

    key = jax.random.fold_in(problem.keys()["record"], SETS.index(kind))
    rows = problem.config.rows
    with cli.track(f"recording {kind}", rows, console, unit="rows") as advance:

        def report(rows: int, score: str) -> None:
            advance(rows, score)
            stopping.raise_if_asked()  # the training is saved, and this is made again from it

        return rollout.record(
            key, problem.wide, policy, state.online.agent, rows=rows, report=report
        )


def _level(kind: str) -> str | None:
    """Returns the level that a set's policy must have."""
    return {"random": None, "medium-replay": "medium"}.get(kind, kind)


if __name__ == "__main__":
    cli.run(main, define_flags)
