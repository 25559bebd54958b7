"""From logged data to a fine-tuned policy: offline, then online, for any agent and task.

    python -m experiments.train                                  # a demo on data in the package
    python -m experiments.train --task=hopper-medium-v2 --profile=cpu
    python -m experiments.train --task=hopper-medium-v2 --profile=cpu --selector=thompson \\
        --from_checkpoint=runs/roid-hopper-medium-v2-cpu         # only the selector differs
    python -m experiments.train --env=gymnasium:Pendulum-v1 --dataset=minari:mine/pendulum-v0

A run that was stopped goes on when it is started again with the same workdir. Writes results.jsonl
(a row for each evaluation), config.json, summary.json, TensorBoard's event files, a figure, and
checkpoints.
"""

import contextlib
import pathlib
from collections.abc import Mapping

import rich.console
from absl import flags

from experiments import (
    asked,
    candidates,
    cli,
    driver,
    machines,
    phases,
    profiles,
    saved,
    stopping,
    train_report,
    videos,
)
from experiments.live import Live
from roid_jax import checkpoint, directories, results
from roid_jax import config as cfg
from roid_jax.agents import named
from roid_jax.agents.selector import SELECTORS
from roid_jax.report import progress, tables

Folders = Mapping[int, pathlib.Path]  # by seed


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_enum("agent", "roid", [*named.AGENTS, "list"], "Which algorithm; or list them.")
    flags.DEFINE_enum("task", "hopper-medium-v2", profiles.TASKS, "A task of D4RL's.")
    flags.DEFINE_string(
        "dataset", None, "Logged data by name; if not given the task's, or what the package has."
    )
    flags.DEFINE_string("env", None, "The world by name; the task's, if not given.")
    flags.DEFINE_enum("selector", None, SELECTORS, "How an ensemble chooses its actions.")
    flags.DEFINE_enum("profile", "demo", profiles.PROFILES, "How long and how large.")
    flags.DEFINE_integer("seed", 0, "The first seed.", lower_bound=0, upper_bound=2**30)
    flags.DEFINE_integer("num_seeds", 1, "How many, side by side.", lower_bound=1, upper_bound=1000)
    flags.DEFINE_string("workdir", None, "Where results land; runs/<what was named>.")
    flags.DEFINE_bool("resume", True, "Go on with what is in the workdir; else refuse it.")
    flags.DEFINE_string("from_checkpoint", None, "A workdir whose offline phase is taken over.")
    flags.DEFINE_bool("video", False, "Record an episode of each seed at the end, as a GIF.")
    flags.DEFINE_bool("wandb", False, "Log to Weights & Biases too.")
    machines.define_flags()
    agent = cli.peek("agent", "roid", named.AGENTS)
    cli.define_config(profiles.find(agent, "hopper-medium-v2", "demo"))
    for name in ("config", "coordinator", "num_processes", "process_id"):
        flags.declare_key_flag(name)  # so that --help lists them with these


def main() -> None:
    """Runs this process's seeds; the first process shows all of them together."""
    values = flags.FLAGS
    if values.agent == "list":
        return tables.show(train_report.list_agents(), cli.console())
    stopping.mind_preemption()
    everyone = range(values.seed, values.seed + values.num_seeds)
    with cli.border():
        config = asked.configured()
        place = machines.meet()
        numbers = machines.share(everyone, place)
        workdir = directories.open_workdir(values.workdir or f"runs/{asked.run_name()}")
        folders = {n: workdir / f"seed_{n}" for n in everyone}
        machines.part(place, workdir)
        data = asked.dataset_name()
        if values.video:
            videos.require(asked.env_name())
        problem = driver.make_problem(values.agent, asked.env_name(), data, numbers, config)
    console = cli.console(quiet=not place.is_first)
    if flags.FLAGS["task"].present and data == asked.EMBEDDED != values.dataset:
        console.print(f"d4rl:{values.task} is not here; this is a look at {data}.", soft_wrap=True)
    for note in driver.unusual(problem):
        console.print(note, soft_wrap=True)
    with contextlib.ExitStack() as stack:
        with cli.border():
            for n in numbers:
                stack.enter_context(directories.hold(directories.open_workdir(folders[n])))
            stores = {
                n: stack.enter_context(checkpoint.Checkpoints(folders[n] / "checkpoints"))
                for n in numbers
            }
            for n, store in stores.items():
                saved.look_over(folders[n], store, config, console)
            parts = [(driver.with_seeds(problem, n), step) for n, step in saved.groups(stores)]
            for part, step in parts:  # all of them before the first begins
                _check(part, step, stores)
        for part, step in parts:
            run(part, step, folders, stores, console)
    if place.is_first:
        ends = [train_report.summary_file(folder) for folder in folders.values()]
        machines.wait(place, workdir, ends, console)
        _report(problem, workdir, folders, console)


