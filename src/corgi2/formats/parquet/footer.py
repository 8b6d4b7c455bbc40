"""The footer of a Parquet file: where its row groups lie and what they take in memory, checked before Arrow trusts it.

Some damaged metadata makes Arrow end the process, and false counts make it reserve memory; both are refused here first.
"""

import math
import struct
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.errors import ShardError
from corgi2.formats.columnar.columns import ROW_BYTES, fixed_bytes, is_fixed, is_flat
from corgi2.formats.columnar.tables import RESTORE
from corgi2.formats.columnar.versions import Recent
from corgi2.records import PLACE_BYTES, Block, ShardFile

FOOTER_GUESS = 65_536
"""Bytes that hold most footers, fetched at once."""

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_DECRYPT = "an encrypted Parquet file; decrypt it first"
_TAIL = 8
_LARGEST_FOOTER = 64_000_000
"""The longest footer that is read; it takes ten times as much once parsed."""
_PHYSICAL_BITS = {"BOOLEAN": 1, "INT32": 32, "INT64": 64, "INT96": 64, "FLOAT": 32, "DOUBLE": 64}


def read_footer(file: ShardFile) -> pq.FileMetaData:
    """The parsed footer: one request, or two if it is longer than usual."""
    return decode_footer(file, raw_footer(file))


def raw_footer(file: ShardFile) -> bytes:
    """The footer as it is stored, up to the end of the file."""
    tail = bytearray(min(file.size, FOOTER_GUESS))
    file.readinto(file.size - len(tail), memoryview(tail))
    return _whole(file, bytes(tail))


def parse_footer(file: ShardFile, tail: bytes) -> pq.FileMetaData:
    """The parsed footer, if the end of the file has been read."""
    return decode_footer(file, _whole(file, tail))


def _whole(file: ShardFile, tail: bytes) -> bytes:
    """All of the footer, of which the end has been read."""
    if file.size < len(_MAGIC) + _TAIL:
        raise ShardError(file.name, 0, f"{file.size} bytes are not a Parquet file; {RESTORE}")
    length, magic = struct.unpack("<I4s", tail[-_TAIL:])
    if magic == _ENCRYPTED:
        raise ShardError(file.name, file.size - 4, _DECRYPT)
    if magic != _MAGIC:
        raise ShardError(
            file.name, file.size - 4, f"not a Parquet file, or cut short (it ends in {magic!r}); {RESTORE}"
        )
    if length > file.size - len(_MAGIC) - _TAIL:
        raise ShardError(file.name, file.size - 8, f"the footer claims {length} bytes of {file.size}; {RESTORE}")
    if length > _LARGEST_FOOTER:
        raise ShardError(file.name, file.size - 8, f"a footer of {length} bytes, longer than corgi2 reads; {RESTORE}")
    if length + _TAIL > len(tail):
        longer = bytearray(length + _TAIL)
        file.readinto(file.size - len(longer), memoryview(longer))
        tail = bytes(longer)
    return tail[-length - _TAIL :]


def decode_footer(file: ShardFile, raw: bytes) -> pq.FileMetaData:
    try:
        footer = pq.read_metadata(pa.BufferReader(_MAGIC + raw))
        _check_columns(file, footer)
        return footer
    except (pa.ArrowException, OSError, ValueError) as error:
        problem = _DECRYPT if "Cannot decrypt" in str(error) else f"the footer is damaged ({error}); {RESTORE}"
        raise ShardError(file.name, file.size - len(raw), problem) from error


def _check_columns(file: ShardFile, footer: pq.FileMetaData) -> None:
    """Let Arrow look at the metadata of all columns where it reports what is wrong with them: `row_group.column` ends
    the process instead. It does so before the first read, which is refused."""
    groups = list(range(footer.num_row_groups))
    if any(footer.row_group(group).num_columns != footer.num_columns for group in groups):
        raise ValueError("a row group does not have as many columns as the schema")
    rows = sum(footer.row_group(group).num_rows for group in groups)
    if rows != footer.num_rows:
        raise ValueError(f"it counts {footer.num_rows} rows, but its row groups have {rows}")
    try:
        reader = pq.ParquetFile(pa.PythonFile(Part(file.size), mode="r"), metadata=footer, pre_buffer=True)
        reader.read_row_groups(groups, use_threads=False)
    except _ReadError as error:
        error.__traceback__ = None  # it holds the reader, which holds the error, where no garbage collector looks


class _ReadError(Exception):
    """Arrow reads where nothing lies: it has finished checking the metadata."""


class Part:
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

    def view(self, first: int, length: int) -> memoryview:
        """Some bytes of the part."""
        assert self._part is not None  # noqa: S101
        return self._part[first - self._start : first - self._start + length]

    def close(self) -> None:
        """Arrow may hold on to the file for a while, but it must not hold on to the memory."""
        self.closed, self._part = True, None


