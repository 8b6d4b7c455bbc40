"""Formats whose records lie one after another in the file, each with its frame: tar, JSON lines.

A record's span includes its frame, and what belongs to no record (a directory in a tar, a blank line) travels
with the record before it, or with the first one. So the spans cover the file's body without a gap, records come
out bit for bit, and the gathered bytes are the body of a shard. Nothing is parsed beyond the frames.

Memory: a scan holds one part of the shard (64 MB), or the largest record if that is larger.
"""

import mmap
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from corgi2.block import (
    PLACE_BYTES,
    Arena,
    Decoder,
    Group,
    Indices,
    Taste,
    framed_table,
    record_bytes,
    record_offsets,
    reserve,
)
from corgi2.errors import ShardError
from corgi2.formats.compression import READ_BYTES, CompressedStream, Stream, compressed, decompress_front, open_stream
from corgi2.process import processors
from corgi2.shard import Block, Buffer, Checksum, Mapper, Piece, Scan, See, ShardFile, Writing

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

_OFFSET_BYTES = 8
_BLOCK_BYTES = 64
"""Room for what lies between two blocks in memory: a terminator, a row that is no record, its offset."""

TASTE_BYTES = 1_000_000
"""Of a shard, for an estimate of what it takes in memory."""
_TASTE_MEMORY = 64_000_000
_TINY_RECORD = 256

LARGEST_COMPRESSED_RECORD = 2 << 30
"""Where a shard is compressed, nothing but this tells a huge record from a lying length."""


@dataclass(frozen=True, slots=True)
class Where:
    """The place of some bytes: the shard's name, their offset in it, and how many can follow at the most."""

    name: str
    base: int
    limit: int
    last: bool
    """Nothing follows these bytes."""
    known: bool = False
    """They were checked before: only what they hold is asked for."""
    decoding: bool = False
    """Where the parts of records lie is asked for, too."""

    def error(self, offset: int, problem: str) -> ShardError:
        return ShardError(self.name, self.base + offset, problem)


@dataclass(frozen=True, slots=True)
class Frames:
    """Record i is ``data[offsets[i]:offsets[i + 1]]``; what follows the last offset is not complete yet, or, after
    the end mark, padding."""

    offsets: Indices
    ended: bool = False
    keys: Hashes | None = None
    members: "Members | None" = None
    parts: "Parts | None" = None


@dataclass(frozen=True, slots=True)
class Members:
    """The parts of keyed records: part j has the name ``names[j]`` (a hash) and belongs to record ``records[j]``."""

    records: Indices
    names: Hashes


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the parts of records lie that will be decoded. Numbers are as short as they can be."""

    counts: npt.NDArray[Any]
    """Of each record: how many parts it has."""
    begin: npt.NDArray[Any]
    """Of each part: where it begins, counted from the start of its record."""
    size: npt.NDArray[Any]
    cut: npt.NDArray[Any]
    """Where its name is cut into the record's key and its own."""
    names: dict[int, bytes]
    """Those that are not where names usually are."""

    @staticmethod
    def joined(several: "Sequence[Parts]") -> "Parts":
        names, before = dict[int, bytes](), 0
        for parts in several:
            names |= {before + number: name for number, name in parts.names.items()}
            before += len(parts.begin)
        return Parts(
            np.concatenate([parts.counts for parts in several]),
            np.concatenate([parts.begin for parts in several]),
            np.concatenate([parts.size for parts in several]),
            np.concatenate([parts.cut for parts in several]),
            names,
        )


@dataclass(frozen=True, slots=True)
class Lying:
    """Records as they lie in memory: record i from ``offsets[rows[i]]`` on."""

    memory: mmap.mmap
    offsets: Indices
    rows: Indices
    parts: Parts | None
    begins: Indices
    """Of each piece, one behind another."""
    homes: tuple[tuple[str, int], ...]
    """The shard that each piece came from, and where it lies there."""

    def where(self, at: int) -> tuple[str, int]:
        """The shard, and the byte of it, that lies somewhere in memory."""
        piece = int(np.searchsorted(self.begins, at, "right")) - 1
        shard, start = self.homes[piece]
        return shard, start + at - int(self.begins[piece])

    def shards(self, records: Indices) -> list[str]:
        """That each record came from."""
        pieces = np.searchsorted(self.begins, self.starts(records), "right") - 1
        return [self.homes[piece][0] for piece in pieces.tolist()]

    def starts(self, records: Indices) -> Indices:
        return np.asarray(self.offsets[self.rows[records]])

    def stops(self, records: Indices) -> Indices:
        return np.asarray(self.offsets[self.rows[records] + 1])


