"""Arrow arrays from plain values, and back to NumPy.

Arrow's own conversions import pandas if it is installed, in case values come from it or go to it: 44 MB and a fifth of
a second in every process, for nothing.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_CHARACTER_BYTES, _LONGEST = 4, (1 << 31) - 1
"""The most bytes of a character in UTF-8; and the most bytes in one array of texts."""


def number_array(values: npt.NDArray[Any]) -> pa.Array:
    """An array over NumPy's numbers, without a copy."""
    values = np.ascontiguousarray(values)
    if values.dtype.kind not in "iuf" or not values.dtype.isnative:
        raise TypeError(f"expected numbers in native byte order, not {values.dtype}")
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def numpy_of(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Integers, floats or booleans, none of them missing."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    parts = [_lying(chunk) for chunk in chunks]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, _dtype(array.type)), *parts])


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    """Arrow's own conversion would import pandas, and fail if it is not installed."""
    if pa.types.is_boolean(kind):
        return np.dtype(bool)
    letter = "f" if pa.types.is_floating(kind) else "i" if pa.types.is_signed_integer(kind) else "u"
    return np.dtype(f"{letter}{kind.bit_width // 8}")


def _lying(array: pa.Array) -> npt.NDArray[Any]:
    data, kind = array.buffers()[1], _dtype(array.type)
    if data is None:
        return np.empty(0, kind)
    if pa.types.is_boolean(array.type):
        skip = array.offset % 8
        packed = np.frombuffer(data, np.uint8, -(-(skip + len(array)) // 8), array.offset // 8)
        return np.unpackbits(packed, count=skip + len(array), bitorder="little")[skip:].view(bool)
    return np.frombuffer(data, kind, len(array), array.offset * kind.itemsize)


def value_table(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Columns of Python's values, none of them missing: integers, booleans, texts, bytes, or lists of those."""
    arrays = [pa.chunked_array(_chunks(values, kind), kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _chunks(values: Sequence[Any], kind: pa.DataType) -> list[pa.Array]:
    """One chunk, unless the texts together are too long for offsets of 32 bits."""
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if is_text and len(values) > 1 and _CHARACTER_BYTES * sum(map(len, values)) > _LONGEST:
        half = len(values) // 2
        return [*_chunks(values[:half], kind), *_chunks(values[half:], kind)]
    return [_array(values, kind)]


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_integer(kind):
        return number_array(np.array(values, f"i{kind.bit_width // 8}"))
    if types.is_boolean(kind):
        bits = np.packbits(np.array(values, bool), bitorder="little")
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(bits)])
    if types.is_list(kind):
        return pa.ListArray.from_arrays(_offsets(values), _array([*chain.from_iterable(values)], kind.value_type))
    data = [value.encode() if types.is_string(kind) else value for value in values]
    buffers = [None, _offsets(data).buffers()[1], pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(kind, len(data), buffers)


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Where each value begins, and where the last one ends."""
    return number_array(np.cumsum([0, *map(len, values)], dtype=np.int32))
