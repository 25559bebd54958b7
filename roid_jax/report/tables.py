"""One table, its renderings: terminal, Markdown, LaTeX, HTML, CSV; and numbers for its cells."""

import csv
import dataclasses
import html
import io
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
    lines = [f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in body]
    notes = [f"{note}\n" for note in table.notes]
    return "\n".join([f"### {table.title}", "", *lines, "", *notes])


def from_markdown(text: str) -> list[Table]:
    """Returns the tables that `to_markdown` wrote, one after another; ruled lines are lost.

    A first cell that is empty is that of the row above, so that rows can be sorted.
    """
    found = []
    for part in text.split("### ")[1:]:
        title, *lines = part.splitlines()
        grid = [line[2:-2].split(" | ") for line in lines if line.startswith("| ")]
        notes = tuple(line for line in lines if line and not line.startswith("| "))
        heads, ruler, *body = grid
        for row, above in zip(body[1:], body, strict=False):
            row[0] = row[0] or above[0]
        rows = tuple(map(tuple, body))
        found.append(Table(title, tuple(heads), rows, notes, text_columns=ruler.count("---")))
    return found


_LATEX = str.maketrans(
    {**{sign: f"\\{sign}" for sign in "&%$#_{}"}, "±": r"$\pm$", "~": r"\textasciitilde{}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$"}
)


def to_latex(table: Table) -> str:
    """Returns the table for LaTeX with booktabs, its notes below."""
    layout = "l" * table.text_columns + "r" * (len(table.columns) - table.text_columns)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{table.title.translate(_LATEX)}}}"]
    lines += [
        rf"\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        _latex_row(table.columns),
        r"\midrule",
    ]
    lines += [_latex_row(row) if row else r"\midrule" for row in table.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {note.translate(_LATEX)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}", ""])


def _latex_row(cells: tuple[str, ...]) -> str:
    return " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"


def to_csv(table: Table) -> str:
    """Returns the cells as CSV, under their heads."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([table.columns, *(row for row in table.rows if row)])
    return buffer.getvalue()


def to_html(table: Table, *, links: dict[str, str] | None = None) -> str:
    """Returns the table as HTML; a cell whose text is in `links` leads there."""
    heads = "".join(
        f'<th scope="col"{_align(table, i)}>{html.escape(column)}</th>'
        for i, column in enumerate(table.columns)
    )
    bodies = "".join(
        f"<tbody>{''.join(_html_row(table, row, links or {}) for row in group)}</tbody>"
        for group in _groups(table)
    )
    notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in table.notes)
    caption = f"<caption>{html.escape(table.title)}</caption>"
    grid = f"<table>{caption}<thead><tr>{heads}</tr></thead>{bodies}</table>"
    return f'<div class="wide" tabindex="0">{grid}</div>{notes}'


def _groups(table: Table) -> list[list[tuple[str, ...]]]:
    """Returns the rows between ruled lines."""
    groups: list[list[tuple[str, ...]]] = [[]]
    for row in table.rows:
        if row:
            groups[-1].append(row)
        else:
            groups.append([])
    return groups


def _html_row(table: Table, row: tuple[str, ...], links: dict[str, str]) -> str:
    cells = []
    for i, cell in enumerate(row):
        text = html.escape(cell)
        inner = f'<a href="{html.escape(links[cell])}">{text}</a>' if cell in links else text
        cells.append(f"<td{_align(table, i)}>{inner}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _align(table: Table, column: int) -> str:
    return "" if column < table.text_columns else " class=number"


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
