"""Parquet: a record is a row, a block is a row group.

A row group is fetched in one request and decoded from there, so that Arrow needs no file. New shards keep the old ones'
schema, key-value metadata, codecs and dictionary columns.
"""

import base64
import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product, takewhile
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.errors import NoRecordError, ShardError, SourceError, TooLargeError
from corgi2.formats.parquet.columns import ROW_BYTES, ROWS, Columns, holds_text, is_flat, table_bytes
from corgi2.formats.parquet.footer import (
    FOOTER_GUESS,
    RESTORE,
    Part,
    ShardVersion,
    cached_footer,
    check_overlap,
    parse_footer,
    read_footer,
    row_group_block,
    row_group_spans,
)
from corgi2.formats.parquet.lists import check_missing_lists, missing_lists
from corgi2.formats.parquet.pages import largest_page
from corgi2.formats.parquet.repeats import LEAST_ROWS, sure_rows
from corgi2.formats.parquet.schema import arrow_schema, fields_of, schema_text, widen, widened
from corgi2.formats.pipe import Pipe, piped
from corgi2.memory import give_back, release_unused
from corgi2.records.arrays import numpy_of
from corgi2.records.block import PLACE_BYTES, Arena, Group, Indices, Taste, taker
from corgi2.records.digest import Digest, Lanes, digest, hash_records
from corgi2.records.shard import NO_RECORD, READING_BYTES, Block, Checksum, Mapper, Piece, Scan, See, ShardFile, Writing
from corgi2.sizes import format_size

_ALIGNMENT = 64
_STEP_BYTES = 2_000_000
"""Decoded at a time, on the way to where it stays: Arrow takes several times as much meanwhile."""
_WIDE_ROW = 64_000
"""Of rows of so many bytes, eight are decoded at a time at the least."""
_PAGE_SHARE, _PAGE_BYTES = 8, 30_000_000
"""Of the memory, and beside it: for a page on its way."""
_NESTED_BYTES, _NESTED_PARTS = 16_000_000, 64
"""The same of nested rows, which are not laid side by side: a group of many small parts is slow to gather."""
_STEP_BYTES_A_COLUMN = 16_000
"""At the least: every column costs something every time."""
_PAGE, _LARGE_PAGE = 1 << 20, 10 << 20
_BATCH, _VALUES = "write_batch_size", 1024
"""A writer looks at the size of a page every so many values, unless it is told to look more often."""
_KEPT_BYTES = 24 << 20
"""Written, until what allocators keep is returned. Pages of wide values are of many sizes, and seldom fit where others
were."""
_LONGEST_TEXT = 1 << 30
"""Half of what an array of Arrow's usual strings holds."""


class Profile(NamedTuple):
    """What a new shard keeps of an old one: the schema, and options for a writer whose files look like it."""

    schema: pa.Schema
    options: dict[str, Any]

    def encode(self) -> str:
        schema = base64.b64encode(self.schema.serialize()).decode()
        return json.dumps({"schema": schema, "options": self.options})

    @staticmethod
    def decode(text: str) -> "Profile":
        fields = json.loads(text)
        return Profile(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fields["schema"]))), fields["options"])


