"""Hashes of records, on arrays: 128 bits per record, keyed, from its content alone.

The sum of the hashes of many records does not depend on their order, so two sums tell whether two data sets hold the
same records, each equally often, in constant memory. Framed records are hashed as bytes, Parquet rows by columns:
nested values, too, without a Python object per row.

Fixed-width values, and texts below 256 bytes, are hashed multilinearly in two independent lanes of 64 bits: a sum of
words of 32 bits, each times a key of its own, drawn by Philox from the key and from the place of the word: column,
field, word, null. Without the key, two values collide with a probability of at most 2^-66. Longer texts are hashed by
xxh3_128 with the key as its seed. Each record's lanes are scrambled before they are added up: sums of plain multilinear
hashes would not notice a value that changes places with another row's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corgi2.order import Indices
from corgi2.records.arrays import number_array, numpy_of
from corgi2.records.spans import loose_bytes, thirds

Lanes = npt.NDArray[np.uint64]
"""Two words of 64 bits per record: an array of shape (2, records)."""
Bytes = npt.NDArray[np.uint8]
Items = Callable[[Bytes], Iterator[Indices]]
"""Cuts bytes that belong to no record into items: yields the offsets of some, end included, then of the next."""
Path = tuple[int, ...]
"""Where a value stands in its row: its column, then its field, and so on."""

_LONG = 256
"""Values from this length on are hashed one by one: xxh3 then earns the cost of its call."""
_MIX = np.array([[0xFF51AFD7ED558CCD], [0xBF58476D1CE4E5B9]], np.uint64)
_MIX_AGAIN = np.array([[0xC4CEB9FE1A85EC53], [0x94D049BB133111EB]], np.uint64)
_NO_BYTES = pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")])[0]
_S32, _S33 = np.uint64(32), np.uint64(33)
_ROWS, _NESTED_BYTES = 1 << 14, 500_000
"""Rows and bytes hashed at a time: 16,384 rows are hashed 2 to 3 times as fast as a million. A value in a list takes up
to 20 times its bytes meanwhile."""
_TEXT_ROWS = 1 << 12
"""Texts that are padded to one length at a time: at most a megabyte."""
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Digest:
    """The number of records and the sum of their hashes, modulo 2^64 in each lane; and the same for items that lie
    between records and belong to none, each hashed by itself. Digests add up."""

    count: int = 0
    low: int = 0
    high: int = 0
    loose: int = 0
    loose_low: int = 0
    loose_high: int = 0

    def __add__(self, other: "Digest") -> "Digest":
        return Digest(
            self.count + other.count,
            (self.low + other.low) & _MASK,
            (self.high + other.high) & _MASK,
            self.loose + other.loose,
            (self.loose_low + other.loose_low) & _MASK,
            (self.loose_high + other.loose_high) & _MASK,
        )


def digest(table: pa.Table, key: int) -> Digest:
    """The digest of all rows of a table."""
    total = Digest()
    for lanes in _steps(table, key):
        total += _summed(lanes)
    return total


def hash_records(table: pa.Table, key: int) -> Lanes:
    """The hash of each row."""
    return _join(list(_steps(table, key)))


def digest_framed(table: pa.Table, key: int, items: Items) -> Digest:
    """The digest of framed records, and of the bytes that travel with them."""
    total = Digest()
    for start in range(0, len(table), _ROWS):
        part = table.slice(start, _ROWS)
        total += _summed(hash_framed(part, key))
        for values in loose_bytes(part):
            for offsets in items(values):
                count, low, high = _sums(hash_values(_cut(values, offsets), key))
                total += Digest(loose=count, loose_low=low, loose_high=high)
    return total


def hash_framed(table: pa.Table, key: int) -> Lanes:
    """The hash of each framed record, without the bytes that travel with it."""
    if table.num_columns == 1:
        return _join([hash_values(chunk, key) for chunk in table.column(0).chunks])
    return hash_values(thirds(table), key)[:, 1::3]


def hash_values(array: pa.Array, key: int) -> Lanes:
    """The hash of each value of an array of bytes."""
    return _finish(_hash_text(array, key, ()))


def _cut(data: Bytes, offsets: Indices) -> pa.Array:
    return pa.Array.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    )


def _sums(lanes: Lanes) -> tuple[int, int, int]:
    low, high = lanes.sum(axis=1, dtype=np.uint64)
    return lanes.shape[1], int(low), int(high)


def _summed(lanes: Lanes) -> Digest:
    return Digest(*_sums(lanes))


def _steps(table: pa.Table, key: int) -> Iterator[Lanes]:
    """As many rows at a time as stay in a core's cache, with everything that their lists hold."""
    step = _ROWS
    if any("dictionary" in str(kind) for kind in table.schema.types):
        step = len(table)
    elif any(map(pa.types.is_nested, table.schema.types)):
        step = min(_ROWS, max(1, _NESTED_BYTES * len(table) // max(1, table.nbytes)))
    return (_hash_rows(table.slice(start, step), key) for start in range(0, len(table), max(1, step)))


def _hash_rows(table: pa.Table, key: int) -> Lanes:
    lanes = _start(table.num_rows, key, ())
    for number, column in enumerate(table.columns):
        at = 0
        for chunk in column.chunks:
            _add(lanes[:, at : at + len(chunk)], chunk, key, (number,))
            at += len(chunk)
    return _finish(lanes)


class _Keys(NamedTuple):
    """A number for each lane, as arrays of shape (2, 1): where a value begins, for a null, and for each word."""

    start: Lanes
    null: Lanes
    words: npt.NDArray[np.uint64]


@lru_cache(maxsize=4096)
def _keys(key: int, path: Path, words: int = 0) -> _Keys:
    source = np.random.Philox(np.random.SeedSequence(key, spawn_key=path))
    start, null, *_ = drawn = source.random_raw(2 * words + 4).astype(np.uint64).reshape(-1, 2, 1)
    return _Keys(start, null, drawn[2:])


def _start(count: int, key: int, path: Path) -> Lanes:
    return np.broadcast_to(_keys(key, path).start, (2, count)).copy()


def _add(lanes: Lanes, array: pa.Array, key: int, path: Path) -> None:
    """Add a column's values to the lanes of their rows: numbers word by word, all others by their hash. A null counts
    as zero, and then as a null, whatever lies under it."""
    place, inside = (*path, 0), (*path, 1)
    if not _is_fixed(array.type):
        _add_words(lanes, _hash_array(array, key, inside), _keys(key, place, 2).words)
        return
    wide = array.type.bit_width > 32
    keys = _keys(key, place, 2 * -(-array.type.bit_width // 64))
    missing = None if not array.null_count else ~numpy_of(array.is_valid())
    for number, word in enumerate(_words(array)):
        shown = word if missing is None else np.where(missing, np.uint64(0), word)
        _add_words(lanes, shown, keys.words[2 * number : 2 * number + 2], wide)
    if missing is not None:
        lanes[:, missing] += keys.null


def _add_words(lanes: Lanes, words: npt.NDArray[np.uint64], keys: npt.NDArray[np.uint64], wide: bool = True) -> None:
    """Add words times their key, in place. A word of 64 bits counts as it is and by its upper half, so that two words
    that differ anywhere have different sums, except with one in 2^33 keys."""
    product = words * keys[0]
    lanes += product
    if wide:
        lanes += np.multiply(words >> _S32, keys[1], out=product)


def _join(parts: list[Lanes]) -> Lanes:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), np.uint64)


def _finish(lanes: Lanes) -> Lanes:
    """After the last word, in place: make every bit depend on every other, so that sums of hashes are meaningful."""
    lanes ^= lanes >> _S33
    lanes *= _MIX
    lanes ^= lanes >> _S33
    lanes *= _MIX_AGAIN
    lanes ^= lanes >> _S33
    return lanes


def _hash_array(array: pa.Array, key: int, path: Path) -> Lanes:
    """A hash of each value, still to be scrambled. Null is a value of its own, whatever lies under it."""
    if isinstance(array, pa.ExtensionArray):
        return _hash_array(array.storage, key, path)
    null = _keys(key, path).null
    if pa.types.is_null(array.type):
        return np.broadcast_to(null, (2, len(array))).copy()
    lanes = _hasher(array.type)(array, key, path)
    if array.null_count:
        lanes[:, ~numpy_of(array.is_valid())] = null
    return lanes


def _hasher(kind: pa.DataType) -> Callable[[Any, int, Path], Lanes]:
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
    if not (pa.types.is_fixed_size_binary(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind)):
        return False
    return bool(kind.bit_width < 8 * _LONG)


def _hash_dictionary(array: pa.DictionaryArray, key: int, path: Path) -> Lanes:
    indices = numpy_of(array.indices).astype(np.int64)
    if array.null_count:
        indices[~numpy_of(array.is_valid())] = 0
    values = _hash_array(array.dictionary, key, path)
    return values[:, indices] if values.shape[1] else _start(len(array), key, path)


def _hash_struct(array: pa.StructArray, key: int, path: Path) -> Lanes:
    lanes = _start(len(array), key, path)
    for number, field in enumerate(array.flatten()):
        _add(lanes, field, key, (*path, number))
    return lanes


def _hash_fixed_list(array: pa.FixedSizeListArray, key: int, path: Path) -> Lanes:
    width = array.type.list_size
    values = array.values.slice(array.offset * width, len(array) * width)
    return _hash_runs([values], np.arange(len(array) + 1) * width, key, path)


def _hash_list(array: pa.ListArray, key: int, path: Path) -> Lanes:
    offsets = numpy_of(array.offsets).astype(np.int64)
    start, stop = int(offsets[0]), int(offsets[-1])
    parts = (array.keys, array.items) if pa.types.is_map(array.type) else (array.values,)
    return _hash_runs([part.slice(start, stop - start) for part in parts], offsets - start, key, path)


def _hash_runs(parts: list[pa.Array], offsets: Indices, key: int, path: Path) -> Lanes:
    """The hash of each run of values: their sum, after each was scrambled with its place, and their number."""
    counts = np.diff(offsets)
    keys = _keys(key, path, 4).words
    places = (np.arange(len(parts[0])) - np.repeat(offsets[:-1], counts)).astype(np.uint64)
    values = _start(len(parts[0]), key, path)
    _add_words(values, places, keys[:2])
    for number, part in enumerate(parts):
        _add(values, part, key, (*path, number))
    sums = np.concatenate([np.zeros((2, 1), np.uint64), np.cumsum(_finish(values), axis=1, dtype=np.uint64)], axis=1)
    lanes = sums[:, offsets[1:]] - sums[:, offsets[:-1]]
    _add_words(lanes, counts.astype(np.uint64), keys[2:4])
    return np.asarray(lanes)


def _hash_fixed(array: pa.Array, key: int, path: Path) -> Lanes:
    lanes = _start(len(array), key, path)
    _add(lanes, array, key, path)
    return lanes


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


def _hash_text(array: pa.Array, key: int, path: Path) -> Lanes:
    """Values of any length: short ones word by word, all of them at once; long ones one by one."""
    array = array.cast(pa.large_binary()) if array.type != pa.large_binary() else array
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    lengths = np.diff(offsets)
    if not len(lengths) or lengths.max() < _LONG:
        return _hash_short(array, lengths, key, path)
    lanes = np.empty((2, len(array)), np.uint64)
    long, short = np.flatnonzero(lengths >= _LONG), np.flatnonzero(lengths < _LONG)
    data = np.frombuffer(array.buffers()[2], np.uint8)
    records = map(data.data.__getitem__, map(slice, offsets[long].tolist(), offsets[long + 1].tolist()))
    states = b"".join(map(xxhash.xxh3_128_digest, records, repeat(key)))
    lanes[:, long] = np.frombuffer(states, "<u8").reshape(-1, 2).T
    if len(short):
        lanes[:, short] = _hash_short(array.take(number_array(short)), lengths[short], key, path)
    return lanes


def _hash_short(array: pa.Array, lengths: npt.NDArray[np.int64], key: int, path: Path) -> Lanes:
    """The length, then words of 32 bits, the last one padded with zeros: a product of matrices."""
    keys = _keys(key, path, 1 + _LONG // 4)
    lanes = lengths.astype(np.uint64) * keys.words[0] + keys.start
    words = -(-int(lengths.max(initial=0)) // 8)
    factors = np.ascontiguousarray(keys.words[1 : 1 + 2 * words, :, 0])
    for start in range(0, len(array) if words else 0, _TEXT_ROWS):
        part = _padded(array.slice(start, _TEXT_ROWS), words).view("<u4").astype(np.uint64)
        lanes[:, start : start + len(part)] += (part @ factors).T
    return np.asarray(lanes)


def _padded(array: pa.Array, words: int) -> npt.NDArray[np.uint64]:
    """Values padded with zeros to this many words: one row per value."""
    if array.null_count:
        array = array.fill_null(_NO_BYTES)
    padded = pc.ascii_rpad(array.view(pa.large_string()), width=8 * words, padding="\0")
    data = np.frombuffer(padded.buffers()[2], "<u8", len(array) * words, 8 * words * padded.offset)
    return data.reshape(len(array), words)
