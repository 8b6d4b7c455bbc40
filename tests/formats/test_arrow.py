"""Arrow streams and files: what is kept, what is refused, and what a scan reads."""

import io
import json
import struct
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

from corgi2.errors import NoRecordError, ShardError, TooLargeError
from corgi2.order.permutations import permutation
from corgi2.records.arena import Arena
from corgi2.records.shard import BLOCK_BYTES, Piece
from tests.columns import VALUES, column_of
from tests.shards import (
    ARROW_FORMAT,
    MemoryShard,
    arrow_of,
    read_shards,
    records_of,
    rewritten,
    samples_of,
)

KINDS = ("stream", "file")
CODECS = (None, "lz4", "zstd")
FLAT = pa.table({"n": range(60), "text": [f"{n} " * n for n in range(60)]})


def _read(kind: str, data: bytes) -> pa.Table:
    """As pyarrow reads it, in full."""
    table = (pa.ipc.open_stream if kind == "stream" else pa.ipc.open_file)(data).read_all()
    table.validate(full=True)
    return table


@st.composite
def _tables(draw: st.DrawFn) -> pa.Table:
    """Columns of any types; equal ones have equal types in all shards of a data set."""
    kinds = draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=4))
    rows, seed = draw(st.integers(1, 40)), draw(st.integers(0, 99))
    metadata = draw(st.sampled_from([None, {"huggingface": '{"info": 1}'}]))
    columns = [column_of(kind, rows, seed + number) for number, kind in enumerate(kinds)]
    table = pa.table(columns, names=[f"c{number}" for number in range(len(kinds))])
    return table.replace_schema_metadata(metadata)


@given(table=_tables(), kind=st.sampled_from(KINDS), codec=st.sampled_from(CODECS), rows=st.integers(1, 50))
def test_any_columns_and_batches_survive_mixing(table: pa.Table, kind: str, codec: str | None, rows: int) -> None:
    data = arrow_of(table, kind, rows, compression=codec)
    group = read_shards(ARROW_FORMAT, [data, data])
    order = permutation(group.records, (rows,))
    mixed = rewritten(ARROW_FORMAT, group, order, data)
    twice = pa.concat_tables([table, table]).to_pylist()
    found = _read(kind, mixed)
    assert repr(found.to_pylist()) == repr([twice[place] for place in order])
    assert found.schema.metadata == table.schema.metadata
    assert ARROW_FORMAT.scan(MemoryShard(mixed), BLOCK_BYTES).schema == ARROW_FORMAT.scan(MemoryShard(data), 1).schema


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", KINDS)
def test_kind_and_codec_of_the_first_shard_are_kept(kind: str, codec: str | None) -> None:
    data = arrow_of(FLAT, kind, 7, compression=codec)
    mixed = rewritten(ARROW_FORMAT, read_shards(ARROW_FORMAT, [data]), permutation(60, (1,)), data)
    assert mixed.startswith(b"ARROW1") == (kind == "file")
    assert ARROW_FORMAT.compare(MemoryShard(data), MemoryShard(mixed)) == ([], [])
    other = arrow_of(FLAT.replace_schema_metadata({"a": "b"}), "stream" if kind == "file" else "file")
    changed, stored = ARROW_FORMAT.compare(MemoryShard(data), MemoryShard(other))
    assert changed == ["the metadata 'a'"]
    assert "whether it is a stream or a file" in stored


def _dictionaries(kind: str, deltas: bool) -> bytes:
    """Batches whose dictionaries grow, or, in a stream, are replaced by others."""
    words = [["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"]] if deltas else [["a", "b"], ["c", "d"], ["b", "e"]]
    arrays = [pa.DictionaryArray.from_arrays([0, 1, None, len(each) - 1], each) for each in words]
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    schema = pa.schema([("word", arrays[0].type)])
    with new(sink, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
        for array in arrays:
            writer.write_batch(pa.record_batch([array], schema=schema))
        assert writer.stats.num_dictionary_deltas == (2 if deltas else 0)
        assert writer.stats.num_replaced_dictionaries == (0 if deltas else 2)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(("kind", "deltas"), [("stream", True), ("stream", False), ("file", True)])
def test_dictionaries_that_grow_or_are_replaced_hold_for_their_batches(kind: str, deltas: bool) -> None:
    data = _dictionaries(kind, deltas)
    expected, shard = _read(kind, data).to_pylist(), MemoryShard(data)
    blocks = ARROW_FORMAT.scan(shard, 1).blocks
    assert len(blocks) == 3
    pieces = [Piece(shard, block.start, block.length, records=block.records) for block in blocks]
    assert [row for piece in pieces for row in records_of(ARROW_FORMAT.read([piece], Arena(1 << 26)))] == expected
    mixed = rewritten(ARROW_FORMAT, read_shards(ARROW_FORMAT, [data]), np.arange(12)[::-1], data)
    assert _read(kind, mixed).to_pylist() == expected[::-1]


@dataclass
class _Watched:
    """A shard that notes what is read of it."""

    data: bytes
    name: str = "shard"
    version: str = "1"
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.data)

    def readinto(self, start: int, buffer: memoryview) -> None:
        self.reads.append((start, len(buffer)))
        buffer[:] = self.data[start : start + len(buffer)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_reads_headers_and_no_bodies(kind: str) -> None:
    table = pa.table({"x": [bytes(1_000_000)] * 20})
    shard = _Watched(arrow_of(table, kind, 1))
    assert len(ARROW_FORMAT.scan(shard, 1).blocks) == 20
    assert sum(size for _, size in shard.reads) < 200_000


@given(st.integers(1, 100_000))
def test_small_batches_are_joined_up_to_the_size_of_a_block(block_bytes: int) -> None:
    shard = MemoryShard(arrow_of(FLAT, "stream", 1))
    single, blocks = ARROW_FORMAT.scan(shard, 1).blocks, ARROW_FORMAT.scan(shard, block_bytes).blocks
    assert len(single) == 60
    assert sum(block.records for block in blocks) == 60
    assert all(block.length <= max(block_bytes, max(each.length for each in single)) for block in blocks)
    for first, second in pairwise(blocks):
        assert first.start + first.length == second.start
        assert first.length + second.length > block_bytes


def test_how_rows_arrive_does_not_change_the_bytes() -> None:
    data = arrow_of(FLAT, "stream", 7)
    profile = ARROW_FORMAT.profile(MemoryShard(data))
    cuts = [[FLAT], [FLAT.slice(0, 13), FLAT.slice(13, 1), FLAT.slice(14)], [FLAT.slice(n, 1) for n in range(60)]]
    assert len({b"".join(bytes(piece) for piece in ARROW_FORMAT.write([cut], profile)) for cut in cuts}) == 1


def test_new_batches_are_neither_tiny_nor_huge() -> None:
    rows = pa.table({"x": [bytes(1000)] * 40_000})
    for old in (10, 40_000):
        profile = ARROW_FORMAT.profile(MemoryShard(arrow_of(rows, "stream", old)))
        mixed = b"".join(bytes(piece) for piece in ARROW_FORMAT.write([[rows]], profile))
        sizes = [batch.nbytes for batch in pa.ipc.open_stream(mixed)]
        assert max(sizes) < 17_000_000
        assert min(sizes[:-1]) > 900_000


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pa.array(["x"], pa.string_view()), "cannot put the column 'c'"),
        (pa.array([[1]], pa.list_view(pa.int8())), "cannot put the column 'c'"),
        (pa.RunEndEncodedArray.from_arrays([1], [5]), "the column 'c' of run_end_encoded"),
        (
            pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]),
            "'c' of dense",
        ),
    ],
)
def test_types_that_cannot_be_mixed_are_refused_by_their_column(column: pa.Array, problem: str) -> None:
    with pytest.raises(ShardError, match=problem):
        ARROW_FORMAT.scan(MemoryShard(arrow_of(pa.table({"c": column}))), BLOCK_BYTES)


