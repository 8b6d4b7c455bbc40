"""Pieces of shards read into an arena, side by side: one group over the bytes as they are."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from corgi2.errors import NoRecordError
from corgi2.formats.compression import READ_BYTES, CompressedStream, open_stream
from corgi2.formats.framed.cutter import check_end
from corgi2.formats.framed.frames import LOOSE_BYTES, Frames, Framing, Lying, Parts, Where
from corgi2.formats.framed.joined import Joined, Placed
from corgi2.formats.framed.windows import lacks, steps
from corgi2.host import processors
from corgi2.records import (
    NO_RECORD,
    Arena,
    Checksum,
    Group,
    Mapper,
    Piece,
    See,
    framed_table,
    runs,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How some pieces are read into an arena."""

    framing: Framing
    codec: str | None
    record_bytes: int
    """Bytes of memory per record, besides its own."""
    arena: Arena
    see: See | None
    decoding: bool

    def read(self, pieces: Sequence[Piece], mapper: Mapper) -> Group:
        """One group, in the order of the pieces."""
        if codec := self.codec:
            placed = [self._shown([self._decompress(piece, codec)])[0] for piece in pieces]
        else:
            starts = [self.arena.claim(piece.length + len(self.framing.terminator)) for piece in pieces]
            gate = threading.Semaphore(processors())

            def fetch(run: slice) -> list[list[Placed]]:
                return self._shown(self._fetch(pieces[run], starts[run], gate))

            placed = [each for run in mapper(fetch, runs([piece.length for piece in pieces])) for each in run]
        return _group(placed, self.arena, pieces if self.decoding else None)

    def _fetch(self, pieces: Sequence[Piece], starts: Sequence[int], gate: threading.Semaphore) -> list[list[Placed]]:
        """Many threads may wait for a store; the gate limits how many work at the same time."""
        for piece, start in zip(pieces, starts, strict=True):
            piece.file.readinto(piece.start, self.arena.view(start, piece.length))
        with gate:
            for piece, start in zip(pieces, starts, strict=True):
                if piece.checksum:
                    piece.check(Checksum.like(piece.checksum, self.arena.view(start, piece.length)))
            several = self._split_side_by_side(pieces, starts)
            if several is None:
                return [self._place(piece, at, piece.length) for piece, at in zip(pieces, starts, strict=True)]
            return [
                self._placed(piece, start, piece.length, [(0, frames)])
                for piece, start, frames in zip(pieces, starts, several, strict=True)
            ]

    def _split_side_by_side(self, pieces: Sequence[Piece], starts: Sequence[int]) -> list[Frames] | None:
        known = {bool(piece.checksum) for piece in pieces}
        if len(pieces) == 1 or len(known) > 1:
            return None
        cuts = np.array([*starts, starts[-1] + pieces[-1].length + len(self.framing.terminator)]) - starts[0]
        data = self.arena.array(starts[0], int(cuts[-1]))
        where = Where(pieces[0].file.name, 0, len(data), True, known.pop(), self.decoding)
        return self.framing.split_side_by_side(data, cuts, where)

    def _decompress(self, piece: Piece, codec: str) -> list[Placed]:
        if not piece.is_whole:
            raise ValueError(f"{piece.file.name}: a compressed shard is read whole, not from byte {piece.start}")
        spare = len(self.framing.terminator)
        start, room = self.arena.used, self.arena.left
        stream = open_stream(piece.file, codec, READ_BYTES)
        size = stream.fill(self.arena.view(start, max(0, room - spare)))
        if size == room - spare and stream.fill(memoryview(bytearray(1))):
            raise MemoryError(f"{piece.file.name}: expands to more than the {room} bytes left in the buffer")
        self.arena.claim(size + spare)
        if piece.checksum and isinstance(stream, CompressedStream):
            piece.check(stream.checksum)
        return self._place(piece, start, size)

    def _place(self, piece: Piece, start: int, size: int) -> list[Placed]:
        return self._placed(
            piece, start, size, steps(self.framing, self.arena.array(start, size), self._where(piece, size))
        )

    def _where(self, piece: Piece, size: int) -> Where:
        return Where(piece.file.name, piece.start, size, True, bool(piece.checksum), self.decoding)

    def _placed(self, piece: Piece, start: int, size: int, found: Iterable[tuple[int, Frames]]) -> list[Placed]:
        """What was found in a piece, after the checks that take all of it."""
        data, end, where = self.arena.array(start, size), self.framing.terminator, self._where(piece, size)
        placed = []
        for at, frames in found:
            records = len(frames.offsets) - 1
            self.arena.spend(records * (self.record_bytes + (LOOSE_BYTES if frames.is_loose else 0)))
            placed.append(Placed(start + at, frames))
        stop = placed[-1].stop - start
        check_end(self.framing, data[stop:], frames.ended, where.from_(stop, True), piece.is_whole)
        if piece.is_whole and not sum(each.records for each in placed):
            raise NoRecordError(piece.file.name, 0, NO_RECORD)
        if piece.is_whole and not where.known:
            self.framing.check(piece.file.name, [(each.start - start, each.frames) for each in placed])
        if lacks(data, end):
            self.arena.view(start + size, len(end))[:] = end
            frames.offsets[-1] += len(end)
        return placed

    def _shown(self, pieces: list[list[Placed]]) -> list[list[Placed]]:
        if self.see is not None and len(pieces) == 1:
            for start, frames in ((part.start, part.frames) for part in pieces[0]):
                self.see(framed_table(frames.offsets, self.arena.array(start, int(frames.offsets[-1])), frames.loose))
        elif self.see is not None:
            self.see(Joined.of([list(placed) for placed in pieces]).alone(self.arena.array(0, self.arena.used)))
        return pieces


def _group(pieces: list[list[Placed]], arena: Arena, decoded: Sequence[Piece] | None) -> Group:
    """One table over all pieces, which are used up."""
    begins = np.array([placed[0].start for placed in pieces])
    counts = tuple(sum(part.records for part in placed) for placed in pieces)
    parts = [part.frames.parts for placed in pieces for part in placed if part.frames.parts is not None]
    joined = Joined.of(pieces)
    lying = None
    if decoded is not None:
        homes = tuple((piece.file.name, piece.start) for piece in decoded)
        places = joined.offsets, joined.rows, joined.loose
        lying = Lying(arena.memory, *places, Parts.joined(parts) if parts else None, begins, homes)
    table = framed_table(joined.offsets, arena.array(0, arena.used), joined.loose)
    return Group(table, joined.rows, joined.keys, counts, beside=lying)
