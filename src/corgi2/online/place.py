"""Where a reader is in its epoch, and the state that says so."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corgi2.order import Share, World


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader is, or a rank: what earlier worlds consumed, and how much this reader has yielded since."""

    epoch: int
    shares: tuple[Share, ...] = ()
    reader: tuple[int, int] | None = None
    """A single worker's place: which worker it is, and how many examples it has yielded."""
    buffer: tuple[int, int] | None = None
    """If records are not counted: the reader's buffer, and how many of its records are done."""
    world: World | None = None
    """The world of a single reader's place."""


At = tuple[Callable[[int], Place], int]
"""A function that tells the place after a number of examples, and that number."""


class Cursor:
    """A reader's place, which advances as it reads. It is worked out on request, not at every step."""

    __slots__ = ("at",)

    def __init__(self, place: Place) -> None:
        self.at: At = (lambda _: place, 0)

    @property
    def place(self) -> Place:
        place_after, count = self.at
        return place_after(count)

    def __reduce__(self) -> tuple[Any, ...]:
        return Cursor, (self.place,)


def whole_number(name: str, value: Any, least: int) -> Any:
    """A Python integer, whatever kind was given: a state must be JSON."""
    if value is None and name != "seed":
        return None
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number (got {value!r})") from None
    if not least <= number < 1 << 64:
        raise ValueError(f"{name} must be at least {least} and fit in 64 bits (got {number})")
    return number
