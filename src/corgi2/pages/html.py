"""One self-contained page: pictures as SVG, a table behind each, no network, no script. Pure: numbers in, text out."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from corgi2.pages.pictures import MOST_COLUMNS, MOST_ROWS, Counts, heads_fit, heat_map

_STYLE = """
:root{color-scheme:light dark;--ink:#1b1b1f;--soft:#6b6b76;--back:#fff;--line:#e2e2e9;--mark:#c2255c;--heat:28,100,200;
--pale:#f4f4f8;--c0:#1c64c8;--c1:#d9480f;--c2:#2b8a3e;--c3:#862e9c;--c4:#a87000;--c5:#0b7285;--c6:#7a4a21;--c7:#4a4e57}
@media(prefers-color-scheme:dark){:root{--ink:#e8e8ee;--soft:#a0a0ac;--back:#16161a;--line:#33333c;--mark:#ff6b9d;
--pale:#212127;--heat:110,170,255;--c0:#74a9ff;--c1:#ff922b;--c2:#69db7c;--c3:#da77f2;--c4:#ffd43b;--c5:#66d9e8;
--c6:#d7a982;--c7:#c3c8ce}}
*{box-sizing:border-box}body{margin:0 auto;max-width:46rem;padding:1rem;background:var(--back);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}h1{font-size:1.4rem;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin-top:2.2rem;overflow-wrap:anywhere}
p{overflow-wrap:anywhere}.why{border-left:4px solid var(--mark);padding-left:.8rem}code{font-size:.85rem}
pre{white-space:pre-wrap;background:var(--pale);border-radius:.4rem;padding:.7rem .9rem;line-height:1.45}
pre span{display:inline-block;max-width:100%;overflow-wrap:anywhere}
svg[role]{width:100%;max-width:38rem;height:auto;display:block}svg text{fill:var(--soft);font:11px system-ui,sans-serif}
.axis{stroke:var(--line);fill:none}.here{stroke:var(--soft);stroke-dasharray:3 3}
.lead{stroke:var(--soft);stroke-width:.6}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.strong{stroke-width:3.6}.dot{stroke:var(--back);stroke-width:1.2}
.ring{fill:none;stroke:var(--mark);stroke-width:2.5}
.legend{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(19rem,100%),1fr));gap:.15rem 1rem;padding:0;
list-style:none;font-size:.85rem}.legend li{display:flex;gap:.5rem;align-items:baseline}
.legend .key{flex:none;align-self:center}.legend .marked span{font-weight:600;color:var(--mark)}
.scroll{overflow-x:auto}details{margin-top:.6rem}summary{cursor:pointer;color:var(--soft)}
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
    """The row to highlight."""

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
    """The page: what it is about, what to do, and the pictures. ``code`` is shown as it is."""
    advice = f'<p class="why">{escape(why)}</p>' if why else ""
    words = re.sub(r"\S+", r"<span>\g<0></span>", escape(code))  # no line is broken within --an-option
    command = f"<pre><code>{words}</code></pre>" if code else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,'
        f'initial-scale=1"><link rel="icon" href="data:,"><title>{escape(title)}</title><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{''.join(f'<p>{escape(line)}</p>' for line in lines)}{advice}{command}"
        f"{''.join(section.html() for section in sections)}</body></html>\n"
    )


def heat_section(title: str, text: str, names: Sequence[str], blocks: Sequence[int], counts: Counts) -> Section:
    """Blocks × classes. If there are many, only the most frequent classes and some of the blocks are shown."""
    chosen = np.unique(np.linspace(0, len(blocks) - 1, min(len(blocks), MOST_ROWS)).astype(int))
    kept = np.sort(np.argsort(-counts.sum(axis=0), kind="stable")[:MOST_COLUMNS])
    shown, heads = counts[np.ix_(chosen, kept)], [names[column] for column in kept]
    if not heads_fit(heads):
        text += f" From left to right: {', '.join(heads[:20])}{', …' if len(heads) > 20 else ''}."
    if len(kept) < len(names):
        text += f" Of {len(names):,} classes the {len(kept)} most frequent are shown."
    rows = [[str(blocks[row]), *(f"{value:.0f}" for value in line)] for row, line in zip(chosen, shown, strict=True)]
    return Section(title, text, heat_map(shown, heads), Table(["block", *heads], rows))
