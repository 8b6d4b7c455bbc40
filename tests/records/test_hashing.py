"""Digests: a function of the records alone, in any order, in any chunks; any change of a record shows."""

import itertools
import math
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgi2.records.hashing import Digest, digest, digest_framed, hash_framed, hash_records
from corgi2.records.spans import framed_table
from tests.columns import VALUES, column_of

TYPES = st.sampled_from([type_ for type_ in VALUES if not pa.types.is_null(type_)])
KEYS = st.integers(0, (1 << 64) - 1)
KEY = 0xC0FFEE


def _framed(records: list[bytes]) -> pa.Table:
    return framed_table(np.cumsum([0, *map(len, records)]).astype(np.int64), np.frombuffer(b"".join(records), np.uint8))


def _pairs(lanes: Any) -> list[tuple[int, int]]:
    return [(int(low), int(high)) for low, high in lanes.T]


def _hashes(table: pa.Table, key: int = KEY) -> list[tuple[int, int]]:
    return _pairs(hash_records(table, key))


def _hashes_of(records: list[bytes], key: int = KEY) -> list[tuple[int, int]]:
    return _pairs(hash_framed(_framed(records), key))


def _no_items(_: Any) -> Iterator[Any]:
    yield from ()


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=20), st.randoms(), KEYS)
def test_the_hash_of_a_record_does_not_depend_on_its_neighbours(records: list[bytes], random: Any, key: int) -> None:
    alone = [_hashes_of([record], key)[0] for record in records]
    assert _hashes_of(records, key) == alone
    shuffled = random.sample(records, len(records))
    sums = [digest_framed(_framed(each), key, _no_items) for each in (records, shuffled)]
    assert sums[0] == sums[1]


@given(st.lists(st.binary(max_size=600), min_size=2, max_size=30, unique=True), KEYS)
def test_different_records_have_different_hashes(records: list[bytes], key: int) -> None:
    assert len(set(_hashes_of(records, key))) == len(records)


SIZES = [1, 3, 4, 7, 8, 9, 16, 31, 63, 64, 128, 255, 256, 300]


@pytest.mark.parametrize("size", SIZES)
def test_every_flipped_bit_shows(size: int) -> None:
    record = np.random.default_rng(size).bytes(size)
    changed = [_flipped(record, [bit]) for bit in range(8 * size)]
    hashes = _hashes_of([record, *changed])
    assert len(set(hashes)) == len(hashes)
    for lane in (0, 1):  # each by itself: if one were weak, the other would hide it
        assert len({each[lane] for each in hashes}) == len(hashes)


def _flipped(record: bytes, bits: list[int]) -> bytes:
    data = bytearray(record)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


@pytest.mark.parametrize("start", [0, 8, 24])
def test_every_pair_of_flipped_bits_in_adjacent_words_shows(start: int) -> None:
    record = bytes(range(40))
    places = range(8 * start, 8 * start + 128)
    hashes = _hashes_of([_flipped(record, list(pair)) for pair in itertools.combinations(places, 2)])
    for lane in (0, 1):
        assert len({each[lane] for each in hashes}) == len(hashes)


def _triples(word: int) -> Iterator[list[int]]:
    """Bit 63 of one word and bits 63 and 31 of the next, and all that is shaped like it."""
    for one, other, shift in itertools.product((63, 62, 31, 0), (63, 62, 31, 0), (32, 31, 1)):
        yield [64 * word + one, 64 * (word + 1) + other, 64 * (word + 1) + (other + shift) % 64]


@settings(max_examples=25)
@given(st.binary(min_size=64, max_size=64), KEYS)
def test_changes_that_cancelled_for_every_key_no_longer_do(record: bytes, key: int) -> None:
    changed = [_flipped(record, bits) for word in range(6) for bits in _triples(word)]
    assert _hashes_of([record], key)[0] not in _hashes_of(changed, key)
    table = pa.table(dict(zip("abcdefgh", np.frombuffer(record, "<i8").reshape(8, 1), strict=True)))
    for data in changed:
        other = pa.table(dict(zip("abcdefgh", np.frombuffer(data, "<i8").reshape(8, 1), strict=True)))
        assert _hashes(table, key) != _hashes(other, key)


