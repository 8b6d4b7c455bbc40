"""Shards and blocks, as values: what stores hand to formats, and what formats report about them."""

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
    """False if the footprint is an estimate, because the format does not tell before decoding."""
    checksum: bytes = b""
    """The checksum of the range's bytes as stored; empty if they were not read."""


NO_RECORD = "the shard holds no record; remove it"

SLAB_BYTES = 2 << 20
"""Bytes written at a time, from page-aligned memory: a disk can take them without a copy."""

READING_BYTES = 250_000_000
"""The default memory for reading one shard from front to back: the largest record must fit."""

BLOCK_BYTES = 64_000_000
"""Shards are cut into blocks of about this size, at record boundaries."""

Writing: TypeAlias = Generator[Buffer, None, tuple[Block, ...]]
"""The bytes of a new shard, one piece after another; a piece may be gone when the next is asked for. The generator
returns the shard's blocks."""


class _EndedError(Exception):
    """Nothing more is wanted."""


def end(writing: Generator[Any, None, Any]) -> None:
    """Close a generator that writes, and wait for its threads. ``close`` does not wait: the garbage collector calls it
    as well, in any thread and under any lock, where waiting could be a deadlock."""
    with suppress(_EndedError, StopIteration):
        writing.throw(_EndedError())


@dataclass(frozen=True, slots=True)
class Scan:
    """What reading a shard once tells: its blocks, and a schema that all shards of a data set must share."""

    blocks: tuple[Block, ...]
    schema: str = ""
    checksum: bytes = b""
    """The checksum of all bytes of the shard; empty if not known."""
    lineage: tuple[tuple[int, ...], ...] = ()
    """The lineage of each block, if corgi2 shuffled it."""
    round: int = -1
    """The round that its blocks were made in, if corgi2 mixed ranges in rounds."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a shard to read: a block, or the whole shard."""

    file: ShardFile
    start: int
    length: int
    checksum: bytes = b""
    """The checksum that its bytes must have, if known."""
    records: int = 0
    """How many records it holds, if known."""
    footprint: int = 0
    """Bytes that they take in memory, if known."""

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.length == self.file.size

    def check(self, checksum: bytes) -> None:
        """Refuse bytes other than those that were indexed."""
        if self.checksum and checksum != self.checksum:
            raise ShardError(
                self.file.name,
                self.start,
                f"the block of {self.length} bytes is not what was indexed, though size and time are the same; restore "
                "the shard from its source, or, if it is sound, delete the index and make a new one",
            )


Mapper: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""``map``, or the ``map`` of a pool of threads."""

See: TypeAlias = Callable[[Any], object]
"""A function that is shown each table."""
