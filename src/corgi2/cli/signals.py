"""Ctrl-C and SIGTERM: ending in good order, or at once."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from corgi2.cli.problem import Problem
from corgi2.cli.words import complain


class StopError(BaseException):
    """A signal has asked to end what is under way, in good order."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


Handler = Callable[[int, FrameType | None], None]


@contextmanager
def on_signals(handler: Handler) -> Iterator[None]:
    """For Ctrl-C and SIGTERM; those that whoever started this wants to be ignored are."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in heeded:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in heeded.items():
            signal.signal(number, old)


def end_in_order(number: int, _: FrameType | None) -> None:
    """The next signal does not wait for good order."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end_at_once)
    raise StopError(number)


def end_at_once(number: int, _: FrameType | None = None) -> None:
    """At once: what only reads leaves nothing behind, and a thread that waits for a store could take minutes."""
    leave(number, Problem("interrupted; nothing was damaged", "interrupted", hint="run the same command again"))


def leave(number: int, problem: Problem) -> NoReturn:
    with suppress(OSError, RuntimeError):  # closed, or just at work
        sys.stdout.flush()
    with suppress(OSError, RuntimeError):
        complain(problem)
    os._exit(128 + number)
