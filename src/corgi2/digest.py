"""Hashes of records, on arrays: 128 bits a record, keyed, from its content alone.

The sum of the hashes of many records does not depend on their order, so that two sums tell whether two data sets hold
the same records, as often each, in constant memory. Framed records are hashed as bytes, Parquet rows by columns:
nested values, too, without a Python object a row.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corgi2.arrays import number_array, numpy_of
from corgi2.block import FRAMED_SCHEMA

Lanes = npt.NDArray[np.uint64]
"""Two words of 64 bits a record: an array of shape (2, records)."""

_LONG = 256
"""Records from this length on are hashed one by one: xxh3 then earns the cost of its call."""
_MIX = np.array([[0xBF58476D1CE4E5B9], [0x94D049BB133111EB]], np.uint64)
_STEP = np.array([[0x9E3779B97F4A7C15], [0xC2B2AE3D27D4EB4F]], np.uint64)
_NULL, _BYTES, _LIST = (np.uint64(n) for n in (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0))
_NO_BYTES = pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")])[0]
_S29, _S32 = np.uint64(29), np.uint64(32)
_ROWS, _NESTED_BYTES = 1 << 14, 500_000
"""Hashed at a time: 16,384 rows are hashed 2 to 3 times as fast as a million. A value in a list takes up to 20 times
its bytes meanwhile."""


@dataclass(frozen=True, slots=True)
class Digest:
    """The number of records and the sum of their hashes, modulo 2^64 in each lane. Digests add up."""

    count: int = 0
    low: int = 0
    high: int = 0

    def __add__(self, other: "Digest") -> "Digest":
        mask = (1 << 64) - 1
        return Digest(self.count + other.count, (self.low + other.low) & mask, (self.high + other.high) & mask)


def digest(table: pa.Table, key: int = 0) -> Digest:
    """The digest of all rows of a table."""
    total = Digest()
    for lanes in _steps(table, key):
        low, high = lanes.sum(axis=1, dtype=np.uint64)
        total += Digest(lanes.shape[1], int(low), int(high))
    return total


def hash_records(table: pa.Table, key: int = 0) -> Lanes:
    """The hash of each row."""
    return _join(list(_steps(table, key)))


def _steps(table: pa.Table, key: int) -> Iterator[Lanes]:
    """So many rows at a time that they stay in a core's cache, with all that their lists hold."""
    step = _ROWS
    if any("dictionary" in str(kind) for kind in table.schema.types):
        step = len(table)
    elif any(map(pa.types.is_nested, table.schema.types)):
        step = min(_ROWS, max(1, _NESTED_BYTES * len(table) // max(1, table.nbytes)))
    return (_hash_rows(table.slice(start, step), key) for start in range(0, len(table), max(1, step)))


def _hash_rows(table: pa.Table, key: int) -> Lanes:
    if table.schema.equals(FRAMED_SCHEMA):
        return _join([_hash_array(chunk, key) for chunk in table.column(0).chunks])
    lanes = _start(table.num_rows, key)
    for column in table.columns:
        at = 0
        for chunk in column.chunks:
            _fold_array(lanes[:, at : at + len(chunk)], chunk, key)
            at += len(chunk)
    return _finish(lanes)


def _fold_array(lanes: Lanes, array: pa.Array, key: int) -> None:
    """Mix a column's values into the lanes of their rows: numbers directly, all others by their hash. A null counts as
    zero, and then as a null, whatever lies under it."""
    if not _is_fixed(array.type):
        _fold(lanes, _hash_array(array, key))
        return
    missing = None if not array.null_count else ~numpy_of(array.is_valid())
    for word in _words(array):
        _fold(lanes, word if missing is None else np.where(missing, np.uint64(0), word))
    if missing is not None:
        lanes[:, missing] = _fold(lanes[:, missing], np.asarray(_NULL))


def _join(parts: list[Lanes]) -> Lanes:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), np.uint64)


def _start(count: int, key: int) -> Lanes:
    return np.broadcast_to(_STEP * np.uint64(key * 2 + 1 & 0xFFFFFFFFFFFFFFFF), (2, count)).copy()


def _fold(lanes: Lanes, words: Lanes | npt.NDArray[np.uint64]) -> Lanes:
    """Mix one more word into each record's lanes, in place; the order of words counts."""
    lanes ^= words
    lanes *= _MIX
    lanes ^= lanes >> _S32
    return lanes


def _finish(lanes: Lanes) -> Lanes:
    """After the last word: every bit depends on every other, so that sums of hashes say something."""
    lanes *= _STEP
    lanes += _MIX
    lanes ^= lanes >> _S29
    lanes *= _MIX
    lanes ^= lanes >> _S32
    return lanes


