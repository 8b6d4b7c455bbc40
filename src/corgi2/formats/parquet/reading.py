"""Decoding of row groups, a few MB at a time, into an arena or as tables."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.errors import ShardError, TooLargeError
from corgi2.formats.columnar.columns import ROWS, holds_text, is_flat
from corgi2.formats.columnar.schema import widen, widened
from corgi2.formats.columnar.tables import (
    NESTED_BYTES,
    NESTED_PARTS,
    RESTORE,
    STEP_BYTES,
    Run,
    Together,
    fresh,
    joined,
    move,
    scratch,
    table_of,
)
from corgi2.formats.parquet.chunks import chunks_of, fetch_chunks
from corgi2.formats.parquet.footer import (
    FOOTER_GUESS,
    Part,
    cached_footer,
    column_span,
    parse_footer,
    row_group_spans,
)
from corgi2.formats.parquet.lists import missing_lists
from corgi2.formats.parquet.pages import largest_page
from corgi2.formats.parquet.profile import LARGE_PAGE, PAGE_VALUES
from corgi2.formats.parquet.repeats import LEAST_ROWS, sure_rows
from corgi2.formats.parquet.wanted import ALL, Wanted
from corgi2.host import release_unused
from corgi2.records import Arena, Checksum, Group, Piece, See, reserve
from corgi2.sizes import format_size

_WIDE_ROW = 64_000
"""Of rows of so many bytes, eight are decoded at a time at the least."""

_PAGE_SHARE, _PAGE_BYTES = 8, 30_000_000
"""Of the memory, and beside it: for a page on its way."""

_STEP_BYTES_A_COLUMN = 16_000
"""At the least: every column costs something every time."""

_LONGEST_TEXT = 1 << 30
"""Half of the bytes that an array of Arrow's usual strings can hold."""


class Reading:
    """Pieces on their way to one group: columns of single arrays if they are flat, else one chunk per piece."""

    def __init__(
        self, pieces: Sequence[Piece], arena: Arena, see: See | None, decoders: int | None, wanted: Wanted = ALL
    ) -> None:
        self._together, self._wanted = Together(pieces, arena, see), wanted
        self._gate = threading.Semaphore(decoders or max(1, len(pieces)))

    def read(self, piece: Piece) -> list[Run]:
        """Many threads may wait for a store; only as many decode as there is memory for."""
        memory = partial(reserve, is_lean=True) if self._together.arena.is_lean else scratch
        part = _fetch(piece, memory, self._wanted)
        with self._gate:
            return self._decoded(piece, part)

    def _decoded(self, piece: Piece, part: Part) -> list[Run]:
        arena = self._together.arena
        with (
            _open_piece(piece, part, self._wanted, arena.capacity, arena.reserved) as opened,
            clear_errors(piece, opened.schema),
        ):
            rows, schema = opened.rows, opened.schema
            check_count(piece, rows, rows)
            columns = self._together.columns_for(piece, schema, lambda each: _rows_with_gaps(each, schema))
            if columns is None:
                runs = [Run(0, table.num_rows, move(table, arena)) for table in opened.tables()]
            else:
                runs = [Run(columns.add(batch), len(batch)) for batch in opened.batches()]
        if min(1.0, PAGE_VALUES / max(1, piece.records)) * piece.footprint > LARGE_PAGE:
            release_unused()
        check_count(piece, sum(run.records for run in runs), rows)
        self._together.show(runs)
        return runs

    def group(self, parts: list[list[Run]]) -> Group:
        return self._together.group(parts)


def _step(piece: Piece, schema: pa.Schema) -> int:
    """Rows that are decoded at a time, of about so many bytes, and one less than what they then take in columns."""
    wanted = max(STEP_BYTES, _STEP_BYTES_A_COLUMN * len(schema))
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


def check_count(piece: Piece, found: int, rows: int) -> None:
    if found != rows:
        raise ShardError(piece.file.name, piece.start, f"{found} rows where the footer says {rows}; {RESTORE}")
    if piece.records and found != piece.records:
        raise ShardError(piece.file.name, piece.start, f"{found} rows, but {piece.records} were indexed")


