"""Blocks in memory: an arena to read them into, a group of them as one table, and the gather.

A group's memory is its footprint and a few MB: `Arena` is one reservation that is reused from group to group,
and `gather` makes its output slice by slice.
"""

import mmap
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corgi2.records.arrays import number_array, numpy_of

SLICE_BYTES = 4_000_000
"""A gather's working set: large enough to hide its overhead, small enough for a core's cache (docs/benchmarks.md)."""

Indices = npt.NDArray[np.int64]

SLACK_BYTES = 8_000_000
"""In an arena, for what is no record: a format's own description of its blocks."""

PLACE_BYTES = 8
"""What a record takes in a permutation, or in a list of rows."""

_BATCH = 1 << 16
"""Records whose sizes a gather adds up at a time."""


def reserve(size: int) -> memoryview:
    """Zeroed memory that costs nothing until it is touched; in huge pages, whose first touch is 3 times as fast."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0x4000 if sys.platform == "linux" else 0)  # MAP_NORESERVE
    memory = mmap.mmap(-1, max(1, size), flags=flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)[:size]


class Arena:
    """Room for the bytes of one group, handed out from front to back, by any thread.

    A claim is a promise that nobody else writes there until `clear`. Whoever clears it must have dropped the
    tables that lie over it. What a group takes elsewhere (offsets, rows, the permutation) is spent from the same room,
    before it is taken.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = self.reserved = capacity
        self._memory = reserve(capacity)
        self._used = self._spent = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        return self._used

    @property
    def left(self) -> int:
        return self.capacity - self._used - self._spent

    def claim(self, size: int) -> int:
        """The offset of ``size`` fresh bytes."""
        with self._lock:
            self._check(size)
            start, self._used = self._used, self._used + size
            return start

    def spend(self, size: int) -> None:
        """So many bytes are about to be taken elsewhere."""
        with self._lock:
            self._check(size)
            self._spent += size

    def _check(self, size: int) -> None:
        if size > self.left:
            held = self._used + self._spent
            raise MemoryError(f"the buffer of {self.capacity} bytes holds {held}; {size} more do not fit")

    def view(self, start: int, size: int) -> memoryview:
        return self._memory[start : start + size]

    @property
    def memory(self) -> mmap.mmap:
        """What it lies in: a slice of that is bytes at once, without a view between."""
        return cast(mmap.mmap, self._memory.obj)

    def array(self, start: int, size: int) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self._memory, np.uint8, size, start)

    def give_back(self) -> None:
        """Clear it, and give its pages back to the system until they are used again."""
        self.clear()
        if hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED)

    def clear(self, most: int | None = None) -> None:
        """Begin anew, with all of it, or with so much at the most."""
        self._used = self._spent = 0
        self.capacity = self.reserved if most is None else min(most, self.reserved)


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
    if _is_framed(group.table):
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


_FRAMED_SCHEMA = pa.schema([pa.field("record", pa.large_binary(), nullable=False)])
_LOOSE_SCHEMA = pa.schema([*_FRAMED_SCHEMA, *(pa.field(name, pa.int64(), nullable=False) for name in ("lead", "tail"))])
"""Where bytes that belong to no record travel with some: how many lie before each record, and how many behind it."""
_LONG_RUN = 1 << 20


def _is_framed(table: pa.Table) -> bool:
    return bool(table.schema.field(0).equals(_FRAMED_SCHEMA.field(0))) and table.column(0).num_chunks == 1


@dataclass(frozen=True, slots=True)
class Loose:
    """Bytes that belong to no record, within the span of each record: before it, and behind it."""

    lead: Indices
    tail: Indices


def framed_table(offsets: Indices, data: npt.NDArray[np.uint8], loose: Loose | None = None) -> pa.Table:
    """Records laid over bytes: row i is ``data[offsets[i]:offsets[i + 1]]``. Nothing is copied."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    array = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    if loose is None:
        return pa.Table.from_arrays([array], schema=_FRAMED_SCHEMA)
    return pa.Table.from_arrays([array, number_array(loose.lead), number_array(loose.tail)], schema=_LOOSE_SCHEMA)


def thirds(table: pa.Table) -> pa.Array:
    """Each row of a framed table as three values: what travels before the record, the record, what travels behind."""
    offsets = record_offsets(table)
    lead, tail = (numpy_of(table.column(number)) for number in (1, 2))
    cuts = np.append(np.stack([offsets[:-1], offsets[:-1] + lead, offsets[1:] - tail], axis=1).ravel(), offsets[-1])
    buffers = [None, pa.py_buffer(cuts), table.column(0).chunks[0].buffers()[2]]
    return pa.Array.from_buffers(pa.large_binary(), len(cuts) - 1, buffers)


def loose_bytes(table: pa.Table) -> Iterator[npt.NDArray[np.uint8]]:
    """What belongs to no record in a framed table: whole items, one behind another."""
    if table.num_columns == 1:
        return
    offsets, data = (thirds(table).buffers()[number] for number in (1, 2))
    cuts = np.frombuffer(offsets, np.int64)
    lengths = np.diff(cuts)
    lengths[1::3] = 0
    for run in np.flatnonzero(lengths > _LONG_RUN).tolist():
        yield np.frombuffer(data, np.uint8, lengths[run], cuts[run])
    short = np.flatnonzero((lengths > 0) & (lengths <= _LONG_RUN))
    spans = map(slice, cuts[short].tolist(), cuts[short + 1].tolist())
    if joined := b"".join(map(memoryview(data).__getitem__, spans)):
        yield np.frombuffer(joined, np.uint8)


def records_alone(group: Group) -> Group:
    """The same records, without what travels with them."""
    if not _is_framed(group.table) or group.table.num_columns == 1:
        return group
    rows = np.arange(group.table.num_rows) if group.rows is None else group.rows
    table = pa.Table.from_arrays([thirds(group.table)], schema=_FRAMED_SCHEMA)
    return replace(group, table=table, rows=3 * rows + 1)


def record_offsets(table: pa.Table) -> Indices:
    """The offsets of a framed table's rows, its end included."""
    chunk = table.column(0).chunks[0]
    return np.frombuffer(chunk.buffers()[1], np.int64, len(chunk) + 1, chunk.offset * 8)


def record_bytes(table: pa.Table) -> npt.NDArray[np.uint8]:
    """The bytes under a framed table's rows, from its first record to its last."""
    if table.num_rows == 0:
        return np.empty(0, np.uint8)
    offsets = record_offsets(table)
    data = table.column(0).chunks[0].buffers()[2]
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