def _hash_array(array: pa.Array, key: int) -> Lanes:
    """The hash of each value. Null is a value of its own, whatever lies under it."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _hash_array(array.storage, key)
    if pa.types.is_null(kind):
        return _finish(_fold(_start(len(array), key), np.full(len(array), _NULL)))
    lanes = _hasher(kind)(array, key)
    if array.null_count:
        missing = ~numpy_of(array.is_valid())
        lanes[:, missing] = _finish(_fold(_start(int(missing.sum()), key), np.full(int(missing.sum()), _NULL)))
    return lanes


def _hasher(kind: pa.DataType) -> Callable[[Any, int], Lanes]:
    types = pa.types
    if types.is_dictionary(kind):
        return _hash_dictionary
    if types.is_struct(kind):
        return _hash_struct
    if types.is_fixed_size_list(kind):
        return _hash_fixed_list
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        return _hash_list
    return _hash_fixed if _is_fixed(kind) else _hash_text


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _hash_dictionary(array: pa.DictionaryArray, key: int) -> Lanes:
    indices = numpy_of(array.indices).astype(np.int64)
    if array.null_count:
        indices[~numpy_of(array.is_valid())] = 0
    values = _hash_array(array.dictionary, key)
    return values[:, indices] if values.shape[1] else _start(len(array), key)


def _hash_struct(array: pa.StructArray, key: int) -> Lanes:
    lanes = _start(len(array), key)
    for field in array.flatten():
        lanes = _fold(lanes, _hash_array(field, key))
    return _finish(lanes)


def _hash_fixed_list(array: pa.FixedSizeListArray, key: int) -> Lanes:
    width = array.type.list_size
    values = _hash_array(array.values.slice(array.offset * width, len(array) * width), key)
    return _hash_runs(values, np.arange(len(array) + 1) * width, key)


def _hash_list(array: pa.ListArray, key: int) -> Lanes:
    offsets = numpy_of(array.offsets).astype(np.int64)
    start, stop = int(offsets[0]), int(offsets[-1])
    if pa.types.is_map(array.type):
        keys, items = (_hash_array(part.slice(start, stop - start), key) for part in (array.keys, array.items))
        return _hash_runs(_fold(keys, items), offsets - start, key)
    return _hash_runs(_hash_array(array.values.slice(start, stop - start), key), offsets - start, key)


def _hash_runs(values: Lanes, offsets: npt.NDArray[np.int64], key: int) -> Lanes:
    """The hash of each run of values: their sum after each was mixed with its place, and their number."""
    counts = np.diff(offsets)
    places = np.arange(values.shape[1]) - np.repeat(offsets[:-1], counts)
    placed = _finish(_fold(values, places.astype(np.uint64) + _LIST))
    sums = np.concatenate([np.zeros((2, 1), np.uint64), np.cumsum(placed, axis=1, dtype=np.uint64)], axis=1)
    lanes = _fold(_start(len(counts), key), counts.astype(np.uint64) + _LIST)
    return _finish(_fold(lanes, sums[:, offsets[1:]] - sums[:, offsets[:-1]]))


def _hash_fixed(array: pa.Array, key: int) -> Lanes:
    lanes = _start(len(array), key)
    for word in _words(array):
        lanes = _fold(lanes, word)
    return _finish(lanes)


def _words(array: pa.Array) -> Iterator[npt.NDArray[np.uint64]]:
    """Values of one width, as words of 64 bits, bit for bit: -0.0 is not 0.0, and a NaN keeps its payload."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    width = array.type.bit_width // 8
    raw = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    if width in (1, 2, 4, 8):
        yield raw.view(f"<u{width}").astype(np.uint64, copy=False)
        return
    padded = np.zeros((len(array), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = raw.reshape(len(array), width)
    yield from padded.view("<u8").T


def _hash_text(array: pa.Array, key: int) -> Lanes:
    """Values of any length: short ones word by word for all of them at once, long ones each at once."""
    array = array.cast(pa.large_binary()) if array.type != pa.large_binary() else array
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    lengths = np.diff(offsets)
    if not len(lengths) or lengths.max() < _LONG:
        return _hash_short(array, lengths, key)
    lanes = _start(len(array), key)
    long, short = np.flatnonzero(lengths >= _LONG), np.flatnonzero(lengths < _LONG)
    data = np.frombuffer(array.buffers()[2], np.uint8)
    records = map(data.data.__getitem__, map(slice, offsets[long].tolist(), offsets[long + 1].tolist()))
    states = b"".join(map(xxhash.xxh3_128_digest, records, repeat(key)))
    lanes[:, long] = np.frombuffer(states, "<u8").reshape(-1, 2).T
    if len(short):
        lanes[:, short] = _hash_short(array.take(number_array(short)), lengths[short], key)
    return lanes


def _hash_short(array: pa.Array, lengths: npt.NDArray[np.int64], key: int) -> Lanes:
    """The length, then as many words of 64 bits as there are bytes for, the last one filled up with zeros."""
    lanes = _fold(_start(len(array), key), lengths.astype(np.uint64) + _BYTES)
    longest, shortest = (int(lengths.max()), int(lengths.min())) if len(lengths) else (0, 0)
    words = _padded(array, -(-longest // 8))
    for number, word in enumerate(words.T):
        if shortest > 8 * number:
            _fold(lanes, word)
        else:
            some = np.flatnonzero(lengths > 8 * number)
            lanes[:, some] = _fold(lanes[:, some], word[some])
    return _finish(lanes)


def _padded(array: pa.Array, words: int) -> npt.NDArray[np.uint64]:
    """Values filled up with zeros to so many words: a row each."""
    if not words:
        return np.zeros((len(array), 0), np.uint64)
    if array.null_count:
        array = array.fill_null(_NO_BYTES)
    padded = pc.ascii_rpad(array.view(pa.large_string()), width=8 * words, padding="\0")
    data = np.frombuffer(padded.buffers()[2], "<u8", len(array) * words, 8 * words * padded.offset)
    return data.reshape(len(array), words)
