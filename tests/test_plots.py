"""Panels as SVG and pages as HTML: whole, safe, and with every line in its place."""

import html.parser
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from roid_jax.report import figures, page, plots, tables, video

X = np.array([0.0, 10.0, 20.0])
LINE = figures.Line("a <b>", X, np.array([1.0, 2.0, 3.0]), np.full(3, 0.5))


def drawn(*lines, **how):
    return plots.figure([figures.Panel("t & u", "x", "y", lines, **how)])


def as_xml(text):
    """The SVG of a figure, with its attributes quoted as XML wants them."""
    svg = re.search("<svg.*?</svg>", text, re.DOTALL)[0]
    return ElementTree.fromstring(re.sub(r"=([^\s\"'>]+?)(?=\s|/?>)", r'="\1"', svg))


def test_a_line_has_as_many_points_as_it_was_given_and_a_band():
    paths = [path.get("d") for path in as_xml(drawn(LINE)).iter("path") if path.get("fill")]
    assert [path.count("L") for path in paths if path.count("L") in (2, 5)] == [5, 2]


def test_larger_values_are_higher_up():
    path = next(p for p in as_xml(drawn(LINE)).iter("path") if p.get("stroke-width"))
    heights = [float(pair.split()[1]) for pair in path.get("d")[1:].split("L")]
    assert heights[0] > heights[1] > heights[2]


def test_words_are_escaped():
    text = drawn(LINE)
    assert "a <b>" not in text and "a &lt;b&gt;" in text and "t &amp; u" in text


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_nothing_and_one_point_and_equal_points_are_drawn(scale):
    for y in ([], [3.0], [3.0, 3.0], [0.0, -1.0]):
        line = figures.Line("l", np.arange(len(y), dtype=float), np.array(y))
        as_xml(drawn(line, y_scale=scale))


def test_a_logarithmic_axis_has_round_ticks():
    line = figures.Line("l", X, np.array([1.0, 100.0, 10_000.0]))
    texts = [node.text for node in as_xml(drawn(line, y_scale="log")).iter("text")]
    assert {"1", "10", "100", "1000", "10k"} <= set(texts)


class _Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.addresses, self.open = [], []

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "link", "img", "path", "circle", "i"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag


def test_a_page_is_whole_and_asks_for_nothing_elsewhere():
    table = tables.Table("T", ("a", "b"), (("<x>", "1"), (), ("y", "2")), ("n",))
    text = page.render(
        "Title", "about", [page.Section("One", tables.to_html(table) + drawn(LINE))], back="up.html"
    )
    tags = _Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.addresses == ["data:,", "up.html", "#one"]
    assert "&lt;x&gt;" in text and "<x>" not in text


def test_a_table_as_latex_and_csv():
    table = tables.Table("50% & more", ("run_a", "b"), (("x", "1 ± 2"), ()), ("#1",))
    text = tables.to_latex(table)
    assert r"\caption{50\% \& more}" in text and r"run\_a & b \\" in text
    assert r"x & 1 $\pm$ 2 \\" in text and r"\footnotesize \#1" in text
    assert tables.to_csv(table) == "run_a,b\nx,1 ± 2\n"


def test_markdown_is_read_back():
    table = tables.Table("T", ("", "b", "c"), (("", "x", "1"), ("y", "", "2")), ("n",), 2)
    (found,) = tables.from_markdown(tables.to_markdown(table))
    assert found == table


def test_a_gif_holds_every_picture():
    import io

    from PIL import Image

    frames = [np.full((8, 10, 3), shade, np.uint8) for shade in (0, 120, 250)]
    content = video.to_gif(frames, per_second=20.0)
    with Image.open(io.BytesIO(content)) as found:
        assert (found.size, found.n_frames, found.info["duration"]) == ((10, 8), 3, 50)
    with pytest.raises(ValueError, match="no pictures"):
        video.to_gif([], per_second=1.0)
