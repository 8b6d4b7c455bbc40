"""Parquet: a record is a row, a block is a row group.

A row group is fetched in one request and decoded from there, so that Arrow needs no file. New shards keep the old ones'
schema, key-value metadata, codecs, dictionary columns and rows a row group.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.block import PLACE_BYTES, Arena, Group
from corgi2.errors import ShardError
from corgi2.formats.compression import Sink
from corgi2.formats.footer import (
    FOOTER_GUESS,
    RESTORE,
    Part,
    ShardVersion,
    arrow_schema,
    cached_footer,
    check_overlap,
    parse_footer,
    read_footer,
    row_group_block,
    row_group_spans,
    schema_text,
)
from corgi2.shard import BLOCK_BYTES, Block, Checksum, Mapper, Piece, Scan, ShardFile, Writing


@dataclass(frozen=True, slots=True)
class Profile:
    """What a new shard keeps of an old one."""

    schema: pa.Schema
    options: dict[str, Any]
    row_group_rows: int


class ParquetFormat:
    name = "parquet"
    suffix = ".parquet"

    def scan(self, file: ShardFile, block_bytes: int) -> Scan:  # noqa: ARG002 - a row group is a block
        """Reads the footer only."""
        footer = read_footer(file)
        if footer.num_rows == 0:
            raise ShardError(file.name, 0, "the .parquet shard holds no row; remove it")
        schema = arrow_schema(file, footer)
        filled = [group for group in range(footer.num_row_groups) if footer.row_group(group).num_rows]
        blocks = tuple(row_group_block(file, footer, schema, group) for group in filled)
        check_overlap(file, blocks)
        return Scan(blocks, schema=schema_text(schema))

    def read(self, pieces: Sequence[Piece], arena: Arena, mapper: Mapper = map) -> Group:  # noqa: ARG002
        """Decoded row groups lie where Arrow puts them; the arena is for formats that need no decoding."""
        tables = list(mapper(_read_piece, pieces))
        for piece, table in zip(pieces, tables, strict=True):
            if not table.schema.equals(tables[0].schema):
                raise ShardError(piece.file.name, 0, f"another schema than {pieces[0].file.name}")
        return Group(pa.concat_tables(tables))

    def stream(self, file: ShardFile) -> Iterator[pa.Table]:
        """All rows, a row group at a time."""
        for first, last in row_group_spans(file, read_footer(file)):
            if last > first:
                yield _read_piece(Piece(file, first, last - first))

    def profile(self, file: ShardFile) -> Profile:
        footer = read_footer(file)
        schema = arrow_schema(file, footer)
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        return Profile(schema, _options(footer, schema), max(1, max((group.num_rows for group in groups), default=1)))

    def write(self, tables: Iterable[pa.Table], profile: Profile, block_bytes: int = BLOCK_BYTES) -> Writing:  # noqa: ARG002
        """Row groups as they fill up. A block's footprint is then known, whatever its columns."""
        sink, blocks = Sink(), []
        writer = pq.ParquetWriter(pa.PythonFile(sink, mode="w"), profile.schema, **profile.options)
        yield from sink.drain()
        start = sink.tell()
        for group in _row_groups(tables, profile):
            writer.write_table(group, row_group_size=max(1, group.num_rows))
            checksum = Checksum()
            for piece in sink.drain():
                checksum.update(piece)
                yield piece
            footprint = group.nbytes + PLACE_BYTES * group.num_rows
            blocks.append(Block(start, sink.tell() - start, group.num_rows, footprint, checksum=checksum.digest()))
            start = sink.tell()
        writer.close()
        yield from sink.drain()
        return tuple(blocks)

    def samples(self, table: pa.Table, url: str) -> Iterator[dict[str, Any]]:
        for batch in table.to_batches(max_chunksize=1024):
            try:
                rows = batch.to_pylist()
            except (pa.ArrowException, ValueError, OverflowError) as error:
                raise ShardError(url, 0, f"a value cannot be decoded ({error}); {RESTORE}") from error
            yield from rows


def _row_groups(tables: Iterable[pa.Table], profile: Profile) -> Iterator[pa.Table]:
    """Tables of any length, as tables of a row group each."""
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        while rows >= profile.row_group_rows:
            joined = pa.concat_tables(waiting).cast(profile.schema)
            yield joined.slice(0, profile.row_group_rows)
            waiting = [joined.slice(profile.row_group_rows)]
            rows -= profile.row_group_rows
    if rows:
        yield pa.concat_tables(waiting).cast(profile.schema)