class Framing(Protocol):
    """What is particular to one framed format."""

    name: str
    terminator: bytes
    """What the last record may lack, and must have to be followed by another."""
    trailer: bytes
    """What ends a shard."""
    record_overhead: int
    """Bytes of memory a record beside its offset, its row and its place in the permutation."""
    smallest_record: int
    """Bytes of the smallest record that there can be."""

    def split(self, data: Bytes, where: Where) -> Frames:
        """The complete records at the front of the data, which starts at a record."""

    def check(self, name: str, frames: Sequence[tuple[int, Frames]]) -> None:
        """Given all frames of a shard with their offsets, refuse what shows only in all of them together."""

    def decoder(self, lying: Lying) -> Decoder:
        """Decodes records that were split for it."""


@dataclass(frozen=True, slots=True)
class FramedFormat:
    framing: Framing
    suffix: str
    codec: str | None = None

    @property
    def name(self) -> str:
        return self.framing.name

    @property
    def has_footer(self) -> bool:
        return False

    @property
    def has_ranges(self) -> bool:
        return self.codec is None

    @property
    def compresses(self) -> bool:
        return self.codec is not None

    @property
    def writes_blocks(self) -> bool:
        return False

    @property
    def _record_bytes(self) -> int:
        """Bytes of memory a record, beside its own."""
        return _OFFSET_BYTES + 2 * PLACE_BYTES + self.framing.record_overhead

    def decoding_bytes(self, length: Indices, records: Indices, footprint: Indices) -> Indices:  # noqa: ARG002
        """It is read to where it stays."""
        return np.zeros_like(length)

    def sketch(self, size: int) -> Block:
        """At the most what so many of the smallest records take, where they are not tiny; else an estimate."""
        least = self.framing.smallest_record
        at_most = size + size // least * self._record_bytes + _BLOCK_BYTES
        exact = self.codec is None and least > _TINY_RECORD
        return Block(0, size, 0, at_most if exact else size, exact)

    def taste(self, piece: Piece) -> tuple[Taste]:
        """The complete records at the front, and no error where they end."""
        front = _Front(piece.file, piece.start, min(piece.length, TASTE_BYTES))
        whole = front.size == piece.length
        if self.codec is None:
            data = np.empty(front.size, np.uint8)
            front.readinto(0, data.data)
        else:
            data = np.frombuffer(decompress_front(front, self.codec, whole, _TASTE_MEMORY), np.uint8)
        frames = self.framing.split(data, Where(piece.file.name, piece.start, LARGEST_COMPRESSED_RECORD, last=False))
        offsets = frames.offsets
        share = int(offsets[-1]) / max(1, len(data))
        if len(offsets) == 1:  # not one complete record: take all for one
            offsets, share = np.array([0, len(data)]), 1.0
        rows = np.arange(len(offsets) - 1)
        group = Group(framed_table(offsets, data), rows, frames.keys, (len(rows),))
        return (Taste(group, max(1, round(front.size * share))),)

    def scan(self, file: ShardFile, block_bytes: int) -> Scan:
        """Read a shard once, from front to back, and cut it into blocks of about ``block_bytes``."""
        stream = open_stream(file, self.codec)
        cutter = _Cutter(self._record_bytes, None if self.codec else block_bytes)
        seen = []
        for base, data, frames in _windows(self.framing, stream, file, self.codec):
            cutter.add(data, frames.offsets)
            if frames.keys is not None:
                seen.append((base, frames))
        self.framing.check(file.name, seen)
        blocks = cutter.finish()
        if not blocks:
            raise ShardError(file.name, 0, f"the {self.suffix} shard holds no record; remove it")
        if isinstance(stream, CompressedStream):
            (block,) = blocks
            padding = stream.produced - block.length
            blocks = [Block(0, file.size, block.records, block.footprint + padding, checksum=stream.checksum)]
        return Scan(tuple(blocks))

    def stream(self, file: ShardFile) -> Iterator[Any]:
        """All records, front to back; a table lies over memory that the next one may take."""
        end = np.frombuffer(self.framing.terminator, np.uint8)
        for _, data, frames in _windows(self.framing, open_stream(file, self.codec), file, self.codec):
            offsets = frames.offsets
            if (
                len(end)
                and int(offsets[-1]) == len(data)
                and len(data)
                and data[-len(end) :].tobytes() != end.tobytes()
            ):
                data = np.concatenate([data, end])
                offsets[-1] = len(data)
            yield framed_table(offsets, data)

    def read(
        self,
        pieces: Sequence[Piece],
        arena: Arena,
        mapper: Mapper = map,
        see: See | None = None,
        decoding: bool = False,
    ) -> Group:
        """Read pieces into the arena, side by side, as one group in the order of the pieces."""
        if self.codec:
            placed = [_shown(self._decompress(piece, arena, decoding), arena, see) for piece in pieces]
        else:
            starts = [arena.claim(piece.length + len(self.framing.terminator)) for piece in pieces]
            gate = threading.Semaphore(processors())

            def fetch(at: tuple[Piece, int]) -> _Placed:
                return _shown(self._fetch(*at, arena, gate, decoding), arena, see)

            placed = list(mapper(fetch, zip(pieces, starts, strict=True)))
        return _group(placed, arena, pieces if decoding else None)

    def write(self, blocks: Iterable[Iterable[Any]], profile: str = "") -> Writing:  # noqa: ARG002
        """The bytes of a shard that holds these records. A compressed shard is one block, whatever was given."""
        cutter = _Cutter(self._record_bytes, None)
        size, checksum = 0, Checksum()
        for piece in compressed(self._body(blocks, cutter), self.codec):
            if self.codec:
                size += len(piece)
                checksum.update(piece)
            yield piece
        written = cutter.finish()
        if self.codec:
            end = len(self.framing.trailer)
            written = [
                Block(0, size, block.records, block.footprint + end, checksum=checksum.digest()) for block in written
            ]
        return tuple(written)

    def _body(self, blocks: Iterable[Iterable[Any]], cutter: "_Cutter") -> Iterator[Buffer]:
        for tables in blocks:
            for table in tables:
                data, offsets = record_bytes(table), record_offsets(table)
                cutter.add(data, offsets - offsets[0])
                yield data.data
            if self.codec is None:
                cutter.close()
        yield self.framing.trailer

    def profile(self, file: ShardFile) -> str:  # noqa: ARG002
        """Framed shards have nothing to carry over beside their records."""
        return ""

    def decoder(self, group: Group, url: str) -> Decoder:  # noqa: ARG002
        if not isinstance(group.beside, Lying):
            raise TypeError("the group was not read to be decoded")
        return self.framing.decoder(group.beside)

    def _fetch(self, piece: Piece, start: int, arena: Arena, gate: threading.Semaphore, decoding: bool) -> "_Placed":
        """Many threads wait for a store; those that work beyond the gate are no more than can."""
        view = arena.view(start, piece.length)
        piece.file.readinto(piece.start, view)
        with gate:
            if piece.checksum:
                piece.check(Checksum.of(view))
            return self._place(piece, start, piece.length, arena, decoding)

    def _decompress(self, piece: Piece, arena: Arena, decoding: bool) -> "_Placed":
        if not piece.is_whole:
            raise ValueError(f"{piece.file.name}: a compressed shard is read whole, not from byte {piece.start}")
        spare = len(self.framing.terminator)
        start, room = arena.used, arena.capacity - arena.used
        stream = open_stream(piece.file, self.codec)
        size = stream.fill(arena.view(start, max(0, room - spare)))
        if size == room - spare and stream.fill(memoryview(bytearray(1))):
            raise MemoryError(f"{piece.file.name}: expands to more than the {room} bytes left in the buffer")
        arena.claim(size + spare)
        if piece.checksum and isinstance(stream, CompressedStream):
            piece.check(stream.checksum)
        return self._place(piece, start, size, arena, decoding)

    def _place(self, piece: Piece, start: int, size: int, arena: Arena, decoding: bool) -> "_Placed":
        data, end = arena.array(start, size), self.framing.terminator
        where = Where(piece.file.name, piece.start, size, True, bool(piece.checksum), decoding)
        frames = self.framing.split(data, where)
        _check_end(self.framing, data, frames, where, piece.is_whole)
        if size and data[size - len(end) :].tobytes() != end:
            arena.view(start + size, len(end))[:] = end
            frames.offsets[-1] += len(end)
        return _Placed(start, frames)


