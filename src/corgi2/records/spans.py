"""Framed records as a table over the file's own bytes: their spans, and what travels in them besides the records."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgi2.order import Indices
from corgi2.records.arrays import number_array, numpy_of

FRAMED_SCHEMA = pa.schema([pa.field("record", pa.large_binary(), nullable=False)])

_LOOSE_SCHEMA = pa.schema([*FRAMED_SCHEMA, *(pa.field(name, pa.int64(), nullable=False) for name in ("lead", "tail"))])
"""If bytes that belong to no record travel with records: how many lie before each record, and how many after it."""

_LONG_RUN = 1 << 20


def is_framed(table: pa.Table) -> bool:
    return bool(table.schema.field(0).equals(FRAMED_SCHEMA.field(0))) and table.column(0).num_chunks == 1


@dataclass(frozen=True, slots=True)
class Loose:
    """Bytes that belong to no record, within the span of each record: before it, and after it."""

    lead: Indices
    tail: Indices


def framed_table(offsets: Indices, data: npt.NDArray[np.uint8], loose: Loose | None = None) -> pa.Table:
    """Records laid over bytes: row i is ``data[offsets[i]:offsets[i + 1]]``. Nothing is copied."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    array = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    if loose is None:
        return pa.Table.from_arrays([array], schema=FRAMED_SCHEMA)
    return pa.Table.from_arrays([array, number_array(loose.lead), number_array(loose.tail)], schema=_LOOSE_SCHEMA)


def thirds(table: pa.Table) -> pa.Array:
    """Each row of a framed table as three values: what travels before the record, the record, what travels after it."""
    offsets = record_offsets(table)
    lead, tail = (numpy_of(table.column(number)) for number in (1, 2))
    cuts = np.append(np.stack([offsets[:-1], offsets[:-1] + lead, offsets[1:] - tail], axis=1).ravel(), offsets[-1])
    buffers = [None, pa.py_buffer(cuts), table.column(0).chunks[0].buffers()[2]]
    return pa.Array.from_buffers(pa.large_binary(), len(cuts) - 1, buffers)


def loose_bytes(table: pa.Table) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes that belong to no record in a framed table: whole items, one after another."""
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
