"""How much memory each row of a table takes: numbers by their type, texts and lists by their offsets.

No Python runs per row. A row takes the same however its table is cut into chunks, because only types and values count.
Dictionaries do not count: rows that are taken share them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgi2.order import Indices

_Measure = Callable[[Indices, Indices, Any], Indices]
"""Bits of the values from each of some places to another, given how many those are: a number if all are equal."""

_Look = Callable[[Any], _Measure]
"""How an array is measured."""


@dataclass(frozen=True, slots=True)
class Widths:
    """How the rows of one schema are measured."""

    fixed: int
    """Bits of a row in the columns whose type alone tells."""
    others: tuple[tuple[int, _Look], ...]
    """The columns whose type does not tell."""

    @staticmethod
    def of(schema: pa.Schema) -> "Widths":
        return Widths(*_sides(schema.types))

    def row_bytes(self, batch: pa.RecordBatch, rows: Indices) -> Indices:
        """The bytes of each of some rows."""
        first = rows.astype(np.int64, copy=False)
        measure = _side_by_side(self.fixed, [look(batch.column(number)) for number, look in self.others])
        return (measure(first, first + 1, 1) + 7) >> 3


def _sides(kinds: Iterable[pa.DataType]) -> tuple[int, tuple[tuple[int, _Look], ...]]:
    """What values side by side take according to their types, and those whose type does not tell."""
    bits = [_fixed_bits(kind) for kind in kinds]
    others = tuple((number, _look(kind)) for number, kind in enumerate(kinds) if bits[number] is None)
    return 1 + sum(each or 0 for each in bits), others


def _fixed_bits(kind: pa.DataType) -> int | None:
    """Bits of a value, plus one for whether it is missing; None if the type alone does not tell."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _fixed_bits(kind.storage_type)
    if types.is_dictionary(kind):
        return _fixed_bits(kind.index_type)
    if types.is_null(kind):
        return 1
    if types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return 1 + int(kind.bit_width)
    if types.is_fixed_size_list(kind):
        inner = _fixed_bits(kind.value_type)
        return None if inner is None else 1 + kind.list_size * inner
    if types.is_struct(kind):
        fixed, others = _sides([field.type for field in kind])
        return None if others else fixed
    return None


def _look(kind: pa.DataType) -> _Look:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        stored = _look(kind.storage_type)
        return lambda array: stored(array.storage)
    if types.is_struct(kind):
        return _look_at_struct(kind)
    if types.is_fixed_size_list(kind):
        return _look_at_equal_lists(kind)
    if types.is_string(kind) or types.is_binary(kind):
        return _look_at_offsets(np.int32, 8)
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return _look_at_offsets(np.int64, 8)
    if types.is_list(kind) or types.is_map(kind) or types.is_large_list(kind):
        return _look_at_lists(kind)
    return _look_at_mean


def _side_by_side(fixed: int, others: list[_Measure]) -> _Measure:
    def measure(first: Indices, last: Indices, count: Any) -> Indices:
        total = others[0](first, last, count)
        for other in others[1:]:
            total += other(first, last, count)
        total += fixed * count
        return total

    return measure


def _look_at_struct(kind: pa.DataType) -> _Look:
    fixed, others = _sides([field.type for field in kind])
    return lambda array: _side_by_side(fixed, [look(array.field(number)) for number, look in others])


def _look_at_equal_lists(kind: pa.DataType) -> _Look:
    size, inner = kind.list_size, _look(kind.value_type)

    def look(array: Any) -> _Measure:
        begin, measure = array.offset, inner(array.values)
        return lambda first, last, count: (
            measure((begin + first) * size, (begin + last) * size, size * count) + 1 * count
        )

    return look


def _look_at_offsets(kind: type[np.int32 | np.int64], bits: int) -> _Look:
    """Texts, or lists of values that take this many bits each."""
    head = 1 + 8 * np.dtype(kind).itemsize

    def look(array: Any) -> _Measure:
        offsets = _offsets(array, kind)

        def measure(first: Indices, last: Indices, count: Any) -> Indices:
            total: Indices = np.subtract(offsets[last], offsets[first], dtype=np.int64)
            total *= bits
            total += head * count
            return total

        return measure

    return look


def _look_at_lists(kind: pa.DataType) -> _Look:
    width, value = (np.int64 if pa.types.is_large_list(kind) else np.int32), kind.field(0).type
    if (bits := _fixed_bits(value)) is not None:
        return _look_at_offsets(width, bits)
    head, inner = 1 + 8 * np.dtype(width).itemsize, _look(value)

    def look(array: Any) -> _Measure:
        offsets, within = _offsets(array, width), inner(array.values)

        def measure(first: Indices, last: Indices, count: Any) -> Indices:
            begin, end = (offsets[places].astype(np.int64, copy=False) for places in (first, last))
            total = within(begin, end, end - begin)
            total += head * count
            return total

        return measure

    return look


def _look_at_mean(array: Any) -> _Measure:
    """For types that no format reads so far."""
    mean = 8 * (array.nbytes // max(1, len(array)) + 1)
    return lambda first, last, count: mean * (last - first)  # noqa: ARG005


def _offsets(array: Any, kind: type[np.int32 | np.int64]) -> npt.NDArray[Any]:
    raw = array.buffers()[1]
    if raw is None:
        return np.zeros(len(array) + 1, kind)
    return np.frombuffer(raw, kind, len(array) + 1, array.offset * np.dtype(kind).itemsize)
