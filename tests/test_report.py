import io

import numpy as np
import pytest
import rich.console

from roid_jax.report import figures, progress, tables

TABLE = tables.Table("Title", ("N", "a", "b"), (("1", "2", "3"), (), ("4", "5", "6")), ("A note.",))


def rendered(show):
    console = rich.console.Console(file=io.StringIO(), width=80)
    show(console)
    return console.file.getvalue()


def test_a_table_is_shown_with_title_cells_and_notes():
    text = rendered(lambda console: tables.show(TABLE, console))
    for part in ("Title", "N", "4", "6", "A note."):
        assert part in text


def test_a_table_as_markdown():
    assert tables.to_markdown(TABLE).splitlines() == [
        "### Title",
        "",
        "| N | a | b |",
        "| --- | ---: | ---: |",
        "| 1 | 2 | 3 |",
        "| 4 | 5 | 6 |",
        "",
        "A note.",
    ]


def test_a_row_with_too_few_cells_is_refused():
    with pytest.raises(ValueError, match="a row of 'T' has 1 cells"):
        tables.Table("T", ("a", "b"), (("1",),))


@pytest.mark.parametrize(
    "value, text",
    [
        (0.15, "0.150"),
        (3.30499, "3.305"),
        (42.85, "42.85"),
        (1234.5, "1234"),
        (0.0, "0.000"),
        (None, ""),
    ],
)
def test_numbers_have_fewer_places_the_larger_they_are(value, text):
    assert tables.number(value) == text


@pytest.mark.parametrize(
    "value, error, text",
    [
        (1.3470, 0.2104, "1.35 ± 0.21"),
        (38.9, 11.2, "39 ± 11"),
        (0.2711, 0.0637, "0.271 ± 0.064"),
        (0.15, 0.0, "0.150"),
        (0.15, None, "0.150"),
        (1.0, 1e-9, "1.0000 ± 0.0000"),
    ],
)
def test_an_error_has_two_digits_and_the_value_as_many_places(value, error, text):
    assert tables.with_error(value, error) == text


def test_progress_tells_how_far_and_the_score():
    def show(console):
        with progress.track("work", 4, console, unit="seeds") as advance:
            advance(3, "TS 1.2")
            advance(1, "TS 1.3")

    text = rendered(show)
    assert "work" in text and "4/4 seeds" in text and "TS 1.3" in text


def test_a_figure_is_a_png_and_the_same_every_time():
    x = np.arange(1, 5)
    lines = [
        figures.Line("TS", x, x * 1.0, np.ones(4)),
        figures.Line("TS", x, x * 1.1, None, "o"),
        figures.Line("other", x, x * 2.0),
    ]
    panels = [
        figures.Panel("one", "x", "y", lines, y_scale="log"),
        figures.Panel("two", "x", "y", lines),
    ]
    first, second = (figures.draw(panels, columns=2, title="T") for _ in range(2))
    assert first.startswith(b"\x89PNG")
    assert first == second


def test_a_label_has_one_colour_in_every_panel():
    x = np.arange(3.0)
    panels = [
        figures.Panel("", "", "", [figures.Line(label, x, x) for label in labels])
        for labels in (["one", "two"], ["two"], ["three", "one"])
    ]
    found = figures.colours(panels)
    assert list(found) == ["one", "two", "three"] and len(set(found.values())) == 3


def test_there_may_be_more_lines_than_colours():
    x = np.arange(3.0)
    lines = [figures.Line(f"seed {i}", x, x + i) for i in range(30)]
    panel = figures.Panel(title="many", x_label="step", y_label="score", lines=lines)
    assert figures.draw([panel], columns=1, title="").startswith(b"\x89PNG")
