"""Several processes, on one machine or many, that share the seeds of a run.

JAX's own runtime brings them together and says which is which. Then they part again, since seeds
share nothing: each process runs its own and writes their files, and one that dies takes no other
with it. It can be started again alone, by its number and without a place to meet. The workdir must
be one that all of them see; the first process waits there for the others' files and reports.
"""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import jax
import rich.console
from absl import flags
from jax._src import distributed  # the one place where JAX tells ids before it starts its devices

from experiments import stopping


class Place(NamedTuple):
    """Which process this is, of how many."""

    index: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that reports."""
        return self.index == 0


def define_flags() -> None:
    """Declares the flags that say which of several processes this is."""
    flags.DEFINE_string(
        "coordinator",
        None,
        "Where several processes meet: host:port of the first; auto under SLURM or Open MPI.",
    )
    flags.DEFINE_integer("num_processes", None, "How many processes there are.", lower_bound=1)
    flags.DEFINE_integer("process_id", None, "Which of them this is.", lower_bound=0)


def meet() -> Place:
    """Joins the other processes, if the flags say that there are any; `part` must follow."""
    where = flags.FLAGS.coordinator
    number, this = flags.FLAGS.num_processes, flags.FLAGS.process_id
    if where == "auto":
        return _meet()
    if (number is None) != (this is None) or (where and number is None):
        raise ValueError("--num_processes and --process_id go together, with --coordinator or not.")
    if number is None:
        return Place()
    if this >= number:
        raise ValueError(f"--process_id must be below --num_processes={number}, got {this}.")
    if where is None:  # it had met the others before, and goes on alone
        return Place(this, number)
    return _meet(coordinator_address=where, num_processes=number, process_id=this)


def _meet(**how: str | int) -> Place:
    jax.config.update("jax_enable_preemption_service", False)  # it would keep SIGTERM to itself
    try:
        jax.distributed.initialize(**how)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"--coordinator: the processes did not meet ({error}).") from None
    return Place(distributed.global_state.process_id, distributed.global_state.num_processes)


def share(numbers: Sequence[int], place: Place) -> Sequence[int]:
    """Returns the seeds of this process: as many as the others have, or one more."""
    if len(numbers) < place.count:
        raise ValueError(
            f"{place.count} processes cannot share --num_seeds={len(numbers)}; give more."
        )
    each, more = divmod(len(numbers), place.count)
    start = place.index * each + min(place.index, more)
    return numbers[start : start + each + (place.index < more)]


def part(place: Place, workdir: pathlib.Path) -> None:
    """Leaves the others, and marks the time.

    Nobody leaves before all are here, so what is written after the mark is of this meeting.
    """
    if jax.distributed.is_initialized():
        if place.is_first:
            _mark(workdir).touch()
        jax.distributed.shutdown()
        # It leaves its own number behind, which would make devices of a larger world.
        distributed.global_state.process_id, distributed.global_state.num_processes = 0, 1


def wait(
    place: Place,
    workdir: pathlib.Path,
    files: Sequence[pathlib.Path],
    console: rich.console.Console,
) -> None:
    """Waits until all files are there, written since the processes met, if there are several."""
    if place.count == 1:
        return
    mark = _mark(workdir)
    since = mark.stat().st_mtime_ns if mark.exists() else 0

    def missing() -> list[str]:
        return [
            file.parent.name
            for file in files
            if not file.exists() or file.stat().st_mtime_ns < since
        ]

    if missing():
        names = ", ".join(missing())
        console.print(f"Waiting for {names}, of other processes.", soft_wrap=True)
    while missing():
        stopping.pause(0.5)


def _mark(workdir: pathlib.Path) -> pathlib.Path:
    return workdir / ".met"
