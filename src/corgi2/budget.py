"""The memory that corgi2 promises not to exceed, added up in one place.

A shuffle takes at most, everything included and whatever its shards hold:

    1.15 × buffer       one group, plus a tenth if its size was an estimate; what threads hold besides it
    + 200 MB            Python, Arrow, and a few slices
    + 3 KB per shard    names, sizes and sums
    + 500 bytes per block

The last two are known before it runs, and a plan that takes more than the process may use is refused. `index`,
`inspect` and `verify` read shards within the same limit, with a buffer of 1 GB unless they are given another.
Anything that does not fit (a record, a line, a row group) is refused because of its header or footer, or when reading
it reaches the limit. What a loader takes besides its buffer is added up in `corgi2.online.room`.
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
    """The option as a person gives it, in whole megabytes."""
    return f"buffer='{-(-buffer_bytes // 1_000_000)}MB'"


def way_out(enough: int) -> str:
    return f"{option(enough)} would do"


TOLERANCE = 1.1
"""A group may exceed the buffer by this factor before it is split: some footprints are estimates."""

_SHARE, _BASE_BYTES, _SHARD_BYTES, _BLOCK_BYTES = 1.15, 200_000_000, 3_000, 500
_BESIDE_BYTES = 60_000_000
"""The part of the base that Python and Arrow do not need for themselves."""
_SHARE_OF_THREADS = 8
"""One part in this many of the buffer is set apart for what threads hold besides it."""
_DECODING = 3
"""A factor on the size of a decoded block: allocators keep memory for a while after it is freed."""
_WRITING = 4
"""A factor on the size of a row: it is gathered, cast, laid out as a page, and compressed."""
_PARTS = 2
"""Parts of a large object in memory besides its beginning: those waiting to be sent, and those being sent."""
_READING_BYTES, _LEAST_READING_BYTES = 1_000_000_000, 16_000_000
"""The buffer of commands that only read; below the second value, they neither slow down nor take less."""
_READER_BYTES = 64_000_000
"""The least share of that buffer for each thread."""


def promised(buffer_bytes: int, shards: int, blocks: int) -> int:
    """The most memory that a process takes."""
    return int(_SHARE * buffer_bytes) + _BASE_BYTES + _SHARD_BYTES * shards + _BLOCK_BYTES * blocks


def promised_a_task(buffer_bytes: int) -> int:
    """The most memory that a process takes if it handles a single group."""
    return promised(buffer_bytes, 0, 0)


def check_usable(needed: int, buffer_bytes: int, where: str) -> None:
    """Refuse a plan that takes more memory than this process may use."""
    most = usable_memory()
    if needed > most:
        raise SourceError(
            f"{where}: a buffer of {format_size(buffer_bytes)} takes up to {format_size(needed)}, and this process may "
            f"use {format_size(most)}",
            hint="give a smaller buffer (with restart=True, if a shuffle has begun there)",
            kind="memory",
        )


def arena_bytes(buffer_bytes: int) -> int:
    """The size of the arena, which holds one group."""
    return int(TOLERANCE * buffer_bytes) + SLACK_BYTES


def buffer_for(footprints: Indices, decoding: Indices) -> int:
    """The smallest buffer that has room for each of these blocks, and for decoding it."""
    return max(int(footprints.max()), int(((footprints + decoding).max() - _BESIDE_BYTES) / _SHARE) + 1)


def buffer_to_hold(bytes_in_arena: int) -> int:
    """The smallest buffer whose arena holds this many bytes."""
    return int((bytes_in_arena - SLACK_BYTES) / TOLERANCE) + 1


def buffer_to_write(row_bytes: int) -> int:
    """The smallest buffer that lets a row of this size be written at once."""
    return int((_WRITING * (row_bytes + 1) - _BESIDE_BYTES) / (_SHARE - 1)) + 1


def written_bytes(buffer_bytes: int) -> int:
    """Bytes of records that a format may write at once, if writing takes several times as much meanwhile."""
    return (int((_SHARE - 1) * buffer_bytes) + _BESIDE_BYTES) // _WRITING


@dataclass(frozen=True, slots=True)
class Crew:
    """How many threads read, how many write, and how many of those that read decode at the same time."""

    readers: int
    writers: int
    decoders: int


def crew(workers: int, buffer_bytes: int, shard_bytes: int) -> Crew:
    """As many threads as were asked for, but no more than the buffer allows for. ``shard_bytes`` is what a store holds
    of a shard while it is written."""
    return Crew(workers, min(workers, max(1, buffer_bytes // _SHARE_OF_THREADS // max(1, shard_bytes))), workers)


def decoding_crew(
    whole: Crew, buffer_bytes: int, footprints: Indices, lengths: Indices, block_bytes: int, is_lean: bool = False
) -> Crew:
    """If blocks are decoded, a reader holds one block as stored, plus what Arrow takes to decode it; a writer holds one
    block, plus what is on its way to the store. ``block_bytes`` is the size of a new block. What is left is for readers
    that only fetch; with a lean arena, what these hold lies in the room of rows that are still to come."""
    room, stored = buffer_bytes // _SHARE_OF_THREADS, int(lengths.max())
    read, written = int(_DECODING * footprints.max()) + stored, 3 * block_bytes + PIPE_BYTES
    decoders = min(whole.readers, max(1, room // read))
    fetchers = whole.readers if is_lean else max(0, room - decoders * read) // max(1, stored)
    return Crew(min(whole.readers, decoders + fetchers), min(whole.writers, max(2, room // written)), decoders)


def upload_share(target: Store, buffer_bytes: int, shard_bytes: int) -> int:
    """What a store holds of a shard on its way: nothing if it is a disk; otherwise the shard, or some parts of it."""
    if target.is_local:
        return 1
    part = upload_bytes(buffer_bytes)
    return max(1, min(shard_bytes, whole_bytes(part) + _PARTS * part))


def reading_bytes(buffer_bytes: int | None) -> int:
    """How much a command that only reads may hold."""
    return max(_LEAST_READING_BYTES, buffer_bytes or min(_READING_BYTES, usable_memory() // 2))


def readers_of(buffer_bytes: int, most: int) -> int:
    """How many threads may share such a buffer, each reading a shard of its own."""
    return max(1, min(most, buffer_bytes // _READER_BYTES))
