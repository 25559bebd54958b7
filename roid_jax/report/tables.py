"""One table, three renderings: terminal, Markdown, and the numbers in its cells."""

import dataclasses

import rich.box
import rich.console
import rich.table


@dataclasses.dataclass(frozen=True)
class Table:
    """Text cells with a title above and notes below. An empty row is a ruled line."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        for row in self.rows:
            if row and len(row) != len(self.columns):
                raise ValueError(f"a row of {self.title!r} has {len(row)} cells: {row}.")


def show(table: Table, console: rich.console.Console) -> None:
    """Prints the table to a terminal; it never wraps a number."""
    grid = rich.table.Table(
        title=table.title, title_justify="left", title_style="bold", box=rich.box.SIMPLE_HEAD
    )
    for i, column in enumerate(table.columns):
        grid.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    for row in table.rows:
        if row:
            grid.add_row(*row)
        else:
            grid.add_section()
    console.print(grid, soft_wrap=True)
    for note in table.notes:
        console.print(f"  {note}", style="dim", highlight=False)
    console.print()


def to_markdown(table: Table) -> str:
    """Returns the table as Markdown, with its title as a heading and its notes below."""
    ruler = ("---", *("---:" for _ in table.columns[1:]))
    body = [table.columns, ruler, *(row for row in table.rows if row)]
    lines = [f"| {' | '.join(cells)} |" for cells in body]
    notes = [f"{note}\n" for note in table.notes]
    return "\n".join([f"### {table.title}", "", *lines, "", *notes])


def number(value: float | None, *, digits: int = 3) -> str:
    """Returns a number for a cell: `digits` significant ones, no exponent, '' where there is none.

    Digits before the point are never cut, and at most four are shown after it.
    """
    if value is None:
        return ""
    if value == 0.0:
        return "0"
    magnitude = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    places = max(0, min(4, digits - magnitude))
    return f"{value:.{places}f}"


def with_error(value: float, error: float | None, *, digits: int = 3) -> str:
    """Returns `value ± error`, or the value alone where there is no error."""
    if not error:
        return number(value, digits=digits)
    return f"{number(value, digits=digits)} ± {number(error, digits=2)}"
