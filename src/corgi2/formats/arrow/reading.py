"""Record batches on their way into a group, or as tables."""

import threading
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from corgi2.formats.arrow.fetching import Fetched, check_count, clear_errors, fetch
from corgi2.formats.columnar.columns import ROWS
from corgi2.formats.columnar.tables import (
    NESTED_BYTES,
    NESTED_PARTS,
    STEP_BYTES,
    Run,
    Together,
    empty_table,
    fresh,
    joined,
    move,
    scratch,
)
from corgi2.formats.paths import is_asked, split_path
from corgi2.records import Arena, Group, Piece, See

_SHARE, _BESIDE = 8, 30_000_000
"""Of the memory, and beside it: for a batch that takes far more than it should."""
_LONGEST_TEXT = 1 << 30
"""Half of the bytes that an array of Arrow's usual strings can hold."""


class Reading:
    """Pieces on their way to one group: columns of single arrays if they are flat, else parts of some MB."""

    def __init__(self, pieces: Sequence[Piece], arena: Arena, see: See | None, decoders: int | None) -> None:
        self._together = Together(pieces, arena, see)
        self._gate = threading.Semaphore(decoders or max(1, len(pieces)))
        self._part_bytes = max(NESTED_BYTES, arena.capacity // NESTED_PARTS)

    def read(self, piece: Piece) -> list[Run]:
        """Many threads may wait for a store; only as many decode as there is memory for."""
        fetched = fetch(piece, _most(piece, self._together.arena.capacity), scratch)
        with self._gate:
            return self._decoded(fetched)

    def _decoded(self, fetched: Fetched) -> list[Run]:
        piece, arena, schema = fetched.piece, self._together.arena, fetched.front.schema
        check_count(piece, fetched.rows)
        with clear_errors(piece):
            columns = self._together.columns_for(piece, schema, lambda each: _rows_with_gaps(each, schema))
            if columns is None:
                tables = joined(fetched.tables(), self._part_bytes)
                runs = [Run(0, table.num_rows, move(table, arena)) for table in tables]
            else:
                batches = _in_steps(fetched.tables(), _step(piece))
                runs = [Run(columns.add(batch), len(batch)) for batch in batches]
        self._together.show(runs)
        return runs

    def group(self, parts: list[list[Run]]) -> Group:
        return self._together.group(parts)


def _most(piece: Piece, memory: int) -> int:
    """What a batch may take once it is decoded: not far more than its block was said to take."""
    return min(memory, max(2 * piece.footprint, memory // _SHARE + _BESIDE)) if piece.footprint else memory


def _step(piece: Piece) -> int:
    """Rows that are laid into columns at a time, of about so many bytes."""
    return max(ROWS, STEP_BYTES * piece.records // max(1, piece.footprint) // ROWS * ROWS)


def _rows_with_gaps(piece: Piece, schema: pa.Schema) -> int:
    """The rows of a piece in these steps, each with its gap, but one; texts of more than 2 GB are cut once more."""
    steps, rest = divmod(piece.records, _step(piece))
    cuts = len(schema) * piece.footprint // _LONGEST_TEXT
    return steps * (_step(piece) + ROWS) + (rest // ROWS + 1 + cuts) * ROWS - 1


def _in_steps(tables: Iterator[pa.Table], step: int) -> Iterator[pa.RecordBatch]:
    """The same rows, so many at a time, and the rest."""
    waiting, rows = list[pa.Table](), 0
    for table in tables:
        at = 0
        while table.num_rows - at >= step - rows:
            waiting.append(table.slice(at, step - rows))
            at += step - rows
            yield from _one(waiting)
            waiting, rows = [], 0
        if at < table.num_rows:
            waiting.append(table.slice(at))
            rows += table.num_rows - at
    if waiting:
        yield from _one(waiting)


def _one(tables: list[pa.Table]) -> list[pa.RecordBatch]:
    """One batch, unless it holds too much text for one."""
    table = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
    return list(table.to_batches())


def tables_of(piece: Piece, memory: int) -> Iterator[tuple[pa.Table, int]]:
    """The record batches of a piece, and how many rows these are in all."""
    fetched = fetch(piece, memory, fresh)
    check_count(piece, fetched.rows)
    for table in joined(fetched.tables()):
        yield table, fetched.rows


def read_selected(piece: Piece, paths: Collection[str], memory: int) -> pa.Table | None:
    """The columns that paths lead into; None if no path leads into any. They are copied: what was fetched with them
    goes."""
    fetched = fetch(piece, memory, scratch)
    names = fetched.front.schema.names
    wanted = {found[0] for path in paths if (found := split_path(path, names)) is not None}
    columns = [number for number, name in enumerate(names) if name in wanted or is_asked(name, paths)]
    if not columns:
        return None
    check_count(piece, fetched.rows)
    tables = [move_out(table) for table in joined(fetched.tables(columns))]
    schema = pa.schema([fetched.front.schema.field(number) for number in columns])
    return pa.concat_tables([empty_table(schema), *(table.cast(schema) for table in tables)])


def move_out(table: pa.Table) -> pa.Table:
    """A copy of a table in Arrow's own memory."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
