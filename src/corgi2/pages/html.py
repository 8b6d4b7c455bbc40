"""One self-contained page: pictures as SVG, a table behind each, no network, no script. Pure: numbers in, text out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from corgi2.pages.pictures import MOST_COLUMNS, MOST_ROWS, Counts, heat_map

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1b1f;--soft:#6b6b76;--back:#fff;--line:#d8d8e0;--mark:#c2255c;--heat:28,100,200;
--c0:#1c64c8;--c1:#d9480f;--c2:#2b8a3e;--c3:#862e9c;--c4:#b07b00;--c5:#0b7285;--c6:#c2255c;--c7:#5c5f66}
@media(prefers-color-scheme:dark){:root{--ink:#e8e8ee;--soft:#a0a0ac;--back:#16161a;--line:#3a3a44;--mark:#ff6b9d;
--heat:110,170,255;--c0:#74a9ff;--c1:#ff922b;--c2:#69db7c;--c3:#da77f2;--c4:#ffd43b;--c5:#66d9e8;--c6:#ff6b9d;--c7:#adb5bd}}
*{box-sizing:border-box}body{margin:0 auto;max-width:46rem;padding:1rem;background:var(--back);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}
p{overflow-wrap:anywhere}.why{border-left:4px solid var(--mark);padding-left:.8rem}code{font-size:.9em}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
svg{width:100%;max-width:40rem;height:auto;display:block}svg text{fill:var(--soft);font:11px system-ui,sans-serif}
.axis{stroke:var(--line);fill:none}.line{fill:none;stroke-width:2}.ring{fill:none;stroke:var(--mark);stroke-width:2.5}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:0;list-style:none;font-size:.85rem}
.legend i{display:inline-block;width:.8em;height:.8em;border-radius:50%;margin-right:.4em}
.scroll{overflow-x:auto}summary{cursor:pointer;color:var(--soft)}
table{border-collapse:collapse;font-size:.8rem;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}
tr.marked td{font-weight:600;color:var(--mark)}
"""


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers behind a picture."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: int | None = None
    """A row to be seen at once."""

    def html(self) -> str:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.head)
        rows = "".join(
            f"<tr{' class=marked' if number == self.marked else ''}>"
            + "".join(f"<td>{escape(cell)}</td>" for cell in row)
            + "</tr>"
            for number, row in enumerate(self.rows)
        )
        return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


@dataclass(frozen=True, slots=True)
class Section:
    """A picture, what to see in it, and its numbers."""

    title: str
    text: str
    picture: str
    table: Table

    def html(self) -> str:
        return (
            f"<section><h2>{escape(self.title)}</h2><p>{escape(self.text)}</p>{self.picture}"
            f"<details><summary>The numbers</summary>{self.table.html()}</details></section>"
        )


def page(title: str, lines: Iterable[str], sections: Iterable[Section], why: str = "", code: str = "") -> str:
    """The page: what it is about, what to do, and the pictures. ``code`` stands as it is."""
    advice = f'<p class="why">{escape(why)}</p>' if why else ""
    command = f"<pre class=scroll><code>{escape(code)}</code></pre>" if code else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,'
        f'initial-scale=1"><link rel="icon" href="data:,"><title>{escape(title)}</title><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{''.join(f'<p>{escape(line)}</p>' for line in lines)}{advice}{command}"
        f"{''.join(section.html() for section in sections)}</body></html>\n"
    )


def heat_section(title: str, text: str, names: Sequence[str], blocks: Sequence[int], counts: Counts) -> Section:
    """Blocks × classes. Of many classes the most frequent are shown, of many blocks some."""
    chosen = np.unique(np.linspace(0, len(blocks) - 1, min(len(blocks), MOST_ROWS)).astype(int))
    kept = np.sort(np.argsort(-counts.sum(axis=0), kind="stable")[:MOST_COLUMNS])
    shown, heads = counts[np.ix_(chosen, kept)], [names[column] for column in kept]
    text += f" From left to right: {', '.join(heads[:20])}{', …' if len(heads) > 20 else ''}."
    if len(kept) < len(names):
        text += f" Of {len(names):,} classes the {len(kept)} most frequent are shown."
    rows = [[str(blocks[row]), *(f"{value:.0f}" for value in line)] for row, line in zip(chosen, shown, strict=True)]
    return Section(title, text, heat_map(shown), Table(["block", *heads], rows))
