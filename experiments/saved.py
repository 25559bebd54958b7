"""What is on disk of each seed: where its run goes on, and what it began with.

Every seed has checkpoints of its own, so that runs can be joined and parted: seeds that have come
equally far go on together.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import rich.console

from experiments import driver, train_report
from experiments.driver import Problem, Progress
from experiments.profiles import TrainConfig
from roid_jax import checkpoint, directories, results, seeds
from roid_jax import config as cfg
from roid_jax.checkpoint import Checkpoints

Stores = Mapping[int, Checkpoints]  # by seed

OFFLINE = "offline"  # where the end of the offline phase is kept, beside the checkpoints

_UNKNOWN = -1e30  # the score of a policy that was not evaluated: never the best

# What a run needs of the notes to go on.
NOTES = {"identity": dict, "phase": str, "step": int, "pending": dict, "seconds": float | int}


def groups(stores: Stores) -> Iterator[tuple[tuple[int, ...], int | None]]:
    """Yields the seeds that can go on together, and from which checkpoint, None for none.

    A kill may come when only some seeds of a program are saved; those then go back to the last
    checkpoint that all of them have.
    """
    left = {seed: store.recent() for seed, store in stores.items()}
    while left:
        start = min(max(steps, default=-1) for steps in left.values())
        together = tuple(
            seed for seed, steps in left.items() if start in steps or (start < 0 and not steps)
        )
        yield together, None if start < 0 else start
        left = {seed: steps for seed, steps in left.items() if seed not in together}


def look_over(
    folder: pathlib.Path, store: Checkpoints, config: TrainConfig, console: rich.console.Console
) -> None:
    """Puts broken checkpoints aside and says so; a ValueError where results have none left."""
    drop_broken(store, console)
    # The first of two rows was saved before the second was written, and offline steps before their
    # end was kept.
    signs = [train_report.summary_file(folder)]
    signs += [folder / OFFLINE] if config.offline_steps else []
    has_results = train_report.count_rows(folder) > 1 or any(sign.exists() for sign in signs)
    require_one(store, folder, has_results=has_results)


def drop_broken(store: Checkpoints, console: rich.console.Console) -> None:
    """Puts checkpoints that are not what was saved aside, and says so."""
    for moved in store.drop_broken():
        what = f"{moved.stem} in {moved.parent} cannot be read"
        console.print(f"{what}; it is now {moved.name}.", soft_wrap=True)


def require_one(store: Checkpoints, folder: pathlib.Path, *, has_results: bool) -> None:
    """Raises a ValueError of one line where there are results and no checkpoint to go on from."""
    if store.latest() is None and has_results:
        raise ValueError(
            f"there are results in {str(folder)!r} and no checkpoint that can be read; remove it "
            "to begin again, or name another --workdir."
        )


def check(problem: Problem, stores: Stores, step: int) -> list[checkpoint.Notes]:
    """Returns the notes of each seed's checkpoint, which must be of the same problem."""
    notes = [stores[seed].notes(step, **NOTES) for seed in problem.seeds]
    for seed, note in zip(problem.seeds, notes, strict=True):
        checkpoint.require_same(note["identity"], problem.identity(seed))
        cfg.check_one_of("the phase of a checkpoint", note["phase"], driver.STATE_AXES)
        if driver.number(note["phase"], note["step"], problem.config) != step:
            raise ValueError(
                f"the checkpoint {step} of seed {seed} is a copy of another, of {note['phase']} "
                f"step {note['step']}; remove it."
            )
        if note["phase"] == "online" and note["step"] > problem.config.online_steps:
            raise ValueError(
                f"the run has made {note['step']:,} online steps; --config.online_steps must be at "
                f"least that, got {problem.config.online_steps:,}."
            )
    return notes


def restore(problem: Problem, stores: Stores, step: int) -> Progress:
    """Returns the runs as they were saved."""
    notes = check(problem, stores, step)
    phase = notes[0]["phase"]
    like = driver.shapes(problem, phase)
    states = [stores[seed].restore(step, like) for seed in problem.seeds]
    state = seeds.stack(states, driver.STATE_AXES[phase], problem.mesh)
    if phase == "online":
        resume = problem.compile(problem.env.resume, 0)
        state = state.replace(env=resume(state.env))
    return Progress(
        phase=phase,
        step=notes[0]["step"],
        state=state,
        rows=[stores[seed].rows(step) for seed in problem.seeds],
        pending=_pending([note["pending"] for note in notes]),
        seconds=max(note["seconds"] for note in notes),
    )


