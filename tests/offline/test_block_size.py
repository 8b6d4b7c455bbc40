"""``--block-size``: smaller blocks within as many shards, which a loader reads one by one."""

from pathlib import Path

import pytest

import corgi2
from corgi2.dataset.index_file import open_index
from corgi2.dataset.source import find_source
from corgi2.errors import SourceError
from corgi2.offline import Settings, plan_shuffle
from tests.sources import write_source


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("suffix", [".tar", ".jsonl", ".parquet"])
def test_blocks_are_cut_within_as_many_shards(suffix: str, passes: int, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [100] * 8)
    usual = corgi2.shuffle(tmp_path / "in", tmp_path / "usual", buffer_blocks=20, passes=passes)
    size = sum(path.stat().st_size for path in (tmp_path / "usual").glob(f"*{suffix}")) // usual.shards // 5
    report = corgi2.shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=20, passes=passes, block_size=size)
    assert report.shards == usual.shards
    assert corgi2.verify(tmp_path / "in", tmp_path / "out").same
    index = open_index(find_source(tmp_path / "out"))
    assert index is not None
    assert index.blocks.num_rows >= 5 * report.shards
    assert index.column("length").mean() <= 1.1 * size
    loader = corgi2.Loader(tmp_path / "out", buffer_blocks=3)
    read = loader.catalog.source.store.requests
    before = read.reads
    assert sum(1 for _ in loader) == 800
    footers = report.shards if suffix == ".parquet" else 0
    assert read.reads - before <= index.blocks.num_rows + footers, "a block is one read, by its range"


@pytest.mark.parametrize("suffix", [".tar.gz", ".jsonl.zst"])
@pytest.mark.parametrize("passes", [1, 2])
def test_shards_that_are_read_whole_have_no_blocks_to_cut(suffix: str, passes: int, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [10] * 3)
    with pytest.raises(SourceError, match="is read whole; give shard_size= instead"):
        corgi2.shuffle(tmp_path / "in", tmp_path / "out", block_size="1KB", passes=passes)
    assert not (tmp_path / "out").exists()


def test_a_block_size_is_part_of_the_plan(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [10] * 3)
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", block_size="1KB")
    with pytest.raises(SourceError, match=r"holds a shuffle with block_size=1000, not block_size=2000"):
        plan_shuffle(tmp_path / "in", tmp_path / "out", Settings(block_bytes=2000))
    with pytest.raises(ValueError, match="block_size=0 must be at least 1"):
        Settings(block_bytes=0)
