"""How series are told apart: by colour, and by shape and dash if colours cannot be seen or printed.

The two numbers below have no common factor, so neighbours differ in both, and no two of `DISTINCT` are alike.
"""

from collections.abc import Sequence
from html import escape

_COLORS = 8

_SHAPES = (
    "M-5,0a5,5 0 1 0 10,0a5,5 0 1 0 -10,0z",
    "M-4.5,-4.5h9v9h-9z",
    "M0,-5.5L5.5,4.5H-5.5z",
    "M0,-6L6,0L0,6L-6,0z",
    "M0,5.5L5.5,-4.5H-5.5z",
)

_DASHES = ("none", "8 3", "2 3", "10 3 2 3", "5 5")

DISTINCT = _COLORS * len(_SHAPES)

RADIUS = 6.0
"""The radius that every shape lies within."""


def color(number: int | None) -> str:
    """The colour of a series; None is the one that others are compared with."""
    return "var(--soft)" if number is None else f"var(--c{number % _COLORS})"


def shape(number: int, x: float, y: float, title: str = "", scale: float = 1.0) -> str:
    """A point."""
    inside = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<path class="dot" transform="translate({x:.1f} {y:.1f}) scale({scale})" '
        f'd="{_SHAPES[number % len(_SHAPES)]}" style="fill:{color(number)}">{inside}</path>'
    )


def stroke(number: int | None) -> str:
    """The style of a line."""
    dash = "1 4" if number is None else _DASHES[number % len(_DASHES)]
    return f"stroke:{color(number)};stroke-dasharray:{dash}"


def legend(names: Sequence[tuple[int | None, str]], marked: int | None, mark: str, has_lines: bool) -> str:
    """The names of the numbers; the marked one says why it is marked."""
    items = "".join(
        _item(number, name, marked is not None and number == marked, mark, has_lines) for number, name in names
    )
    return f'<ul class="legend">{items}</ul>'


def _item(number: int | None, name: str, is_marked: bool, mark: str, has_lines: bool) -> str:
    shown = name if number is None else f"{number + 1} {name}"
    if is_marked and mark:
        shown += f" ({mark})"
    return f"<li{' class=marked' if is_marked else ''}>{_key(number, has_lines)}<span>{escape(shown)}</span></li>"


def _key(number: int | None, has_lines: bool) -> str:
    half = 17 if has_lines else 7
    line = f'<path class="line" d="M-{half},0H{half}" style="{stroke(number)}"/>' if has_lines else ""
    dot = "" if number is None else shape(number, 0, 0)
    return f'<svg class="key" viewBox="-{half} -7 {2 * half} 14" width="{2 * half}" height="14">{line}{dot}</svg>'
