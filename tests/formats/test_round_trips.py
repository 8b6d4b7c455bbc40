"""For every format: any records → write → read → gather in any order → write → read, exactly."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import webdataset
from benchmarks.corpus import bodies_of, framed
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather

from corgi2.formats.registry import format_of, suffixes
from corgi2.order.permutations import permutation
from corgi2.records.arena import Arena
from corgi2.records.checksum import Checksum
from corgi2.records.group import gather
from corgi2.records.shard import BLOCK_BYTES, Piece
from tests.shards import MemoryShard, arrow_of, compressed, parquet_of, read_shards, records_of, rewritten, tar_of

BODIES = st.lists(st.binary(max_size=1200), min_size=1, max_size=25)


def _shard(suffix: str, bodies: list[bytes], number: int = 0) -> bytes:
    if ".tar" in suffix or suffix == ".tgz":
        return compressed(tar_of([(f"{number}/{n:04d}.bin", body) for n, body in enumerate(bodies)]), suffix)
    if suffix == ".parquet":
        return parquet_of(pa.table({"n": range(len(bodies)), "body": bodies}), row_group_size=7)
    if ".tfrecord" in suffix:
        return compressed(b"".join(map(framed, bodies)), suffix)
    if suffix in (".arrow", ".feather"):
        kind = "stream" if suffix == ".arrow" else "file"
        return arrow_of(pa.table({"n": range(len(bodies)), "body": bodies}), kind, rows=7)
    lines = [json.dumps({"n": n, "body": body.hex()}) for n, body in enumerate(bodies)]
    return compressed("\n".join(lines).encode(), suffix)


def _read_back(suffix: str, path: Path) -> list[dict[str, Any]]:
    """A shard as the format's own reference readers see it."""
    if suffix == ".parquet":
        return list(pq.read_table(path).to_pylist())
    if suffix == ".arrow":
        return list(pa.ipc.open_stream(path).read_all().to_pylist())
    if suffix == ".feather":
        return list(feather.read_table(path).to_pylist())
    if "json" in suffix:
        return [json.loads(line) for line in pa.input_stream(path).read().splitlines()]
    plain = pa.input_stream(path).read()
    if ".tfrecord" in suffix:
        return [{"body": body} for body in bodies_of(plain)]
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        return [{"name": member.name, "body": archive.extractfile(member).read()} for member in archive]  # type: ignore[union-attr]


@pytest.mark.parametrize("suffix", suffixes())
@given(bodies=st.lists(BODIES, min_size=1, max_size=3), seed=st.integers(0, 99))
def test_any_records_in_any_order_survive_two_round_trips(suffix: str, bodies: list[list[bytes]], seed: int) -> None:
    format, shards = format_of(suffix), [_shard(suffix, part, number) for number, part in enumerate(bodies)]
    group = read_shards(format, shards)
    assert group.records == sum(map(len, bodies))
    first = permutation(group.records, (seed, 1))
    once = rewritten(format, group, first, shards[0])
    assert records_of(read_shards(format, [once])) == records_of(group, first)
    back = np.argsort(first)
    twice = rewritten(format, read_shards(format, [once]), back, shards[0])
    assert records_of(read_shards(format, [twice])) == records_of(group)


@pytest.mark.parametrize("suffix", suffixes())
def test_the_same_records_in_the_same_order_give_the_same_bytes(suffix: str) -> None:
    format, shard = format_of(suffix), _shard(suffix, [bytes(range(n)) for n in range(60)])
    group = read_shards(format, [shard])
    order = permutation(60, (5,))
    assert rewritten(format, group, order, shard) == rewritten(format, group, order, shard)


@pytest.mark.parametrize("suffix", suffixes())
def test_reference_readers_read_what_we_write(suffix: str, tmp_path: Path) -> None:
    format, shard = format_of(suffix), _shard(suffix, [bytes(range(n)) for n in range(60)])
    order = permutation(60, (5,))
    (tmp_path / f"in{suffix}").write_bytes(shard)
    (tmp_path / f"out{suffix}").write_bytes(rewritten(format, read_shards(format, [shard]), order, shard))
    before, after = (_read_back(suffix, tmp_path / f"{name}{suffix}") for name in ("in", "out"))
    assert after == [before[place] for place in order]


