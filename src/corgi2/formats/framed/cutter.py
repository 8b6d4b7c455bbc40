"""A shard cut into records from front to back, a part of it in memory at a time."""

from dataclasses import dataclass, field

import numpy as np

from corgi2.errors import TooLargeError
from corgi2.formats.compression import READ_BYTES, Stream
from corgi2.formats.framed.frames import BETWEEN_BYTES, LOOSE_BYTES, Bytes, Frames, Framing, Where
from corgi2.order import Indices
from corgi2.records import Block, Checksum
from corgi2.sizes import format_size

_LEAST_PART = 4_000_000

_SEEN_BYTES = 48
"""Bytes that a record with a key takes until the end of its shard, to be compared with all others."""


def check_end(framing: Framing, rest: Bytes, ended: bool, where: Where, whole: bool) -> None:
    """Refuse anything after the last record that must not be there."""
    if ended:
        _check_zero(rest, where, 0)
    elif where.last and whole and framing.trailer:
        raise where.error(
            len(rest),
            "the archive ends without its end mark (1,024 zero bytes): it was cut short. Restore it from its source, "
            "or, if you know that it is complete, append the mark",
        )


class Seen:
    """What has to be compared once a whole shard has been read, as long as there is memory for it."""

    def __init__(self, name: str, memory: int) -> None:
        self._name, self._memory, self._records = name, memory, 0
        self.frames: list[tuple[int, Frames]] = []

    def add(self, base: int, frames: Frames) -> None:
        if frames.keys is None:
            return
        self._records += len(frames.keys)
        if self._records * _SEEN_BYTES > self._memory:
            problem = (
                f"more than {self._records} samples in one shard, whose keys do not fit the "
                f"{format_size(self._memory)} that comparing them may take; give a larger buffer"
            )
            raise TooLargeError(self._name, base, problem)
        self.frames.append((base, frames))


def part_bytes(memory: int) -> int:
    """Bytes of a shard that are read at a time if reading may take this much memory."""
    return min(READ_BYTES, max(_LEAST_PART, memory // 4))


def _check_zero(data: Bytes, where: Where, offset: int) -> None:
    if data.any():
        first = offset + int(np.flatnonzero(data)[0])
        raise where.error(
            first,
            "data after the end of the archive, which other readers would not see (several archives in one file?); "
            "split it, or pack it again",
        )


def check_padding(stream: Stream, where: Where, offset: int) -> None:
    buffer = bytearray(1_000_000)
    while got := stream.fill(memoryview(buffer)):
        _check_zero(np.frombuffer(buffer, np.uint8, got), where, offset)
        offset += got


@dataclass(slots=True)
class Cutter:
    """Cuts a run of records into blocks: a block ends on request, or before a record that would be too much."""

    record_bytes: int
    block_bytes: int | None
    blocks: list[Block] = field(default_factory=list)
    start: int = 0
    length: int = 0
    records: int = 0
    beside: int = 0
    """Bytes that records take in memory besides their own."""
    checksum: Checksum = field(default_factory=Checksum)

    def add(self, data: Bytes, offsets: Indices, has_loose: bool) -> None:
        first, last = 0, len(offsets) - 1
        record_bytes = self.record_bytes + (LOOSE_BYTES if has_loose else 0)
        while first < last:
            stop = last
            if self.block_bytes is not None:
                room = int(offsets[first]) + self.block_bytes - self.length
                stop = min(last, int(np.searchsorted(offsets, room, "right")) - 1)
            if stop <= first and self.records:
                self.close()
                continue
            stop = max(stop, first + 1)
            span = data[offsets[first] : offsets[stop]]
            self.checksum.update(span.data)
            self.length += len(span)
            self.records += stop - first
            self.beside += record_bytes * (stop - first)
            first = stop

    def close(self) -> None:
        if not self.records:
            return
        footprint = self.length + self.beside + BETWEEN_BYTES
        self.blocks.append(Block(self.start, self.length, self.records, footprint, checksum=self.checksum.digest()))
        self.start, self.checksum = self.start + self.length, Checksum()
        self.length = self.records = self.beside = 0

    def finish(self) -> list[Block]:
        self.close()
        return self.blocks
