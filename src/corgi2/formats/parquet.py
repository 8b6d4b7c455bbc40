"""Parquet: a record is a row, a block is a row group.

A row group is fetched in one request, laid at its own offset into memory that costs nothing where it is not
touched, and decoded from there, so that Arrow needs no file. New shards keep the old ones' schema, key-value
metadata, codecs, dictionary columns and rows a row group.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.block import RECORD_OVERHEAD, Arena, Group, reserve, whole
from corgi2.errors import ShardError
from corgi2.formats.compression import Sink
from corgi2.shard import Block, Buffer, Mapper, Piece, Scan, ShardFile

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_TAIL = 8
_FOOTER_GUESS = 65_536
_PHYSICAL_BITS = {"BOOLEAN": 1, "INT32": 32, "INT64": 64, "INT96": 64, "FLOAT": 32, "DOUBLE": 64}
_RESTORE = "restore the shard from its source, or leave it out"


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
        footer = _footer(file)
        if footer.num_rows == 0:
            raise ShardError(file.name, 0, "the .parquet shard holds no row; remove it")
        schema = _arrow_schema(file, footer)
        blocks = tuple(_block(file, footer, schema, group) for group in range(footer.num_row_groups))
        return Scan(blocks, schema=schema.to_string(show_schema_metadata=False))

    def read(self, pieces: Sequence[Piece], arena: Arena, mapper: Mapper = map) -> Group:  # noqa: ARG002
        """Decoded row groups lie where Arrow puts them; the arena is for formats that need no decoding."""
        tables = list(mapper(_read_piece, pieces))
        for piece, table in zip(pieces, tables, strict=True):
            if not table.schema.equals(tables[0].schema):
                raise ShardError(piece.file.name, 0, f"another schema than {pieces[0].file.name}")
        return whole(pa.concat_tables(tables))

    def profile(self, file: ShardFile) -> Profile:
        footer = _footer(file)
        schema = _arrow_schema(file, footer)
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        return Profile(schema, _options(footer, schema), max(1, max((group.num_rows for group in groups), default=1)))

    def write(self, tables: Iterable[pa.Table], profile: Profile) -> Iterator[Buffer]:
        sink = Sink()
        writer = pq.ParquetWriter(pa.PythonFile(sink, mode="w"), profile.schema, **profile.options)
        for group in _row_groups(tables, profile):
            writer.write_table(group, row_group_size=max(1, group.num_rows))
            yield from sink.drain()
        writer.close()
        yield from sink.drain()

    def samples(self, table: pa.Table, url: str) -> Iterator[dict[str, Any]]:  # noqa: ARG002
        for batch in table.to_batches(max_chunksize=1024):
            yield from batch.to_pylist()


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


def _footer(file: ShardFile) -> pq.FileMetaData:
    """The parsed footer: one request, or two where it is longer than usual."""
    if file.size < len(_MAGIC) + _TAIL:
        raise ShardError(file.name, 0, f"{file.size} bytes are no Parquet file; {_RESTORE}")
    tail = bytearray(min(file.size, _FOOTER_GUESS))
    file.readinto(file.size - len(tail), memoryview(tail))
    return _parse_footer(file, bytes(tail))


def _parse_footer(file: ShardFile, tail: bytes) -> pq.FileMetaData:
    length, magic = struct.unpack("<I4s", tail[-_TAIL:])
    if magic == _ENCRYPTED:
        raise ShardError(file.name, file.size - 4, "an encrypted Parquet file; decrypt it first")
    if magic != _MAGIC:
        raise ShardError(
            file.name, file.size - 4, f"not a Parquet file, or cut short (it ends in {magic!r}); {_RESTORE}"
        )
    if length > file.size - len(_MAGIC) - _TAIL:
        raise ShardError(file.name, file.size - 8, f"the footer claims {length} bytes of {file.size}; {_RESTORE}")
    if length + _TAIL > len(tail):
        longer = bytearray(length + _TAIL)
        file.readinto(file.size - len(longer), memoryview(longer))
        tail = bytes(longer)
    try:
        return pq.read_metadata(pa.BufferReader(_MAGIC + tail[-length - _TAIL :]))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ShardError(
            file.name, file.size - length - _TAIL, f"the footer is damaged ({error}); {_RESTORE}"
        ) from error


def _span(file: ShardFile, footer: pq.FileMetaData, index: int) -> tuple[int, int]:
    """The bytes of a row group, checked against the file's size."""
    group = footer.row_group(index)
    start, stop = file.size, 0
    for number in range(group.num_columns):
        column = group.column(number)
        first, dictionary = column.data_page_offset, column.dictionary_page_offset
        if dictionary is not None and 0 < dictionary < first:
            first = dictionary
        start, stop = min(start, first), max(stop, first + column.total_compressed_size)
        if first < len(_MAGIC) or column.total_compressed_size < 0 or stop > file.size - _TAIL:
            raise ShardError(
                file.name,
                max(0, first),
                f"row group {index}: column {column.path_in_schema} claims {column.total_compressed_size} bytes, "
                f"which the shard of {file.size} does not hold; {_RESTORE}",
            )
    if not group.num_columns:
        start = stop = len(_MAGIC)
    if group.num_rows < 0:
        raise ShardError(file.name, start, f"row group {index} claims {group.num_rows} rows; {_RESTORE}")
    return start, stop


