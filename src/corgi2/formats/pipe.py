"""Bytes on their way from the thread that makes them to the one that uses them, in a small buffer of their own.

Arrow's encoders write to a file. The bytes of this file come out while the encoder is still at work, so that encoding
and storing overlap, and only a few MB are on their way, however large a block is.
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
"""One slab being filled, one being used, and some in between, so that neither side waits for the other's pace."""
PIPE_BYTES = _SLABS * SLAB_BYTES

Result = TypeVar("Result")


def piped(make: Callable[["Pipe"], Result]) -> Generator[memoryview, None, Result]:
    """Yields what a function writes in a thread of its own, and returns its result. A piece is gone when the next is
    asked for. Closing the generator only tells the thread to stop; `shard.end` waits for it."""
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
        if isinstance(error, Exception):  # neither an interrupt nor the garbage collector waits
            thread.join()
        raise
    thread.join()
    return outcome.result()


@contextmanager
def passing_on(pieces: Iterator[Buffer]) -> Iterator[Iterator[Buffer]]:
    """If the consumer ends early, end the producer of the pieces in the same way; ``for`` alone would drop it."""
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
    """A file, as Arrow wants one. The writer waits while all slabs are full."""

    closed = False

    def __init__(self) -> None:
        self._full: SimpleQueue[tuple[memoryview, int] | None] = SimpleQueue()
        self._empty: SimpleQueue[memoryview] = SimpleQueue()
        for _ in range(1, _SLABS):
            self._empty.put(reserve(SLAB_BYTES))
        self._slab, self._filled, self._at = reserve(SLAB_BYTES), 0, 0
        self._checksum = Checksum()
        self.is_used = True
        """Whether more is wanted. If not, the writer should stop."""

    def write(self, data: Buffer) -> int:
        rest = np.frombuffer(data, np.uint8)  # NumPy copies without holding the GIL
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
        """The checksum of everything written since the last cut."""
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
            with slab[:filled] as piece:  # released on leaving, so that late users of the piece find out
                yield piece
            self._empty.put(slab)

    def abandon(self) -> None:
        """Nothing more is wanted: wake the writer if it waits for room."""
        self.is_used = False
        self._empty.put(memoryview(b""))

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Nothing to do: what was written is used soon enough."""

    def close(self) -> None:
        self.closed = True

    def _pass_on(self) -> None:
        self._full.put((self._slab, self._filled))
