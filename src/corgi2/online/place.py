"""Where a reader is in its epoch, and the state that says so."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corgi2.order import Share, World


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader is, or a rank: what earlier worlds consumed, and how much this reader has given since."""

    epoch: int
    shares: tuple[Share, ...] = ()
    reader: tuple[int, int] | None = None
    """One worker's own: which it is, and how many examples it has given."""
    buffer: tuple[int, int] | None = None
    """Where records are not counted: the reader's buffer, and how many of it are done."""
    world: World | None = None
    """That of one reader's own place."""


class Cursor:
    """A reader's place, which moves on as it reads. It is worked out when it is asked for, not at every step."""

    __slots__ = ("at",)

    def __init__(self, place: Place) -> None:
        self.at: tuple[Callable[[int], Place], int] = (lambda _: place, 0)
        """What tells the place after so many examples, and how many they are."""

    @property
    def place(self) -> Place:
        place_after, count = self.at
        return place_after(count)

    def __reduce__(self) -> tuple[Any, ...]:
        return Cursor, (self.place,)


def whole_number(name: str, value: Any, least: int) -> Any:
    """An integer of Python's, whatever kind was given: a state must be JSON."""
    if value is None and name != "seed":
        return None
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is a whole number (got {value!r})") from None
    if not least <= number < 1 << 64:
        raise ValueError(f"{name} is at least {least}, and of 64 bits (got {number})")
    return number