# WebDataset leaves the files that it has read for the garbage collector to close.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tgz"])
def test_webdataset_reads_what_we_write(suffix: str, tmp_path: Path) -> None:
    format, shard = format_of(suffix), _shard(suffix, [bytes(range(n)) for n in range(60)])
    order = permutation(60, (5,))
    path = tmp_path / f"out{suffix}"
    path.write_bytes(rewritten(format, read_shards(format, [shard]), order, shard))
    samples = list(webdataset.WebDataset(str(path), shardshuffle=False, empty_check=False))
    assert [sample["bin"] for sample in samples] == [bytes(range(n)) for n in order]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather", ".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_hugging_face_datasets_reads_what_we_write(suffix: str, tmp_path: Path) -> None:
    format, shard = format_of(suffix), _shard(suffix, [bytes(range(n)) for n in range(60)])
    order = permutation(60, (5,))
    path = tmp_path / f"out{suffix}"
    path.write_bytes(rewritten(format, read_shards(format, [shard]), order, shard))
    kind = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}.get(suffix, "json")
    loaded = datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["n"][:] == order.tolist()


def test_hugging_face_features_survive_mixing(tmp_path: Path) -> None:
    features = datasets.Features({"label": datasets.ClassLabel(names=["cat", "dog"]), "x": datasets.Value("float32")})
    data = datasets.Dataset.from_dict({"label": [0, 1] * 10, "x": [0.5] * 20}, features=features)
    data.to_parquet(str(tmp_path / "in.parquet"))
    shard, format = (tmp_path / "in.parquet").read_bytes(), format_of(".parquet")
    (tmp_path / "out.parquet").write_bytes(
        rewritten(format, read_shards(format, [shard]), permutation(20, (1,)), shard)
    )
    loaded = datasets.Dataset.from_parquet(str(tmp_path / "out.parquet"), cache_dir=str(tmp_path / "cache"))
    assert loaded.features == features


def test_shards_by_webdatasets_own_writer_are_read(tmp_path: Path) -> None:
    path = str(tmp_path / "in.tar")
    with webdataset.TarWriter(path) as writer:
        for number in range(50):
            writer.write({"__key__": f"dir/{number:06d}", "txt": "ü" * number, "json": {"n": number}})
    format = format_of(".tar")
    shard = MemoryShard(Path(path).read_bytes())
    assert sum(block.records for block in format.scan(shard, 10_000).blocks) == 50


@pytest.mark.parametrize("suffix", suffixes())
def test_blocks_of_an_index_hold_the_same_records_as_the_whole_shard(suffix: str) -> None:

    format, shard = format_of(suffix), MemoryShard(_shard(suffix, [bytes(range(n)) for n in range(200)]))
    blocks = format.scan(shard, 10_000).blocks
    pieces = [Piece(shard, block.start, block.length) for block in blocks]
    assert records_of(format.read(pieces, Arena(1 << 26))) == records_of(read_shards(format, [shard.data]))
    assert [format.read([piece], Arena(1 << 26)).records for piece in pieces] == [block.records for block in blocks]


@pytest.mark.parametrize("suffix", suffixes())
def test_writing_returns_the_blocks_that_a_scan_finds(suffix: str) -> None:
    format, shard = format_of(suffix), _shard(suffix, [bytes(range(n)) * 3 for n in range(200)])
    group = read_shards(format, [shard])
    writing = format.write([gather(group, permutation(200, (1,)), 1000)], format.profile(MemoryShard(shard)))
    pieces = []
    while True:
        try:
            pieces.append(bytes(next(writing)))
        except StopIteration as stop:
            blocks = stop.value
            break
    data = b"".join(pieces)
    scanned = format.scan(MemoryShard(data), BLOCK_BYTES).blocks
    for written, found in zip(blocks, scanned, strict=True):
        assert (written.start, written.length, written.records) == (found.start, found.length, found.records)
        assert written.exact
        assert written.footprint == found.footprint or not found.exact
        checksum = Checksum()
        checksum.update(data[written.start : written.start + written.length])
        assert written.checksum == checksum.digest()
