"""What does not fit the memory that reading may take is refused by what a header or a footer says, or when the limit is
reached: never is more taken. `offline/test_memory.py` measures it; these laws say where the limit lies."""

import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.corpus import framed, masked_crc
from hypothesis import given, settings
from hypothesis import strategies as st

from corgi2.budget import arena_bytes, buffer_for, promised
from corgi2.errors import DamageError, SourceError, TooLargeError
from corgi2.formats.format import Format
from corgi2.formats.parquet.pages import largest_page
from corgi2.formats.tfrecord.crc32c import masked_crc32c
from corgi2.offline.run import shuffle
from corgi2.records.arena import Arena
from corgi2.records.shard import Piece
from tests.patching import patch_everywhere
from tests.shards import JSONL, PARQUET, TAR, TFRECORD, MemoryShard, parquet_of, tar_of

MEMORY = 8_000_000


def _tar_record(size: int) -> bytes:
    return tar_of([("a.x", b"1"), ("b.x", bytes(size)), ("c.x", b"2")])


def _line(size: int) -> bytes:
    return b'{"a": 1}\n{"a": "' + b"x" * size + b'"}\n{"a": 2}\n'


def _frames(size: int) -> bytes:
    return framed(b"1") + _big_frame(size) + framed(b"2")


def _big_frame(size: int) -> bytes:
    """A record of zeros, whose checksum is the one thing here that a test cannot afford to compute by definition."""
    body = np.zeros(size, np.uint8)
    crc = masked_crc32c(np.append(body, np.zeros(8, np.uint8)), np.array([0]), np.array([size]))
    length = size.to_bytes(8, "little")
    return length + masked_crc(length) + bytes(size) + crc.tobytes()


FORMATS: list[tuple[Format, Callable[[int], bytes]]] = [(TAR, _tar_record), (JSONL, _line), (TFRECORD, _frames)]


@pytest.mark.parametrize(("format", "make"), FORMATS, ids=["tar", "jsonl", "tfrecord"])
@settings(max_examples=25)
@given(size=st.integers(0, 2 * MEMORY))
def test_a_record_is_read_if_it_fits_and_refused_by_name_if_it_does_not(
    format: Format, make: Callable[[int], bytes], size: int
) -> None:
    shard = MemoryShard(make(size))
    if size < 0.7 * MEMORY:
        assert sum(block.records for block in format.scan(shard, 1 << 20, MEMORY).blocks) == 3
        assert sum(table.num_rows for table in format.stream(shard, MEMORY)) == 3
    if size > MEMORY:
        for task in (lambda: format.scan(shard, 1 << 20, MEMORY), lambda: list(format.stream(shard, MEMORY))):
            with pytest.raises(TooLargeError, match="does not fit the .* that reading may take; give a larger buffer"):
                task()


ROOM = 6_000
"""For one record, in a test that reads a few KB at a time."""


def _member(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.PAX_FORMAT) + b"1" * size + bytes(-size % 512)


@st.composite
def tar_spans(draw: st.DrawFn, number: int) -> bytes:
    """A sample of some members, often about as large as there is room, and what travels with it."""
    key = f"{number:03d}" + draw(st.sampled_from(["", "k" * 150]))
    loose = st.sampled_from([b"", b"", _member("d", 0, tarfile.DIRTYPE), _member("README", 100)])
    front, rest = draw(loose), draw(st.lists(st.integers(0, 1500), max_size=2))
    rest_bytes = [_member(f"{key}.{part}", size) for part, size in enumerate(rest)]
    left = ROOM - len(front) - sum(map(len, rest_bytes)) - len(_member(f"{key}.x", 0))
    largest = _member(f"{key}.x", draw(st.integers(0, 1500) | st.integers(max(0, left - 1100), max(0, left + 1100))))
    return front + b"".join(draw(st.permutations([largest, *rest_bytes])))


