"""The arena and the gather."""

import subprocess
import sys
import threading

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