@dataclass(frozen=True, slots=True)
class _Front:
    """The first bytes of a piece, as a shard of its own."""

    file: ShardFile
    start: int
    size: int

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def version(self) -> str:
        return self.file.version

    def readinto(self, start: int, buffer: memoryview) -> None:
        self.file.readinto(self.start + start, buffer)


@dataclass(frozen=True, slots=True)
class _Placed:
    start: int
    frames: Frames


def _shown(placed: _Placed, arena: Arena, see: See | None) -> _Placed:
    if see is not None:
        offsets = placed.frames.offsets
        see(framed_table(offsets, arena.array(placed.start, int(offsets[-1]))))
    return placed


_NOWHERE = _Placed(0, Frames(np.zeros(1, np.int64)))


def _group(placed: list[_Placed], arena: Arena, decoded: Sequence[Piece] | None) -> Group:
    """One table over all pieces, which are used up. Between two pieces lies a row that is no record: the padding."""
    begins = np.array([piece.start for piece in placed])
    parts = [piece.frames.parts for piece in placed if piece.frames.parts is not None]
    counts = [len(piece.frames.offsets) - 1 for piece in placed]
    offsets, rows = np.empty(sum(counts) + len(placed), np.int64), np.empty(sum(counts), np.int64)
    keys = np.empty(len(rows), np.uint64) if placed[0].frames.keys is not None else None
    at = row = 0
    for number, count in enumerate(counts):
        piece, placed[number] = placed[number], _NOWHERE
        np.add(piece.frames.offsets, piece.start, out=offsets[at : at + count + 1])
        rows[row : row + count] = np.arange(at, at + count)
        if keys is not None and piece.frames.keys is not None:
            keys[row : row + count] = piece.frames.keys
        at, row = at + count + 1, row + count
    lying = None
    if decoded is not None:
        homes = tuple((piece.file.name, piece.start) for piece in decoded)
        lying = Lying(arena.memory, offsets, rows, Parts.joined(parts) if parts else None, begins, homes)
    return Group(framed_table(offsets, arena.array(0, arena.used)), rows, keys, tuple(counts), beside=lying)


