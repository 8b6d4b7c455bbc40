"""Shards and blocks, as values: what stores hand to formats, and what formats say about it."""

import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from corgi2.errors import ShardError

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes in one piece."""


class ShardFile(Protocol):
    """All that a format may know of where a shard lies: a name for its errors, a size, and bytes on demand."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def version(self) -> str:
        """Changes whenever the content does."""

    def readinto(self, start: int, buffer: memoryview) -> None: ...


@dataclass(slots=True)
class WatchedShard:
    """A shard that says how much of it was read, and can be told to stop."""

    shard: ShardFile
    advance: Callable[[int], object]
    stop: threading.Event
    read: int = 0

    @property
    def name(self) -> str:
        return self.shard.name

    @property
    def size(self) -> int:
        return self.shard.size

    @property
    def version(self) -> str:
        return self.shard.version

    def readinto(self, start: int, buffer: memoryview) -> None:
        if self.stop.is_set():
            raise InterruptedError(f"{self.name}: stopped")
        self.shard.readinto(start, buffer)
        self.read += len(buffer)
        self.advance(len(buffer))


@dataclass(frozen=True, slots=True)
class Block:
    """A byte range of a shard, read in one request: whole records, and all that is needed to split them."""

    start: int
    length: int
    records: int
    footprint: int
    """Bytes that it takes in memory: decompressed, decoded, offsets and permutation included."""
    exact: bool = True
    """False where the footprint is an estimate, because the format does not say before decoding."""
    checksum: bytes = b""
    """Of the range's bytes as stored; empty where they were not read."""


NO_RECORD = "the shard holds no record; remove it"

SLAB_BYTES = 2 << 20
"""Written at a time, from memory that begins a page: a disk can take it from where it lies."""

READING_BYTES = 250_000_000
"""What reading one shard from front to back may take, if nothing else is said: the largest record must fit."""

BLOCK_BYTES = 64_000_000
"""Shards are cut into blocks of about this size, at record boundaries."""

Writing: TypeAlias = Generator[Buffer, None, tuple[Block, ...]]
"""The bytes of a new shard, one piece after another, of which each may be gone when the next is asked for; what it
returns are the shard's blocks."""


class _EndedError(Exception):
    """Nobody wants more."""


def end(writing: Generator[Any, None, Any]) -> None:
    """Close what is written, and wait for the threads behind it. ``close`` does not: the garbage collector calls it,
    too, in any thread and under any lock, where whoever waits may wait for itself."""
    with suppress(_EndedError, StopIteration):
        writing.throw(_EndedError())


@dataclass(frozen=True, slots=True)
class Scan:
    """What one reading of a shard tells: its blocks, and a schema that all shards of a data set must share."""

    blocks: tuple[Block, ...]
    schema: str = ""
    checksum: bytes = b""
    """Of all bytes of the shard; empty where it is not known."""
    lineage: tuple[tuple[int, ...], ...] = ()
    """Of each block, where corgi2 shuffled it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a shard to read: a block, or the whole shard."""

    file: ShardFile
    start: int
    length: int
    checksum: bytes = b""
    """What its bytes must have, where that is known."""
    records: int = 0
    """How many it holds, where that is known."""
    footprint: int = 0
    """Bytes that they take in memory, where that is known."""

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.length == self.file.size

    def check(self, checksum: bytes) -> None:
        """Refuse bytes other than those that were indexed."""
        if self.checksum and checksum != self.checksum:
            raise ShardError(
                self.file.name,
                self.start,
                f"the block of {self.length} bytes is not what was indexed, though its size and time are; restore the "
                "shard from its source, or, if it is sound, delete the index and make it anew",
            )


Mapper: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""``map``, or the ``map`` of a pool of threads."""

See: TypeAlias = Callable[[Any], object]
"""Is shown a table."""
