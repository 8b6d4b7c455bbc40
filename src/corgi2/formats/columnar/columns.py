"""Flat tables laid side by side in an arena, as one: every column is a single array, in order of arrival.

A gather takes from one array ten times as fast as from many. Numbers have their place beforehand; values without a
fixed width are stored as they come, so that between two tables lie gap rows, which span bytes of other columns.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgi2.order import Indices
from corgi2.records import Arena

ROWS = 8
"""Tables begin at multiples of this many rows, so that no two share a byte of a bitmap."""
ROW_BYTES = 4
"""Bytes of a row in the list of real rows, unless there are billions."""
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_TEXT = {*_WIDE, *_WIDE.values()}

Bytes = npt.NDArray[np.uint8]


def is_flat(schema: pa.Schema) -> bool:
    return bool(schema.types) and all(kind in _TEXT or _bits(kind) > 0 for kind in schema.types)


def holds_text(schema: pa.Schema) -> bool:
    """Whether some columns have values of any length."""
    return any(kind in _TEXT for kind in schema.types)


def narrow_texts(schema: pa.Schema) -> int:
    """Columns of texts that get wider offsets here."""
    return sum(kind in _WIDE for kind in schema.types)


def _bits(kind: pa.DataType) -> int:
    """Bits of a value, if the type alone tells; else 0."""
    types = pa.types
    if types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return int(kind.bit_width)
    return 0


def is_fixed(schema: pa.Schema) -> bool:
    """Whether the number of rows alone tells how much memory they take."""
    return all(_bits(kind) > 0 for kind in schema.types)


def fixed_bytes(schema: pa.Schema, rows: int) -> int:
    """What rows of fixed width take, however they are cut: values, plus one bit each if they may be missing."""
    return sum(-(-rows * (_bits(kind.type) + kind.nullable) // 8) for kind in schema)


def table_bytes(table: pa.Table | pa.RecordBatch) -> int:
    """Bytes that a table takes here: strings with offsets of 64 bits."""
    if is_fixed(table.schema):
        return fixed_bytes(table.schema, table.num_rows)
    widened = 4 * narrow_texts(table.schema) if is_flat(table.schema) else 0
    return int(table.nbytes + widened * table.num_rows)


@dataclass(slots=True)
class _Column:
    field: pa.Field
    values: Bytes
    """Of fixed width: the values. Else: where each begins in the arena, as words of 64 bits."""
    valid: Bytes
    has_nulls: bool = False


@dataclass(slots=True)
class Columns:
    """Room in an arena for tables of one schema whose numbers of rows are known."""

    schema: pa.Schema
    arena: Arena
    _columns: list[_Column] = field(default_factory=list)
    _capacity: int = 0
    _used: int = 0
    _rows: int = 0
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def reserve(schema: pa.Schema, counts: Iterable[int], arena: Arena) -> "Columns":
        columns = Columns(schema, arena)
        columns._capacity = capacity = sum(_room(count) for count in counts)
        for kind in schema:
            bits = 64 if kind.type in _TEXT else _bits(kind.type)
            values = columns._claim(capacity * bits // 8)
            columns._columns.append(_Column(kind, values, columns._claim(capacity // 8 if kind.nullable else 0)))
        return columns

    def _claim(self, size: int) -> Bytes:
        return self.arena.array(self.arena.claim(-(-size // 64) * 64), size)

    def add(self, table: pa.RecordBatch) -> int:
        """Store a table; returns its first row."""
        arrays = table.columns
        texts = [_text(array) for array in arrays if array.type in _TEXT]
        with self._lock:
            first, self._used = self._used, self._used + _room(len(table))
            if self._used > self._capacity:
                raise MemoryError(f"there is room for {self._capacity} rows, but {self._used} are to be stored")
            at = self.arena.claim(sum(len(data) for _, data in texts))
            self._rows += len(table)
            self._bytes += table_bytes(table)
        for column, array in zip(self._columns, arrays, strict=True):
            if array.type in _TEXT:
                offsets, data = texts.pop(0)
                self._put_text(column, first, offsets + at)
                self.arena.array(at, len(data))[:] = data
                at += len(data)
            else:
                _put_bits(column.values, first * _bits(array.type), array, 1)
            if array.null_count:
                column.has_nulls = True
                _put_bits(column.valid, first, array, 0)
            else:
                column.valid[first // 8 : (first + _room(len(table))) // 8] = 255
        return first

    def _put_text(self, column: _Column, first: int, offsets: Indices) -> None:
        count = len(offsets) - 1
        starts = column.values.view(np.int64)
        starts[first : first + count + 1] = offsets
        # the rows behind are empty, but for the last, which ends where the next table's text begins
        starts[first + count + 1 : first + _room(count)] = offsets[-1]

    def table(self, first: int = 0, count: int | None = None) -> pa.Table:
        """All tables as one, with gap rows between them; or some of the rows, while others are still to come."""
        text = pa.py_buffer(self.arena.view(0, self.arena.used))
        rows = first, max(0, self._used - 1) if count is None else count  # except the last, a gap
        return pa.table(
            [self._array(column, text, *rows) for column in self._columns],
            schema=pa.schema(
                [column.field.with_type(_WIDE.get(column.field.type, column.field.type)) for column in self._columns]
            ),
        )

    @property
    def nbytes(self) -> int:
        """Bytes in memory. Rows of fixed width take the same in however many tables they came."""
        return fixed_bytes(self.schema, self._rows) if is_fixed(self.schema) else self._bytes

    def _array(self, column: _Column, text: pa.Buffer, first: int, count: int) -> pa.Array:
        kind = column.field.type
        valid = pa.py_buffer(column.valid) if column.has_nulls else None
        buffers = [valid, pa.py_buffer(column.values), *([text] if kind in _TEXT else [])]
        return pa.Array.from_buffers(_WIDE.get(kind, kind), count, buffers, offset=first)


def _room(count: int) -> int:
    """Rows reserved for a table of this many, including at least one gap row."""
    return (count // ROWS + 1) * ROWS


def _text(array: pa.Array) -> tuple[Indices, Bytes]:
    """Offsets from zero, and the bytes that they divide."""
    _, raw, data = array.buffers()
    kind = np.int32 if array.type in _WIDE else np.int64
    if raw is None or data is None:
        return np.zeros(len(array) + 1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(raw, kind, len(array) + 1, array.offset * np.dtype(kind).itemsize).astype(np.int64)
    return offsets - offsets[0], np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]


def _put_bits(target: Bytes, start: int, array: pa.Array, buffer: int) -> None:
    """Copy an array's bitmap (0) or values (1) to a bit that begins a byte."""
    raw = array.buffers()[buffer]
    if raw is None:
        return
    bits = _bits(array.type) if buffer else 1
    first, last = array.offset * bits, (array.offset + len(array)) * bits
    source = np.frombuffer(raw, np.uint8)
    if first % 8:
        source = np.packbits(np.unpackbits(source, bitorder="little")[first:last], bitorder="little")
    else:
        source = source[first // 8 : -(-last // 8)]
    target[start // 8 : start // 8 + len(source)] = source
