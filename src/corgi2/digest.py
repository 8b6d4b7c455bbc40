"""Hashes of records, on arrays: 128 bits a record, keyed, from its content alone.

The sum of the hashes of many records does not depend on their order, so that two sums tell whether two data sets hold
the same records, as often each, in constant memory. Framed records are hashed as bytes, Parquet rows by columns:
nested values, too, without a Python object a row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from corgi2.block import FRAMED_SCHEMA

Lanes = npt.NDArray[np.uint64]
"""Two words of 64 bits a record: an array of shape (2, records)."""

_LONG = 256
"""Records from this length on are hashed one by one: xxh3 then earns the cost of its call."""
_MIX = np.array([[0xBF58476D1CE4E5B9], [0x94D049BB133111EB]], np.uint64)
_STEP = np.array([[0x9E3779B97F4A7C15], [0xC2B2AE3D27D4EB4F]], np.uint64)
_NULL, _BYTES, _LIST = (np.uint64(n) for n in (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0))
_S29, _S32 = np.uint64(29), np.uint64(32)


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
    low, high = hash_records(table, key).sum(axis=1, dtype=np.uint64)
    return Digest(table.num_rows, int(low), int(high))


def hash_records(table: pa.Table, key: int = 0) -> Lanes:
    """The hash of each row."""
    if table.schema.equals(FRAMED_SCHEMA):
        return _join([_hash_array(chunk, key) for chunk in table.column(0).chunks])
    lanes = _start(table.num_rows, key)
    for column in table.columns:
        lanes = _fold(lanes, _join([_hash_array(chunk, key) for chunk in column.chunks]))
    return lanes


def _join(parts: list[Lanes]) -> Lanes:
    return np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), np.uint64)


def _start(count: int, key: int) -> Lanes:
    return np.broadcast_to(_STEP * np.uint64(key * 2 + 1 & 0xFFFFFFFFFFFFFFFF), (2, count)).copy()


def _fold(lanes: Lanes, words: Lanes | npt.NDArray[np.uint64]) -> Lanes:
    """Mix one more word into each record's lanes; the order of words counts."""
    mixed: Lanes = lanes ^ words
    mixed *= _MIX
    mixed ^= mixed >> _S32
    mixed *= _STEP
    mixed += _MIX
    mixed ^= mixed >> _S29
    return mixed


def _hash_array(array: pa.Array, key: int) -> Lanes:
    """The hash of each value. Null is a value of its own, whatever lies under it."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _hash_array(array.storage, key)
    if pa.types.is_null(kind):
        return _fold(_start(len(array), key), np.full(len(array), _NULL))
    lanes = _hasher(kind)(array, key)
    if array.null_count:
        missing = ~np.asarray(array.is_valid())
        lanes[:, missing] = _fold(_start(int(missing.sum()), key), np.full(int(missing.sum()), _NULL))
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
    if types.is_fixed_size_binary(kind) or types.is_primitive(kind) or types.is_decimal(kind):
        return _hash_fixed
    return _hash_text


def _hash_dictionary(array: pa.DictionaryArray, key: int) -> Lanes:
    indices = np.asarray(array.indices.fill_null(0)).astype(np.int64)
    values = _hash_array(array.dictionary, key)
    return values[:, indices] if values.shape[1] else _start(len(array), key)


def _hash_struct(array: pa.StructArray, key: int) -> Lanes:
    lanes = _start(len(array), key)
    for field in array.flatten():
        lanes = _fold(lanes, _hash_array(field, key))
    return lanes


def _hash_fixed_list(array: pa.FixedSizeListArray, key: int) -> Lanes:
    width = array.type.list_size
    values = _hash_array(array.values.slice(array.offset * width, len(array) * width), key)
    return _hash_runs(values, np.arange(len(array) + 1) * width, key)


def _hash_list(array: pa.ListArray, key: int) -> Lanes:
    offsets = np.asarray(array.offsets).astype(np.int64)
    start, stop = int(offsets[0]), int(offsets[-1])
    if pa.types.is_map(array.type):
        keys, items = (_hash_array(part.slice(start, stop - start), key) for part in (array.keys, array.items))
        return _hash_runs(_fold(keys, items), offsets - start, key)
    return _hash_runs(_hash_array(array.values.slice(start, stop - start), key), offsets - start, key)


def _hash_runs(values: Lanes, offsets: npt.NDArray[np.int64], key: int) -> Lanes:
    """The hash of each run of values: their sum after each was mixed with its place, and their number."""
    counts = np.diff(offsets)
    places = np.arange(values.shape[1]) - np.repeat(offsets[:-1], counts)
    placed = _fold(values, places.astype(np.uint64) + _LIST)
    sums = np.concatenate([np.zeros((2, 1), np.uint64), np.cumsum(placed, axis=1, dtype=np.uint64)], axis=1)
    lanes = _fold(_start(len(counts), key), counts.astype(np.uint64) + _LIST)
    return _fold(lanes, sums[:, offsets[1:]] - sums[:, offsets[:-1]])


def _hash_fixed(array: pa.Array, key: int) -> Lanes:
    """Values of one width, as words of 64 bits, bit for bit: -0.0 is not 0.0, and a NaN keeps its payload."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    width = array.type.bit_width // 8
    raw = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    padded = np.zeros((len(array), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = raw.reshape(len(array), width)
    lanes = _start(len(array), key)
    for word in padded.view("<u8").T:
        lanes = _fold(lanes, word)
    return lanes


def _hash_text(array: pa.Array, key: int) -> Lanes:
    """Values of any length: short ones word by word for all of them at once, long ones each at once."""
    array = array.cast(pa.large_binary()) if array.type != pa.large_binary() else array
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    raw = array.buffers()[2]
    data = np.frombuffer(raw, np.uint8) if raw is not None else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    lanes = _start(len(array), key)
    long = np.flatnonzero(lengths >= _LONG)
    view, spans = data.data, zip(offsets[long].tolist(), offsets[long + 1].tolist(), strict=True)
    states = b"".join(xxhash.xxh3_128_digest(view[start:stop], key) for start, stop in spans)
    lanes[:, long] = np.frombuffer(states, "<u8").reshape(-1, 2).T
    short = np.flatnonzero(lengths < _LONG)
    lanes[:, short] = _hash_short(data, offsets[short], lengths[short], key)
    return lanes


def _hash_short(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], key: int
) -> Lanes:
    """Longest first, so that those that still have a word are always the front of the arrays."""
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    first, last = (int(starts.min()), int((starts + lengths).max())) if len(starts) else (0, 0)
    window = np.concatenate([data[first:last], np.zeros(8, np.uint8)])
    words = np.ndarray(len(window) - 7, "<u8", window, strides=(1,))
    lanes = _fold(_start(len(order), key), lengths.astype(np.uint64) + _BYTES)
    for at in range(0, int(lengths[0]) if len(lengths) else 0, 8):
        active = int(np.searchsorted(-lengths, -at))
        left = np.minimum(lengths[:active] - at, 8).astype(np.uint64)
        mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - left * np.uint64(8))
        lanes[:, :active] = _fold(lanes[:, :active], words[starts[:active] - first + at] & mask)
    result = np.empty_like(lanes)
    result[:, order] = lanes
    return result
