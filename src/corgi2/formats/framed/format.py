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

import mmap
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from corgi2.errors import NoRecordError, ShardError, TooLargeError
from corgi2.formats.compression import READ_BYTES, CompressedStream, Stream, compressed, decompress_front, open_stream
from corgi2.formats.pipe import passing_on
from corgi2.process import processors
from corgi2.records.block import (
    PLACE_BYTES,
    Arena,
    Decoder,
    Group,
    Indices,
    Loose,
    Taste,
    framed_table,
    record_bytes,
    record_offsets,
    reserve,
)
from corgi2.records.digest import Digest, Lanes, digest_framed, hash_framed
from corgi2.records.shard import (
    NO_RECORD,
    READING_BYTES,
    Block,
    Buffer,
    Checksum,
    Mapper,
    Piece,
    Scan,
    See,
    ShardFile,
    Writing,
)
from corgi2.sizes import format_size

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

_OFFSET_BYTES = 8
_LOOSE_BYTES = 16
"""A record, where something travels with some: how much lies before it, and how much behind."""
_BLOCK_BYTES = 64
"""Room for what lies between two blocks in memory: a terminator, a row that is no record, its offset."""

TASTE_BYTES = 1_000_000
"""Of a shard, for an estimate of what it takes in memory."""
_TASTE_MEMORY = 4_000_000
_GLANCE_BYTES = 1 << 16
"""Of a shard, to see whether it holds a record at all."""
_TINY_RECORD = 256

STEP_BYTES, _TINY_STEP_BYTES = 1 << 22, 1 << 20
"""Split at a time; and where records may be tiny, which then take up to 20 times as much meanwhile."""
_LEAST_PART = 4_000_000
_PEEK_BYTES = 1 << 16
"""Read behind the largest record that fits: it is complete once the next one is seen to begin."""
_SEEN_BYTES = 48
"""A record that has a key takes until the end of its shard, to be compared with all others."""
_ENDLESS = 1 << 62


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
    most: int = _ENDLESS
    """Bytes of the largest record that there is memory for."""

    def from_(self, offset: int, last: bool) -> "Where":
        """The place of a part of these bytes."""
        return replace(self, base=self.base + offset, limit=self.limit - offset, last=last and self.last)

    def too_large(self, offset: int, size: int, about: str = "") -> TooLargeError:
        texts = format_size(size), format_size(self.most)
        taken, limit = texts if texts[0] != texts[1] else (f"{size:,} bytes", f"{self.most:,} bytes")
        problem = (
            f"a record of {about}{taken}, with what lies around it, does not fit the {limit} that reading may take; "
            "give a larger buffer"
        )
        return TooLargeError(self.name, self.base + offset, problem)

    def error(self, offset: int, problem: str) -> ShardError:
        return ShardError(self.name, self.base + offset, problem)