def _windows(
    framing: Framing, stream: Stream, file: ShardFile, codec: str | None
) -> Iterator[tuple[int, Bytes, Frames]]:
    """The records of a shard, one part of it after another; a record that a part cuts is carried to the next."""
    limit = LARGEST_COMPRESSED_RECORD if codec else file.size
    buffer = reserve(READ_BYTES if codec else min(READ_BYTES, file.size))
    have = base = 0
    while True:
        wanted = len(buffer) - have
        got = stream.fill(buffer[have:])
        have += got
        last = got < wanted or (codec is None and base + have == file.size)
        where = Where(file.name, base, limit if codec else limit - base, last)
        data = np.frombuffer(buffer, np.uint8, have)
        frames = framing.split(data, where)
        yield base, data, frames
        end = int(frames.offsets[-1])
        if frames.ended or last:
            _check_end(framing, data, frames, where, whole=True)
            if not last:
                _check_padding(stream, where, have)
            return
        if codec and have - end > LARGEST_COMPRESSED_RECORD:
            raise where.error(end, "a record of more than 2 GiB in a compressed shard; decompress the shard first")
        buffer = _carried(data[end:])
        have, base = have - end, base + end


def _carried(rest: Bytes) -> memoryview:
    """A buffer that begins with the rest of the last one. It doubles with a record that is longer than a part, so that
    no byte is looked at more than a few times."""
    buffer = reserve(len(rest) + max(READ_BYTES, len(rest)))
    buffer[: len(rest)] = rest.data
    return buffer


def _check_end(framing: Framing, data: Bytes, frames: Frames, where: Where, whole: bool) -> None:
    end = int(frames.offsets[-1])
    if frames.ended:
        _check_zero(data[end:], where, end)
    elif where.last and whole and framing.trailer:
        raise where.error(
            len(data),
            "the archive ends without its end mark (1,024 zero bytes): it was cut short. Restore it from its source, "
            "or, if you know it to be complete, append the mark",
        )


def _check_zero(data: Bytes, where: Where, offset: int) -> None:
    if data.any():
        first = offset + int(np.flatnonzero(data)[0])
        raise where.error(
            first,
            "data after the end of the archive, which other readers would not see (several archives in one file?); "
            "split it, or pack it again",
        )


def _check_padding(stream: Stream, where: Where, offset: int) -> None:
    buffer = bytearray(1_000_000)
    while got := stream.fill(memoryview(buffer)):
        _check_zero(np.frombuffer(buffer, np.uint8, got), where, offset)
        offset += got


@dataclass(slots=True)
class _Cutter:
    """Cuts a run of records into blocks: a block ends when it is told to, or before a record that is too much."""

    record_bytes: int
    block_bytes: int | None
    blocks: list[Block] = field(default_factory=list)
    start: int = 0
    length: int = 0
    records: int = 0
    checksum: Checksum = field(default_factory=Checksum)

    def add(self, data: Bytes, offsets: Indices) -> None:
        first, last = 0, len(offsets) - 1
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
            first = stop

    def close(self) -> None:
        if not self.records:
            return
        footprint = self.length + self.record_bytes * self.records + _BLOCK_BYTES
        self.blocks.append(Block(self.start, self.length, self.records, footprint, checksum=self.checksum.digest()))
        self.start, self.length, self.records, self.checksum = self.start + self.length, 0, 0, Checksum()

    def finish(self) -> list[Block]:
        self.close()
        return self.blocks