def _read_piece(piece: Piece) -> pa.Table:
    """The row groups that lie in a piece of a shard."""
    # Arrow uses its memory again; fresh pages would cost their zeroing, which took half of the time
    part = memoryview(pa.allocate_buffer(piece.length)).cast("B")
    if piece.length:
        piece.file.readinto(piece.start, part)
    if piece.is_whole:
        footer = parse_footer(piece.file, bytes(part[-FOOTER_GUESS:]))
        spans = row_group_spans(piece.file, footer)
    else:
        footer, spans = cached_footer(ShardVersion(piece.file.name, piece.file.size, piece.file.version, piece.file))
    stop = piece.start + piece.length
    groups = [index for index, (first, last) in enumerate(spans) if piece.start <= first < last <= stop]
    rows = sum(footer.row_group(index).num_rows for index in groups)
    try:
        table = _decode(Part(piece.file.size, piece.start, part), footer, groups)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ShardError(piece.file.name, piece.start, f"the row group is damaged ({error}); {RESTORE}") from error
    if table.num_rows != rows:
        raise ShardError(piece.file.name, piece.start, f"{table.num_rows} rows where the footer says {rows}; {RESTORE}")
    return table


def _decode(part: Part, footer: pq.FileMetaData, groups: list[int]) -> pa.Table:
    data = pa.PythonFile(part, mode="r")
    _check_int96(data, footer, groups)
    reader = pq.ParquetFile(data, metadata=footer)
    try:
        # Arrow's threads split a row group by columns; for a few, handing over costs a tenth more than it gains.
        return reader.read_row_groups(groups, use_threads=footer.num_columns > 3)
    except pa.ArrowNotImplementedError:
        return _decode_in_batches(reader, groups)


def _decode_in_batches(reader: pq.ParquetFile, groups: list[int]) -> pa.Table:
    """For nested strings of more than 2 GB, which no single array of Arrow's usual types holds."""
    for rows in (4096, 64):
        try:
            return pa.Table.from_batches(reader.iter_batches(rows, row_groups=groups), reader.schema_arrow)
        except pa.ArrowNotImplementedError:
            continue
    return pa.Table.from_batches(reader.iter_batches(1, row_groups=groups), reader.schema_arrow)


def _check_int96(data: pa.PythonFile, footer: pq.FileMetaData, groups: list[int]) -> None:
    """Arrow counts INT96 timestamps in nanoseconds of 64 bits; years beyond 1677 to 2262 would wrap without a word."""
    columns = [column.path for column in footer.schema if column.physical_type == "INT96"]
    if not columns:
        return
    coarse = pq.ParquetFile(data, metadata=footer, coerce_int96_timestamp_unit="us").read_row_groups(groups, columns)
    fine = pq.ParquetFile(data, metadata=footer).schema_arrow
    try:
        coarse.cast(pa.schema([fine.field(name) for name in coarse.column_names]))
    except pa.ArrowInvalid as error:
        raise ValueError(f"an INT96 timestamp outside of the years 1677 to 2262: {error}") from error


def _options(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, Any]:
    """Options for a writer whose files look like this one."""
    filled = [footer.row_group(n) for n in range(footer.num_row_groups) if footer.row_group(n).num_rows]
    group = filled[0] if filled else None
    columns = {footer.schema.column(n).path: group.column(n) for n in range(group.num_columns)} if group else {}
    options: dict[str, Any] = {
        "compression": {path: _codec(column.compression) for path, column in columns.items()} or "snappy",
        "use_dictionary": [path for path, column in columns.items() if column.has_dictionary_page],
        "write_statistics": [path for path, column in columns.items() if column.is_stats_set],
        "write_page_index": any(column.has_offset_index for column in columns.values()),
        "store_schema": b"ARROW:schema" in (footer.metadata or {}),
    }
    return options | _layout(footer, schema, options["store_schema"])


def _codec(name: str) -> str:
    return {"UNCOMPRESSED": "NONE", "LZ4_RAW": "LZ4"}.get(name, name)


def _layout(footer: pq.FileMetaData, schema: pa.Schema, store_schema: bool) -> dict[str, Any]:
    """The options, among those that decide how Arrow types are stored, that give the same Parquet schema again."""
    choices = {
        "version": ("2.6", "1.0", "2.4"),
        "use_compliant_nested_type": (True, False),
        "use_deprecated_int96_timestamps": (False, True),
        "store_decimal_as_integer": (False, True),
    }
    layouts = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
    for layout in layouts:
        sink = pa.BufferOutputStream()
        try:
            pq.write_table(schema.empty_table(), sink, store_schema=store_schema, **layout)
        except pa.ArrowException:
            continue
        if pq.read_metadata(pa.BufferReader(sink.getvalue())).schema.equals(footer.schema):
            return layout
    return {"use_deprecated_int96_timestamps": "INT96" in {c.physical_type for c in footer.schema}}


FORMATS = {ParquetFormat.suffix: ParquetFormat()}
