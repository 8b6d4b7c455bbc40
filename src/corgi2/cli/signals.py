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
    """A signal has asked to end the command in good order."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


Handler = Callable[[int, FrameType | None], None]


@contextmanager
def on_signals(handler: Handler) -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM; a signal that the parent process has set to be ignored stays ignored."""
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
    """End in good order; the next signal ends at once."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, end_at_once)
    raise StopError(number)


def end_at_once(number: int, _: FrameType | None = None) -> None:
    """End at once: a command that only reads leaves nothing behind, and waiting for a store could take minutes."""
    leave(number, Problem("interrupted; nothing was damaged", "interrupted", hint="run the same command again"))


def leave(number: int, problem: Problem) -> NoReturn:
    with suppress(OSError, RuntimeError):  # closed, or in use
        sys.stdout.flush()
    with suppress(OSError, RuntimeError):
        complain(problem)
    os._exit(128 + number)
