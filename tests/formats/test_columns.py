"""Tables laid side by side are the tables that were given, whatever came first."""

import decimal
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corgi2
from corgi2.formats.columnar.columns import Columns, is_flat, table_bytes
from corgi2.records.arena import Arena
from tests.patching import patch_everywhere

SCHEMA = pa.schema(
    [
        pa.field("count", pa.int64()),
        pa.field("half", pa.float32(), nullable=False),
        pa.field("flag", pa.bool_()),
        pa.field("text", pa.string()),
        pa.field("long", pa.large_string()),
        pa.field("raw", pa.binary()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("id", pa.binary(3)),
        pa.field("when", pa.timestamp("us", "UTC")),
    ],
    metadata={"made": "here"},
)

ROWS = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False),
    st.none() | st.booleans(),
    st.none() | st.text(max_size=9),
    st.none() | st.text(max_size=9),
    st.none() | st.binary(max_size=9),
    st.none() | st.decimals(-1000, 1000, places=2).map(decimal.Decimal),
    st.none() | st.binary(min_size=3, max_size=3),
    st.none() | st.integers(0, 2**40),
)


def _table(rows: list[tuple[object, ...]], skip: int) -> pa.Table:
    """A table of these rows, the first few of which are sliced off again, so that its arrays begin anywhere."""
    padded = [rows[0]] * skip + rows if rows else rows
    columns = list(zip(*padded, strict=True)) if padded else [()] * len(SCHEMA)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA).slice(skip if rows else 0)


def _batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]


@given(
    st.lists(st.tuples(st.lists(ROWS, min_size=1, max_size=70), st.integers(0, 9)), min_size=1, max_size=4),
    st.randoms(),
)
def test_tables_in_any_order_are_one_table(parts: list[tuple[list[tuple[object, ...]], int]], random: object) -> None:
    tables = [_table(rows, skip) for rows, skip in parts]
    arena = Arena(1_000_000)
    columns = Columns.reserve(SCHEMA, [len(table) for table in tables], arena)
    arrival = list(range(len(tables)))
    random.shuffle(arrival)  # type: ignore[attr-defined]
    firsts = {number: columns.add(_batch(tables[number])) for number in arrival}
    joined = columns.table()
    for number, table in enumerate(tables):
        rows = pa.array(np.arange(firsts[number], firsts[number] + len(table)))
        taken = joined.take(rows).cast(SCHEMA)
        taken.validate(full=True)
        assert taken.equals(table)


def test_many_threads_may_lay_down_tables() -> None:
    tables = [
        pa.table({"n": np.full(1000, number), "t": [f"{number}-{row}" for row in range(1000)]}) for number in range(16)
    ]
    columns = Columns.reserve(tables[0].schema, [1000] * 16, Arena(1_000_000))
    firsts: dict[int, int] = {}

    def lay(number: int) -> None:
        firsts[number] = columns.add(_batch(tables[number]))

    threads = [threading.Thread(target=lay, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    joined = columns.table()
    for number, table in enumerate(tables):
        taken = joined.take(pa.array(np.arange(firsts[number], firsts[number] + 1000)))
        assert taken.cast(table.schema).equals(table)


def test_too_little_room_is_an_error() -> None:
    table = pa.table({"text": ["x" * 1000] * 10})
    columns = Columns.reserve(table.schema, [10], Arena(2_000))
    with pytest.raises(MemoryError):
        columns.add(_batch(table))


def test_room_that_is_not_needed_does_no_harm() -> None:
    table = pa.table({"text": [f"text {number}" for number in range(20)], "n": range(20)})
    arena = Arena(10_000)
    arena.array(0, 10_000)[:] = 255  # of another group
    columns = Columns.reserve(table.schema, [20, 0, 0], arena)
    first = columns.add(_batch(table))
    joined = columns.table()
    joined.validate(full=True)
    assert joined.slice(first, 20).cast(table.schema).equals(table)


def test_more_rows_than_were_expected_are_an_error() -> None:
    table = pa.table({"n": [1] * 100})
    columns = Columns.reserve(table.schema, [10], Arena(10_000))
    with pytest.raises(MemoryError, match="room for 16 rows, but 104 are"):
        columns.add(_batch(table))


@pytest.mark.parametrize("size", [5, 100, 1_000])
def test_wide_rows_fit_a_buffer_of_their_size(size: int, tmp_path: Path) -> None:
    """Each step of 63 rows takes the room of 64, and what is left that of a few more."""
    rows = pa.array([bytes([number % 256]) * 30_000 for number in range(2_000)], pa.binary(30_000))
    pq.write_table(pa.table({"image": rows}), tmp_path / "data.parquet", row_group_size=size, compression="none")
    loader = corgi2.Loader(tmp_path, buffer_blocks=2, batch_size=100, batch_format="arrow")
    with pytest.MonkeyPatch.context() as patch:
        patch_everywhere(patch, "corgi2.online", SLACK_BYTES=10_000)
        assert sum(len(batch) for batch in loader) == 2_000


def test_what_has_no_single_array_is_not_flat() -> None:
    for kind in (pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.dictionary(pa.int8(), pa.string()), pa.null()):
        assert not is_flat(pa.schema([("a", pa.int8()), ("b", kind)]))
    assert is_flat(SCHEMA)


def test_strings_take_offsets_of_64_bits() -> None:
    table = pa.table({"n": pa.array([1, 2], pa.int64()), "t": ["ab", "c"]})
    assert table_bytes(table) == table.cast(pa.schema([("n", pa.int64()), ("t", pa.large_string())])).nbytes
