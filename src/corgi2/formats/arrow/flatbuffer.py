"""The little of flatbuffers that headers of Arrow messages need, read without Arrow: every place is checked."""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from corgi2.records import Buffer

_INT16, _UINT16, _INT32, _UINT32 = (struct.Struct(f"<{letter}") for letter in "hHiI")
_KINDS = {1: struct.Struct("<b"), 2: _INT16, 4: _INT32, 8: struct.Struct("<q")}


class DamagedError(ValueError):
    """Something leads out of the buffer."""


def root(data: Buffer) -> "Table":
    """The table that a buffer holds."""
    return Table(data, _read(_UINT32, data, 0))


def _read(kind: struct.Struct, data: Buffer, at: int) -> int:
    if at < 0 or at + kind.size > len(data):
        raise DamagedError(f"a place at {at} lies outside of {len(data)} bytes")
    return int(kind.unpack_from(data, at)[0])


class Table:
    """A table: fields by their number, most of which may be absent."""

    __slots__ = ("_at", "_data", "_fields", "_length")

    def __init__(self, data: Buffer, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - _read(_INT32, data, at)
        self._length = _read(_UINT16, data, self._fields)

    def number(self, field: int, size: int, default: int = 0) -> int:
        """A signed number of so many bytes."""
        place = self._place(field)
        return default if place is None else _read(_KINDS[size], self._data, place)

    def table(self, field: int) -> "Table | None":
        place = self._place(field)
        return None if place is None else Table(self._data, self._target(place))

    def structs(self, field: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
        """A vector of structs, as an array over the buffer."""
        place, dtype = self._place(field), np.dtype(kind)
        if place is None:
            return np.empty(0, dtype)
        first = self._target(place)
        count = _read(_UINT32, self._data, first)
        if count * dtype.itemsize > len(self._data) - first - 4:
            raise DamagedError(f"a vector of {count} does not fit")
        return np.frombuffer(self._data, dtype, count, first + 4)

    def _target(self, place: int) -> int:
        return place + _read(_UINT32, self._data, place)

    def _place(self, field: int) -> int | None:
        slot = 4 + 2 * field
        if slot + 2 > self._length:
            return None
        offset = _read(_UINT16, self._data, self._fields + slot)
        return self._at + offset if offset else None
