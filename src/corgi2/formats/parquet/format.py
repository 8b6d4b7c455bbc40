"""Parquet: a record is a row, a block is a row group.

A row group is fetched in one request and decoded from memory, so Arrow needs no file. New shards keep the schema, the
key-value metadata, the codecs and the dictionary columns of the old ones.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from corgi2.errors import NoRecordError, TooLargeError
from corgi2.formats.columnar.columns import is_flat
from corgi2.formats.columnar.metadata import changes
from corgi2.formats.columnar.nulls import nulls_problem
from corgi2.formats.columnar.samples import Rows
from corgi2.formats.columnar.schema import schema_text
from corgi2.formats.columnar.tables import in_memory
from corgi2.formats.format import Traits
from corgi2.formats.parquet.footer import (
    cached_footer,
    check_overlap,
    read_footer,
    row_group_block,
)
from corgi2.formats.parquet.lists import check_missing_lists
from corgi2.formats.parquet.nulls import has_strict, unfit_columns
from corgi2.formats.parquet.profile import LARGE_PAGE, PAGE_VALUES, Profile, form_of, profile_of
from corgi2.formats.parquet.reading import Reading, tables_of
from corgi2.formats.parquet.schema import arrow_schema
from corgi2.formats.parquet.selection import read_selected
from corgi2.formats.parquet.wanted import ALL, Wanted, wanted
from corgi2.formats.parquet.writing import KEPT_BYTES, encode_blocks
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


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """Its blocks may be read with some of their columns alone; whole shards, and new ones, have all of them."""

    wanted: Wanted = ALL

    name: ClassVar[str] = "parquet"
    suffix: ClassVar[str] = ".parquet"
    traits: ClassVar[Traits] = Traits(
        has_cheap_scan=True,
        has_ranges=True,
        has_record_ranges=False,
        cuts_blocks=False,
        has_columns=True,
        is_decoded=True,
        is_tasted_whole=True,
        packs_by_order=True,
    )

    side_files = None

    def decoding_bytes(self, length: Indices, records: Indices, footprint: Indices) -> Indices:
        """As stored, and as decoded, which may be one page and all at once; and what allocators keep of large ones."""
        page = np.minimum(footprint, PAGE_VALUES * footprint // np.maximum(1, records))
        return length + footprint + np.where(page > LARGE_PAGE, KEPT_BYTES, 0)

    def sketch(self, size: int) -> Block:
        """Assumes that nothing is compressed; a scan of the footer tells more."""
        return Block(0, size, 0, size, exact=False)

    def shows_record(self, file: ShardFile) -> bool:
        """Told by its footer."""
        return bool(read_footer(file).num_rows)

    def taste(self, piece: Piece) -> Iterator[Taste]:
        """All records of the piece."""
        for table, rows in tables_of(piece, max(READING_BYTES, piece.footprint), self.wanted):
            group = Group(table, counts=(table.num_rows,), table_bytes=in_memory(table))
            yield Taste(group, piece.length * table.num_rows / rows)

    def scan(
        self,
        file: ShardFile,
        block_bytes: int,  # noqa: ARG002 - a row group is a block
        memory: int = READING_BYTES,  # noqa: ARG002 - a footer has a limit of its own
    ) -> Scan:
        """Reads the footer only."""
        footer, _ = cached_footer(file)
        if footer.num_rows == 0:
            raise NoRecordError(file.name, 0, NO_RECORD)
        schema = arrow_schema(file, footer)
        check_missing_lists(file, footer, schema)
        filled = [group for group in range(footer.num_row_groups) if footer.row_group(group).num_rows]
        numbers = None if self.wanted.names is None else self.wanted.numbers(footer)
        schema = self.wanted.schema(schema)
        blocks = tuple(row_group_block(file, footer, schema, group, numbers) for group in filled)
        check_overlap(file, blocks)
        return Scan(blocks, schema=schema_text(schema))

    def wanting(self, file: ShardFile, columns: Sequence[str] | None, fill: Mapping[str, Any]) -> "ParquetFormat":
        """The same format, of which only some columns are read, with other values where they are missing."""
        footer, _ = cached_footer(file)
        return ParquetFormat(wanted(arrow_schema(file, footer), columns, fill))

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.wanted.names

    def has_strict(self, schema: str) -> bool:
        return has_strict(schema)

    def unfit(self, file: ShardFile) -> dict[str, str]:
        """As far as the footer's statistics tell."""
        footer, _ = cached_footer(file)
        return unfit_columns(footer, arrow_schema(file, footer))

    def problem_of(self, unfit: Mapping[str, str]) -> str | None:
        filled = {name for name, _ in self.wanted.fills}
        names = (name for name in unfit if name not in filled and name in (self.columns or unfit))
        return next((nulls_problem(name, unfit[name]) for name in names), None)

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
        """Decoded row groups move to the arena: in Arrow's own memory they take up to twice their size. If only
        some columns are wanted, the bytes of the others are not fetched."""
        if only is not None:
            found = [read_selected(piece, only, arena.capacity) for piece in pieces]
            tables = [table for table in found if table is not None]
            if len(tables) == len(pieces):
                return Group(pa.concat_tables(tables), counts=tuple(table.num_rows for table in tables))
        reading = Reading(pieces, arena, see, decoders, self.wanted)
        return reading.group(list(mapper(reading.read, pieces)))

    def stream(self, file: ShardFile, memory: int = READING_BYTES) -> Iterator[pa.Table]:
        """All rows, decoded a few MB at a time, or, if they are nested, a row group at a time."""
        footer = read_footer(file)
        if footer.num_rows == 0:
            raise NoRecordError(file.name, 0, NO_RECORD)
        schema = arrow_schema(file, footer)
        filled = [group for group in range(footer.num_row_groups) if footer.row_group(group).num_rows]
        for block in (row_group_block(file, footer, schema, group) for group in filled):
            needed = block.length + (0 if is_flat(schema) else block.footprint)
            if needed > memory:
                limit = format_size(memory)
                problem = f"a row group that takes {format_size(needed)} does not fit the {limit} that reading may take"
                raise TooLargeError(file.name, block.start, f"{problem}; give a larger buffer")
            piece = Piece(file, block.start, block.length, records=block.records, footprint=block.footprint)
            yield from (table for table, _ in tables_of(piece, memory))

    def scan_together(self, files: Sequence[ShardFile], block_bytes: int, memory: int) -> None:
        """Each shard has a footer of its own."""

    def stream_together(self, files: Sequence[ShardFile], memory: int) -> None:
        """Each shard has a footer of its own."""

    def digest(self, table: pa.Table, key: int) -> Digest:
        return digest(table, key)

    def hash_records(self, table: pa.Table, key: int) -> Lanes:
        return hash_records(table, key)

    def profile(self, file: ShardFile) -> str:
        return profile_of(file).encode()

    def compare(self, one: ShardFile, other: ShardFile) -> tuple[list[str], list[str]]:
        """Metadata of the file and of its fields; how columns are stored."""
        ours, theirs = form_of(one), form_of(other)
        return changes(ours.metadata, theirs.metadata), changes(ours.stored, theirs.stored)

    def write(self, blocks: Iterable[Iterable[pa.Table]], profile: str) -> Writing:
        """One row group per block. Its footprint is then known, whatever its columns."""

        def encode(pipe: Pipe) -> tuple[Block, ...]:
            return tuple(encode_blocks(takewhile(lambda _: pipe.is_used, blocks), Profile.decode(profile), pipe))

        return (yield from piped(encode))

    def decoder(self, group: Group, url: str) -> "Rows":
        return Rows(group, taker(group), url)


FORMATS = {ParquetFormat.suffix: ParquetFormat()}
