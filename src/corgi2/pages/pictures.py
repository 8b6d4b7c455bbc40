"""Charts as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT = 400, 280

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 44

_COLORS = 8

MOST_ROWS, MOST_COLUMNS = 64, 40

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Series:
    """A line: its name and its points, from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


def line_chart(series: Sequence[Series], x_label: str, y_label: str, x_text: "Text", is_log: bool = True) -> str:
    """Lines on two axes, both logarithmic or both not."""
    axes = _Axes([point for one in series for point in one.points], x_label, y_label, x_text, is_log)
    lines = "".join(
        f'<polyline class="line" style="stroke:var(--c{number % _COLORS})" points="'
        + " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in one.points)
        + '"/>'
        for number, one in enumerate(series)
    )
    return _svg(axes.html() + lines, f"{y_label} against {x_label}") + _legend([one.name for one in series])


def scatter(
    names: Sequence[str], points: Sequence[tuple[float, float]], marked: int, labels: "Labels", mark: str = ""
) -> str:
    """Points on two logarithmic axes, one of them in a ring; ``mark`` says in the legend what the ring means."""
    axes = _Axes(points, labels.x, labels.y, labels.x_text)
    places = [(axes.x(x), axes.y(y)) for x, y in points]
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" style="fill:var(--c{number % _COLORS})"><title>'
        f"{escape(names[number])}</title></circle>"
        for number, (x, y) in enumerate(places)
    )
    dots += "".join(
        f'<text x="{x:.1f}" y="{y:.1f}">{number + 1}</text>' for number, (x, y) in enumerate(_beside(places))
    )
    x, y = points[marked]
    ring = f'<circle class="ring" cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="9"/>'
    shown = [
        f"{number + 1} {name}" + (f" ({mark})" if mark and number == marked else "")
        for number, name in enumerate(names)
    ]
    return _svg(axes.html() + dots + ring, f"{labels.y} against {labels.x}") + _legend(shown)


def _beside(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where the numbers of points go: near them, and not on each other or on points."""
    taken: list[tuple[float, float]] = []
    for x, y in places:
        around = [(x + 7 + 15 * right, y - 5 - 11 * up) for right in range(8) for up in (0, 1, -1, 2, -2)]
        around = [spot for spot in around if spot[0] <= WIDTH - _RIGHT - 8] + [(x - 20, y - 5), (x - 20, y + 15)]
        free = (
            spot
            for spot in around
            if all(abs(spot[0] - a) >= 14 or abs(spot[1] - b) >= 11 for a, b in taken)
            and all(abs(spot[0] + 4 - a) >= 10 or abs(spot[1] - 4 - b) >= 10 for a, b in places)
        )
        taken.append(next(free, around[0]))
    return taken


class Text:
    """How the numbers of an axis are written."""

    def __init__(self, unit: str = "", is_size: bool = False) -> None:
        self._unit, self._is_size = unit, is_size

    def __call__(self, value: float) -> str:
        units = ("", "K", "M", "G", "T", "P") if self._is_size else ("", "K", "M", "B", "T")
        step = 0
        while abs(value) >= 999.5 and step < len(units) - 1:
            value, step = value / 1000, step + 1
        number = f"{value:.0f}" if value >= 10 else f"{value:.2g}"
        if self._is_size:
            return f"{number} {units[step]}B"
        return f"{self._unit}{number}{units[step]}"


@dataclass(frozen=True, slots=True)
class Labels:
    """Of the axes of a scatter."""

    x: str
    y: str
    x_text: Text


class _Axes:
    """Two axes around some points."""

    def __init__(
        self, points: Sequence[tuple[float, float]], x_label: str, y_label: str, x_text: Text, is_log: bool = True
    ) -> None:
        self._x, self._y = (_Scale([point[axis] for point in points], is_log) for axis in (0, 1))
        self._labels, self._x_text = (x_label, y_label), x_text

    def x(self, value: float) -> float:
        return _LEFT + self._x.share(value) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - self._y.share(value) * (HEIGHT - _TOP - _BOTTOM)

    def html(self) -> str:
        low, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        parts = [f'<path class="axis" d="M{_LEFT},{_TOP}V{low}H{right}"/>']
        for value in self._x.ticks():
            at = self.x(value)
            parts.append(f'<path class="axis" d="M{at:.1f},{low}v4"/>')
            parts.append(f'<text x="{at:.1f}" y="{low + 15}" text-anchor="middle">{escape(self._x_text(value))}</text>')
        for value in self._y.ticks():
            at = self.y(value)
            parts.append(f'<path class="axis" d="M{_LEFT},{at:.1f}H{right}"/>')
            parts.append(
                f'<text x="{_LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{escape(self._y.text(value))}</text>'
            )
        middle = (_LEFT + right) / 2
        parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(self._labels[0])}</text>')
        at = (_TOP + low) / 2
        turned = f'transform="rotate(-90 12 {at})"'
        parts.append(f'<text x="12" y="{at}" text-anchor="middle" {turned}>{escape(self._labels[1])}</text>')
        return "".join(parts)


class _Scale:
    """An axis: where values lie between its ends, and its round numbers."""

    def __init__(self, values: Sequence[float], is_log: bool) -> None:
        self._is_log = is_log
        places = [self._place(value) for value in values] or [0.0]
        low, high = min(places), max(places)
        room = max(0.05 * (high - low), 0.1 if is_log else 0.05 * max(abs(low), abs(high)) or 1.0)
        self._low, self._high = low - room, high + room

    def _place(self, value: float) -> float:
        return math.log10(max(value, 1e-12)) if self._is_log else value

    def share(self, value: float) -> float:
        return (self._place(value) - self._low) / (self._high - self._low)

    def ticks(self) -> list[float]:
        """Few, but two at least."""
        return self._powers() if self._is_log else self._multiples()

    def text(self, value: float) -> str:
        """With as many digits as tell one from the next."""
        if self._is_log:
            return Text()(value)
        ticks = self.ticks()
        step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
        return f"{value:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"

    def _powers(self) -> list[float]:
        for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
            exponents = range(math.floor(self._low), math.ceil(self._high) + 1)
            ticks = [step * 10.0**exponent for exponent in exponents for step in steps]
            ticks = [tick for tick in ticks if self._low <= math.log10(tick) <= self._high]
            if len(ticks) >= 3:
                return ticks[:: math.ceil(len(ticks) / 6)]
        return ticks

    def _multiples(self) -> list[float]:
        rough = (self._high - self._low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(times * unit for times in (1, 2, 5, 10) if times * unit >= rough)
        first, last = math.ceil(self._low / step), math.floor(self._high / step)
        return [number * step for number in range(first, last + 1)]


def heat_map(counts: Counts) -> str:
    """Rows are blocks, columns are classes; darker where more of a block's records are of a class."""
    rows, columns = counts.shape
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    width, height = (WIDTH - 4) / columns, max(4.0, min(14.0, 320 / rows))
    cells = "".join(
        f'<rect x="{2 + column * width:.2f}" y="{2 + row * height:.2f}" width="{width * 0.96:.2f}" '
        f'height="{height * 0.94:.2f}" style="fill:rgba(var(--heat),{0.06 + 0.94 * shares[row, column]:.2f})"/>'
        for row in range(rows)
        for column in range(columns)
    )
    return _svg(cells, "records of each class in each block", int(rows * height) + 4)


def _svg(content: str, label: str, height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">{content}</svg>'


def _legend(names: Sequence[str]) -> str:
    items = "".join(
        f'<li><i style="background:var(--c{number % _COLORS})"></i>{escape(name)}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'