@dataclass(frozen=True, slots=True)
class Frames:
    """The span of record i is ``data[offsets[i]:offsets[i + 1]]``; what follows the last offset is not complete yet,
    or, after the end mark, padding."""

    offsets: Indices
    begin: Indices | None = None
    """Where each record itself begins, if that is not where its span does."""
    end: int | None = None
    """Where the last record itself ends, if something travels behind it."""
    ended: bool = False
    keys: Hashes | None = None
    members: "Members | None" = None
    parts: "Parts | None" = None

    @staticmethod
    def of(begin: Indices, end: Indices, stop: int | None, **more: Any) -> "Frames":
        """Records that begin and end there; up to ``stop``, or, where more may come, without the last of them."""
        if not len(begin):
            return Frames(np.zeros(1, np.int64), **more)
        offsets = np.concatenate([[0], end[:-1], [] if stop is None else [stop]]).astype(np.int64, copy=False)
        begin, last = begin[: len(offsets) - 1], int(end[-1])
        is_tight = bool((begin == offsets[:-1]).all())
        return Frames(offsets, None if is_tight else begin, None if stop in (None, last) else last, **more)

    @property
    def loose(self) -> Loose | None:
        """What travels in the spans beside the records, if anything does."""
        if self.begin is None and self.end is None:
            return None
        lead, tail = np.zeros(len(self.offsets) - 1, np.int64), np.zeros(len(self.offsets) - 1, np.int64)
        if self.begin is not None:
            lead = self.begin - self.offsets[:-1]
        if self.end is not None:
            tail[-1] = self.offsets[-1] - self.end
        return Loose(lead, tail)


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
    """Records as they lie in memory: the span of record i from ``offsets[rows[i]]`` on."""

    memory: mmap.mmap
    offsets: Indices
    rows: Indices
    loose: Loose | None
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
        rows = self.rows[records]
        return np.asarray(self.offsets[rows] if self.loose is None else self.offsets[rows] + self.loose.lead[rows])

    def stops(self, records: Indices) -> Indices:
        rows = self.rows[records] + 1
        return np.asarray(self.offsets[rows] if self.loose is None else self.offsets[rows] - self.loose.tail[rows - 1])


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
        """The complete records at the front of the data, which starts at a span."""

    def begins_record(self, data: Bytes, where: Where) -> bool:
        """Whether a record begins in the data, which starts at a span. It need not be complete."""

    def items(self, loose: Bytes) -> Iterator[Indices]:
        """Bytes that belong to no record, cut into what is hashed by itself: a member, a line."""

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
        data, stored = self._front(front, front.size == piece.length)
        frames = self.framing.split(data, Where(piece.file.name, piece.start, _ENDLESS, last=False))
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
            return self.framing.begins_record(data, Where(file.name, 0, _ENDLESS, last=False))
        except ShardError:
            return False

    def scan(self, file: ShardFile, block_bytes: int, memory: int = READING_BYTES) -> Scan:
        """Read a shard once, from front to back, and cut it into blocks of about ``block_bytes``."""
        stream = open_stream(file, self.codec, part_bytes(memory))
        cutter = _Cutter(self._record_bytes, None if self.codec else block_bytes)
        seen = _Seen(file.name, memory // 4)
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
            where = Where(file.name, base, file.size - base if plain else _ENDLESS, last, most=memory)
            data, done = np.frombuffer(buffer, np.uint8, have), 0
            for at, frames in _steps(framing, data, where):
                _check_fits(data[at:], frames.offsets, framing.terminator, where.from_(at, last))
                yield base + at, np.frombuffer(buffer, np.uint8, offset=at), frames
                done = at + int(frames.offsets[-1])
            if frames.ended or last:
                _check_end(framing, data[done:], frames.ended, where.from_(done, last), whole=True)
                if not last:
                    _check_padding(stream, where, have)
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
        cutter = _Cutter(self._record_bytes, None)
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

    def _body(self, blocks: Iterable[Iterable[Any]], cutter: "_Cutter") -> Iterator[Buffer]:
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
            arena.spend(records * (self._record_bytes + (_LOOSE_BYTES if frames.loose is not None else 0)))
            placed.append(_Placed(start + at, frames))
        stop = placed[-1].stop - start
        _check_end(self.framing, data[stop:], frames.ended, where.from_(stop, True), piece.is_whole)
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


def _check_end(framing: Framing, rest: Bytes, ended: bool, where: Where, whole: bool) -> None:
    """What lies behind the last record is what may lie there."""
    if ended:
        _check_zero(rest, where, 0)
    elif where.last and whole and framing.trailer:
        raise where.error(
            len(rest),
            "the archive ends without its end mark (1,024 zero bytes): it was cut short. Restore it from its source, "
            "or, if you know it to be complete, append the mark",
        )


class _Seen:
    """What has to be compared once a whole shard was read, as long as there is memory for it."""

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
    """Of a shard, that are read at a time where reading may take so much."""
    return min(READ_BYTES, max(_LEAST_PART, memory // 4))


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
    beside: int = 0
    """Bytes that they take in memory beside their own."""
    checksum: Checksum = field(default_factory=Checksum)

    def add(self, data: Bytes, offsets: Indices, has_loose: bool) -> None:
        first, last = 0, len(offsets) - 1
        record_bytes = self.record_bytes + (_LOOSE_BYTES if has_loose else 0)
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
        footprint = self.length + self.beside + _BLOCK_BYTES
        self.blocks.append(Block(self.start, self.length, self.records, footprint, checksum=self.checksum.digest()))
        self.start, self.checksum = self.start + self.length, Checksum()
        self.length = self.records = self.beside = 0

    def finish(self) -> list[Block]:
        self.close()
        return self.blocks