@st.composite
def line_spans(draw: st.DrawFn, number: int) -> bytes:
    front = draw(st.sampled_from([b"", b"", b"\n", b"  \r\n\n"]))
    size = draw(st.integers(0, 1500) | st.integers(ROOM - 20, ROOM + 20))
    return front + b'"' + b"%d" % number + b"x" * max(0, size - len(front) - 5) + b'"\n'


@st.composite
def frame_spans(draw: st.DrawFn, number: int) -> bytes:
    return framed(bytes([number]) * draw(st.integers(0, 1500) | st.integers(ROOM - 36, ROOM + 4)))


SPANS: list[tuple[Format, Callable[[int], st.SearchStrategy[bytes]], list[bytes]]] = [
    (TAR, tar_spans, [b"", _member("d", 0, tarfile.DIRTYPE), _member("README", 700)]),
    (JSONL, line_spans, [b"", b"\n", b"   "]),
    (TFRECORD, frame_spans, [b""]),
]


@pytest.mark.parametrize(("format", "make", "tails"), SPANS, ids=["tar", "jsonl", "tfrecord"])
@settings(max_examples=200)
@given(data=st.data(), part=st.integers(1, 20))
def test_a_record_is_refused_exactly_if_it_does_not_fit_and_wherever_it_lies(
    format: Format, make: Callable[[int], st.SearchStrategy[bytes]], tails: list[bytes], data: st.DataObject, part: int
) -> None:
    """With what travels with it, and no less than that is the size which is told; however little is read at a time."""
    spans = [data.draw(make(number)) for number in range(data.draw(st.integers(1, 5)))]
    spans[-1] += data.draw(st.sampled_from(tails))
    shard = MemoryShard(b"".join(spans) + (bytes(data.draw(st.sampled_from([1024, 10_240]))) if format is TAR else b""))
    taken = [len(span) + (format is JSONL and not span.endswith(b"\n")) for span in spans]
    large = {sum(map(len, spans[:number])): size for number, size in enumerate(taken) if size > ROOM}
    with pytest.MonkeyPatch.context() as patch:
        sizes = {"READ_BYTES": 512 * part, "_LEAST_PART": 512 * part, "_PEEK_BYTES": 8192}
        patch_everywhere(patch, "corgi2.formats.framed", **sizes, format_size=lambda size: f"{size:,} bytes")
        for task in (
            lambda: sum(table.num_rows for table in format.stream(shard, ROOM)),
            lambda: sum(block.records for block in format.scan(shard, 1 << 20, ROOM * 4 // 3).blocks),
        ):
            if not large:
                assert task() == len(spans)
                continue
            with pytest.raises(TooLargeError) as caught:
                task()
            told = re.search(
                r"a record of (at least )?([\d,]+) bytes, .* does not fit the 6,000 bytes", str(caught.value)
            )
            assert told is not None
            size, true = int(told[2].replace(",", "")), large[caught.value.offset]
            assert ROOM < size <= true if told[1] else size == true


def test_records_that_fit_only_one_at_a_time_are_read() -> None:
    size = 6 * MEMORY // 10
    shards = {TAR: tar_of([(f"{n}.x", bytes(size)) for n in range(4)]), JSONL: (b'"' + b"x" * size + b'"\n') * 4}
    for format, data in shards.items():
        assert sum(table.num_rows for table in format.stream(MemoryShard(data), MEMORY)) == 4


def test_a_record_of_several_members_is_refused_by_the_sum_of_its_headers() -> None:
    shard = MemoryShard(tar_of([("a.x", bytes(MEMORY // 2)), ("a.y", bytes(MEMORY // 2)), ("a.z", bytes(MEMORY // 2))]))
    with pytest.raises(TooLargeError, match=r"a record of at least 8,001,536 bytes, .* the 8,000,000 bytes that"):
        list(TAR.stream(shard, MEMORY))


def test_a_member_is_refused_by_its_header_before_it_is_read(tmp_path: Path) -> None:
    """The rest of the file is a hole: whoever reads it takes seconds, and as much memory."""
    info = tarfile.TarInfo("a.x")
    info.size = 1 << 40
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / "s.tar").open("wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.seek(info.size, io.SEEK_CUR)
        file.write(bytes(1024))
    with pytest.raises(DamageError, match="a record of at least 1.1 TB, with what lies around it, does not fit"):
        shuffle(tmp_path / "in", tmp_path / "out", buffer="50MB")


@pytest.mark.parametrize("format", [TAR, JSONL], ids=["tar", "jsonl"])
def test_offsets_and_rows_are_spent_from_the_same_room_as_the_bytes(format: Format) -> None:
    data = tar_of([(f"{n:05d}.x", b"") for n in range(1000)]) if format is TAR else b"1\n" * 100_000
    shard = MemoryShard(data)
    (block,) = format.scan(shard, 1 << 30).blocks
    pieces = [Piece(shard, block.start, block.length)]
    assert format.read(pieces, Arena(block.footprint)).footprint <= block.footprint
    with pytest.raises(MemoryError, match="more do not fit"):
        format.read(pieces, Arena(block.footprint * 9 // 10))


@settings(max_examples=30)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=200),
    page=st.integers(64, 20_000),
    options=st.sampled_from(
        [{}, {"use_dictionary": False}, {"data_page_version": "2.0"}, {"write_page_checksum": True}]
    ),
)
def test_the_largest_page_is_found_by_the_headers(sizes: list[int], page: int, options: dict[str, object]) -> None:
    sink = io.BytesIO()
    table = pa.table({"a": [np.random.default_rng(n).bytes(size) for n, size in enumerate(sizes)]})
    pq.write_table(table, sink, data_page_size=page, write_batch_size=1, compression="zstd", **options)
    column = pq.read_metadata(sink).row_group(0).column(0)
    first = min(column.data_page_offset, column.dictionary_page_offset or column.data_page_offset)
    data = memoryview(sink.getvalue())[first : first + column.total_compressed_size]
    found = largest_page(data)
    assert max(sizes) <= found <= column.total_uncompressed_size
    assert largest_page(data[: len(data) // 2]) <= found


def test_damaged_headers_are_left_to_whoever_decodes_them() -> None:
    rng = np.random.default_rng(0)
    for size in range(200):
        assert largest_page(memoryview(rng.bytes(size))) >= 0


def test_a_long_value_in_a_dictionary_is_decoded_a_few_rows_at_a_time() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2_000, np.int32)), pa.array(["x" * 100_000]))
    for table in (pa.table({"a": words}), pa.table({"a": pa.array([["x" * 100_000] * 2] * 500)})):
        shard = MemoryShard(parquet_of(table, store_schema=False, compression="zstd"))
        assert shard.size < 100_000
        parts = [(part.num_rows, part.nbytes) for part in PARQUET.stream(shard, MEMORY)]
        assert sum(rows for rows, _ in parts) == table.num_rows
        assert max(size for _, size in parts) < 20_000_000


def test_a_page_that_does_not_fit_is_refused_by_its_header() -> None:
    shard = MemoryShard(parquet_of(pa.table({"a": [bytes(40_000_000)]}), compression="zstd"))
    with pytest.raises(TooLargeError, match="a page of 40.0 MB in 'a' does not fit"):
        list(PARQUET.stream(shard, MEMORY))
    assert sum(table.num_rows for table in PARQUET.stream(shard, 200_000_000)) == 1


def test_a_plan_that_takes_more_than_the_process_may_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b"1\n2\n")
    monkeypatch.setattr("corgi2.budget.usable_memory", lambda: 300_000_000)
    with pytest.raises(SourceError, match="takes up to 315 MB, and this process may use 300 MB; give a smaller buffer"):
        shuffle(tmp_path / "in", tmp_path / "out", buffer="100MB")
    assert not (tmp_path / "out").exists()
    assert shuffle(tmp_path / "in", tmp_path / "out", buffer="50MB").records == 2


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 40))
def test_the_buffer_that_would_do_does(footprint: int, decoding: int) -> None:
    buffer = buffer_for(np.array([footprint]), np.array([decoding]))
    assert arena_bytes(buffer) >= footprint
    assert footprint + decoding <= promised(buffer, 0, 0)
