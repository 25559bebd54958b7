"""The command `download` of experiments.data: fetches a set with a bar, and says where it is."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import rich.console

from experiments import cli
from roid_jax.data import download, published, registry

MEGABYTE = 1e6


def run(name: str, console: rich.console.Console, *, force: bool) -> None:
    """Fetches a dataset unless it is here already, and prints where it is."""
    if not name:
        raise ValueError("download needs the name of a set, d4rl:<name>; the command list has all.")
    kind, _, rest = name.partition(":")
    if kind != "d4rl":
        raise ValueError(f"{name!r} is nothing to download; D4RL's sets are, as d4rl:<name>.")
    entry, places = published.find(rest), registry.directories()
    found = [place for place in places if (place / entry.file).is_file()]
    directory = places[0] if force or not found else found[0]
    say = functools.partial(console.print, markup=False, soft_wrap=True)
    with _bar(entry.file, console) as report:
        path = download.fetch(
            entry,
            directory,
            mirrors=published.mirrors(),
            force=force,
            report=report,
            say=functools.partial(say, style="dim"),
        )
    state = "already here" if found and not force else "here"
    checked = "sha256 is right" if entry.sha256 else "layout is right, its checksum is not known"
    say(f"{name} is {state}, its {checked}: {path}")


@contextlib.contextmanager
def _bar(title: str, console: rich.console.Console) -> Iterator[Callable[[int, int], None]]:
    """Yields `report(done, total)` in bytes; it opens a bar once there is something to show."""
    with contextlib.ExitStack() as stack:
        shown = {"total": None, "done": 0}

        def report(done: int, total: int) -> None:
            if total != shown["total"]:
                stack.close()
                bar = cli.track(title, total / MEGABYTE, console, unit="MB", done=done / MEGABYTE)
                shown.update(total=total, done=done, advance=stack.enter_context(bar))
            shown["advance"]((done - shown["done"]) / MEGABYTE)
            shown["done"] = done

        yield report