def _pending(notes: Sequence[dict[str, list[float]]]) -> tuple[dict[str, np.ndarray], ...]:
    """Returns what each seed had pending as one chunk, `[S, T]` each."""
    if not notes[0]:
        return ()
    return ({name: np.array([note[name] for note in notes]) for name in notes[0]},)


def save(problem: Problem, progress: Progress, stores: Stores) -> None:
    """Saves everything that the rest of each run depends on."""
    number = progress.number(problem.config)
    for i, seed in enumerate(problem.seeds):
        rows = progress.rows[i]
        notes = {"phase": progress.phase, "step": progress.step, "seconds": progress.seconds}
        notes |= {"pending": _listed(progress, i), "identity": problem.identity(seed)}
        notes |= {"versions": results.versions()}
        state = seeds.take(progress.state, progress.axes, i)
        score = rows[-1]["score"] if progress.is_evaluated else _UNKNOWN
        stores[seed].save(number, state, notes, rows=rows, score=score)


def wait(stores: Stores) -> None:
    """Waits until what was saved is on disk; raises `NotSaved` where it cannot be."""
    for store in stores.values():
        store.wait()


def _listed(progress: Progress, i: int) -> dict[str, list[float]]:
    """Returns what a seed has pending as plain data, exactly."""
    names = sorted({name for chunk in progress.pending for name in chunk})
    return {
        name: np.concatenate(
            [chunk[name][i] for chunk in progress.pending if name in chunk]
        ).tolist()
        for name in names
    }


def keep_offline(
    problem: Problem, progress: Progress, folders: Mapping[int, pathlib.Path], stores: Stores
) -> None:
    """Keeps the end of each seed's offline phase, for other runs to begin with."""
    for i, seed in enumerate(problem.seeds):
        notes = {"identity": offline_identity(problem, seed)}
        state = seeds.take(progress.state, progress.axes, i)
        try:
            with Checkpoints(folders[seed] / OFFLINE, keep=1) as store:
                if store.latest() is None:
                    store.save(progress.step, state, notes, rows=progress.rows[i])
        except checkpoint.NotSaved as error:
            stores[seed].wait()  # it may be on its way still, and fail as well
            raise checkpoint.NotSaved(
                f"cannot keep the offline phase in {folders[seed] / OFFLINE} ({error.why}); "
                f"{stores[seed].in_words()}.",
                error.why,
            ) from error


def offline_identity(problem: Problem, seed: int) -> dict[str, Any]:
    """Returns what the end of the offline phase depends on."""
    fields = problem.identity(seed)
    has_phases = any(name.startswith("agent.offline.") for name in fields)
    part = "agent.offline." if has_phases else "agent."
    kept = ("agent", "env", "dataset", driver.DATA, "seed", "physics", "offline_steps")
    return {name: fields[name] for name in fields if name in kept or name.startswith(part)}


def take_over(
    problem: Problem, sources: Sequence[pathlib.Path], *, flag: str = "--from_checkpoint"
) -> Progress:
    """Returns runs at the end of the offline phases that `keep_offline` wrote for others.

    The flag is the one that named them.
    """
    like = driver.shapes(problem, "offline")
    found = [
        _take_over(problem, seed, source, like, flag)
        for seed, source in zip(problem.seeds, sources, strict=True)
    ]
    steps, states, rows = zip(*found, strict=True)
    state = seeds.stack(states, driver.STATE_AXES["offline"], problem.mesh)
    return Progress("offline", steps[0], state, list(rows))


def _take_over(problem: Problem, seed: int, source: pathlib.Path, like: Any, flag: str) -> tuple:
    with Checkpoints(source, keep=1, read_only=True) as store:
        latest = store.latest()
        if latest is None:
            raise ValueError(f"there is no whole checkpoint in {source}.")
        notes = store.notes(latest, identity=dict)
        identity = offline_identity(problem, seed)
        checkpoint.require_same(notes["identity"], identity, flag=flag)
        return latest, store.restore(latest, like), store.rows(latest)


def find_offline(workdir: str, seed: int) -> pathlib.Path:
    """Returns the directory with the offline phase of a seed of another run."""
    path = directories.expand(workdir) / f"seed_{seed}" / OFFLINE
    if not path.is_dir():
        raise ValueError(
            f"there is no offline phase of seed {seed} in {workdir!r}; name the workdir of a run "
            "that has finished its own."
        )
    return path
