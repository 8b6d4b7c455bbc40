"""Parquet: a record is a row, a block is a row group.

A row group is fetched in one request, laid at its own offset into memory that costs nothing where it is not
touched, and decoded from there, so that Arrow needs no file. New shards keep the old ones' schema, key-value
metadata, codecs, dictionary columns and rows a row group.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.block import PLACE_BYTES, Arena, Group
from corgi2.errors import ShardError
from corgi2.formats.compression import Sink
from corgi2.shard import BLOCK_BYTES, Block, Checksum, Mapper, Piece, Scan, ShardFile, Writing

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
        _check_overlap(file, blocks)
        return Scan(blocks, schema=schema.to_string(show_schema_metadata=False))

    def read(self, pieces: Sequence[Piece], arena: Arena, mapper: Mapper = map) -> Group:  # noqa: ARG002
        """Decoded row groups lie where Arrow puts them; the arena is for formats that need no decoding."""
        tables = list(mapper(_read_piece, pieces))
        for piece, table in zip(pieces, tables, strict=True):
            if not table.schema.equals(tables[0].schema):
                raise ShardError(piece.file.name, 0, f"another schema than {pieces[0].file.name}")
        return Group(pa.concat_tables(tables))

    def stream(self, file: ShardFile) -> Iterator[pa.Table]:
        """All rows, a row group at a time."""
        for first, last in _spans(file, _footer(file)):
            yield _read_piece(Piece(file, first, last - first))

    def profile(self, file: ShardFile) -> Profile:
        footer = _footer(file)
        schema = _arrow_schema(file, footer)
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
                raise ShardError(url, 0, f"a value cannot be decoded ({error}); {_RESTORE}") from error
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


def _footer(file: ShardFile) -> pq.FileMetaData:
    """The parsed footer: one request, or two where it is longer than usual."""
    tail = bytearray(min(file.size, _FOOTER_GUESS))
    file.readinto(file.size - len(tail), memoryview(tail))
    return _parse_footer(file, bytes(tail))


def _parse_footer(file: ShardFile, tail: bytes) -> pq.FileMetaData:
    if file.size < len(_MAGIC) + _TAIL:
        raise ShardError(file.name, 0, f"{file.size} bytes are no Parquet file; {_RESTORE}")
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
        footer = pq.read_metadata(pa.BufferReader(_MAGIC + tail[-length - _TAIL :]))
        _check_columns(file, footer)
        return footer
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ShardError(
            file.name, file.size - length - _TAIL, f"the footer is damaged ({error}); {_RESTORE}"
        ) from error


def _check_columns(file: ShardFile, footer: pq.FileMetaData) -> None:
    """Let Arrow look at the metadata of all columns where it reports what is wrong with them: `row_group.column` ends
    the process instead. It does so before the first read, which is refused."""
    groups = list(range(footer.num_row_groups))
    if any(footer.row_group(group).num_columns != footer.num_columns for group in groups):
        raise ValueError("a row group has not as many columns as the schema")
    rows = sum(footer.row_group(group).num_rows for group in groups)
    if rows != footer.num_rows:
        raise ValueError(f"it counts {footer.num_rows} rows, its row groups {rows}")
    try:
        reader = pq.ParquetFile(pa.PythonFile(_Part(file.size), mode="r"), metadata=footer, pre_buffer=True)
        reader.read_row_groups(groups, use_threads=False)
    except _ReadError as error:
        error.__traceback__ = None  # it holds the reader, which holds the error, where no garbage collector looks


class _ReadError(Exception):
    """Arrow reads where nothing lies: its look at the metadata is over."""


class _Part:
    """A file of which a part lies in memory, for Arrow to read from without a copy."""

    closed = False

    def __init__(self, size: int, start: int = 0, part: memoryview | None = None) -> None:
        self._size, self._start, self._part, self._at = size, start, part, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes | memoryview:
        if self._part is None:
            raise _ReadError(size)
        first = self._at - self._start
        found = self._part[first : first + size]
        self._at += size
        # For files of parquet-mr before 1.2.9, Arrow reads up to 100 bytes more than a column has.
        return found if len(found) == size else bytes(found).ljust(size, b"\0")

    def close(self) -> None:
        self.closed = True


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
                f"row group {index}: column {footer.schema.column(number).path} claims "
                f"{column.total_compressed_size} bytes, which the shard of {file.size} does not hold; {_RESTORE}",
            )
        flat = footer.schema.column(number).max_repetition_level == 0
        if column.num_values < group.num_rows or (flat and column.num_values > group.num_rows):
            raise ShardError(
                file.name,
                first,
                f"row group {index}: column {footer.schema.column(number).path} claims {column.num_values} values in "
                f"{group.num_rows} rows; {_RESTORE}",
            )
    if not group.num_columns:
        start = stop = len(_MAGIC)
    if group.num_rows < 0:
        raise ShardError(file.name, start, f"row group {index} claims {group.num_rows} rows; {_RESTORE}")
    return start, stop


def _spans(file: ShardFile, footer: pq.FileMetaData) -> list[tuple[int, int]]:
    return [_span(file, footer, index) for index in range(footer.num_row_groups)]


def _block(file: ShardFile, footer: pq.FileMetaData, schema: pa.Schema, index: int) -> Block:
    start, stop = _span(file, footer, index)
    group = footer.row_group(index)
    columns = {footer.schema.column(number).path: group.column(number) for number in range(group.num_columns)}
    flat = {field.name: width for field in schema if (width := _bits(field)) is not None}
    bits = sum(column.num_values * flat.get(path, _guess(column)) for path, column in columns.items())
    footprint = int(bits / 8) + PLACE_BYTES * group.num_rows
    exact = columns.keys() <= flat.keys()
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


def _check_overlap(file: ShardFile, blocks: Sequence[Block]) -> None:
    """A block is known by its bytes, so no two row groups may share any."""
    ordered = sorted(blocks, key=lambda block: (block.start, block.length))
    for before, after in pairwise(ordered):
        if after.start < before.start + before.length:
            raise ShardError(file.name, after.start, f"two row groups claim the same bytes; {_RESTORE}")


def _arrow_schema(file: ShardFile, footer: pq.FileMetaData) -> pa.Schema:
    try:
        return footer.schema.to_arrow_schema().with_metadata(_metadata(footer))
    except (pa.ArrowException, ValueError) as error:
        raise ShardError(file.name, file.size, f"the schema cannot be read ({error})") from error


def _metadata(footer: pq.FileMetaData) -> dict[bytes, bytes] | None:
    return {key: value for key, value in (footer.metadata or {}).items() if key != b"ARROW:schema"} or None


def _read_piece(piece: Piece) -> pa.Table:
    """The row groups that lie in a piece of a shard."""
    # Arrow uses its memory again; fresh pages would cost their zeroing, which took half of the time
    part = memoryview(pa.allocate_buffer(piece.length)).cast("B")
    if piece.length:
        piece.file.readinto(piece.start, part)
    if piece.is_whole:
        footer = _parse_footer(piece.file, bytes(part[-_FOOTER_GUESS:]))
        spans = _spans(piece.file, footer)
    else:
        footer, spans = _cached(_Version(piece.file.name, piece.file.size, piece.file.version, piece.file))
    stop = piece.start + piece.length
    groups = [index for index, (first, last) in enumerate(spans) if piece.start <= first and last <= stop]
    rows = sum(footer.row_group(index).num_rows for index in groups)
    try:
        table = _decode(_Part(piece.file.size, piece.start, part), footer, groups)
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
def _cached(shard: _Version) -> tuple[pq.FileMetaData, list[tuple[int, int]]]:
    """A shard's footer and where its row groups lie, which Arrow is slow to tell."""
    footer = _footer(shard.file)
    return footer, _spans(shard.file, footer)


def _decode(part: _Part, footer: pq.FileMetaData, groups: list[int]) -> pa.Table:
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
    group = footer.row_group(0) if footer.num_row_groups else None
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