Column = Callable[[np.random.Generator, int], pa.Array]
COLUMNS: dict[str, Column] = {
    "int64": lambda rng, n: pa.array(rng.integers(-(1 << 62), 1 << 62, n)),
    "int8": lambda rng, n: pa.array(rng.integers(0, 100, n).astype(np.int8)),
    "float32": lambda rng, n: pa.array(rng.random(n).astype(np.float32)),
    "bool": lambda rng, n: pa.array((rng.permutation(n) % 2).astype(bool)),
    "decimal": lambda rng, n: pa.array(rng.integers(0, 1 << 40, n)).cast(pa.decimal128(38, 2)),
    "fixed": lambda rng, n: pa.array([rng.bytes(300) for _ in range(n)], pa.binary(300)),
    "text": lambda rng, n: pa.array([rng.bytes(5).hex() for _ in range(n)]),
    "long": lambda rng, n: pa.array([rng.bytes(200).hex() for _ in range(n)]),
    "list": lambda rng, n: pa.array([[*rng.integers(0, 9, 3).tolist(), k] for k in range(n)]),
    "texts": lambda rng, n: pa.array([[rng.bytes(2).hex(), None] for _ in range(n)]),
    "vector": lambda rng, n: pa.FixedSizeListArray.from_arrays(pa.array(rng.random(4 * n)), 4),
    "struct": lambda rng, n: pa.array([{"x": int(k), "y": [int(k), -int(k)]} for k in rng.permutation(n)]),
    "map": lambda rng, n: pa.array([[(f"{k}", int(k))] for k in rng.permutation(n)], pa.map_(pa.string(), pa.int64())),
    "dictionary": lambda rng, n: pa.array([f"{k}" for k in rng.permutation(n)]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", COLUMNS)
@given(seed=st.integers(0, 99), key=KEYS, data=st.data())
@settings(max_examples=25)
def test_values_that_change_places_between_rows_or_columns_show(
    kind: str, seed: int, key: int, data: st.DataObject
) -> None:
    """The sums of a row's columns alone would not tell: every value is still there."""
    rng = np.random.default_rng(seed)
    one, other, number = (make(rng, 6) for make in (COLUMNS[kind], COLUMNS[kind], COLUMNS["int64"]))
    before = pa.table({"a": one, "b": other, "n": number})
    first, second = sorted(data.draw(st.permutations(range(6)))[:2])
    swapped = list(range(6))
    swapped[first], swapped[second] = second, first
    rows = pa.table({"a": one, "b": other.take(pa.array(swapped)), "n": number})
    columns = pa.table({"a": other, "b": one, "n": number})
    for changed in (rows, columns):
        same = sorted(map(repr, before.to_pylist())) == sorted(map(repr, changed.to_pylist()))
        assert (digest(before, key) == digest(changed, key)) == same


@pytest.mark.parametrize("kind", ["int64", "text", "list", "struct", "vector"])
def test_a_null_is_neither_zero_nor_nothing_nor_another_columns_null(kind: str) -> None:
    values = COLUMNS[kind](np.random.default_rng(0), 1)
    null = pa.nulls(1, values.type)
    zero = pa.array([{"int64": 0, "text": "", "list": [], "struct": {"x": None, "y": None}, "vector": [0.0] * 4}[kind]])
    tables = [
        pa.table({"a": a, "b": b}) for a, b in itertools.product((values, null, zero.cast(values.type)), repeat=2)
    ]
    hashes = [_hashes(table)[0] for table in tables]
    assert len(set(hashes)) == len(hashes)


@given(st.integers(0, 1 << 32), st.integers(0, 63), st.integers(1, 40), KEYS)
def test_progressions_and_powers_of_two_have_hashes_and_sums_of_their_own(
    start: int, shift: int, count: int, key: int
) -> None:
    """Structured values, on which weak hashes add up to the same: x and y against x + d and y - d, for many d."""
    steps = ((step << shift) % (1 << 64) for step in range(count + 1))
    pairs = {tuple(sorted(((start + step) % (1 << 64), (start - step) % (1 << 64)))) for step in steps}
    sums = [digest(pa.table({"a": pa.array(pair, pa.uint64())}), key) for pair in pairs]
    assert len({(each.low, each.high) for each in sums}) == len(pairs)


@settings(max_examples=200)
@given(st.lists(TYPES, min_size=1, max_size=4), st.integers(1, 30), st.integers(0, 999), st.data())
def test_rows_of_any_type_hash_by_value_whatever_their_chunks(
    types: list[pa.DataType], rows: int, seed: int, data: st.DataObject
) -> None:
    table = pa.table([column_of(type_, rows, seed) for type_ in types], [f"c{n}" for n in range(len(types))])
    hashes = _hashes(table)
    cut = data.draw(st.integers(0, rows))
    pieces = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert _hashes(pieces) == hashes
    assert _hashes(table.take(list(range(rows))[::-1])) == hashes[::-1]
    by_value = dict(zip(map(repr, table.to_pylist()), hashes, strict=True))
    assert len(set(by_value.values())) == len(by_value)
    assert [by_value[repr(row)] for row in table.to_pylist()] == hashes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([[1, 2], [3]], [[1], [2, 3]]),
        ([[1], []], [[], [1]]),
        ([[1, 2]], [[2, 1]]),
        ([None], [[]]),
        ([[None]], [[]]),
        ([[0]], [[0, 0]]),
        ([[None]], [[None, None]]),
    ],
)
def test_lists_that_hold_the_same_values_otherwise_differ(one: list[Any], other: list[Any]) -> None:
    type_ = pa.list_(pa.int64())
    assert _hashes(pa.table({"a": pa.array(one, type_)})) != _hashes(pa.table({"a": pa.array(other, type_)}))


