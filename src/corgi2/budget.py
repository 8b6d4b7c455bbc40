"""The memory that is promised, added up in one place.

A shuffle takes at the most, all included, whatever lies in its shards:

    1.15 × buffer       one group, and a tenth more where its size was an estimate; what threads hold beside it
    + 200 MB            Python, Arrow, and a few slices
    + 3 KB a shard      names, sizes and sums
    + 500 bytes a block

The last two are known before it runs, and a plan that takes more than the process may use is refused. `index`,
`inspect` and `verify` read shards within the same sum, with a buffer of 1 GB unless they are given another.
What does not fit (a record, a line, a row group) is refused by what a header or a footer says, or when the limit is
reached while it is read.
"""

from dataclasses import dataclass

from corgi2.errors import SourceError
from corgi2.formats import PIPE_BYTES
from corgi2.host import usable_memory
from corgi2.order import Indices
from corgi2.records import SLACK_BYTES
from corgi2.sizes import format_size
from corgi2.stores import Store, upload_bytes, whole_bytes


def option(buffer_bytes: int) -> str:
    """As a person gives it, in whole megabytes."""
    return f"buffer='{-(-buffer_bytes // 1_000_000)}MB'"


def way_out(enough: int) -> str:
    return f"{option(enough)} would do"


TOLERANCE = 1.1
"""A group may take so much more than the buffer before it is split: some footprints are estimates."""

_SHARE, _BASE_BYTES, _SHARD_BYTES, _BLOCK_BYTES = 1.15, 200_000_000, 3_000, 500
_BESIDE_BYTES = 60_000_000
"""Of the base, what Python and Arrow do not need for themselves."""
_SHARE_OF_THREADS = 8
"""Of the buffer, for what threads hold beside it."""
_DECODING = 3
"""Times what a block takes once it is decoded; allocators keep what is no more needed for a while."""
_WRITING = 4
"""Times what a row takes: gathered, cast, as a page, and compressed."""
_PARTS = 2
"""Of a large object, beside its beginning: what waits to be sent, and what is being sent."""
_READING_BYTES, _LEAST_READING_BYTES = 1_000_000_000, 16_000_000
"""The buffer of commands that only read; with less than the second, they read no slower and take no less."""
_READER_BYTES = 64_000_000
"""Of that buffer, at the least, for each thread."""


def promised(buffer_bytes: int, shards: int, blocks: int) -> int:
    """What a process takes at the most."""
    return int(_SHARE * buffer_bytes) + _BASE_BYTES + _SHARD_BYTES * shards + _BLOCK_BYTES * blocks


def promised_a_task(buffer_bytes: int) -> int:
    """What a process takes that knows one group alone."""
    return promised(buffer_bytes, 0, 0)


def check_usable(needed: int, buffer_bytes: int, where: str) -> None:
    """Refuse what this process cannot have."""
    most = usable_memory()
    if needed > most:
        raise SourceError(
            f"{where}: a buffer of {format_size(buffer_bytes)} takes up to {format_size(needed)}, and this process may "
            f"use {format_size(most)}",
            hint="give a smaller buffer (with restart=True, if a shuffle has begun there)",
            kind="memory",
        )


def arena_bytes(buffer_bytes: int) -> int:
    """Room for one group."""
    return int(TOLERANCE * buffer_bytes) + SLACK_BYTES


def buffer_for(footprints: Indices, decoding: Indices) -> int:
    """The smallest buffer for any one of some blocks: where it stays, and what decoding takes meanwhile."""
    return max(int(footprints.max()), int(((footprints + decoding).max() - _BESIDE_BYTES) / _SHARE) + 1)


def buffer_to_hold(bytes_in_arena: int) -> int:
    """The smallest buffer whose arena holds so much."""
    return int((bytes_in_arena - SLACK_BYTES) / TOLERANCE) + 1


def buffer_to_write(row_bytes: int) -> int:
    """The smallest buffer beside which so much is written at once."""
    return int((_WRITING * (row_bytes + 1) - _BESIDE_BYTES) / (_SHARE - 1)) + 1


def written_bytes(buffer_bytes: int) -> int:
    """Of the records that a format writes at once, where it needs several times as much meanwhile."""
    return (int((_SHARE - 1) * buffer_bytes) + _BESIDE_BYTES) // _WRITING


@dataclass(frozen=True, slots=True)
class Crew:
    """How many threads read, and how many write."""

    readers: int
    writers: int


def crew(workers: int, buffer_bytes: int, shard_bytes: int) -> Crew:
    """As many as were asked for, but no more than the buffer has room for beside it. ``shard_bytes`` are what a store
    holds of a shard while it is written."""
    return Crew(workers, min(workers, max(1, buffer_bytes // _SHARE_OF_THREADS // max(1, shard_bytes))))


def decoding_crew(whole: Crew, buffer_bytes: int, footprints: Indices, lengths: Indices, block_bytes: int) -> Crew:
    """Where blocks are decoded, a reader holds one as stored, and what Arrow takes to decode it; a writer one, and what
    is on its way from it. ``block_bytes`` are those of a new block."""
    room = buffer_bytes // _SHARE_OF_THREADS
    read, written = int(_DECODING * footprints.max() + lengths.max()), 3 * block_bytes + PIPE_BYTES
    return Crew(min(whole.readers, max(1, room // read)), min(whole.writers, max(2, room // written)))


def upload_share(target: Store, buffer_bytes: int, shard_bytes: int) -> int:
    """What a store holds of one shard on its way: nothing on a disk; else the shard, or some parts of it."""
    if target.is_local:
        return 1
    part = upload_bytes(buffer_bytes)
    return max(1, min(shard_bytes, whole_bytes(part) + _PARTS * part))


def reading_bytes(buffer_bytes: int | None) -> int:
    """What a command that only reads may hold."""
    return max(_LEAST_READING_BYTES, buffer_bytes or min(_READING_BYTES, usable_memory() // 2))


def readers_of(buffer_bytes: int, most: int) -> int:
    """How many threads may share such a buffer, each reading a shard of its own."""
    return max(1, min(most, buffer_bytes // _READER_BYTES))
