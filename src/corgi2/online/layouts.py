"""A batch as bytes in one piece of memory, and a layout, a few words that say what lies where.

Arrays are copied in and come out as views. Lists of bytes or of texts go in end to end, with the length of each, and
come out as such lists. Tables lie as Arrow's own stream. All else stays in the layout, as it is.
"""

import mmap
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]

_ALIGNMENT = 64
_MOST_FIELDS = 64
"""Of a tuple that is looked into."""


class FullError(Exception):
    """What there is does not fit."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Arrays of another library, such as torch's tensors."""

    kind: type
    to_array: Callable[[Any], "npt.NDArray[Any] | None"]
    """The same memory as NumPy's array; None if that cannot be had."""
    from_array: Callable[["npt.NDArray[Any]"], Any]


@dataclass(slots=True)
class Room:
    """A part of mapped memory that is filled from front to back."""

    memory: mmap.mmap
    start: int
    size: int
    foreign: Foreign | None = None
    used: int = 0

    def claim(self, size: int) -> int:
        """Where so many bytes begin, counted from the start."""
        at = -(-self.used // _ALIGNMENT) * _ALIGNMENT
        if at + size > self.size:
            raise FullError
        self.used = at + size
        return at

    def put(self, array: "npt.NDArray[Any]") -> int:
        at = self.claim(array.nbytes)
        if array.size:
            np.copyto(np.ndarray(array.shape, array.dtype, self.memory, self.start + at), array)
        return at

    def put_all(self, size: int, values: Iterable[bytes]) -> int:
        """One after another, of this size in all."""
        at = self.claim(size)
        self.memory.seek(self.start + at)
        deque(map(self.memory.write, values), 0)
        return at


class Held(Protocol):
    """The same part of memory, where it is looked at."""

    memory: mmap.mmap
    start: int
    foreign: Foreign | None

    def view(self, at: int, size: int) -> Bytes:
        """Bytes that hold it for as long as they live."""


class Layout(Protocol):
    def load(self, held: Held) -> Any: ...


class _Whole(NamedTuple):
    value: Any

    def load(self, held: Held) -> Any:  # noqa: ARG002
        return self.value


class _Array(NamedTuple):
    at: int
    shape: tuple[int, ...]
    kind: Any

    def load(self, held: Held) -> "npt.NDArray[Any]":
        kind = np.dtype(self.kind)
        size = kind.itemsize * int(np.prod(self.shape))
        return held.view(self.at, size).view(kind).reshape(self.shape) if size else np.empty(self.shape, kind)


class _Foreign(NamedTuple):
    array: _Array

    def load(self, held: Held) -> Any:
        assert held.foreign is not None  # noqa: S101
        return held.foreign.from_array(self.array.load(held))


class _Strings(NamedTuple):
    """Bytes or texts; None has the length -1. Texts are counted in characters."""

    at: int
    size: int
    lengths: _Array
    is_text: bool

    def load(self, held: Held) -> list[Any]:
        start, lengths = held.start + self.at, self.lengths.load(held)
        ends = np.cumsum(np.maximum(lengths, 0)) + (0 if self.is_text else start)
        whole: Any = held.memory
        if self.is_text:
            whole = whole[start : start + self.size].decode("utf-8", "surrogatepass")
        spans = zip((ends - np.maximum(lengths, 0)).tolist(), ends.tolist(), strict=True)
        values: list[Any] = [whole[first:last] for first, last in spans]
        for place in np.flatnonzero(lengths < 0).tolist():
            values[place] = None
        return values


class _Table(NamedTuple):
    at: int
    size: int

    def load(self, held: Held) -> pa.Table:
        return pa.ipc.open_stream(pa.py_buffer(held.view(self.at, self.size))).read_all()


class _Dict(NamedTuple):
    names: tuple[Any, ...]
    values: tuple[Layout, ...]

    def load(self, held: Held) -> dict[Any, Any]:
        return {name: value.load(held) for name, value in zip(self.names, self.values, strict=True)}


class _Sequence(NamedTuple):
    make: Callable[[Iterable[Any]], Any]
    values: tuple[Layout, ...]

    def load(self, held: Held) -> Any:
        return self.make([value.load(held) for value in self.values])


def stow(value: Any, room: Room) -> Layout:
    """Copy what is large into the room. Raises `FullError` where it does not fit."""
    kind = type(value)
    if kind is np.ndarray:
        return _Whole(value) if value.dtype.hasobject else _array(value, room)
    if kind is dict:
        return _Dict(tuple(value), tuple(stow(each, room) for each in value.values()))
    if kind is list or isinstance(value, tuple):
        return _sequence(value, room)
    if kind is pa.Table:
        return _table(value, room)
    if room.foreign is not None and kind is room.foreign.kind:
        array = room.foreign.to_array(value)
        return _Whole(value) if array is None else _Foreign(_array(array, room))
    return _Whole(value)


def _array(array: "npt.NDArray[Any]", room: Room) -> _Array:
    kind = array.dtype
    return _Array(room.put(array), array.shape, kind.str if kind.fields is None else kind)


def _sequence(values: Any, room: Room) -> Layout:
    kinds = set(map(type, values))
    if type(values) is list and kinds - {type(None)} in ({bytes}, {str}):
        return _strings(values, str in kinds, None in values, room)
    arrays = {np.ndarray, room.foreign.kind if room.foreign else np.ndarray}
    if not kinds & arrays and (type(values) is list or len(values) > _MOST_FIELDS):
        return _Whole(values)
    make = type(values)._make if hasattr(values, "_make") else type(values)
    return _Sequence(make, tuple(stow(value, room) for value in values))


def _strings(values: list[Any], is_text: bool, has_none: bool, room: Room) -> _Strings:
    lengths = [-1 if value is None else len(value) for value in values] if has_none else list(map(len, values))
    given = [value for value in values if value is not None] if has_none else values
    if is_text:
        given = ["".join(given).encode("utf-8", "surrogatepass")]
    size = sum(map(len, given))
    at = room.put_all(size, given)
    return _Strings(at, size, _array(np.array(lengths, np.int64), room), is_text)


def _table(table: pa.Table, room: Room) -> _Table:
    """Written twice, the first time only to know its size."""
    counted = pa.MockOutputStream()
    _write(table, counted)
    at = room.claim(counted.size())
    part = memoryview(room.memory)[room.start + at : room.start + at + counted.size()]
    with pa.FixedSizeBufferWriter(pa.py_buffer(part)) as sink:
        _write(table, sink)
    return _Table(at, counted.size())


def _write(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
