"""Formats whose records lie one after another in the file, each with its frame: tar, JSON lines.

A record's span includes its frame. What belongs to no record (a directory in a tar, a blank line) travels in the span
of the next record, or of the last one at the end of a shard, and is no part of either: a record is the same whatever
lies around it. So the spans cover the file's body without a gap, records come out bit for bit, and the gathered bytes
are the body of a shard. Nothing is parsed beyond the frames.

Memory: whoever reads a shard from front to back says how much that may take. It holds one part of the shard, or the
largest record if that is larger, and a little behind it; a record that does not fit is refused, by its headers where
they tell, wherever it lies. Between two records there may be as much as fits beside the first. Bytes are split
a few MB at a time, because offsets of the smallest records take many times what the records do.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corgi2.errors import NoRecordError, ShardError
from corgi2.formats.compression import READ_BYTES, CompressedStream, Stream, compressed, decompress_front, open_stream
from corgi2.formats.format import Traits
from corgi2.formats.framed.cutter import Cutter, Seen, check_end, check_padding, part_bytes
from corgi2.formats.framed.frames import (
    BETWEEN_BYTES,
    ENDLESS,
    LOOSE_BYTES,
    Bytes,
    Frames,
    Framing,
    Lying,
    Parts,
    Where,
)
from corgi2.formats.pipe import passing_on
from corgi2.host import processors
from corgi2.order import Indices
from corgi2.records import (
    NO_RECORD,
    PLACE_BYTES,
    READING_BYTES,
    Arena,
    Block,
    Buffer,
    Checksum,
    Decoder,
    Digest,
    Group,
    Lanes,
    Loose,
    Mapper,
    Piece,
    Scan,
    See,
    ShardFile,
    Taste,
    Writing,
    digest_framed,
    framed_table,
    hash_framed,
    record_bytes,
    record_offsets,
    reserve,
)

_OFFSET_BYTES = 8

TASTE_BYTES = 1_000_000
"""Of a shard, for an estimate of what it takes in memory."""

_TASTE_MEMORY = 4_000_000

_GLANCE_BYTES = 1 << 16
"""Of a shard, to see whether it holds a record at all."""

_TINY_RECORD = 256

STEP_BYTES, _TINY_STEP_BYTES = 1 << 22, 1 << 20
"""Split at a time; and where records may be tiny, which then take up to 20 times as much meanwhile."""

_PEEK_BYTES = 1 << 16
"""Read behind the largest record that fits: it is complete once the next one is seen to begin."""


@dataclass(frozen=True, slots=True)
class FramedFormat:
    framing: Framing
    suffix: str
    codec: str | None = None

    @property
    def name(self) -> str:
        return self.framing.name

    @property
    def traits(self) -> Traits:
        plain = self.codec is None
        return Traits(
            has_cheap_scan=False,
            has_ranges=plain,
            has_record_ranges=plain,
            has_columns=False,
            is_decoded=False,
            is_tasted_whole=False,
            packs_by_order=not plain,
        )

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
        at_most = size + size // least * self._record_bytes + BETWEEN_BYTES
        exact = self.codec is None and least > _TINY_RECORD
        return Block(0, size, 0, at_most if exact else size, exact)

    def taste(self, piece: Piece) -> tuple[Taste]:
        """The complete records at the front, and no error where they end."""
        front = _Front(piece.file, piece.start, min(piece.length, TASTE_BYTES))
        data, stored = self._front(front, front.size == piece.length)
        frames = self.framing.split(data, Where(piece.file.name, piece.start, ENDLESS, last=False))
        offsets = frames.offsets
        share = int(offsets[-1]) / max(1, len(data))
        if len(offsets) == 1:  # not one complete record: take all for one
            offsets, share = np.array([0, len(data)]), 1.0
        rows = np.arange(len(offsets) - 1)
        group = Group(framed_table(offsets, data), rows, frames.keys, (len(rows),))
        return (Taste(group, max(1, round(stored * share))),)

    def _front(self, front: "_Front", whole: bool) -> tuple[Bytes, int]:
        """The first bytes, decompressed, and how many were stored."""
        if self.codec is None:
            data = np.empty(front.size, np.uint8)
            front.readinto(0, data.data)
            return data, front.size
        text, stored = decompress_front(front, self.codec, whole, _TASTE_MEMORY)
        return np.frombuffer(text, np.uint8), stored

    def shows_record(self, file: ShardFile) -> bool:
        """What is damaged shows none, nor does what holds other things for longer than that."""
        front = _Front(file, 0, min(file.size, _GLANCE_BYTES))
        try:
            data, _ = self._front(front, front.size == file.size)
            return self.framing.begins_record(data, Where(file.name, 0, ENDLESS, last=False))
        except ShardError:
            return False

    def scan(self, file: ShardFile, block_bytes: int, memory: int = READING_BYTES) -> Scan:
        """Read a shard once, from front to back, and cut it into blocks of about ``block_bytes``."""
        stream = open_stream(file, self.codec, part_bytes(memory))
        cutter = Cutter(self._record_bytes, None if self.codec else block_bytes)
        seen = Seen(file.name, memory // 4)
        for base, data, frames in self._windows(stream, file, memory - memory // 4):
            cutter.add(data, frames.offsets, frames.loose is not None)
            seen.add(base, frames)
        self.framing.check(file.name, seen.frames)
        blocks = cutter.finish()
        if not blocks:
            raise NoRecordError(file.name, 0, NO_RECORD)
        if isinstance(stream, CompressedStream):
            (block,) = blocks
            padding = stream.produced - block.length
            blocks = [Block(0, file.size, block.records, block.footprint + padding, checksum=stream.checksum)]
        return Scan(tuple(blocks))

    def stream(self, file: ShardFile, memory: int = READING_BYTES) -> Iterator[Any]:
        """All records, front to back; a table lies over memory that the next one may take."""
        end, records = self.framing.terminator, 0
        for _, data, frames in self._windows(open_stream(file, self.codec, part_bytes(memory)), file, memory):
            stop = int(frames.offsets[-1])
            if stop and _lacks(data[:stop], end):  # the last line of all: there is room behind it
                data[stop : stop + len(end)] = np.frombuffer(end, np.uint8)
                frames.offsets[-1] += len(end)
            records += len(frames.offsets) - 1
            yield framed_table(frames.offsets, data, frames.loose)
        if not records:
            raise NoRecordError(file.name, 0, NO_RECORD)

    def _windows(self, stream: Stream, file: ShardFile, memory: int) -> Iterator[tuple[int, Bytes, Frames]]:
        """The records of a shard, one part of it after another: where they lie in it, memory that they begin, and where
        they are cut. A record that a part cuts is carried to the next; the longer it is, the more is read then, so that
        no byte is looked at more than a few times."""
        framing, plain = self.framing, self.codec is None
        room = min(memory + _PEEK_BYTES, file.size) if plain else memory + _PEEK_BYTES
        buffer, have, base, least = reserve(room + len(framing.terminator)), 0, 0, part_bytes(memory)
        while True:
            wanted = min(room - have, max(least, have))
            have += (got := stream.fill(buffer[have : have + wanted]))
            last = got < wanted or (plain and base + have == file.size)
            where = Where(file.name, base, file.size - base if plain else ENDLESS, last, most=memory)
            data, done = np.frombuffer(buffer, np.uint8, have), 0
            for at, frames in _steps(framing, data, where):
                _check_fits(data[at:], frames.offsets, framing.terminator, where.from_(at, last))
                yield base + at, np.frombuffer(buffer, np.uint8, offset=at), frames
                done = at + int(frames.offsets[-1])
            if frames.ended or last:
                check_end(framing, data[done:], frames.ended, where.from_(done, last), whole=True)
                if not last:
                    check_padding(stream, where, have)
                return
            if not done and have == room:
                raise where.too_large(0, have, "at least ")
            buffer[: have - done] = buffer[done:have]
            have, base = have - done, base + done

    def digest(self, table: Any, key: int) -> Digest:
        """Of records, and of what travels with them."""
        return digest_framed(table, key, self.framing.items)

    def hash_records(self, table: Any, key: int) -> Lanes:
        return hash_framed(table, key)

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

            def fetch(at: tuple[Piece, int]) -> list[_Placed]:
                return _shown(self._fetch(*at, arena, gate, decoding), arena, see)

            placed = list(mapper(fetch, zip(pieces, starts, strict=True)))
        return _group(placed, arena, pieces if decoding else None)

    def write(self, blocks: Iterable[Iterable[Any]], profile: str = "") -> Writing:  # noqa: ARG002
        """The bytes of a shard that holds these records. A compressed shard is one block, whatever was given."""
        cutter = Cutter(self._record_bytes, None)
        size, checksum = 0, Checksum()
        with passing_on(compressed(self._body(blocks, cutter), self.codec)) as pieces:
            for piece in pieces:
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

    def _body(self, blocks: Iterable[Iterable[Any]], cutter: "Cutter") -> Iterator[Buffer]:
        for tables in blocks:
            for table in tables:
                data, offsets = record_bytes(table), record_offsets(table)
                cutter.add(data, offsets - offsets[0], table.num_columns > 1)
                yield data.data
            if self.codec is None:
                cutter.close()
        yield self.framing.trailer

    def profile(self, file: ShardFile) -> str:  # noqa: ARG002
        """Framed shards have nothing to carry over beside their records."""
        return ""

    def compare(self, one: ShardFile, other: ShardFile) -> tuple[list[str], list[str]]:  # noqa: ARG002
        return [], []

    def decoder(self, group: Group, url: str) -> Decoder:  # noqa: ARG002
        if not isinstance(group.beside, Lying):
            raise TypeError("the group was not read to be decoded")
        return self.framing.decoder(group.beside)

    def _fetch(
        self, piece: Piece, start: int, arena: Arena, gate: threading.Semaphore, decoding: bool
    ) -> "list[_Placed]":
        """Many threads wait for a store; those that work beyond the gate are no more than can."""
        view = arena.view(start, piece.length)
        piece.file.readinto(piece.start, view)
        with gate:
            if piece.checksum:
                piece.check(Checksum.of(view))
            return self._place(piece, start, piece.length, arena, decoding)

    def _decompress(self, piece: Piece, arena: Arena, decoding: bool) -> "list[_Placed]":
        if not piece.is_whole:
            raise ValueError(f"{piece.file.name}: a compressed shard is read whole, not from byte {piece.start}")
        spare = len(self.framing.terminator)
        start, room = arena.used, arena.left
        stream = open_stream(piece.file, self.codec, READ_BYTES)
        size = stream.fill(arena.view(start, max(0, room - spare)))
        if size == room - spare and stream.fill(memoryview(bytearray(1))):
            raise MemoryError(f"{piece.file.name}: expands to more than the {room} bytes left in the buffer")
        arena.claim(size + spare)
        if piece.checksum and isinstance(stream, CompressedStream):
            piece.check(stream.checksum)
        return self._place(piece, start, size, arena, decoding)

    def _place(self, piece: Piece, start: int, size: int, arena: Arena, decoding: bool) -> "list[_Placed]":
        data, end = arena.array(start, size), self.framing.terminator
        where = Where(piece.file.name, piece.start, size, True, bool(piece.checksum), decoding)
        placed = []
        for at, frames in _steps(self.framing, data, where):
            records = len(frames.offsets) - 1
            arena.spend(records * (self._record_bytes + (LOOSE_BYTES if frames.loose is not None else 0)))
            placed.append(_Placed(start + at, frames))
        stop = placed[-1].stop - start
        check_end(self.framing, data[stop:], frames.ended, where.from_(stop, True), piece.is_whole)
        if piece.is_whole and not sum(each.records for each in placed):
            raise NoRecordError(piece.file.name, 0, NO_RECORD)
        if piece.is_whole and not where.known:
            self.framing.check(piece.file.name, [(each.start - start, each.frames) for each in placed])
        if _lacks(data, end):
            arena.view(start + size, len(end))[:] = end
            frames.offsets[-1] += len(end)
        return placed


def _check_fits(data: Bytes, offsets: Indices, terminator: bytes, where: Where) -> None:
    """Refuse a record that was read, but only because it happens to lie where little follows it."""
    if offsets[-1] + len(terminator) <= where.most:
        return
    spans = np.diff(offsets)
    spans[-1:] += len(terminator) if _lacks(data[: offsets[-1]], terminator) else 0
    for record in np.flatnonzero(spans > where.most)[:1].tolist():
        raise where.too_large(int(offsets[record]), int(spans[record]))


def _lacks(data: Bytes, terminator: bytes) -> bool:
    """Whether the last line, which may be blank, has no end."""
    return bool(len(terminator) and len(data) and data[-len(terminator) :].tobytes() != terminator)


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
    """Records in memory, from there on."""

    start: int
    frames: Frames

    @property
    def stop(self) -> int:
        return self.start + int(self.frames.offsets[-1])

    @property
    def records(self) -> int:
        return len(self.frames.offsets) - 1


def _shown(placed: list[_Placed], arena: Arena, see: See | None) -> list[_Placed]:
    if see is not None:
        for start, frames in ((part.start, part.frames) for part in placed):
            see(framed_table(frames.offsets, arena.array(start, int(frames.offsets[-1])), frames.loose))
    return placed


def _steps(framing: Framing, data: Bytes, where: Where) -> Iterator[tuple[int, Frames]]:
    """The complete records at the front of the data, some of it at a time: where each part begins, and its frames. The
    last part, which may be empty, knows whether an end mark follows. A longer record takes as much as it needs."""
    least = STEP_BYTES if framing.smallest_record > _TINY_RECORD else _TINY_STEP_BYTES
    at, step = 0, least
    while True:
        last = at + step >= len(data)
        frames = framing.split(data[at : at + step], where.from_(at, last))
        done, is_end = int(frames.offsets[-1]), frames.ended or last
        if done or is_end:
            yield at, frames
        if is_end:
            return
        at, step = at + done, least if done else 2 * step


def _group(pieces: list[list[_Placed]], arena: Arena, decoded: Sequence[Piece] | None) -> Group:
    """One table over all pieces, which are used up. Between two pieces lies a row that is no record: the padding."""
    begins = np.array([placed[0].start for placed in pieces])
    all_frames = [part.frames for placed in pieces for part in placed]
    parts = [frames.parts for frames in all_frames if frames.parts is not None]
    counts = tuple(sum(part.records for part in placed) for placed in pieces)
    offsets, rows = np.empty(sum(counts) + len(pieces), np.int64), np.empty(sum(counts), np.int64)
    keys = np.empty(len(rows), np.uint64) if any(frames.keys is not None for frames in all_frames) else None
    loose = None
    if any(frames.loose is not None for frames in all_frames):
        loose = Loose(np.zeros(len(offsets) - 1, np.int64), np.zeros(len(offsets) - 1, np.int64))
    del all_frames
    at = row = 0
    for placed in pieces:
        while placed:
            part, count = placed[0], placed[0].records
            del placed[0]
            np.add(part.frames.offsets, part.start, out=offsets[at : at + count + 1])
            rows[row : row + count] = np.arange(at, at + count)
            if keys is not None and part.frames.keys is not None:
                keys[row : row + count] = part.frames.keys
            if loose is not None and (held := part.frames.loose) is not None:
                loose.lead[at : at + count], loose.tail[at : at + count] = held.lead, held.tail
            at, row = at + count, row + count
        at += 1
    lying = None
    if decoded is not None:
        homes = tuple((piece.file.name, piece.start) for piece in decoded)
        lying = Lying(arena.memory, offsets, rows, loose, Parts.joined(parts) if parts else None, begins, homes)
    return Group(framed_table(offsets, arena.array(0, arena.used), loose), rows, keys, counts, beside=lying)