def test_what_lies_under_a_null_does_not_count() -> None:
    hidden = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([7, 99]))])
    assert _hashes(pa.table({"a": hidden})) == _hashes(pa.table({"a": pa.array([7, None])}))


def test_floats_count_bit_by_bit() -> None:
    zero, negative = (_hashes(pa.table({"a": [value]})) for value in (0.0, -0.0))
    assert zero != negative
    assert _hashes(pa.table({"a": [math.nan]})) == _hashes(pa.table({"a": [math.nan]}))


def test_a_dictionary_hashes_as_the_values_it_stands_for() -> None:
    words = pa.array(["a", "b", "a", None])
    assert _hashes(pa.table({"a": words.dictionary_encode()})) == _hashes(pa.table({"a": words}))


def test_digests_add_up_and_depend_on_the_key() -> None:
    table = pa.table({"a": range(1000)})
    parts = digest(table.slice(0, 300), 5) + digest(table.slice(300), 5)
    assert parts == digest(table, 5)
    assert digest(table, key=1) != digest(table, key=2)
    assert digest(table.slice(0, 0), 1) == Digest()


@given(st.lists(KEYS, min_size=2, max_size=2, unique=True))
def test_every_key_gives_every_kind_of_value_another_hash(keys: list[int]) -> None:
    rng = np.random.default_rng(0)
    for make in COLUMNS.values():
        table = pa.table({"a": make(rng, 2)})
        assert not set(_hashes(table, keys[0])) & set(_hashes(table, keys[1]))


def test_hashes_are_pinned_because_they_are_kept_on_disk() -> None:
    table = pa.table({"a": [1, None], "s": ["x", "y" * 300], "l": [[1, 2], []], "m": [{"p": 1.5}, None]})
    assert digest(table, 5) == Digest(2, 3025109206015318703, 17790645509391637864)
    assert digest_framed(_framed([b"a", b"b" * 999]), 5, _no_items) == Digest(
        2, 12837978952250992915, 17718219007136369267
    )


def test_long_lists_are_hashed_in_little_memory() -> None:
    """Rows of 1,000 values: what a step of 16,384 rows would take is many times what they lie in."""
    values = pa.array(np.random.default_rng(0).random(4_000_000, np.float32))
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 1_000)})
    tracemalloc.start()
    whole = digest(table, KEY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16_000_000
    assert whole == digest(table.slice(0, 1_234), KEY) + digest(table.slice(1_234), KEY)
