"""From logged data to a fine-tuned policy: offline, then online, for any agent and task.

    python -m experiments.train                                  # a demo on data in the package
    python -m experiments.train --task=hopper-medium-v2 --profile=cpu
    python -m experiments.train --task=hopper-medium-v2 --selector=thompson \\
        --from_checkpoint=runs/roid-hopper-medium-v2-cpu         # only the selector differs
    python -m experiments.train --env=gymnasium:Pendulum-v1 --dataset=minari:mine/pendulum-v0

A run that was stopped goes on when it is started again with the same workdir. Writes results.jsonl
(a row for each evaluation), config.json, summary.json, a figure, and checkpoints.
"""

import pathlib

import rich.console
from absl import flags

from experiments import cli, driver, phases, profiles, train_report
from roid_jax import checkpoint, results
from roid_jax import config as cfg
from roid_jax.agents import named
from roid_jax.agents.selector import SELECTORS
from roid_jax.report import tables


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_enum("agent", "roid", list(named.AGENTS), "Which algorithm.")
    flags.DEFINE_enum("task", "hopper-medium-v2", profiles.TASKS, "A task of D4RL's.")
    flags.DEFINE_string("dataset", None, "Logged data by name; the task's, if not given.")
    flags.DEFINE_string("env", None, "The world by name; the task's, if not given.")
    flags.DEFINE_enum("selector", None, SELECTORS, "How an ensemble chooses its actions.")
    flags.DEFINE_enum("profile", "demo", profiles.PROFILES, "How long and how large.")
    flags.DEFINE_integer("seed", 0, "The first seed.", lower_bound=0, upper_bound=2**30)
    flags.DEFINE_integer("num_seeds", 1, "How many, one up from another.", lower_bound=1)
    flags.DEFINE_string("workdir", None, "Where results land; runs/<agent>-<task>-<profile>.")
    flags.DEFINE_bool("resume", True, "Go on with what is in the workdir; else refuse it.")
    flags.DEFINE_string("from_checkpoint", None, "A workdir whose offline phase is taken over.")
    agent = cli.peek("agent", "roid", named.AGENTS)
    cli.define_config(profiles.find(agent, "hopper-medium-v2", "demo"))
    flags.declare_key_flag("config")  # so that --help lists it with these


def main() -> None:
    """Runs every seed, and shows them together."""
    console = rich.console.Console(highlight=False)
    values = flags.FLAGS
    with cli.border():
        config = configured()
        name = f"{values.agent}-{values.task}-{values.profile}"
        workdir = results.open_workdir(values.workdir or f"runs/{name}")
    finished = []
    for seed in range(values.seed, values.seed + values.num_seeds):
        with cli.border():
            problem = driver.make_problem(values.agent, env_name(), dataset_name(), seed, config)
            folder = results.open_workdir(workdir / f"seed_{seed}")
        finished.append(run(problem, folder, console))
    with cli.border():
        results.write_bytes(workdir / "learning_curve.png", train_report.make_figure(finished))
    tables.show(train_report.make_table(problem, finished), console)
    console.print(f"Results and the learning curve are in {workdir}/", soft_wrap=True)


def configured() -> profiles.TrainConfig:
    """Returns the configuration that the flags ask for."""
    values = flags.FLAGS
    config = profiles.find(values.agent, values.task, values.profile)
    if values.selector is not None:
        config = cfg.override(config, {"agent.selector.name": values.selector})
    return cli.configured(config)


def env_name() -> str:
    """Returns the name of the world."""
    return flags.FLAGS.env or flags.FLAGS.task.split("-")[0]


def dataset_name() -> str:
    """Returns the name of the data: of the task, or what the package has for a short look."""
    values = flags.FLAGS
    is_short = values.profile in ("demo", "smoke") and values.task == "hopper-medium-v2"
    task = "embedded:hopper-medium" if is_short else f"d4rl:{values.task}"
    return values.dataset or task


def run(
    problem: driver.Problem, folder: pathlib.Path, console: rich.console.Console
) -> train_report.Finished:
    """Runs one seed from where it is to its end."""
    with cli.border():
        checkpoints = checkpoint.Checkpoints(folder / "checkpoints")
    with checkpoints:
        with cli.border():
            state = driver.start(
                problem, checkpoints, resume=flags.FLAGS.resume, source=_source(problem)
            )
            settings = cfg.to_dict(problem.config)
            results.write_config(folder / "config.json", settings, run=problem.names())
        for phase in ("offline", "online"):
            if state.phase == "offline" and phase == "online":
                driver.keep_offline(problem, state, folder)
                state = driver.hand_over(problem, state)
            if state.phase == phase:
                state = _run_phase(problem, state, checkpoints, folder, console)
    finished = train_report.finish(problem, state)
    with cli.border():
        train_report.write_summary(folder / "summary.json", finished)
    return finished


def _run_phase(
    problem: driver.Problem,
    state: driver.Progress,
    checkpoints: checkpoint.Checkpoints,
    folder: pathlib.Path,
    console: rich.console.Console,
) -> driver.Progress:
    """Runs a phase to its end with a bar, saving the run after every evaluation."""
    total = getattr(problem.config, f"{state.phase}_steps")
    title = f"{state.phase}, seed {problem.seed}"
    try:
        with cli.track(title, total, console, unit="steps", done=state.step) as advance:
            for after in phases.run_phase(problem, state, advance):
                state = after
                driver.save(problem, state, checkpoints)
                results.write_rows(folder / "results.jsonl", state.rows)
    except driver.Diverged as error:
        last = checkpoints.latest()
        kept = "nothing was saved" if last is None else f"checkpoint {last} in {folder} is good"
        cli.fail(f"the run diverged: {error}; {kept}.", code=1)
    return state


def _source(problem: driver.Problem) -> pathlib.Path | None:
    """Returns the directory with another run's offline phase, where one is named."""
    name = flags.FLAGS.from_checkpoint
    if name is None:
        return None
    path = pathlib.Path(name).expanduser() / f"seed_{problem.seed}" / "offline"
    if not path.is_dir():
        raise ValueError(
            f"there is no offline phase of seed {problem.seed} in {name!r}; name the workdir of a "
            "run that has finished its own."
        )
    return path


if __name__ == "__main__":
    cli.run(main, define_flags)
