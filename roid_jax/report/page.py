"""One self-contained HTML page: its look, its few lines of script, nothing from elsewhere."""

import base64
import html
from collections.abc import Sequence
from typing import NamedTuple


class Section(NamedTuple):
    """A part of a page: its heading, and HTML that is already safe."""

    title: str
    content: str

    @property
    def anchor(self) -> str:
        """Its name in the page's address."""
        return "".join(sign if sign.isalnum() else "-" for sign in self.title.lower())


_STYLE = """
:root { --ink:#1c2430; --soft:#5b6573; --paper:#fff; --raised:#f5f7fa; --rule:#dde3ea;
  --link:#0b5cad; color-scheme:light dark }
@media (prefers-color-scheme:dark) { :root { --ink:#e6eaf0; --soft:#9aa6b5; --paper:#12161c;
  --raised:#1b212a; --rule:#313a46; --link:#7ab8ff } }
* { box-sizing:border-box }
body { margin:0 auto; padding:1.2rem; max-width:78rem; color:var(--ink); background:var(--paper);
  font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif }
h1 { font-size:1.6rem; margin:.2rem 0 } h2 { font-size:1.2rem; margin:2.2rem 0 .6rem }
h3 { font-size:1rem; margin:1.4rem 0 .4rem }
a { color:var(--link) } nav a { margin-right:1rem; white-space:nowrap }
p.note, .about { color:var(--soft); font-size:.9rem; margin:.3rem 0; max-width:60rem }
.wide { overflow-x:auto; border:1px solid var(--rule); border-radius:6px; margin:.6rem 0;
  width:fit-content; max-width:100% }
table { border-collapse:collapse; min-width:min(100%,26rem); font-size:.85rem;
  font-variant-numeric:tabular-nums }
caption { text-align:left; font-weight:600; padding:.5rem }
th, td { padding:.32rem .5rem; text-align:left; vertical-align:top; white-space:nowrap }
td.prose { white-space:normal }
th { background:var(--raised); border-block:1px solid var(--rule); font-weight:600 }
th button { all:unset; cursor:pointer; font-weight:600 }
th button:focus-visible { outline:2px solid var(--link) }
th[aria-sort=ascending] button::after { content:" \\2191" }
th[aria-sort=descending] button::after { content:" \\2193" }
.number { text-align:right } tbody + tbody tr:first-child td { border-top:1px solid var(--rule) }
tbody tr:hover { background:var(--raised) }
figure { margin:.8rem 0 } .panels { display:grid; gap:.8rem;
  grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr)) }
.panels svg { width:100%; max-width:36rem; height:auto } figcaption { font-size:.9rem }
figcaption span { margin-right:1.1rem; white-space:nowrap }
figcaption i { display:inline-block; width:1.1em; height:.28em; margin-right:.4em;
  vertical-align:middle; border-radius:2px }
svg text { fill:var(--ink); font-size:12px; text-anchor:middle } svg text.left { text-anchor:end }
svg text.title { font-size:13px; font-weight:600 } svg .axis { stroke:var(--soft); fill:none }
svg .rule { stroke:var(--rule) } img { max-width:100%; background:#fff; border-radius:6px }
pre { overflow-x:auto; background:var(--raised); padding:.8rem; border-radius:6px;
  font-size:.85rem }
"""

# A click on a head sorts the rows under each ruled line by it; a second click turns them round.
_SCRIPT = """
for (const table of document.querySelectorAll('table')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, i) => {
    const button = document.createElement('button');
    button.type = 'button'; button.textContent = head.textContent; head.replaceChildren(button);
    button.addEventListener('click', () => {
      const up = head.getAttribute('aria-sort') !== 'ascending';
      heads.forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
      const value = row => {
        const text = row.cells[i].textContent, number = parseFloat(text.replace(/,/g, ''));
        return isNaN(number) ? text : number };
      const compare = (a, b) => typeof a === 'number' && typeof b === 'number'
        ? a - b : String(a).localeCompare(String(b));
      for (const body of table.tBodies)
        [...body.rows].map((row, n) => [value(row), n, row])
          .sort((a, b) => (compare(a[0], b[0]) || a[1] - b[1]) * (up ? 1 : -1))
          .forEach(entry => body.append(entry[2]));
    });
  });
}
"""


def render(title: str, about: str, sections: Sequence[Section], *, back: str | None = None) -> str:
    """Returns the whole page.

    Args:
      title: of the page.
      about: one sentence below it, plain text.
      sections: its parts, each with a place in the list of contents.
      back: where the page that leads here is, if one does.
    """
    links = [f'<a href="#{part.anchor}">{html.escape(part.title)}</a>' for part in sections]
    if back is not None:
        links.insert(0, f'<a href="{html.escape(back)}">\u2190 all runs</a>')
    parts = "".join(
        f'<section id="{part.anchor}"><h2>{html.escape(part.title)}</h2>{part.content}</section>'
        for part in sections
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><header><h1>{html.escape(title)}</h1>"
        f"<p class=about>{html.escape(about)}</p><nav>{' '.join(links)}</nav></header>"
        f"<main>{parts}</main><script>{_SCRIPT}</script></body></html>\n"
    )


def paragraph(text: str) -> str:
    """Returns plain text as a paragraph."""
    return f"<p class=about>{html.escape(text)}</p>"


def code(text: str) -> str:
    """Returns text as it is, in a box."""
    return f"<pre>{html.escape(text)}</pre>"


def picture(content: bytes, words: str, *, kind: str = "png") -> str:
    """Returns a picture that is part of the page, with words for those who cannot see it."""
    data = base64.b64encode(content).decode()
    return f'<img alt="{html.escape(words)}" src="data:image/{kind};base64,{data}">'
