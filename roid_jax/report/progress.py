"""Progress on the terminal: a bar with rate and time left, and the score so far."""

import contextlib
from collections.abc import Callable, Iterator

import rich.console
import rich.progress
import rich.table


@contextlib.contextmanager
def track(
    title: str, total: float, console: rich.console.Console, *, unit: str, done: float = 0
) -> Iterator[Callable[[float, str], None]]:
    """Shows a bar while the block runs, from `done` on; yields `advance(steps, score)`.

    Where the output is not a terminal only the finished bar is printed, so logs stay short.
    """
    bar = rich.progress.Progress(
        rich.progress.TextColumn("{task.description}", markup=False),
        rich.progress.BarColumn(bar_width=12),
        rich.progress.TextColumn(f"{{task.completed:.0f}}/{{task.total:.0f}} {unit}"),
        rich.progress.TextColumn("{task.fields[rate]}"),
        rich.progress.TimeElapsedColumn(table_column=rich.table.Column(no_wrap=True, min_width=7)),
        rich.progress.TextColumn("<"),
        rich.progress.TimeRemainingColumn(
            compact=True, table_column=rich.table.Column(no_wrap=True, min_width=5)
        ),
        rich.progress.TextColumn("{task.fields[score]}", style="dim"),
        console=console,
    )
    with bar:
        task = bar.add_task(title, total=total, completed=done, rate="", score="")

        def advance(steps: float, score: str = "") -> None:
            bar.update(task, advance=steps, score=score)
            elapsed = bar.tasks[0].elapsed or 0.0
            if elapsed:
                rate = max(bar.tasks[0].completed - done, 0) / elapsed
                bar.update(task, rate=f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s")

        yield advance
