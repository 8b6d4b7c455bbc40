"""Where words go in a picture, so that none is cut off or overlaps another. Pure geometry."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape

WIDTH, HEIGHT = 400, 280
"""The width of a picture, in its own units."""

FONT = 11.0

LINE = 12.0
"""The distance from one line of text to the next."""

_NARROW, _WIDE = 0.66, 1.0
"""Widths of letters over the font's size; wide scripts begin at `_FIRST_WIDE`. No font is consulted: letters of common
fonts are narrower than this."""
_FIRST_WIDE = 0x1100

_STEP = 4.0


def text_width(text: str) -> float:
    """The approximate width of a text, rather too large than too small."""
    return FONT * sum(_WIDE if ord(letter) >= _FIRST_WIDE else _NARROW for letter in text)


def words(text: str, x: float, y: float, anchor: str = "middle", style: str = "", room: float = WIDTH) -> str:
    """A text at x, moved into the picture if necessary, and smaller if it would not fit the room."""
    width = text_width(text)
    if width > room:
        style, width = f"font-size:{FONT * room / width:.2f}px;{style}", room
    before = {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    at = min(max(x, before), WIDTH - width + before)
    shown = f' style="{style}"' if style else ""
    return f'<text x="{at:.1f}" y="{y:.1f}" text-anchor="{anchor}"{shown}>{escape(text)}</text>'


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def around(cls, x: float, y: float, width: float, height: float) -> "Box":
        return cls(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    @property
    def middle(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def meets(self, other: "Box") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def is_within(self, other: "Box") -> bool:
        return (
            other.left <= self.left
            and other.top <= self.top
            and self.right <= other.right
            and self.bottom <= other.bottom
        )

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The point of the box that is nearest to a given point."""
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)


def beside(texts: Sequence[str], points: Sequence[Box], area: Box) -> list[Box]:
    """A place for the text of each point: near it, within the area, not on another's place and on no point.

    There is room for at least thirty points; with more, the last may overlap others.
    """
    taken = list(points)
    for text, point in zip(texts, points, strict=True):
        width = text_width(text)
        free = (spot for spot in _around(point, width, area) if not any(spot.meets(other) for other in taken))
        taken.append(next(free, Box.around(*point.middle, width, LINE)))
    return taken[len(points) :]


def _around(point: Box, width: float, area: Box) -> Iterator[Box]:
    """Places for a text, the nearest first."""
    x, y = point.middle
    for right, down in _steps():
        spot = Box.around(x + right, y + down, width, LINE)
        if spot.is_within(area):
            yield spot


@cache
def _steps() -> list[tuple[float, float]]:
    """Steps from a point in all directions, the shortest first; among equals to the right, then up."""
    columns, rows = (range(-int(size // _STEP), int(size // _STEP) + 1) for size in (WIDTH, HEIGHT))
    steps = ((_STEP * column, _STEP * row) for column in columns for row in rows)
    return sorted(steps, key=lambda step: (round(math.hypot(*step)), -step[0], step[1]))


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places in their order, moved as little as possible to keep this gap between neighbours, from low to high."""
    gap = min(gap, (high - low) / max(1, len(places) - 1))
    order = sorted(range(len(places)), key=places.__getitem__)
    spots, least = list(places), low
    for rank, number in enumerate(order):
        spots[number] = min(max(places[number], least), high - (len(order) - 1 - rank) * gap)
        least = spots[number] + gap
    return spots