@pytest.mark.filterwarnings("ignore:Feather V1")
def test_feather_of_version_1_is_refused_with_the_way_out() -> None:
    sink = io.BytesIO()
    feather.write_feather(FLAT, sink, version=1)
    with pytest.raises(ShardError, match="Feather file of version 1.*write_feather"):
        ARROW_FORMAT.scan(MemoryShard(sink.getvalue()), BLOCK_BYTES)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (arrow_of(FLAT)[:-8], "no end mark"),
        (arrow_of(FLAT) + bytes(8), "behind the end mark"),
        (arrow_of(FLAT)[:-8] + arrow_of(FLAT), "a second schema"),
        (arrow_of(FLAT, "file")[:-3], "cut short"),
        (arrow_of(FLAT)[:1000], "cut short"),
        (b"col1,col2\n" * 9, "cut short"),
        (b"", "not an Arrow"),
    ],
)
def test_what_is_cut_short_or_joined_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ShardError, match=problem):
        ARROW_FORMAT.scan(MemoryShard(data), BLOCK_BYTES)


def test_a_shard_without_rows_holds_no_record() -> None:
    empty = MemoryShard(arrow_of(FLAT.slice(0, 0)))
    with pytest.raises(NoRecordError):
        ARROW_FORMAT.scan(empty, BLOCK_BYTES)
    with pytest.raises(NoRecordError):
        ARROW_FORMAT.read([empty.piece()], Arena(1 << 24))


def test_a_buffer_that_lies_about_its_size_is_refused_before_memory_is_taken() -> None:
    table = pa.table({"x": [bytes(100_000)]})
    data = bytearray(arrow_of(table, compression="zstd"))
    at = data.rindex(struct.pack("<q", 100_000))  # before the first compressed byte of the last buffer
    data[at : at + 8] = struct.pack("<q", 1 << 40)
    before = pa.total_allocated_bytes()
    with pytest.raises(TooLargeError, match="1.1 TB does not fit"):
        ARROW_FORMAT.read([MemoryShard(bytes(data)).piece()], Arena(1 << 24))
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_false_offsets_are_an_error_and_not_a_crash() -> None:
    table = pa.table({"x": ["ab", "cd", "ef"]})
    data = bytearray(arrow_of(table))
    at = data.index(struct.pack("<4i", 0, 2, 4, 6))
    data[at + 4 : at + 8] = struct.pack("<i", 1 << 30)
    with pytest.raises(ShardError, match="a record batch is damaged"):
        ARROW_FORMAT.read([MemoryShard(bytes(data)).piece()], Arena(1 << 24))


def test_samples_and_some_columns_come_out_as_they_went_in() -> None:
    nested = FLAT.append_column("image", pa.array([{"bytes": bytes(n), "path": None} for n in range(60)]))
    data = arrow_of(nested, "file", 7, compression="lz4")
    assert samples_of(ARROW_FORMAT, data) == nested.to_pylist()
    group = ARROW_FORMAT.read([MemoryShard(data).piece()], Arena(1 << 26), only=["n", "image.path"])
    assert group.table.to_pylist() == nested.select(["n", "image"]).to_pylist()


def test_a_profile_is_plain_text() -> None:
    fields: dict[str, Any] = json.loads(ARROW_FORMAT.profile(MemoryShard(arrow_of(FLAT, "file", compression="zstd"))))
    assert (fields["kind"], fields["codec"]) == ("file", "zstd")
