"""Two axes around some points: where values lie, and which round numbers are written next to them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corgi2.pages.places import HEIGHT, LINE, WIDTH, Box, text_width, words

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 24, 20, 36


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
    """What is written at the two axes."""

    x: str
    y: str
    x_text: Text
    here: tuple[float, str] | None = None
    """A value of x to highlight, and its name."""


class Axes:
    """Two axes around some points, both logarithmic or both not."""

    def __init__(self, points: Sequence[tuple[float, float]], labels: Labels, is_log: bool = True) -> None:
        self._x, self._y = (_Scale([point[axis] for point in points], is_log) for axis in (0, 1))
        self._labels = labels
        top = _TOP if labels.here is None else _TOP + LINE
        self.area = Box(_LEFT, top, WIDTH - _RIGHT, HEIGHT - _BOTTOM)

    def x(self, value: float) -> float:
        return self.area.left + self._x.share(value) * (self.area.right - self.area.left)

    def y(self, value: float) -> float:
        return self.area.bottom - self._y.share(value) * (self.area.bottom - self.area.top)

    def html(self) -> str:
        area = self.area
        frame = f'<path class="axis" d="M{area.left},{area.top}V{area.bottom}H{area.right}"/>'
        names = words(self._labels.x, (area.left + area.right) / 2, HEIGHT - 5)
        names += words(self._labels.y, 0, LINE - 2, "start")
        return "".join([frame, *self._x_ticks(), *self._y_ticks(), names, self._here()])

    def _here(self) -> str:
        if self._labels.here is None:
            return ""
        value, text = self._labels.here
        at = min(max(self.x(value), self.area.left), self.area.right)
        return f'<path class="here" d="M{at:.1f},{self.area.top}V{self.area.bottom}"/>' + words(
            text, at, self.area.top - 5
        )

    def _x_ticks(self) -> Iterator[str]:
        """The ticks of x, without those whose words would overlap."""
        end, low = -math.inf, self.area.bottom
        for value in self._x.ticks():
            at, text = self.x(value), self._labels.x_text(value)
            half = text_width(text) / 2
            middle = min(at, WIDTH - half)
            if middle - half > end:
                end = middle + half + 2
                yield f'<path class="axis" d="M{at:.1f},{low}v4"/>' + words(text, at, low + 15)

    def _y_ticks(self) -> Iterator[str]:
        end = math.inf
        for value in self._y.ticks():
            at = self.y(value)
            if at + LINE / 2 < end:
                end = at - LINE / 2
                line = f'<path class="axis" d="M{self.area.left},{at:.1f}H{self.area.right}"/>'
                yield line + words(self._y.text(value), self.area.left - 5, at + 4, "end", room=self.area.left - 5)


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
        """A few round numbers, at least two."""
        return self._powers() if self._is_log else self._multiples()

    def text(self, value: float) -> str:
        """A number with as many digits as distinguish it from the next tick."""
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
