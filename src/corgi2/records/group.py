"""Blocks side by side in memory, and their records taken in any order, slice by slice: a few MB beside the group."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corgi2.order import Indices
from corgi2.records.arrays import number_array
from corgi2.records.spans import FRAMED_SCHEMA, is_framed, record_offsets, thirds

SLICE_BYTES = 4_000_000
"""A gather's working set: large enough to hide its overhead, small enough for a core's cache (docs/benchmarks.md)."""

PLACE_BYTES = 8
"""What a record takes in a permutation, or in a list of rows."""

_BATCH = 1 << 16
"""Records whose sizes a gather adds up at a time."""


@dataclass(frozen=True, slots=True)
class Group:
    """Records in memory: the rows of a table, or those that ``rows`` names, where padding lies between shards."""

    table: pa.Table
    rows: Indices | None = None
    keys: npt.NDArray[np.uint64] | None = None
    """Where the format must keep records of one key apart: a hash of each record's key."""

    counts: tuple[int, ...] = ()
    """How many records each piece gave, in the order of the pieces."""

    schema: pa.Schema | None = None
    """What its records are given out as, where that is not how they lie in memory."""

    beside: Any = None
    """What the format's decoder needs beside the table, where the group was read to be decoded."""

    table_bytes: int = 0
    """What the table takes, where Arrow cannot tell."""

    @property
    def records(self) -> int:
        return self.table.num_rows if self.rows is None else len(self.rows)

    @property
    def footprint(self) -> int:
        """Bytes in memory, the permutation that it will need included."""
        beside = sum(array.nbytes for array in (self.rows, self.keys) if array is not None)
        return (self.table_bytes or int(self.table.nbytes)) + PLACE_BYTES * self.records + beside


class Decoder(Protocol):
    """Gives out records of a group, in any order, as Python objects."""

    def samples(self, records: Indices) -> Iterator[Any]:
        """One after another."""

    def columns(self, records: Indices, only: Collection[str] | None = None) -> dict[str, Any]:
        """One object a column: an array of NumPy where it holds numbers, else a list, with None where a record lacks
        it. Of those that are named, if any are."""


@dataclass(frozen=True, slots=True)
class Taste:
    """A few records of a piece, and the bytes that they take as stored."""

    group: Group
    stored_bytes: float


def gather(group: Group, order: Indices, slice_bytes: int = SLICE_BYTES) -> Iterator[pa.Table]:
    """The records ``order[0], order[1], …`` of a group, as tables of about ``slice_bytes``, one record at least."""
    take = taker(group)
    for batch in range(0, len(order), _BATCH):
        records = order[batch : batch + _BATCH]
        rows = records if group.rows is None else group.rows[records]
        for start, stop in _slices(_row_bytes(group, rows), slice_bytes):
            yield take(records[start:stop]) if stop - start > 1 else _alone(group, int(rows[start]))


def _alone(group: Group, row: int) -> pa.Table:
    """One record, where it lies: it may be as large as the buffer."""
    table = group.table.slice(row, 1).combine_chunks()
    return table if group.schema is None else table.cast(group.schema)


def taker(group: Group) -> Callable[[Indices], pa.Table]:
    """A function that takes records of a group, in any order, as a table of one chunk."""
    take = _taker(group.table)

    def taken(records: Indices) -> pa.Table:
        table = take(records if group.rows is None else group.rows[records])
        return table if group.schema is None else table.cast(group.schema)

    return taken


def _slices(sizes: npt.NDArray[np.int64], slice_bytes: int) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + slice_bytes, "right")))
        yield start, stop
        start = stop


def _row_bytes(group: Group, rows: Indices) -> npt.NDArray[np.int64]:
    """Bytes of each row: exact where the table is one binary column, else the mean."""
    if is_framed(group.table):
        offsets = record_offsets(group.table)
        return offsets[rows + 1] - offsets[rows]
    return np.full(len(rows), max(1, (group.table_bytes or group.table.nbytes) // max(1, group.records)))


def _taker(table: pa.Table) -> Callable[[Indices], pa.Table]:
    batches = table.to_batches()
    if len(batches) == 1:
        return lambda rows: _table([_take(batches[0], rows)])
    bounds = np.cumsum([0] + [len(batch) for batch in batches])
    return lambda rows: _take_from_batches(batches, bounds, rows) if len(rows) else table.slice(0, 0)


def _take_from_batches(batches: list[pa.RecordBatch], bounds: Indices, rows: Indices) -> pa.Table:
    """Arrow's own take concatenates a chunked column first, which would double the group. This takes from each
    chunk, all columns at once, and puts the pieces, which are as small as the slice, in order."""
    batch_of = (np.searchsorted(bounds, rows, "right") - 1).astype(np.uint16 if len(batches) < 1 << 16 else np.int64)
    by_batch = np.argsort(batch_of, kind="stable")  # of 16 bits, that is a radix sort
    present, firsts = np.unique(batch_of[by_batch], return_index=True)
    sorted_rows = rows[by_batch]
    pieces = [
        _take(batches[number], sorted_rows[first:last] - bounds[number])
        for number, first, last in zip(present.tolist(), firsts, [*firsts[1:], len(rows)], strict=True)
    ]
    back = np.empty(len(rows), np.int64)
    back[by_batch] = np.arange(len(rows))
    return _table([_take(_table(pieces).combine_chunks().to_batches()[0], back)])


def _take(batch: pa.RecordBatch, rows: Indices) -> pa.RecordBatch:
    return pc.take(batch, number_array(rows), boundscheck=False)


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches)


def records_alone(group: Group) -> Group:
    """The same records, without what travels with them."""
    if not is_framed(group.table) or group.table.num_columns == 1:
        return group
    rows = np.arange(group.table.num_rows) if group.rows is None else group.rows
    table = pa.Table.from_arrays([thirds(group.table)], schema=FRAMED_SCHEMA)
    return replace(group, table=table, rows=3 * rows + 1)
