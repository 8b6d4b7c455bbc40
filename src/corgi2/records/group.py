"""Blocks side by side in memory, and their records taken in any order, slice by slice: a few MB besides the group."""

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
from corgi2.records.widths import Widths

SLICE_BYTES = 4_000_000
"""A gather's working set: large enough to hide its overhead, small enough for a core's cache (docs/benchmarks.md)."""

PLACE_BYTES = 8
"""Bytes of a record in a permutation, or in a list of rows."""

_BATCH = 1 << 16
"""Records whose sizes a gather adds up at a time."""


@dataclass(frozen=True, slots=True)
class Group:
    """Records in memory: the rows of a table, or those that ``rows`` names, if padding lies between shards."""

    table: pa.Table
    rows: Indices | None = None
    keys: npt.NDArray[np.uint64] | None = None
    """If the format must keep records of one key apart: a hash of each record's key."""

    counts: tuple[int, ...] = ()
    """How many records each piece gave, in the order of the pieces."""

    schema: pa.Schema | None = None
    """The schema in which its records are yielded, if they lie in memory in another one."""

    beside: Any = None
    """What the format's decoder needs besides the table, if the group was read to be decoded."""

    table_bytes: int = 0
    """Bytes of the table, if Arrow cannot tell."""

    @property
    def records(self) -> int:
        return self.table.num_rows if self.rows is None else len(self.rows)

    @property
    def footprint(self) -> int:
        """Bytes in memory, including the permutation that it will need."""
        beside = sum(array.nbytes for array in (self.rows, self.keys) if array is not None)
        return (self.table_bytes or int(self.table.nbytes)) + PLACE_BYTES * self.records + beside


class Decoder(Protocol):
    """Yields records of a group, in any order, as Python objects."""

    def samples(self, records: Indices) -> Iterator[Any]:
        """These records, one after another."""

    def columns(self, records: Indices, only: Collection[str] | None = None) -> dict[str, Any]:
        """One object per column: a NumPy array if it holds numbers, else a list, with None for records that lack it.
        Only columns that the paths in ``only`` lead into, if given."""


@dataclass(frozen=True, slots=True)
class Taste:
    """A few records of a piece, and the bytes that they take as stored."""

    group: Group
    stored_bytes: float


def gather(group: Group, order: Indices, slice_bytes: int = SLICE_BYTES) -> Iterator[pa.Table]:
    """Records ``order[0], order[1], …`` of a group, as tables of about ``slice_bytes`` and at least one record."""
    batches = _Batches.of(group.table)
    take, row_bytes = _taker(group, batches), _row_bytes(group, batches)
    for batch in range(0, len(order), _BATCH):
        records = order[batch : batch + _BATCH]
        rows = records if group.rows is None else group.rows[records]
        for start, stop in _slices(row_bytes(rows), slice_bytes):
            yield take(records[start:stop]) if stop - start > 1 else _alone(group, int(rows[start]))


def _alone(group: Group, row: int) -> pa.Table:
    """One record, without a copy: it may be as large as the buffer."""
    table = group.table.slice(row, 1).combine_chunks()
    return table if group.schema is None else table.cast(group.schema)


def taker(group: Group) -> Callable[[Indices], pa.Table]:
    """A function that takes records of a group, in any order, as a table of one chunk."""
    return _taker(group, _Batches.of(group.table))


def _taker(group: Group, batches: "_Batches") -> Callable[[Indices], pa.Table]:
    def taken(records: Indices) -> pa.Table:
        table = batches.take(records if group.rows is None else group.rows[records])
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


def _row_bytes(group: Group, batches: "_Batches") -> Callable[[Indices], Indices]:
    """A function that tells the bytes of each of some rows."""
    if is_framed(group.table):
        offsets = record_offsets(group.table)
        return lambda rows: offsets[rows + 1] - offsets[rows]
    widths = Widths.of(group.table.schema)
    if widths.others:
        return lambda rows: batches.row_bytes(rows, widths)
    each = max(1, (group.table_bytes or group.table.nbytes) // max(1, group.records))
    return lambda rows: np.full(len(rows), each)


@dataclass(frozen=True, slots=True)
class _Batches:
    """A table as chunks, each with all columns, and where each chunk begins."""

    batches: list[pa.RecordBatch]
    bounds: Indices
    empty: pa.Table

    @staticmethod
    def of(table: pa.Table) -> "_Batches":
        batches = table.to_batches()
        return _Batches(batches, np.cumsum([0] + [len(batch) for batch in batches]), table.slice(0, 0))

    def row_bytes(self, rows: Indices, widths: Widths) -> Indices:
        """What each of some rows takes. A chunk is looked at when it is needed: there may be as many as rows."""
        if len(self.batches) == 1:
            return widths.row_bytes(self.batches[0], rows)
        sizes = np.empty(len(rows), np.int64)
        for number, places in self._places(rows):
            sizes[places] = widths.row_bytes(self.batches[number], rows[places] - self.bounds[number])
        return sizes

    def take(self, rows: Indices) -> pa.Table:
        """Arrow's own take concatenates a chunked column first, which would double the group. This takes from each
        chunk, all columns at once, and puts the pieces, which are as small as the slice, in order."""
        if len(self.batches) == 1:
            return _table([_take(self.batches[0], rows)])
        found = list(self._places(rows))
        if not found:
            return self.empty
        pieces = [_take(self.batches[number], rows[places] - self.bounds[number]) for number, places in found]
        back = np.empty(len(rows), np.int64)
        back[np.concatenate([places for _, places in found])] = np.arange(len(rows))
        return _table([_take(_table(pieces).combine_chunks().to_batches()[0], back)])

    def _places(self, rows: Indices) -> Iterator[tuple[int, Indices]]:
        """The chunks that some rows lie in, and which of the rows lie in each."""
        chunk_of = np.searchsorted(self.bounds, rows, "right") - 1
        chunk_of = chunk_of.astype(np.uint16 if len(self.batches) < 1 << 16 else np.int64)
        order = np.argsort(chunk_of, kind="stable")  # for 16 bits, this is a radix sort
        present, firsts = np.unique(chunk_of[order], return_index=True)
        for number, first, last in zip(present.tolist(), firsts, [*firsts[1:], len(rows)], strict=True):
            yield number, order[first:last]


def _take(batch: pa.RecordBatch, rows: Indices) -> pa.RecordBatch:
    return pc.take(batch, number_array(rows), boundscheck=False)


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches)


def records_alone(group: Group) -> Group:
    """The same records, without the bytes that travel with them."""
    if not is_framed(group.table) or group.table.num_columns == 1:
        return group
    rows = np.arange(group.table.num_rows) if group.rows is None else group.rows
    table = pa.Table.from_arrays([thirds(group.table)], schema=FRAMED_SCHEMA)
    return replace(group, table=table, rows=3 * rows + 1)
