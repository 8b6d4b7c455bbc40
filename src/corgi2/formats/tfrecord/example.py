"""Records decoded: a `tf.train.Example` to a dict, without TensorFlow, and anything else to its bytes.

The content decides: a record is an Example if its bytes are one to the last of them, and it has a feature. A feature
with one value is that value; any other is an array (int64, float32), or a list of bytes. A batch has a column for each
feature, and bytes that are no Example in the column ``value``.
"""

import mmap
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from corgi2.formats.framed.frames import Lying
from corgi2.formats.paths import is_asked
from corgi2.formats.tfrecord.frame import FOOT_BYTES, HEAD_BYTES
from corgi2.order import Indices

Memory: TypeAlias = mmap.mmap | bytes

_FIRST, _SECOND, _THIRD = 0x0A, 0x12, 0x1A
"""The tags of fields 1 to 3 whose value has a length."""
_VARINT, _FIXED = 0x08, 0x0D
"""The tags of field 1 if it is one number, of variable length or of 4 bytes."""
_ONE_BYTES, _HALF = 12, 1 << 63
"""The most bytes of a packed list of one integer; and what is above all of them."""


class _OtherError(Exception):
    """The bytes are no Example."""


@dataclass(frozen=True, slots=True)
class Records:
    lying: Lying

    def samples(self, records: Indices) -> Iterator[Any]:
        for start, stop in self._spans(records):
            example = decode_example(self.lying.memory, start, stop)
            yield self.lying.memory[start:stop] if example is None else example

    def columns(self, records: Indices, only: Collection[str] | None = None) -> dict[str, Any]:
        found: dict[str, list[Any]] = {}
        for row, (start, stop) in enumerate(self._spans(records)):
            example = decode_example(self.lying.memory, start, stop, only)
            if example is None:
                example = {"value": self.lying.memory[start:stop]} if is_asked("value", only) else {}
            for name, value in example.items():
                values = found.get(name)
                if values is None:
                    values = found[name] = [None] * len(records)
                values[row] = value
        return {name: _column(values) for name, values in found.items()}

    def _spans(self, records: Indices) -> Iterator[tuple[int, int]]:
        starts, stops = self.lying.starts(records) + HEAD_BYTES, self.lying.stops(records) - FOOT_BYTES
        return zip(starts.tolist(), stops.tolist(), strict=True)


def _column(values: list[Any]) -> Any:
    """An array, if the values are numbers, as many for each record; else a list."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return np.array(values, np.int64)
    if kinds == {float}:
        return np.array(values, np.float32)
    if kinds == {np.ndarray} and len({(value.dtype, value.shape) for value in values}) == 1:
        return np.stack(values)
    return values


def decode_example(memory: Memory, start: int, stop: int, only: Collection[str] | None = None) -> dict[str, Any] | None:
    """The features of an Example in this memory, those that are asked for; None if the bytes are something else."""
    if start == stop or memory[start] != _FIRST:
        return None
    features: dict[str, Any] = {}
    try:
        count = 0
        for first, last in _parts(memory, start, stop):
            for begin, end in _parts(memory, first, last):
                name, value, after = _entry(memory, begin, end)
                count += 1
                found = _feature(memory, value, after)
                if only is None or is_asked(name, only):
                    features[name] = found
    except (_OtherError, IndexError, UnicodeDecodeError):
        return None
    return features if count else None


def _parts(memory: Memory, at: int, stop: int, tag: int = _FIRST) -> Iterator[tuple[int, int]]:
    """The values of a message that has only this field."""
    while at < stop:
        if memory[at] != tag:
            raise _OtherError
        at, end = _span(memory, at + 1, stop)
        yield at, end
        at = end


def _entry(memory: Memory, at: int, stop: int) -> tuple[str, int, int]:
    """The name of a feature, and where it lies. Both may be missing, if they are empty."""
    name, begin, end = b"", stop, stop
    while at < stop:
        tag = memory[at]
        first, last = _span(memory, at + 1, stop)
        if tag == _FIRST:
            name = memory[first:last]
        elif tag == _SECOND:
            begin, end = first, last
        else:
            raise _OtherError
        at = last
    return name.decode(), begin, end


def _feature(memory: Memory, at: int, stop: int) -> Any:
    """The value of a feature."""
    if at == stop:
        return []
    kind = memory[at]
    first, last = _span(memory, at + 1, stop)
    if last != stop:
        raise _OtherError
    if kind == _FIRST:
        texts = [memory[begin:end] for begin, end in _parts(memory, first, last)]
        return texts[0] if len(texts) == 1 else texts
    if kind == _SECOND:
        numbers = _floats(memory, first, last)
    elif kind == _THIRD:
        if 2 < last - first <= _ONE_BYTES and memory[first] == _FIRST and memory[first + 1] == last - first - 2:
            value, end = _varint(memory, first + 2, last)
            if end == last:  # as most labels are; NumPy takes as long for one number as for a thousand
                return (value + _HALF) % (2 * _HALF) - _HALF
        numbers = _integers(memory, first, last)
    else:
        raise _OtherError
    return numbers.item() if len(numbers) == 1 else numbers


def _floats(memory: Memory, at: int, stop: int) -> Any:
    """Packed, as TensorFlow writes them, or one by one."""
    parts = []
    while at < stop:
        packed = memory[at] == _FIRST
        if not packed and memory[at] != _FIXED:
            raise _OtherError
        at, end = _span(memory, at + 1, stop) if packed else (at + 1, at + 5)
        if (end - at) % 4 or end > stop:
            raise _OtherError
        parts.append(memory[at:end])
        at = end
    return np.frombuffer(b"".join(parts), "<f4").astype(np.float32, copy=False)


def _integers(memory: Memory, at: int, stop: int) -> Any:
    """Packed, as TensorFlow writes them, or one by one."""
    parts = []
    while at < stop:
        if memory[at] == _FIRST:
            at, end = _span(memory, at + 1, stop)
            parts.append(memory[at:end])
            at = end
        elif memory[at] == _VARINT:
            _, end = _varint(memory, at + 1, stop)
            parts.append(memory[at + 1 : end])
            at = end
        else:
            raise _OtherError
    return _varints(b"".join(parts))


def _varints(data: bytes) -> Any:
    """Numbers of 7 bits per byte, the lowest first; the highest bit says that more follow."""
    if data and data[-1] > 127:
        raise _OtherError
    digits = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(digits < 128)
    starts = np.append(0, ends[:-1] + 1) if len(ends) else ends
    sizes = ends - starts + 1
    if not len(ends):
        return np.empty(0, np.int64)
    if sizes.max() > 10:
        raise _OtherError
    places = np.arange(len(digits)) - np.repeat(starts, sizes)
    shifted = (digits & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.bitwise_or.reduceat(shifted, starts).view(np.int64)


def _span(memory: Memory, at: int, stop: int) -> tuple[int, int]:
    """Where a value with a length begins and ends."""
    size = memory[at]
    if size < 128:
        at += 1
    else:
        size, at = _varint(memory, at, stop)
    if at + size > stop:
        raise _OtherError
    return at, at + size


def _varint(memory: Memory, at: int, stop: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = 0
    for place in range(min(10, stop - at)):
        byte = memory[at + place]
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at + place + 1
    raise _OtherError