def _block(file: ShardFile, footer: pq.FileMetaData, schema: pa.Schema, index: int) -> Block:
    start, stop = _span(file, footer, index)
    group = footer.row_group(index)
    columns = [group.column(number) for number in range(group.num_columns)]
    flat = {field.name: width for field in schema if (width := _bits(field)) is not None}
    bits = sum(column.num_values * flat.get(column.path_in_schema, _guess(column)) for column in columns)
    footprint = int(bits / 8) + RECORD_OVERHEAD * group.num_rows
    exact = all(column.path_in_schema in flat for column in columns)
    return Block(start, stop - start, group.num_rows, footprint, exact)


def _bits(field: pa.Field) -> int | None:
    """Bits of a value in memory, where the type alone tells."""
    if pa.types.is_dictionary(field.type) or pa.types.is_nested(field.type):
        return None
    try:
        return int(field.type.bit_width + field.nullable)
    except ValueError:
        return None


def _guess(column: pq.ColumnChunkMetaData) -> float:
    """Bits of a value in memory, as far as the footer tells: strings as on disk, which a dictionary makes too few."""
    width = _PHYSICAL_BITS.get(column.physical_type)
    return width or 32 + 8 * column.total_uncompressed_size / max(1, column.num_values)


def _arrow_schema(file: ShardFile, footer: pq.FileMetaData) -> pa.Schema:
    try:
        return footer.schema.to_arrow_schema().with_metadata(_metadata(footer))
    except (pa.ArrowException, ValueError) as error:
        raise ShardError(file.name, file.size, f"the schema cannot be read ({error})") from error


def _metadata(footer: pq.FileMetaData) -> dict[bytes, bytes] | None:
    return {key: value for key, value in (footer.metadata or {}).items() if key != b"ARROW:schema"} or None


def _read_piece(piece: Piece) -> pa.Table:
    """The row groups that lie in a piece of a shard."""
    image = reserve(piece.file.size)
    if piece.length:
        piece.file.readinto(piece.start, image[piece.start : piece.start + piece.length])
    if piece.is_whole:
        footer = _parse_footer(piece.file, bytes(image[-_FOOTER_GUESS:]))
    else:
        footer = _cached_footer(_Version(piece.file.name, piece.file.size, piece.file.version, piece.file))
    stop = piece.start + piece.length
    groups = [
        index
        for index in range(footer.num_row_groups)
        for first, last in [_span(piece.file, footer, index)]
        if piece.start <= first and last <= stop
    ]
    rows = sum(footer.row_group(index).num_rows for index in groups)
    try:
        table = _decode(image, footer, groups)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ShardError(piece.file.name, piece.start, f"the row group is damaged ({error}); {_RESTORE}") from error
    if table.num_rows != rows:
        raise ShardError(
            piece.file.name, piece.start, f"{table.num_rows} rows where the footer says {rows}; {_RESTORE}"
        )
    return table


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of a shard, as the key of a cache."""

    name: str
    size: int
    version: str
    file: ShardFile = field(compare=False)


@lru_cache(maxsize=4096)
def _cached_footer(shard: _Version) -> pq.FileMetaData:
    return _footer(shard.file)


def _decode(image: memoryview, footer: pq.FileMetaData, groups: list[int]) -> pa.Table:
    data = pa.BufferReader(pa.py_buffer(image))
    _check_int96(data, footer, groups)
    reader = pq.ParquetFile(data, metadata=footer)
    try:
        return reader.read_row_groups(groups)
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


def _check_int96(data: pa.BufferReader, footer: pq.FileMetaData, groups: list[int]) -> None:
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
    group = footer.row_group(0) if footer.num_row_groups else None
    columns = [group.column(number) for number in range(group.num_columns)] if group else []
    options: dict[str, Any] = {
        "compression": {column.path_in_schema: _codec(column.compression) for column in columns} or "snappy",
        "use_dictionary": [column.path_in_schema for column in columns if column.has_dictionary_page],
        "write_statistics": [column.path_in_schema for column in columns if column.is_stats_set],
        "write_page_index": any(column.has_offset_index for column in columns),
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
