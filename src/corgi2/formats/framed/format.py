"""Formats whose records lie one after another in the file, each with its frame: tar, JSON lines, TFRecord.

A record's span includes its frame. Bytes that belong to no record (a directory in a tar, a blank line) travel in the
span of the next record, or of the last one at the end of a shard, and are part of neither: a record is the same
whatever lies around it. So the spans cover the file's body without a gap, records come out bit for bit, and the
gathered bytes are the body of a shard. Nothing is parsed beyond the frames.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corgi2.errors import NoRecordError, ShardError
from corgi2.formats.compression import CompressedStream, compressed, decompress_front, open_stream
from corgi2.formats.format import Traits
from corgi2.formats.framed.cutter import Cutter, Seen, part_bytes
from corgi2.formats.framed.frames import (
    BETWEEN_BYTES,
    ENDLESS,
    Bytes,
    Framing,
    Lying,
    Where,
)
from corgi2.formats.framed.reading import Reading
from corgi2.formats.framed.together import Together
from corgi2.formats.framed.windows import TINY_RECORD, lacks, windows
from corgi2.formats.pipe import passing_on
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
)

_OFFSET_BYTES = 8

TASTE_BYTES = 1_000_000
"""Bytes of a shard that are read for an estimate of what it takes in memory."""

_TASTE_MEMORY = 4_000_000

_GLANCE_BYTES = 1 << 16
"""Bytes of a shard that are read to see whether it holds a record at all."""


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
            cuts_blocks=plain,
            has_columns=False,
            is_decoded=False,
            is_tasted_whole=False,
            packs_by_order=not plain,
        )

    @property
    def side_files(self) -> None:
        """None so far."""

    @property
    def _record_bytes(self) -> int:
        """Bytes of memory per record, besides its own."""
        return _OFFSET_BYTES + 2 * PLACE_BYTES + self.framing.record_overhead

    def decoding_bytes(self, length: Indices, records: Indices, footprint: Indices) -> Indices:  # noqa: ARG002
        """Nothing: a block is read straight into its place."""
        return np.zeros_like(length)

    def sketch(self, size: int) -> Block:
        """The most that a shard of this size could take, if the smallest records are not tiny; else an estimate."""
        least = self.framing.smallest_record
        at_most = size + size // least * self._record_bytes + BETWEEN_BYTES
        exact = self.codec is None and least > TINY_RECORD
        return Block(0, size, 0, at_most if exact else size, exact)

    def taste(self, piece: Piece) -> tuple[Taste]:
        """The complete records at the front; an incomplete one after them is not an error."""
        front = _Front(piece.file, piece.start, min(piece.length, TASTE_BYTES))
        data, stored = self._front(front, front.size == piece.length)
        frames = self.framing.split(data, Where(piece.file.name, piece.start, ENDLESS, last=False))
        offsets = frames.offsets
        share = int(offsets[-1]) / max(1, len(data))
        if len(offsets) == 1:  # no complete record: treat everything as one
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
        """Damaged shards show none, nor do those that begin with more bytes of something else than are read."""
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
        for base, data, frames in windows(self.framing, stream, file, self.codec is None, memory - memory // 4):
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
        stream = open_stream(file, self.codec, part_bytes(memory))
        end, records = self.framing.terminator, 0
        for _, data, frames in windows(self.framing, stream, file, self.codec is None, memory):
            stop = int(frames.offsets[-1])
            if stop and lacks(data[:stop], end):  # the very last line: there is room after it
                data[stop : stop + len(end)] = np.frombuffer(end, np.uint8)
                frames.offsets[-1] += len(end)
            records += len(frames.offsets) - 1
            yield framed_table(frames.offsets, data, frames.loose)
        if not records:
            raise NoRecordError(file.name, 0, NO_RECORD)

    def scan_together(self, files: Sequence[ShardFile], block_bytes: int, memory: int) -> list[Scan] | None:
        together = None if self.codec else Together.read(self.framing, files, memory)
        return None if together is None else together.scans(self._record_bytes, block_bytes)

    def stream_together(self, files: Sequence[ShardFile], memory: int) -> Any | None:
        together = None if self.codec else Together.read(self.framing, files, memory)
        return None if together is None else together.table()

    def digest(self, table: Any, key: int) -> Digest:
        """The digest of records, and of what travels with them."""
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
        only: Collection[str] | None = None,  # noqa: ARG002 - records lie as they are
        decoders: int | None = None,  # noqa: ARG002 - nothing is decoded on the way
    ) -> Group:
        """Read pieces into the arena, side by side, as one group in the order of the pieces."""
        reading = Reading(self.framing, self.codec, self._record_bytes, arena, see, decoding)
        return reading.read(pieces, mapper)

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
        """Framed shards have nothing to carry over besides their records."""
        return ""

    def compare(self, one: ShardFile, other: ShardFile) -> tuple[list[str], list[str]]:  # noqa: ARG002
        return [], []

    def decoder(self, group: Group, url: str) -> Decoder:  # noqa: ARG002
        if not isinstance(group.beside, Lying):
            raise TypeError("the group was not read to be decoded")
        return self.framing.decoder(group.beside)


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