def _check_pages(piece: Piece, part: Part, chunks: list[pq.ColumnChunkMetaData], most: int) -> None:
    """Refuse a page that takes more memory than there is, before taking it. Few columns can have one."""
    for column in chunks:
        if column.total_uncompressed_size > most:
            first, length = column_span(column)
            size = largest_page(part.view(first, length))
            if size > most:
                problem = (
                    f"a page of {format_size(size)} in {column.path_in_schema!r} does not fit the {format_size(most)}"
                )
                problem += " available for one; give a larger buffer"
                raise TooLargeError(piece.file.name, first, problem, (size - _PAGE_BYTES + 1) * _PAGE_SHARE)


class _Opened(NamedTuple):
    """The row groups in a piece of a shard, in memory as they were stored."""

    reader: pq.ParquetFile
    schema: pa.Schema
    groups: list[int]
    rows: int
    step: int
    """Rows to decode at a time, if they are flat."""
    sure: int
    """A number of rows that is sure to take little, whatever they hold."""
    wanted: Wanted

    def batches(self) -> Iterator[pa.RecordBatch]:
        step = max(ROWS, min(self.step + 1, self.sure) // ROWS * ROWS) - 1
        yield from map(self.wanted.of, self._read(step))

    def tables(self) -> Iterator[pa.Table]:
        """All rows at once; or in parts, if they may take much more than it seems."""
        if self.sure >= self.rows:
            table = _decode(self.reader, self.groups, self.wanted.columns)
            yield widen(self.wanted.of(table), self.schema)
        else:
            yield from joined(widen(self.wanted.of(table_of(batch)), self.schema) for batch in self._read(self.sure))

    def _read(self, rows: int) -> Iterator[pa.RecordBatch]:
        columns = self.wanted.columns
        yield from self.reader.iter_batches(rows, row_groups=self.groups, columns=columns, use_threads=False)


def groups_within(piece: Piece, spans: list[tuple[int, int]]) -> list[int]:
    """The row groups that lie in a piece."""
    stop = piece.start + piece.length
    return [index for index, (first, last) in enumerate(spans) if piece.start <= first < last <= stop]


def _fetch(piece: Piece, memory: Callable[[int], memoryview], wanted: Wanted) -> Part:
    """Read a piece as stored, at once; or only the columns that are wanted, of which no checksum is known."""
    if wanted.names is not None:
        footer, spans = cached_footer(piece.file)
        groups = _groups_at(piece, spans)
        return fetch_chunks(piece.file, chunks_of(footer, groups, wanted.numbers(footer)), memory)
    part = memory(piece.length)
    if piece.length:
        piece.file.readinto(piece.start, part)
    if piece.checksum:
        piece.check(Checksum.like(piece.checksum, part))
    return Part(piece.file.size, piece.start, part)


def _groups_at(piece: Piece, spans: list[tuple[int, int]]) -> list[int]:
    """The row group that a block is, whose length is that of some of its columns."""
    return [index for index, (first, last) in enumerate(spans) if first == piece.start and last > first]


@contextmanager
def _open_piece(piece: Piece, part: Part, wanted: Wanted, memory: int, room: int = 0) -> Iterator[_Opened]:
    """What was fetched, to be decoded beside so much memory; or, if there is more, with room for larger pages."""
    if piece.is_whole and wanted.names is None:
        size = min(piece.length, FOOTER_GUESS)
        footer = parse_footer(piece.file, bytes(part.view(piece.length - size, size)))
        spans = row_group_spans(piece.file, footer)
    else:
        footer, spans = cached_footer(piece.file)
    groups = groups_within(piece, spans) if wanted.names is None else _groups_at(piece, spans)
    rows = sum(footer.row_group(index).num_rows for index in groups)
    data, numbers = pa.PythonFile(part, mode="r"), wanted.numbers(footer)
    _check_pages(piece, part, chunks_of(footer, groups, numbers), max(memory, room) // _PAGE_SHARE + _PAGE_BYTES)
    with clear_errors(piece):
        _check_int96(data, footer, groups, numbers)
        reader = pq.ParquetFile(data, metadata=footer)
        schema = wanted.schema(widened(reader.schema_arrow))
        step = _step(piece, schema)
        usual = step + 1
        if not is_flat(schema):
            most = max(NESTED_BYTES, memory // NESTED_PARTS)
            usual = max(1, min(rows, most * rows // max(1, piece.footprint)))
        sure = min((_sure_rows(piece, data, footer, group, numbers, usual, memory) for group in groups), default=usual)
    try:
        yield _Opened(reader, schema, groups, rows, step, sure, wanted)
    finally:
        reader.close(force=True)


def _sure_rows(
    piece: Piece,
    data: pa.PythonFile,
    footer: pq.FileMetaData,
    group: int,
    numbers: Sequence[int],
    usual: int,
    memory: int,
) -> int:
    """Rows that are sure to take little when they are decoded; a single one that takes too much is refused."""
    most = memory // _PAGE_SHARE + _PAGE_BYTES
    found = sure_rows(data, footer, group, numbers, usual, most)
    if found.largest > most:
        problem = f"a row that takes {format_size(found.largest)} decoded does not fit the {format_size(most)}"
        raise TooLargeError(piece.file.name, piece.start, f"{problem} available for one; give a larger buffer")
    return found.rows


@contextmanager
def clear_errors(piece: Piece, schema: pa.Schema | None = None) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        problem = missing_lists(error, schema) or f"the row group is damaged ({error}); {RESTORE}"
        raise ShardError(piece.file.name, piece.start, problem) from error


def tables_of(piece: Piece, memory: int, wanted: Wanted = ALL) -> Iterator[tuple[pa.Table, int]]:
    """The row groups that lie in a piece of a shard, a few MB at a time where values take no more then than in all of
    them; and how many rows these are."""
    found = 0
    part = _fetch(piece, fresh, wanted)
    with _open_piece(piece, part, wanted, memory) as opened, clear_errors(piece, opened.schema):
        rows = opened.rows
        check_count(piece, rows, rows)
        flat = is_flat(opened.schema)
        for table in map(table_of, opened.batches()) if flat else opened.tables():
            found += table.num_rows
            yield table, rows
    check_count(piece, found, rows)


def _decode(reader: pq.ParquetFile, groups: list[int], columns: list[str] | None) -> pa.Table:
    try:
        # Arrow's threads would take half as much time again in all, and keep memory of their own.
        return reader.read_row_groups(groups, columns, use_threads=False)
    except pa.ArrowNotImplementedError:
        return _decode_in_batches(reader, groups, columns)


def _decode_in_batches(reader: pq.ParquetFile, groups: list[int], columns: list[str] | None) -> pa.Table:
    """For nested strings of more than 2 GB, which no single array of Arrow's usual types holds."""
    for rows in (4096, 64):
        try:
            return pa.Table.from_batches(reader.iter_batches(rows, row_groups=groups, columns=columns))
        except pa.ArrowNotImplementedError:
            continue
    return pa.Table.from_batches(reader.iter_batches(1, row_groups=groups, columns=columns))


def _check_int96(data: pa.PythonFile, footer: pq.FileMetaData, groups: list[int], numbers: Sequence[int]) -> None:
    """Arrow counts INT96 timestamps in nanoseconds of 64 bits; years outside of 1677 to 2262 would wrap silently."""
    places = [footer.schema.column(number) for number in numbers]
    columns = [place.path for place in places if place.physical_type == "INT96"]
    if not columns:
        return
    coarse = pq.ParquetFile(data, metadata=footer, coerce_int96_timestamp_unit="us").read_row_groups(groups, columns)
    fine = pq.ParquetFile(data, metadata=footer).schema_arrow
    try:
        coarse.cast(pa.schema([fine.field(name) for name in coarse.column_names]))
    except pa.ArrowInvalid as error:
        raise ValueError(f"an INT96 timestamp outside of the years 1677 to 2262: {error}") from error
