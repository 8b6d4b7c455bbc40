"""Arrow: a record is a row, a block is one or more record batches.

Streams and files are told apart by what they hold. New shards are of the first one's kind, and keep its schema, with
its metadata, and its codec. Scans read the headers of messages, not their bodies.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import pyarrow as pa

from corgi2.errors import NoRecordError, TooLargeError
from corgi2.formats.arrow.blocks import blocks_of
from corgi2.formats.arrow.hugging_face import SavedDataset
from corgi2.formats.arrow.layout import cached_front, read_front, reading, walk
from corgi2.formats.arrow.messages import BATCH
from corgi2.formats.arrow.profile import Profile, form_of, profile_of
from corgi2.formats.arrow.reading import Reading, read_selected, tables_of
from corgi2.formats.arrow.writing import encode_blocks
from corgi2.formats.columnar.metadata import changes
from corgi2.formats.columnar.samples import Rows
from corgi2.formats.columnar.schema import schema_text
from corgi2.formats.columnar.tables import in_memory
from corgi2.formats.format import Traits
from corgi2.formats.pipe import Pipe, piped
from corgi2.order import Indices
from corgi2.records import (
    NO_RECORD,
    READING_BYTES,
    Arena,
    Block,
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
    digest,
    hash_records,
    taker,
)
from corgi2.sizes import format_size

_STREAM_BYTES = 8_000_000
"""Bytes of a shard read at a time, front to back, unless a record batch is larger."""


@dataclass(frozen=True, slots=True)
class ArrowFormat:
    name: str
    suffix: str
    traits = Traits(
        has_cheap_scan=True,
        has_ranges=True,
        has_record_ranges=False,
        cuts_blocks=True,
        has_columns=True,
        is_decoded=True,
        is_tasted_whole=True,
        packs_by_order=True,
    )

    side_files = SavedDataset()

    def decoding_bytes(self, length: Indices, records: Indices, footprint: Indices) -> Indices:  # noqa: ARG002
        """As stored, and as decoded, on its way to its place."""
        return length + footprint

    def sketch(self, size: int) -> Block:
        """Assumes that nothing is compressed; a scan tells more."""
        return Block(0, size, 0, size, exact=False)

    def shows_record(self, file: ShardFile) -> bool:
        """Told by the header of its first record batch that has rows."""
        return any(message.rows for message in walk(file, cached_front(file), reading(file)) if message.kind == BATCH)

    def taste(self, piece: Piece) -> Iterator[Taste]:
        """All records of the piece."""
        for table, rows in tables_of(piece, max(READING_BYTES, 2 * piece.footprint)):
            group = Group(table, counts=(table.num_rows,), table_bytes=in_memory(table))
            yield Taste(group, piece.length * table.num_rows / rows)

    def scan(self, file: ShardFile, block_bytes: int, memory: int = READING_BYTES) -> Scan:  # noqa: ARG002
        """Reads the front, the footer, and the headers of all messages."""
        front = read_front(file)
        blocks = tuple(blocks_of(front, walk(file, front, reading(file)), block_bytes))
        if not blocks:
            raise NoRecordError(file.name, 0, NO_RECORD)
        return Scan(blocks, schema=schema_text(front.schema))

    def read(
        self,
        pieces: Sequence[Piece],
        arena: Arena,
        mapper: Mapper = map,
        see: See | None = None,
        decoding: bool = False,  # noqa: ARG002
        only: Collection[str] | None = None,
        decoders: int | None = None,
    ) -> Group:
        """Rows are copied to the arena from where they were fetched. If only some columns are wanted, the others are
        fetched, too, but not decoded."""
        if only is not None:
            found = [read_selected(piece, only, arena.capacity) for piece in pieces]
            tables = [table for table in found if table is not None]
            if len(tables) == len(pieces):
                return Group(pa.concat_tables(tables), counts=tuple(table.num_rows for table in tables))
        rows = Reading(pieces, arena, see, decoders)
        return rows.group(list(mapper(rows.read, pieces)))

    def stream(self, file: ShardFile, memory: int = READING_BYTES) -> Iterator[pa.Table]:
        """All rows, some record batches at a time."""
        is_empty = True
        for block in self.scan(file, _STREAM_BYTES).blocks:
            if block.length > memory:
                limit = format_size(memory)
                problem = (
                    f"a record batch of {format_size(block.length)} does not fit the {limit} that reading may take"
                )
                raise TooLargeError(file.name, block.start, f"{problem}; give a larger buffer")
            piece = Piece(file, block.start, block.length, records=block.records)
            for table, _ in tables_of(piece, memory):
                is_empty = False
                yield table
        if is_empty:
            raise NoRecordError(file.name, 0, NO_RECORD)

    def scan_together(self, files: Sequence[ShardFile], block_bytes: int, memory: int) -> None:
        """Each shard has a schema of its own."""

    def stream_together(self, files: Sequence[ShardFile], memory: int) -> None:
        """Each shard has a schema of its own."""

    def digest(self, table: pa.Table, key: int) -> Digest:
        return digest(table, key)

    def hash_records(self, table: pa.Table, key: int) -> Lanes:
        return hash_records(table, key)

    def profile(self, file: ShardFile) -> str:
        return profile_of(file).encode()

    def compare(self, one: ShardFile, other: ShardFile) -> tuple[list[str], list[str]]:
        """Metadata of the schema and of its fields; how rows are stored."""
        (ours, our_form), (theirs, their_form) = form_of(one), form_of(other)
        return changes(ours, theirs), changes(our_form, their_form)

    def write(self, blocks: Iterable[Iterable[pa.Table]], profile: str) -> Writing:
        """Several record batches per block."""

        def encode(pipe: Pipe) -> tuple[Block, ...]:
            return tuple(encode_blocks(takewhile(lambda _: pipe.is_used, blocks), Profile.decode(profile), pipe))

        return (yield from piped(encode))

    def decoder(self, group: Group, url: str) -> Rows:
        return Rows(group, taker(group), url)


FORMATS = {each.suffix: each for each in (ArrowFormat("arrow", ".arrow"), ArrowFormat("feather", ".feather"))}