def _report(
    problem: driver.Problem,
    workdir: pathlib.Path,
    folders: Folders,
    console: rich.console.Console,
) -> None:
    """Shows all seeds together, those of other processes too."""
    with cli.border():
        finished = [train_report.read(folder) for folder in folders.values()]
        results.write_bytes(workdir / "learning_curve.png", train_report.make_figure(finished))
    tables.show(train_report.make_table(problem, finished), console)
    console.print(f"Results and the learning curve are in {workdir}/", soft_wrap=True)


def run(
    problem: driver.Problem,
    step: int | None,
    folders: Folders,
    stores: saved.Stores,
    console: rich.console.Console,
) -> None:
    """Runs seeds that are equally far, from their checkpoint to their end."""
    with cli.border():
        state = _start(problem, step, stores, console)
        settings = cfg.to_dict(problem.config)
        for seed in problem.seeds:
            names = problem.names(seed)
            if not state.is_finished(problem.config):  # an earlier end is not this run's
                train_report.summary_file(folders[seed]).unlink(missing_ok=True)
            results.write_config(folders[seed] / "config.json", settings, run=names)
        live = Live(problem, folders, console, wandb=flags.FLAGS.wandb)
        live.begin(state)
    with contextlib.closing(live):
        for phase in ("offline", "online"):
            if state.phase == "offline" and phase == "online":
                with cli.border():
                    saved.keep_offline(problem, state, folders, stores)
                state = driver.hand_over(problem, state)
            if state.phase == phase:
                state = _run_phase(problem, state, folders, stores, live, console)
    with cli.border():
        candidates.write(problem, state, folders)
        for i, seed in enumerate(problem.seeds):
            train_report.write_summary(folders[seed], train_report.finish(problem, state, i))
            if flags.FLAGS.video:
                videos.record_seed(problem, state, i, folders[seed])


def _check(problem: driver.Problem, step: int | None, stores: saved.Stores) -> None:
    """Raises a ValueError of one line where runs cannot go on from that checkpoint."""
    if step is None:
        return
    if not flags.FLAGS.resume:
        raise ValueError("there is a run in this workdir; go on with --resume, or take another.")
    saved.check(problem, stores, step)


def _start(
    problem: driver.Problem, step: int | None, stores: saved.Stores, console: rich.console.Console
) -> driver.Progress:
    """Returns where runs begin: as they were saved, with others' offline phase, or at nothing."""
    if step is not None:
        found = saved.restore(problem, stores, step)
        if problem.env.keeps_state and found.phase == "online":
            console.print(
                f"{problem.env_name} keeps its state to itself: its episode is cut, and a new one "
                "begins.",
                soft_wrap=True,
            )
        return found
    if flags.FLAGS.from_checkpoint is None:
        return driver.begin(problem)
    source = flags.FLAGS.from_checkpoint
    places = [saved.find_offline(source, seed) for seed in problem.seeds]
    found = saved.take_over(problem, places)
    saved.save(problem, found, stores)
    saved.wait(stores)  # before rows are written, which without a checkpoint are refused
    return found


def _run_phase(
    problem: driver.Problem,
    state: driver.Progress,
    folders: Folders,
    stores: saved.Stores,
    live: Live,
    console: rich.console.Console,
) -> driver.Progress:
    """Runs a phase to its end with a bar, saving the runs after every evaluation.

    And at once, where the process is asked to stop.
    """
    total = getattr(problem.config, f"{state.phase}_steps")
    names = f"seed {problem.seeds[0]}" if len(problem.seeds) == 1 else f"{len(problem.seeds)} seeds"
    try:
        with progress.track(
            f"{state.phase}, {names}", total, console, unit="steps", done=state.step
        ) as advance:
            for after in phases.run_phase(problem, state, advance):
                state = after
                if state.is_evaluated or stopping.is_asked():
                    saved.save(problem, state, stores)
                if state.is_evaluated:
                    live.add(state)
                if stopping.is_asked():
                    saved.wait(stores)
                stopping.raise_if_asked()
    except checkpoint.NotSaved:  # it says itself what there is
        raise
    except (driver.Diverged, OSError) as error:
        saved.wait(stores)
        last = stores[problem.seeds[0]].latest()
        where = folders[problem.seeds[0]].parent
        kept = "nothing was saved" if last is None else f"checkpoint {last} in {where} is good"
        cli.fail(f"{error}; {kept}.", code=1)
    return state


if __name__ == "__main__":
    cli.run(main, define_flags)
