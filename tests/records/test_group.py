"""The arena and the gather."""

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2.order.permutations import permutation
from corgi2.records.arena import Arena
from corgi2.records.group import Group, gather
from corgi2.records.spans import framed_table, record_bytes

RECORDS = st.lists(st.binary(max_size=40), min_size=1, max_size=60)


@given(RECORDS, st.integers(1, 300), st.integers(0, 50))
def test_a_gather_gives_the_records_in_order_whatever_the_slices(
    records: list[bytes], slice_bytes: int, seed: int
) -> None:
    offsets = np.cumsum([0, *map(len, records)]).astype(np.int64)
    table = framed_table(offsets, np.frombuffer(b"".join(records), np.uint8))
    order = permutation(len(records), (seed,))
    slices = list(gather(Group(table), order, slice_bytes))
    assert b"".join(record_bytes(piece).tobytes() for piece in slices) == b"".join(records[n] for n in order)
    assert all(piece.num_rows == 1 or piece.nbytes - 8 * piece.num_rows - 8 <= slice_bytes for piece in slices)


@given(st.lists(RECORDS, min_size=1, max_size=5), st.integers(1, 300), st.integers(0, 50))
def test_chunked_tables_are_gathered_as_contiguous_ones(chunks: list[list[bytes]], slice_bytes: int, seed: int) -> None:
    tables = [pa.table({"a": chunk, "n": range(len(chunk))}) for chunk in chunks]
    joined = pa.concat_tables(tables)
    order = permutation(joined.num_rows, (seed,))
    gathered = pa.concat_tables(gather(Group(joined), order, slice_bytes))
    assert gathered.to_pylist() == [joined.to_pylist()[n] for n in order]


_INNER = st.sampled_from([pa.int32(), pa.bool_(), pa.string(), pa.large_binary(), pa.null(), pa.decimal128(9, 2)])
_TYPES = st.recursive(
    _INNER,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.list_(kind, 2)),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, min_size=1, max_size=2).map(
            lambda kinds: pa.struct([(f"f{number}", kind) for number, kind in enumerate(kinds)])
        ),
    ),
    max_leaves=4,
)
_BUFFER_BYTES = 16
"""Of one buffer, beside what rows take: one more offset, and a bitmap's last byte."""


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Some of them long, some missing."""
    types, length = pa.types, st.sampled_from([0, 1, 3, 3_000])
    if types.is_null(kind):
        return st.none()
    if types.is_map(kind):
        plain: Any = st.lists(st.tuples(st.text(max_size=3), _values(kind.item_type)), max_size=3)
    elif types.is_fixed_size_list(kind):
        plain = st.lists(_values(kind.value_type), min_size=2, max_size=2)
    elif types.is_list(kind) or types.is_large_list(kind):
        plain = st.lists(_values(kind.value_type), max_size=3)
    elif types.is_struct(kind):
        plain = st.fixed_dictionaries({field.name: _values(field.type) for field in kind})
    elif types.is_string(kind):
        plain = length.map(lambda size: "x" * size)
    elif types.is_large_binary(kind):
        plain = length.map(bytes)
    else:
        plain = st.booleans() if types.is_boolean(kind) else st.integers(0, 9)
    values: st.SearchStrategy[Any] = st.none() | plain
    return values


def _buffers(kind: pa.DataType) -> int:
    return 3 + sum(_buffers(kind.field(number).type) for number in range(kind.num_fields))


@given(_TYPES, st.integers(1, 2000), st.integers(0, 50), st.data())
def test_no_slice_of_any_table_takes_more_than_it_may_unless_one_row_does(
    kind: pa.DataType, slice_bytes: int, seed: int, data: st.DataObject
) -> None:
    chunks = data.draw(st.lists(st.lists(_values(kind), min_size=1, max_size=12), min_size=1, max_size=4))
    arrays = [pa.array([None, *chunk], kind).slice(1) for chunk in chunks]
    table = pa.table({"n": pa.chunked_array([range(len(chunk)) for chunk in chunks]), "a": pa.chunked_array(arrays)})
    order, most = permutation(table.num_rows, (seed,)), slice_bytes + _BUFFER_BYTES * (2 + _buffers(kind))
    slices = list(gather(Group(table), order, slice_bytes))
    assert pa.concat_tables(slices).equals(table.take(pa.array(order)).combine_chunks())
    assert [piece.nbytes for piece in slices if piece.num_rows > 1 and piece.nbytes > most] == []


def test_a_few_long_rows_among_many_short_ones_are_slices_of_their_own() -> None:
    counts = np.ones(4_000, np.int64)
    counts[[7, 9, 2_000]] = 50_000
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(counts.sum(), np.int32)), pa.array(["x" * 20])).cast(
        pa.string()
    )
    lists = pa.ListArray.from_arrays(pa.array(np.cumsum([0, *counts]), pa.int32()), words)
    slices = list(gather(Group(pa.table({"a": lists})), np.arange(4_000), 100_000))
    assert sorted(piece.nbytes for piece in slices)[-3] > 1_000_000
    assert all(piece.num_rows == 1 or piece.nbytes < 110_000 for piece in slices)


def test_records_may_be_gathered_more_than_once() -> None:
    group = Group(pa.table({"a": [10, 20, 30]}))
    assert [table.column("a").to_pylist() for table in gather(group, np.array([2, 2, 0]))] == [[30, 30, 10]]


def test_an_arena_never_hands_out_a_byte_twice() -> None:
    arena = Arena(8 * 1000 * 8)
    starts: list[int] = []

    def claim() -> None:
        starts.extend(arena.claim(8) for _ in range(1000))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(starts) == list(range(0, 64_000, 8))
    with pytest.raises(MemoryError, match="64000 bytes holds 64000; 1 more"):
        arena.claim(1)
    arena.clear()
    assert arena.claim(8) == 0


_PEAK = """
import numpy as np, pathlib
from corgi2.records.arena import Arena
from corgi2.records.group import Group, gather
from corgi2.records.spans import framed_table
from corgi2.order.permutations import permutation

def peak():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

total, size = 400_000_000, {size}
arena = Arena(total)
data = arena.array(arena.claim(total), total)
data[:] = 1
offsets = np.arange(total // size + 1) * size
group = Group(framed_table(offsets, data))
order = permutation(group.records, (1,))
next(gather(group, order))  # Arrow loads its kernels on first use
before = peak()
count = sum(table.num_rows for table in gather(group, order))
assert count == total // size
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("size", [100, 8_000, 100_000])
def test_a_gather_takes_a_few_megabytes_beside_its_group(size: int) -> None:
    code = _PEAK.format(size=size)
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(result.stdout) < 24_000_000
