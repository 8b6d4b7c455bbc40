"""Digests: a function of the records alone, in any order, in any chunks; any change of a record shows."""

import math
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgi2.block import framed_table
from corgi2.digest import Digest, digest, hash_records
from tests.test_parquet import VALUES, _column

TYPES = st.sampled_from([type_ for type_ in VALUES if not pa.types.is_null(type_)])


def _framed(records: list[bytes]) -> pa.Table:
    return framed_table(np.cumsum([0, *map(len, records)]).astype(np.int64), np.frombuffer(b"".join(records), np.uint8))


def _hashes(table: pa.Table, key: int = 0) -> list[tuple[int, int]]:
    return [(int(low), int(high)) for low, high in hash_records(table, key).T]


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=20), st.randoms())
def test_the_hash_of_a_record_does_not_depend_on_its_neighbours(records: list[bytes], random: Any) -> None:
    alone = [_hashes(_framed([record]))[0] for record in records]
    assert _hashes(_framed(records)) == alone
    shuffled = random.sample(records, len(records))
    assert digest(_framed(shuffled)) == digest(_framed(records))


@given(st.lists(st.binary(max_size=600), min_size=2, max_size=30, unique=True))
def test_different_records_have_different_hashes(records: list[bytes]) -> None:
    assert len(set(_hashes(_framed(records)))) == len(records)


@given(st.binary(min_size=1, max_size=600), st.data())
def test_one_flipped_bit_shows(record: bytes, data: st.DataObject) -> None:
    place, bit = data.draw(st.integers(0, len(record) - 1)), data.draw(st.integers(0, 7))
    flipped = bytearray(record)
    flipped[place] ^= 1 << bit
    assert _hashes(_framed([record])) != _hashes(_framed([bytes(flipped)]))


@settings(max_examples=200)
@given(st.lists(TYPES, min_size=1, max_size=4), st.integers(1, 30), st.integers(0, 999), st.data())
def test_rows_of_any_type_hash_by_value_whatever_their_chunks(
    types: list[pa.DataType], rows: int, seed: int, data: st.DataObject
) -> None:
    table = pa.table([_column(type_, rows, seed) for type_ in types], [f"c{n}" for n in range(len(types))])
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
    ],
)
def test_lists_that_hold_the_same_values_otherwise_differ(one: list[Any], other: list[Any]) -> None:
    type_ = pa.list_(pa.int64())
    assert _hashes(pa.table({"a": pa.array(one, type_)})) != _hashes(pa.table({"a": pa.array(other, type_)}))


def test_values_may_not_change_columns() -> None:
    assert _hashes(pa.table({"a": [1], "b": [2]})) != _hashes(pa.table({"a": [2], "b": [1]}))


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
    parts = digest(table.slice(0, 300)) + digest(table.slice(300))
    assert parts == digest(table)
    assert digest(table, key=1) != digest(table, key=2)
    assert digest(table.slice(0, 0)) == Digest()


def test_hashes_are_pinned_because_they_are_kept_on_disk() -> None:
    table = pa.table({"a": [1, None], "s": ["x", "y" * 300]})
    assert digest(table, 5) == Digest(2, 5394412525360541135, 7132119284541768127)
    assert digest(_framed([b"a", b"b" * 999])) == Digest(2, 10666779194090910026, 17530664854532082503)


def test_long_lists_are_hashed_in_little_memory() -> None:
    """Rows of 1,000 values: what a step of 16,384 rows would take is many times what they lie in."""
    values = pa.array(np.random.default_rng(0).random(4_000_000, np.float32))
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 1_000)})
    tracemalloc.start()
    whole = digest(table)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16_000_000
    assert whole == digest(table.slice(0, 1_234)) + digest(table.slice(1_234))
