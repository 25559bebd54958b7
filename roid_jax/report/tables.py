"""One table, three renderings: terminal, Markdown, and the numbers in its cells."""

import dataclasses
import math

import rich.box
import rich.console
import rich.table
import rich.text


@dataclasses.dataclass(frozen=True)
class Table:
    """Text cells with a title above and notes below. An empty row is a ruled line."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    text_columns: int = 1  # the first so many are set left, the rest right

    def __post_init__(self):
        for row in self.rows:
            if row and len(row) != len(self.columns):
                raise ValueError(f"a row of {self.title!r} has {len(row)} cells: {row}.")


def show(table: Table, console: rich.console.Console) -> None:
    """Prints the table to a terminal."""
    grid = rich.table.Table(
        box=rich.box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for i, column in enumerate(table.columns):
        is_text = i < table.text_columns
        # Numbers are never cut; where a table is too wide its words go on in the next line.
        grid.add_column(
            rich.text.Text(column),
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            overflow="fold",
            min_width=None if is_text else _width(table, i),
        )
    for row in table.rows:
        if row:
            grid.add_row(*map(rich.text.Text, row))
        else:
            grid.add_section()
    console.print(table.title, style="bold", soft_wrap=True, markup=False)
    console.print(grid)
    for note in table.notes:
        console.print(f"  {note}", style="dim", highlight=False, soft_wrap=True, markup=False)
    console.print()


def _width(table: Table, column: int) -> int:
    return max(len(row[column]) for row in (table.columns, *table.rows) if row)


def to_markdown(table: Table) -> str:
    """Returns the table as Markdown, with its title as a heading and its notes below."""
    ruler = tuple("---" if i < table.text_columns else "---:" for i in range(len(table.columns)))
    body = [table.columns, ruler, *(row for row in table.rows if row)]
    lines = [f"| {' | '.join(cells)} |" for cells in body]
    notes = [f"{note}\n" for note in table.notes]
    return "\n".join([f"### {table.title}", "", *lines, "", *notes])


def number(value: float | None, *, places: int = 3) -> str:
    """Returns a number for a cell, with fewer places the larger it is; '' where there is none."""
    if value is None:
        return ""
    magnitude = math.floor(math.log10(abs(value))) if abs(value) >= 1 else 0
    return f"{value:.{max(0, places - magnitude)}f}"


def with_error(value: float, error: float | None) -> str:
    """Returns `value ± error`: the error to two digits, the value to the same place."""
    if not error:
        return number(value)
    places = min(4, max(0, 1 - math.floor(math.log10(error))))
    return f"{value:.{places}f} ± {error:.{places}f}"