class ParquetFormat:
    name = "parquet"
    suffix = ".parquet"
    has_footer = has_ranges = compresses = writes_blocks = True

    def decoding_bytes(self, length: Indices, records: Indices, footprint: Indices) -> Indices:
        """As stored, and as decoded, which may be one page and all at once; and what allocators keep of large ones."""
        page = np.minimum(footprint, _VALUES * footprint // np.maximum(1, records))
        return length + footprint + np.where(page > _LARGE_PAGE, _KEPT_BYTES, 0)

    def sketch(self, size: int) -> Block:
        """As if nothing were compressed; a scan of the footer tells more."""
        return Block(0, size, 0, size, exact=False)

    def shows_record(self, file: ShardFile) -> bool:
        """By its footer."""
        return bool(read_footer(file).num_rows)

    def taste(self, piece: Piece) -> Iterator[Taste]:
        """All of them."""
        for table, rows in _tables(piece, max(READING_BYTES, piece.footprint)):
            group = Group(table, counts=(table.num_rows,), table_bytes=_in_memory(table))
            yield Taste(group, piece.length * table.num_rows / rows)

    def scan(
        self,
        file: ShardFile,
        block_bytes: int,  # noqa: ARG002 - a row group is a block
        memory: int = READING_BYTES,  # noqa: ARG002 - a footer has a limit of its own
    ) -> Scan:
        """Reads the footer only."""
        footer, _ = cached_footer(ShardVersion(file.name, file.size, file.version, file))
        if footer.num_rows == 0:
            raise NoRecordError(file.name, 0, NO_RECORD)
        schema = arrow_schema(file, footer)
        check_missing_lists(file, footer, schema)
        filled = [group for group in range(footer.num_row_groups) if footer.row_group(group).num_rows]
        blocks = tuple(row_group_block(file, footer, schema, group) for group in filled)
        check_overlap(file, blocks)
        return Scan(blocks, schema=schema_text(schema))

    def read(
        self,
        pieces: Sequence[Piece],
        arena: Arena,
        mapper: Mapper = map,
        see: See | None = None,
        decoding: bool = False,  # noqa: ARG002
    ) -> Group:
        """Decoded row groups move to the arena: in Arrow's own memory they take up to twice their size."""
        reading = _Reading(pieces, arena, see)
        return reading.group(list(mapper(reading.read, pieces)))

    def stream(self, file: ShardFile, memory: int = READING_BYTES) -> Iterator[pa.Table]:
        """All rows, decoded a few MB at a time, or, where they are nested, a row group."""
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
            yield from (table for table, _ in _tables(piece, memory))

    def digest(self, table: pa.Table, key: int) -> Digest:
        return digest(table, key)

    def hash_records(self, table: pa.Table, key: int) -> Lanes:
        return hash_records(table, key)

    def profile(self, file: ShardFile) -> str:
        footer = read_footer(file)
        schema = arrow_schema(file, footer)
        return Profile(schema, _options(footer, schema)).encode()

    def compare(self, one: ShardFile, other: ShardFile) -> tuple[list[str], list[str]]:
        """Metadata of the file and of its fields; how columns are stored."""
        ours, theirs = _form(one), _form(other)
        return _changes(ours.metadata, theirs.metadata), _changes(ours.stored, theirs.stored)

    def write(self, blocks: Iterable[Iterable[pa.Table]], profile: str) -> Writing:
        """A row group a block. Its footprint is then known, whatever its columns."""

        def encode(pipe: Pipe) -> tuple[Block, ...]:
            return tuple(_encode(takewhile(lambda _: pipe.is_used, blocks), Profile.decode(profile), pipe))

        return (yield from piped(encode))

    def decoder(self, group: Group, url: str) -> "_Rows":
        return _Rows(group, taker(group), url)


@dataclass(frozen=True, slots=True)
class _Rows:
    group: Group
    take: Callable[[Indices], pa.Table]
    url: str

    def samples(self, records: Indices) -> Iterator[dict[str, Any]]:
        for batch in self.take(records).to_batches(max_chunksize=1024):
            try:
                rows = batch.to_pylist()
            except (pa.ArrowException, ValueError, OverflowError) as error:
                raise ShardError(self.url, 0, f"a value cannot be decoded ({error}); {RESTORE}") from error
            yield from rows

    def columns(self, records: Indices, only: Collection[str] | None = None) -> dict[str, Any]:
        """Arrays of their own, which may be written to, for numbers and lists of one length of them."""
        take = self.take
        if only is not None:
            names = [name for name in self.group.table.column_names if name in only]
            schema = self.group.schema and pa.schema([self.group.schema.field(name) for name in names])
            take = taker(replace(self.group, table=self.group.table.select(names), schema=schema))
        table = take(records)
        return {
            name: _values(column, name, self.url)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }


def _values(column: pa.ChunkedArray, name: str, url: str) -> Any:
    """The same kind of value for a column, whatever else its rows hold."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        return _matrix(column, name, url)
    if not _is_number(kind):
        try:
            return column.to_pylist()
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise ShardError(url, 0, f"a value of {name!r} cannot be decoded ({error}); {RESTORE}") from error
    _check_nulls(column, kind, name, url)
    return np.array(column.to_numpy() if column.null_count or pa.types.is_temporal(kind) else numpy_of(column))


def _matrix(column: pa.ChunkedArray, name: str, url: str) -> Any:
    """A row each; one that is missing is not a number."""
    width, lists = column.type.list_size, column.combine_chunks()
    _check_nulls(column, column.type.value_type, name, url)
    values = lists.values.slice(lists.offset * width, len(lists) * width)
    matrix = _values(pa.chunked_array([values]), name, url).reshape(-1, width)
    if lists.null_count:
        matrix[~numpy_of(lists.is_valid())] = np.nan
    return matrix


def _check_nulls(column: pa.ChunkedArray, kind: pa.DataType, name: str, url: str) -> None:
    if column.null_count and not pa.types.is_floating(kind):
        raise SourceError(
            f"{url}: the column {name!r} of {column.type} has nulls, which an array of NumPy cannot hold; fill them, "
            "or take batches with batch_format='arrow'"
        )


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_temporal(kind))


class _Run(NamedTuple):
    """Rows in memory, one behind another: in the columns of all, or in a table of their own."""

    first: int
    records: int
    table: pa.Table | None = None


class _Reading:
    """Pieces on their way to one group: columns of single arrays if they are flat, else a chunk a piece."""

    def __init__(self, pieces: Sequence[Piece], arena: Arena, see: See | None) -> None:
        self._pieces, self._arena, self._see = pieces, arena, see
        self._schema: pa.Schema | None = None
        self._columns: Columns | None = None
        self._lock = threading.Lock()

    def read(self, piece: Piece) -> list[_Run]:
        arena = self._arena
        with (
            _open_piece(piece, _scratch(piece.length), arena.capacity, arena.reserved) as opened,
            _clear_errors(piece, opened.schema),
        ):
            rows = opened.rows
            _check_count(piece, rows, rows)
            columns = self._columns_for(piece, opened.schema)
            if columns is None:
                runs = [_Run(0, table.num_rows, _move(table, self._arena)) for table in opened.tables()]
            else:
                runs = [_Run(columns.add(batch), len(batch)) for batch in opened.batches()]
        if min(1.0, _VALUES / max(1, piece.records)) * piece.footprint > _LARGE_PAGE:
            release_unused()
        _check_count(piece, sum(run.records for run in runs), rows)
        if self._see is not None:
            for run in runs:
                self._see(columns.table(run.first, run.records) if columns is not None else run.table)
        return runs

    def _columns_for(self, piece: Piece, schema: pa.Schema) -> Columns | None:
        """Where the rows of all pieces go, if they have a place beforehand."""
        with self._lock:
            if self._schema is None:
                self._schema = schema
                if all(piece.records for piece in self._pieces) and is_flat(schema):
                    counts = [_rows_with_gaps(piece, schema) for piece in self._pieces]
                    self._columns = Columns.reserve(schema, counts, self._arena)
        if not schema.equals(self._schema):
            raise ShardError(piece.file.name, 0, f"another schema than other shards, among {self._pieces[0].file.name}")
        return self._columns

    def group(self, parts: list[list[_Run]]) -> Group:
        runs = [run for part in parts for run in part]
        counts = tuple(sum(run.records for run in part) for part in parts)
        if self._columns is None:
            return Group(pa.concat_tables(run.table for run in runs), counts=counts)
        table = self._columns.table()
        kind = np.int32 if table.num_rows < 1 << 31 else np.int64
        rows = np.concatenate([np.arange(run.first, run.first + run.records, dtype=kind) for run in runs])
        return Group(table, rows, counts=counts, schema=self._schema, table_bytes=self._columns.nbytes)


def _step(piece: Piece, schema: pa.Schema) -> int:
    """Rows that are decoded at a time, of about so many bytes, and one less than what they then take in columns."""
    wanted = max(_STEP_BYTES, _STEP_BYTES_A_COLUMN * len(schema))
    return max(LEAST_ROWS, wanted * piece.records // max(1, piece.footprint) // ROWS * ROWS) - 1


def _rows_with_gaps(piece: Piece, schema: pa.Schema) -> int:
    """The rows of a piece, and those that are none but the last, in the smallest steps that it may be decoded in; texts
    of more than 2 GB are cut once more, wherever Arrow likes."""
    room = _step(piece, schema) + 1
    if holds_text(schema):
        room = min(room, ROWS if piece.footprint > _WIDE_ROW * piece.records else LEAST_ROWS)
    steps, rest = divmod(piece.records, room - 1)
    cuts = len(schema) * piece.footprint // _LONGEST_TEXT
    return steps * room + (rest // ROWS + (rest > 0) + cuts) * ROWS - 1


def _check_count(piece: Piece, found: int, rows: int) -> None:
    if found != rows:
        raise ShardError(piece.file.name, piece.start, f"{found} rows where the footer says {rows}; {RESTORE}")
    if piece.records and found != piece.records:
        raise ShardError(piece.file.name, piece.start, f"{found} rows, but {piece.records} were indexed")


def _encode(blocks: Iterable[Iterable[pa.Table]], profile: Profile, pipe: Pipe) -> Iterator[Block]:
    schema, released = profile.schema, 0
    with pq.ParquetWriter(pa.PythonFile(pipe, mode="w"), schema, **profile.options) as writer:
        pipe.cut()
        for tables in blocks:
            start = pipe.tell()
            group = pa.concat_tables([_empty(schema), *(table.cast(schema) for table in tables)])
            writer.write_table(group, row_group_size=max(1, group.num_rows))
            footprint, rows = _in_memory(group) + PLACE_BYTES * group.num_rows, group.num_rows
            del group
            if _BATCH in profile.options and pipe.tell() > released + _KEPT_BYTES:
                give_back()
                released = pipe.tell()
            yield Block(start, pipe.tell() - start, rows, footprint, checksum=pipe.cut())


def _empty(schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([], schema)


def _in_memory(table: pa.Table) -> int:
    """Bytes of a decoded row group in a group: where its columns become single arrays, its rows are listed."""
    return table_bytes(table) + (ROW_BYTES * table.num_rows if is_flat(table.schema) else 0)


def _move(table: pa.Table, arena: Arena) -> pa.Table:
    """A table's copy in the arena, as an Arrow stream, which can be read where it lies."""
    metadata, table, size = table.schema.metadata, table.replace_schema_metadata(None), pa.MockOutputStream()
    _write_stream(table, size)
    room = arena.view(arena.claim(size.size() + _ALIGNMENT), size.size() + _ALIGNMENT)
    start = -np.frombuffer(room, np.uint8).ctypes.data % _ALIGNMENT
    buffer = pa.py_buffer(room[start : start + size.size()])
    _write_stream(table, pa.FixedSizeBufferWriter(buffer))
    return pa.ipc.open_stream(buffer).read_all().replace_schema_metadata(metadata)


def _write_stream(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _memory(size: int) -> memoryview:
    """Not zeroed, and used again, once it is free, by whoever asks for as much."""
    return np.empty(size, np.uint8).data


_threads = threading.local()


def _scratch(size: int) -> memoryview:
    """Memory of this thread, which it uses again: fresh pages would cost their zeroing, half of the time of a read."""
    memory: memoryview | None = getattr(_threads, "memory", None)
    if memory is None or len(memory) < size:
        memory = _threads.memory = _memory(size)
    return memory[:size]


def _check_pages(piece: Piece, part: memoryview, group: pq.RowGroupMetaData, most: int) -> None:
    """Refuse a page that takes more memory than there is, before it is taken. Few columns can have one."""
    for column in (group.column(number) for number in range(group.num_columns)):
        if column.total_uncompressed_size > most:
            first = column.data_page_offset
            if column.dictionary_page_offset is not None and 0 < column.dictionary_page_offset < first:
                first = column.dictionary_page_offset
            start = first - piece.start
            size = largest_page(part[start : start + column.total_compressed_size])
            if size > most:
                problem = (
                    f"a page of {format_size(size)} in {column.path_in_schema!r} does not fit the {format_size(most)}"
                )
                problem += " that there is for one; give a larger buffer"
                raise TooLargeError(piece.file.name, first, problem, (size - _PAGE_BYTES + 1) * _PAGE_SHARE)


class _Opened(NamedTuple):
    """The row groups in a piece of a shard, in memory as they were stored."""

    reader: pq.ParquetFile
    schema: pa.Schema
    groups: list[int]
    rows: int
    step: int
    """Rows to decode at a time, where they are flat."""
    sure: int
    """Rows that are sure to take little, whatever they are."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        step = max(ROWS, min(self.step + 1, self.sure) // ROWS * ROWS) - 1
        yield from self.reader.iter_batches(step, row_groups=self.groups, use_threads=False)

    def tables(self) -> Iterator[pa.Table]:
        """All at once; or, where that may be much more than it seems, in parts."""
        if self.sure >= self.rows:
            yield widen(_decode(self.reader, self.groups), self.schema)
        else:
            for batch in self.reader.iter_batches(self.sure, row_groups=self.groups, use_threads=False):
                yield widen(_table(batch), self.schema)


@contextmanager
def _open_piece(piece: Piece, part: memoryview, memory: int, room: int = 0) -> Iterator[_Opened]:
    """What is fetched at once, into some memory, to be decoded beside so much; or, if there is more, with room for
    larger pages."""
    if piece.length:
        piece.file.readinto(piece.start, part)
    if piece.checksum:
        piece.check(Checksum.of(part))
    if piece.is_whole:
        footer = parse_footer(piece.file, bytes(part[-FOOTER_GUESS:]))
        spans = row_group_spans(piece.file, footer)
    else:
        footer, spans = cached_footer(ShardVersion(piece.file.name, piece.file.size, piece.file.version, piece.file))
    stop = piece.start + piece.length
    groups = [index for index, (first, last) in enumerate(spans) if piece.start <= first < last <= stop]
    rows = sum(footer.row_group(index).num_rows for index in groups)
    data = pa.PythonFile(Part(piece.file.size, piece.start, part), mode="r")
    for group in groups:
        _check_pages(piece, part, footer.row_group(group), max(memory, room) // _PAGE_SHARE + _PAGE_BYTES)
    with _clear_errors(piece):
        _check_int96(data, footer, groups)
        reader = pq.ParquetFile(data, metadata=footer)
        schema = widened(reader.schema_arrow)
        step = _step(piece, schema)
        usual = step + 1
        if not is_flat(schema):
            wanted = max(_NESTED_BYTES, memory // _NESTED_PARTS)
            usual = max(1, min(rows, wanted * rows // max(1, piece.footprint)))
        sure = min((_sure_rows(piece, data, footer, group, usual, memory) for group in groups), default=usual)
    try:
        yield _Opened(reader, schema, groups, rows, step, sure)
    finally:
        reader.close(force=True)


def _sure_rows(piece: Piece, data: pa.PythonFile, footer: pq.FileMetaData, group: int, usual: int, memory: int) -> int:
    """Rows that are sure to take little when they are decoded; a single one that takes too much is refused."""
    most = memory // _PAGE_SHARE + _PAGE_BYTES
    found = sure_rows(data, footer, group, usual, most)
    if found.largest > most:
        problem = f"a row that takes {format_size(found.largest)} decoded does not fit the {format_size(most)}"
        raise TooLargeError(piece.file.name, piece.start, f"{problem} that there is for one; give a larger buffer")
    return found.rows


@contextmanager
def _clear_errors(piece: Piece, schema: pa.Schema | None = None) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        problem = missing_lists(error, schema) or f"the row group is damaged ({error}); {RESTORE}"
        raise ShardError(piece.file.name, piece.start, problem) from error


def _tables(piece: Piece, memory: int) -> Iterator[tuple[pa.Table, int]]:
    """The row groups that lie in a piece of a shard, a few MB at a time where values take no more then than in all of
    them; and how many rows these are."""
    found = 0
    with _open_piece(piece, _memory(piece.length), memory) as opened, _clear_errors(piece, opened.schema):
        rows = opened.rows
        _check_count(piece, rows, rows)
        flat = is_flat(opened.schema)
        for table in map(_table, opened.batches()) if flat else opened.tables():
            found += table.num_rows
            yield table, rows
    _check_count(piece, found, rows)


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _decode(reader: pq.ParquetFile, groups: list[int]) -> pa.Table:
    try:
        # Arrow's threads would take half as much time again in all, and keep memory of their own.
        return reader.read_row_groups(groups, use_threads=False)
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
        "use_dictionary": [path for path, column in columns.items() if _has_dictionary(column)],
        "write_statistics": [path for path, column in columns.items() if column.is_stats_set],
        "write_page_index": any(column.has_offset_index for column in columns.values()),
        "store_schema": b"ARROW:schema" in (footer.metadata or {}),
    }
    widths = (column.total_uncompressed_size // max(1, column.num_values) for column in columns.values())
    if (widest := max(widths, default=0)) * _VALUES > _LARGE_PAGE:  # whoever reads a page needs memory for all of it
        options[_BATCH] = max(1, _PAGE // widest)
    return options | _layout(footer, schema, options["store_schema"])


class _Form(NamedTuple):
    """What a shard is beside its records, by name: what it means, and how it is stored."""

    metadata: dict[str, Any]
    stored: dict[str, Any]


def _form(file: ShardFile) -> _Form:
    footer = read_footer(file)
    schema = arrow_schema(file, footer)
    metadata: dict[str, Any] = {
        f"the metadata {_text(name)!r}": value for name, value in (schema.metadata or {}).items()
    }
    for path, field in _fields(schema):
        held = field.metadata or {}
        metadata |= {f"the metadata {_text(name)!r} of field {path!r}": value for name, value in held.items()}
    stored: dict[str, Any] = {"the Parquet schema": str(footer.schema).partition("\n")[2]}
    for path, field in _fields(footer.schema.to_arrow_schema()):
        if pa.types.is_dictionary(field.type):
            stored[f"the type of the indices of {path!r}"] = field.type.index_type
    filled = [footer.row_group(n) for n in range(footer.num_row_groups) if footer.row_group(n).num_rows]
    for column in (filled[0].column(number) for number in range(filled[0].num_columns)) if filled else ():
        stored |= {
            f"the codec of {column.path_in_schema!r}": column.compression,
            f"whether {column.path_in_schema!r} has statistics": column.is_stats_set,
            f"whether {column.path_in_schema!r} has a page index": column.has_offset_index,
        }
    return _Form(metadata, stored)


def _fields(parent: Any, path: str = "") -> Iterator[tuple[str, pa.Field]]:
    """All fields, nested ones behind their own."""
    for field in parent if isinstance(parent, pa.Schema) else fields_of(parent):
        yield path + field.name, field
        yield from _fields(field.type, f"{path}{field.name}.")


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def _changes(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return [name for name in dict.fromkeys([*ours, *theirs]) if ours.get(name) != theirs.get(name)]


def _has_dictionary(column: pq.ColumnChunkMetaData) -> bool:
    """Whether a dictionary saves anything: writers try one for every column, and leave its page where it did not. Then
    a number takes more than it does plainly, and texts overflow into the data's pages, where else indices of a few
    bytes lie."""
    if not column.has_dictionary_page:
        return False
    plain = _PLAIN_BYTES.get(column.physical_type, 0) * column.num_values
    if 0 < plain <= column.total_uncompressed_size:
        return False
    page_bytes = column.data_page_offset - column.dictionary_page_offset
    if not 0 < page_bytes < column.data_page_offset:
        return True
    data_bytes = column.total_compressed_size - page_bytes
    return bool(data_bytes <= _HEADER_BYTES + _INDEX_BYTES * column.num_values)


_PLAIN_BYTES = {"INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
_INDEX_BYTES, _HEADER_BYTES = 8, 16_384
"""Of a value in a page, with its levels, at the most; and of the pages' headers."""


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
            pq.write_table(_empty(schema), sink, store_schema=store_schema, **layout)
        except pa.ArrowException:
            continue
        if pq.read_metadata(pa.BufferReader(sink.getvalue())).schema.equals(footer.schema):
            return layout
    return {"use_deprecated_int96_timestamps": "INT96" in {c.physical_type for c in footer.schema}}


FORMATS = {ParquetFormat.suffix: ParquetFormat()}
