"""Bytes on their way from a thread that makes them to the one that uses them, in a little memory of their own.

Arrow's encoders write to a file. This is one whose bytes come out while they are still at work, so that encoding and
storing overlap, and what is on its way is a few MB, however large a block is.
"""

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TypeVar

import numpy as np

from corgi2.host import release_unused
from corgi2.records import SLAB_BYTES, Buffer, Checksum, reserve

_SLABS = 4
"""One that is being filled, one that is being used, and some between, so that neither waits for the other's pace."""
PIPE_BYTES = _SLABS * SLAB_BYTES

Result = TypeVar("Result")


def piped(make: Callable[["Pipe"], Result]) -> Generator[memoryview, None, Result]:
    """What a function writes, made by a thread of its own, and then what it returns. A piece is gone when the next is
    asked for. One that is closed only tells its thread to stop; `shard.end` waits for it."""
    pipe, outcome = Pipe(), Future[Result]()

    def run() -> None:
        try:
            outcome.set_result(make(pipe))
        except BaseException as error:
            outcome.set_exception(error)
        finally:
            pipe.end()
            release_unused()

    thread = threading.Thread(target=run, name="corgi2-encode", daemon=True)
    thread.start()
    try:
        yield from pipe.pieces()
    except BaseException as error:
        pipe.abandon()
        if isinstance(error, Exception):  # an interrupt waits for nobody, nor does whoever is collected
            thread.join()
        raise
    thread.join()
    return outcome.result()


@contextmanager
def passing_on(pieces: Iterator[Buffer]) -> Iterator[Iterator[Buffer]]:
    """What ends whoever uses them early ends those that make them in the same way; ``for`` alone would drop them."""
    try:
        yield pieces
    except GeneratorExit:
        raise
    except BaseException as error:
        if isinstance(pieces, Generator):
            with suppress(BaseException):
                pieces.throw(error)
        raise


class Pipe:
    """A file, as Arrow wants one. Whoever writes waits while all that was written is still to be used."""

    closed = False

    def __init__(self) -> None:
        self._full: SimpleQueue[tuple[memoryview, int] | None] = SimpleQueue()
        self._empty: SimpleQueue[memoryview] = SimpleQueue()
        for _ in range(1, _SLABS):
            self._empty.put(reserve(SLAB_BYTES))
        self._slab, self._filled, self._at = reserve(SLAB_BYTES), 0, 0
        self._checksum = Checksum()
        self.is_used = True
        """Whether anybody wants more. Else what is written goes nowhere; better to stop."""

    def write(self, data: Buffer) -> int:
        rest = np.frombuffer(data, np.uint8)  # NumPy copies without keeping others from running
        size = len(rest)
        self._checksum.update(rest.data)
        while len(rest) and self.is_used:
            if self._filled == len(self._slab):
                self._pass_on()
                self._slab, self._filled = self._empty.get(), 0
                continue
            some = rest[: len(self._slab) - self._filled]
            np.frombuffer(self._slab, np.uint8, len(some), self._filled)[:] = some
            self._filled, rest = self._filled + len(some), rest[len(some) :]
        self._at += size
        return size

    def cut(self) -> bytes:
        """The checksum of all that was written since the last cut."""
        checksum, self._checksum = self._checksum.digest(), Checksum()
        return checksum

    def end(self) -> None:
        """Nothing more will be written."""
        if self.is_used:
            self._pass_on()
        self.is_used = False
        self._full.put(None)

    def pieces(self) -> Generator[memoryview, None, None]:
        while (full := self._full.get()) is not None:
            slab, filled = full
            with slab[:filled] as piece:  # which is released then, so that whoever still holds it finds out
                yield piece
            self._empty.put(slab)

    def abandon(self) -> None:
        """Nobody wants more: whoever waits for room need not."""
        self.is_used = False
        self._empty.put(memoryview(b""))

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """What was written is used soon enough."""

    def close(self) -> None:
        self.closed = True

    def _pass_on(self) -> None:
        self._full.put((self._slab, self._filled))
