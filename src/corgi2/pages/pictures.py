"""Charts as SVG. Colours are those of the page, for light and dark; numbers in them are explained by a legend."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from corgi2.pages.axes import Axes, Labels
from corgi2.pages.looks import RADIUS, color, legend, shape, stroke
from corgi2.pages.places import HEIGHT, LINE, WIDTH, Box, beside, spread, text_width, words

_RING = 9.5

_SHAPES_PER_LINE, _SMALL = 3, 0.8

MOST_ROWS, MOST_COLUMNS = 64, 40

_SCALE = 5
"""Cells that explain the colours of a heat map."""

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its name, its points from left to right, and its number; None if others are compared with it."""

    name: str
    points: Sequence[tuple[float, float]]
    number: int | None


def line_chart(
    series: Sequence[Series], labels: Labels, is_log: bool = True, marked: int | None = None, mark: str = ""
) -> str:
    """Lines on two axes, numbered at their ends. The marked number is drawn strong; ``mark`` says why in the legend."""
    axes = Axes([point for one in series for point in one.points], labels, is_log)
    drawn = [one for one in series if one.points]
    on_top = sorted(drawn, key=lambda one: (one.number is not None, one.number == marked))
    lines = "".join(_line(one, axes, one.number is not None and one.number == marked) for one in on_top)
    ends = [one for one in drawn if one.number is not None]
    heights = spread([axes.y(one.points[-1][1]) for one in ends], LINE, axes.area.top, axes.area.bottom)
    numbers = "".join(_at_end(one, axes, at, marked) for one, at in zip(ends, heights, strict=True))
    names = [(one.number, one.name) for one in series]
    picture = _svg(axes.html() + lines + numbers, f"{labels.y} against {labels.x}")
    return picture + legend(names, marked, mark, has_lines=True)


def _line(one: Series, axes: Axes, is_marked: bool) -> str:
    """A line with a few shapes on it, at other places on each line, so that overlapping lines can be seen."""
    places = [(axes.x(x), axes.y(y)) for x, y in one.points]
    line = (
        f'<polyline class="line{" strong" if is_marked else ""}" style="{stroke(one.number)}" points="'
        + " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        + '"/>'
    )
    if one.number is None:
        return line
    step = max(1, len(places) // _SHAPES_PER_LINE)
    return line + "".join(shape(one.number, x, y, one.name, _SMALL) for x, y in places[one.number % step :: step])


def _at_end(one: Series, axes: Axes, at: float, marked: int | None) -> str:
    """The number of a line, in the margin, with a lead to its end."""
    x, y = one.points[-1]
    left = axes.area.right + 6
    lead = f'<path class="lead" d="M{axes.x(x):.1f},{axes.y(y):.1f}L{left - 1:.1f},{at:.1f}"/>'
    return lead + _number(one.number or 0, left, at + 4, "start", marked)


def _number(number: int, x: float, y: float, anchor: str, marked: int | None) -> str:
    weight = ";font-weight:700" if number == marked else ""
    return words(str(number + 1), x, y, anchor, f"fill:{color(number)}{weight}")


def scatter(
    names: Sequence[str], points: Sequence[tuple[float, float]], marked: int, labels: Labels, mark: str = ""
) -> str:
    """Points on two logarithmic axes, one of them in a ring; ``mark`` says in the legend what the ring means."""
    axes = Axes(points, labels)
    places = [(axes.x(x), axes.y(y)) for x, y in points]
    on_top = sorted(range(len(places)), key=lambda number: number == marked)
    dots = "".join(shape(number, *places[number], names[number]) for number in on_top)
    sizes = [2 * _RING + 1 if number == marked else 2 * RADIUS for number in range(len(places))]
    boxes = [Box.around(x, y, size, size) for (x, y), size in zip(places, sizes, strict=True)]
    spots = beside([str(number + 1) for number in range(len(places))], boxes, axes.area)
    leads, numbers = [], []
    for number, (spot, (x, y)) in enumerate(zip(spots, places, strict=True)):
        near = spot.nearest(x, y)
        leads.append(f'<path class="lead" d="M{x:.1f},{y:.1f}L{near[0]:.1f},{near[1]:.1f}"/>')
        numbers.append(_number(number, spot.middle[0], spot.bottom - 2, "middle", marked))
    x, y = places[marked]
    ring = f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="{_RING}"/>'
    picture = _svg("".join([axes.html(), *leads, dots, ring, *numbers]), f"{labels.y} against {labels.x}")
    return picture + legend([*enumerate(names)], marked, mark, has_lines=False)


def heat_map(counts: Counts, heads: Sequence[str]) -> str:
    """Rows are blocks, columns are classes; the colour is stronger where more of a block's records are of a class."""
    rows, columns = counts.shape
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    width, height = WIDTH / columns, max(4.0, min(14.0, 320 / rows))
    top = LINE + 2 if heads_fit(heads) else 0.0
    over = "".join(words(head, (column + 0.5) * width, LINE - 2) for column, head in enumerate(heads)) if top else ""
    cells = "".join(
        _cell(column * width, top + row * height, width * 0.96, height * 0.92, shares[row, column])
        for row in range(rows)
        for column in range(columns)
    )
    at = top + rows * height + 6
    return _svg(over + cells + _scale(at), "records of each class in each block", at + LINE + 2)


def heads_fit(heads: Sequence[str]) -> bool:
    """Whether the names of classes fit above their columns."""
    return all(text_width(head) * len(heads) <= WIDTH for head in heads)


def _scale(top: float) -> str:
    """The key of the colours."""
    left, right = "0 %", "100 % of a row"
    cells = "".join(
        _cell(text_width(left) + 6 + 20 * step, top + 1, 18, 9, step / (_SCALE - 1), "key") for step in range(_SCALE)
    )
    end = text_width(left) + 6 + 20 * _SCALE + 4
    return words(left, 0, top + LINE - 2, "start") + cells + words(right, end, top + LINE - 2, "start")


def _cell(x: float, y: float, width: float, height: float, share: float, kind: str = "cell") -> str:
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
        f'style="fill:rgba(var(--heat),{0.06 + 0.94 * share:.2f})"/>'
    )


def _svg(content: str, label: str, height: float = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">{content}</svg>'