def column_span(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Where a column of a row group begins, with its dictionary, and its length."""
    first, dictionary = column.data_page_offset, column.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < first:
        first = dictionary
    return first, column.total_compressed_size


def _span(file: ShardFile, footer: pq.FileMetaData, index: int) -> tuple[int, int]:
    """The bytes of a row group, checked against the file's size."""
    group = footer.row_group(index)
    if not group.num_rows:  # writers leave any offsets there, 0 too
        return len(_MAGIC), len(_MAGIC)
    start, stop = file.size, 0
    for number in range(group.num_columns):
        column = group.column(number)
        first, _ = column_span(column)
        start, stop = min(start, first), max(stop, first + column.total_compressed_size)
        if first < len(_MAGIC) or column.total_compressed_size < 0 or stop > file.size - _TAIL:
            raise ShardError(
                file.name,
                max(0, first),
                f"row group {index}: column {footer.schema.column(number).path} claims "
                f"{column.total_compressed_size} bytes, which the shard of {file.size} does not hold; {RESTORE}",
            )
        flat = footer.schema.column(number).max_repetition_level == 0
        if column.num_values < group.num_rows or (flat and column.num_values > group.num_rows):
            raise ShardError(
                file.name,
                first,
                f"row group {index}: column {footer.schema.column(number).path} claims {column.num_values} values in "
                f"{group.num_rows} rows; {RESTORE}",
            )
    if not group.num_columns:
        start = stop = len(_MAGIC)
    if group.num_rows < 0:
        raise ShardError(file.name, start, f"row group {index} claims {group.num_rows} rows; {RESTORE}")
    return start, stop


def row_group_spans(file: ShardFile, footer: pq.FileMetaData) -> list[tuple[int, int]]:
    return [_span(file, footer, index) for index in range(footer.num_row_groups)]


def row_group_block(
    file: ShardFile, footer: pq.FileMetaData, schema: pa.Schema, index: int, numbers: Sequence[int] | None = None
) -> Block:
    """The footprint is exact if all columns have a fixed width and their rows are listed besides them. Where only some
    columns are wanted, those of the schema, with these numbers, the length is what they take."""
    start, stop = _span(file, footer, index)
    group = footer.row_group(index)
    if numbers is not None:
        stop = start + sum(group.column(number).total_compressed_size for number in numbers)
    exact = is_fixed(schema)
    if exact:
        size = fixed_bytes(schema, group.num_rows) + (ROW_BYTES * group.num_rows if is_flat(schema) else 0)
    else:
        size = _estimate(footer, group, schema, range(group.num_columns) if numbers is None else numbers)
    return Block(start, stop - start, group.num_rows, size + PLACE_BYTES * group.num_rows, exact)


def _estimate(footer: pq.FileMetaData, group: pq.RowGroupMetaData, schema: pa.Schema, numbers: Sequence[int]) -> int:
    """Column by column; two may have the same path: a struct's field, and a column with a dot in its name."""
    fixed = {field.name: width for field in schema if (width := _bits(field)) is not None}
    size = 0
    for number in numbers:
        place, column = footer.schema.column(number), group.column(number)
        width = fixed.get(place.name) if place.path == place.name else None
        size += math.ceil(column.num_values * (_guess(column) if width is None else width) / 8)
    return size


def _bits(field: pa.Field) -> int | None:
    """Bits of a value in memory, if the type alone tells."""
    if pa.types.is_dictionary(field.type) or pa.types.is_nested(field.type):
        return None
    try:
        return int(field.type.bit_width + field.nullable)
    except ValueError:
        return None


def _guess(column: pq.ColumnChunkMetaData) -> float:
    """Bits of a value in memory, as far as the footer tells: strings as on disk, too few if in a dictionary."""
    width = _PHYSICAL_BITS.get(column.physical_type)
    return width or 32 + 8 * column.total_uncompressed_size / max(1, column.num_values)


def check_overlap(file: ShardFile, blocks: Sequence[Block]) -> None:
    """A block is known by its bytes, so no two row groups may share any."""
    ordered = sorted(blocks, key=lambda block: (block.start, block.length))
    for before, after in pairwise(ordered):
        if after.start < before.start + before.length:
            raise ShardError(file.name, after.start, f"two row groups claim the same bytes; {RESTORE}")


def _learn(file: ShardFile) -> tuple[pq.FileMetaData, list[tuple[int, int]]]:
    footer = read_footer(file)
    return footer, row_group_spans(file, footer)


_footers = Recent(_learn, lambda known: known[0].serialized_size, 2_000_000)
"""By their bytes as stored; parsed, they take about ten times as much."""


def cached_footer(file: ShardFile) -> tuple[pq.FileMetaData, list[tuple[int, int]]]:
    """A shard's footer and where its row groups lie, which takes Arrow long to tell."""
    return _footers.of(file)
