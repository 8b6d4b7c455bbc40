"""Decoded rows on their way into a group: columns of single arrays if they are flat, else one chunk per table."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corgi2.errors import ShardError
from corgi2.formats.columnar.columns import ROW_BYTES, Columns, is_flat, table_bytes
from corgi2.records import Arena, Group, Piece, See

RESTORE = "restore the shard from its source, or leave it out"

STEP_BYTES = 2_000_000
"""Bytes decoded at a time, on the way to their place: Arrow takes several times as much meanwhile."""

NESTED_BYTES, NESTED_PARTS = 16_000_000, 64
"""The same of nested rows, which are not laid side by side: a group of many small parts is slow to gather."""

_ALIGNMENT = 64

_TABLE_BYTES = 2_000
"""Bytes of a table that holds next to nothing."""


class Run(NamedTuple):
    """Consecutive rows in memory: in the columns of all pieces, or in a table of their own."""

    first: int
    records: int
    table: pa.Table | None = None


class Together:
    """The pieces of one group, wherever their rows are decoded: they share a schema, and a place."""

    def __init__(self, pieces: Sequence[Piece], arena: Arena, see: See | None) -> None:
        self.arena = arena
        self._pieces, self._see = pieces, see
        self._schema: pa.Schema | None = None
        self._columns: Columns | None = None
        self._lock = threading.Lock()

    def columns_for(self, piece: Piece, schema: pa.Schema, rows_of: Callable[[Piece], int]) -> Columns | None:
        """Where the rows of all pieces go, if they have a place beforehand: so many rows of each, with gaps."""
        with self._lock:
            if self._schema is None:
                self._schema = schema
                if all(piece.records for piece in self._pieces) and is_flat(schema):
                    self._columns = Columns.reserve(schema, map(rows_of, self._pieces), self.arena)
        if not schema.equals(self._schema):
            raise ShardError(piece.file.name, 0, f"another schema than others, such as {self._pieces[0].file.name}")
        return self._columns

    def show(self, runs: Sequence[Run]) -> None:
        for run in runs if self._see is not None else ():
            self._see(run.table if self._columns is None else self._columns.table(run.first, run.records))  # type: ignore[misc]

    def group(self, parts: Sequence[Sequence[Run]]) -> Group:
        runs = [run for part in parts for run in part]
        counts = tuple(sum(run.records for run in part) for part in parts)
        if self._columns is None:
            return Group(pa.concat_tables(run.table for run in runs), counts=counts)
        table = self._columns.table()
        kind = np.int32 if table.num_rows < 1 << 31 else np.int64
        rows = np.concatenate([np.arange(run.first, run.first + run.records, dtype=kind) for run in runs])
        return Group(table, rows, counts=counts, schema=self._schema, table_bytes=self._columns.nbytes)


def move(table: pa.Table, arena: Arena) -> pa.Table:
    """A table's copy in the arena, as an Arrow stream, which can be read in place."""
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


def joined(tables: Iterator[pa.Table], most_bytes: int = STEP_BYTES) -> Iterator[pa.Table]:
    """Small tables joined into one: if a single row is large, all are decoded row by row, at a few KB per table."""
    waiting, size = list[pa.Table](), 0
    for table in tables:
        if waiting and size + table.nbytes > most_bytes:
            yield pa.concat_tables(waiting).combine_chunks() if len(waiting) > 1 else waiting[0]
            waiting, size = [], 0
        waiting.append(table)
        size += table.nbytes + _TABLE_BYTES
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks() if len(waiting) > 1 else waiting[0]


def in_memory(table: pa.Table) -> int:
    """Bytes of decoded rows in a group: if their columns become single arrays, they are listed."""
    return table_bytes(table) + (ROW_BYTES * table.num_rows if is_flat(table.schema) else 0)


def empty_table(schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([], schema)


def table_of(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def fresh(size: int) -> memoryview:
    """Memory that is not zeroed, and reused, once free, for the next request of the same size."""
    return np.empty(size, np.uint8).data


_threads = threading.local()


def scratch(size: int) -> memoryview:
    """Memory that this thread reuses: zeroing fresh pages would take half of the time of a read."""
    held: memoryview | None = getattr(_threads, "memory", None)
    if held is None or len(held) < size:
        held = _threads.memory = fresh(size)
    return held[:size]
