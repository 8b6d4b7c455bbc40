"""Ranges in rounds: one pass, every range once, each round a part of every block, and windows as the theory says."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corgi2
from corgi2.dataset.blocks import open_catalog
from corgi2.dataset.index_tables import Index, blocks_table
from corgi2.errors import ShardError, SourceError
from corgi2.offline.planned import Shuffle
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.ranges import Ranges, ranges_of
from corgi2.offline.run import run_shuffle, shuffle
from corgi2.offline.settings import Settings
from corgi2.order.epochs import epoch_rest
from corgi2.order.worlds import Rules
from corgi2.records.checksum import Checksum
from corgi2.records.shard import Block
from corgi2.theory import Blocks, Rounds
from tests.conftest import S3
from tests.shards import parquet_of
from tests.sources import content, write_source

FORMATS = [".tar", ".jsonl", ".parquet"]


def _source(folder: Path, suffix: str, counts: list[int] | None = None) -> tuple[Path, int]:
    """Shards, and the size of a range of which the largest has about four."""
    write_source(folder, suffix, counts or [120, 80, 120, 100, 120, 60, 120, 90])
    return folder, max(path.stat().st_size for path in folder.iterdir()) // 4


def _planned(root: Path, suffix: str, **choices: Any) -> Shuffle:
    source, size = _source(root / "in", suffix)
    settings = Settings(10**6, buffer_blocks=2, range_bytes=size, **choices)
    return plan_shuffle(source, root / "out", settings, force=True)


def _ranges(planned: Shuffle) -> Ranges:
    settings = planned.plan.settings
    groups = -(-planned.index.footprint // planned.plan.buffer_bytes)
    return ranges_of(planned.index, settings.range_bytes or 0, groups, settings.buffer_blocks)


def _index(lengths: list[list[int]]) -> Index:
    """Shards of blocks of these lengths."""
    starts = [np.cumsum([0, *own]).tolist() for own in lengths]
    rows = [
        (shard, Block(start, length, 1, 1))
        for shard, own in enumerate(lengths)
        for start, length in zip(starts[shard], own, strict=False)
    ]
    return Index(".jsonl", 1, pa.table({"size": [1]}), blocks_table(rows))


@given(
    lengths=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=24), min_size=1, max_size=8),
    size=st.integers(1, 60),
    groups=st.integers(1, 12),
    most=st.none() | st.integers(1, 4),
)
def test_every_shard_is_cut_into_a_multiple_of_k_ranges_or_fewer_than_k(
    lengths: list[list[int]], size: int, groups: int, most: int | None
) -> None:
    index = _index(lengths)
    ranges, shard = ranges_of(index, size, groups, most), index.column("shard")
    assert (np.diff(ranges.first) > 0).all(), "no range is empty"
    assert set(np.searchsorted(shard, np.arange(len(lengths))).tolist()) <= set(ranges.first.tolist())
    assert int(ranges.sizes.sum()) == sum(map(sum, lengths))
    owner, k = shard[ranges.first], ranges.most
    assert (np.diff(ranges.whole) >= np.diff(owner).clip(0, 1)).all(), "a coarse block lies in one shard"
    for number, own in enumerate(lengths):
        count = int((owner == number).sum())
        assert count % k == 0 or count < k
        assert count == 1 or 2 * sum(own) >= min(count, k) * size, "no smaller than half of what was asked for"


@given(
    blocks=st.lists(st.integers(8, 60), min_size=2, max_size=12),
    rounds=st.integers(2, 8),
)
def test_ranges_of_a_shard_are_of_equal_size_to_a_block(blocks: list[int], rounds: int) -> None:
    index = _index([[10] * count for count in blocks])
    ranges = ranges_of(index, 10 * max(1, min(blocks) // rounds), 100)
    owner = index.column("shard")[ranges.first]
    for number in range(len(blocks)):
        sizes = ranges.sizes[owner == number]
        assert sizes.max() - sizes.min() <= 10


def test_shards_of_one_size_make_rounds_that_are_alike() -> None:
    ranges = ranges_of(_index([[1_000_000] * 100] * 20), 4_000_000, 50)
    assert ranges.unevenness == 0
    assert ranges.gaps == 0
    assert 8 <= ranges.most <= 16
    few = ranges_of(_index([[1_000_000] * 100] * 20), 4_000_000, 5)
    assert few.most == 5, "there are no more rounds than groups"


@pytest.mark.parametrize("suffix", FORMATS)
def test_each_round_takes_one_range_of_every_block_that_has_as_many(suffix: str, tmp_path: Path) -> None:
    planned = _planned(tmp_path, suffix)
    ranges, read = _ranges(planned), planned.first.index
    owner = np.empty(read.blocks.num_rows, np.int64)
    for group, members in enumerate(planned.first.groups):
        owner[members] = group
    assert sum(map(len, planned.first.groups)) == read.blocks.num_rows
    assert read.column("length").sum() == planned.index.column("length").sum()
    place = [each.column("shard").astype(np.int64) << 32 | each.column("start") for each in (read, planned.index)]
    rounds = np.array(planned.first.rounds)[owner[np.searchsorted(place[0], place[1][ranges.first], "right") - 1]]
    assert set(rounds.tolist()) == set(range(ranges.most))
    for number in range(ranges.most):
        taken = ranges.whole[rounds == number]
        assert len(taken) == len(set(taken.tolist())), "two ranges of one block"
        full = np.flatnonzero(np.bincount(ranges.whole) == ranges.most)
        assert set(full.tolist()) <= set(taken.tolist())
    assert len(set(np.bincount(planned.first.rounds).tolist())) == 1, "equally many groups in every round"


@pytest.mark.parametrize("holdout", [None, "record", "shard"])
@pytest.mark.parametrize("suffix", FORMATS)
def test_no_record_is_lost_or_repeated_and_both_proofs_hold(suffix: str, holdout: str | None, tmp_path: Path) -> None:
    source, size = _source(tmp_path / "in", suffix)
    held: dict[str, Any] = {"holdout": 0.2, "holdout_by": holdout, "holdout_to": tmp_path / "val"} if holdout else {}
    shuffle(source, tmp_path / "out", buffer=100_000, range_size=size, force=True, **held)
    assert corgi2.verify(source, tmp_path / "out", holdout=tmp_path / "val" if holdout else None).same
    assert corgi2.verify(tmp_path / "out").same


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_index_says_which_round_and_group_a_block_was_made_in(suffix: str, tmp_path: Path) -> None:
    """By the records: those of a block come from the ranges of its group."""
    planned = _planned(tmp_path, suffix)
    run_shuffle(planned)
    catalog = open_catalog(tmp_path / "out", None, needs_counts=True)
    assert catalog.rounds is not None
    assert catalog.lineage is not None
    group = catalog.lineage[:, 0]
    assert np.array_equal(catalog.rounds, np.array(planned.first.rounds)[group])
    shard = planned.first.index.column("shard")
    names = {number: {int(each) for each in shard[blocks]} for number, blocks in enumerate(planned.first.groups)}
    loader = corgi2.Loader(tmp_path / "out", shuffle=False)
    records = catalog.index.column("records")
    owner = np.repeat(group, records)
    for number, sample in zip(owner.tolist(), loader, strict=True):
        text = sample["txt"].decode() if ".tar" in suffix else sample["t"]
        assert int(text.split()[0]) in names[number]


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_bytes_are_the_same_whatever_the_workers_and_an_index_saves_the_scan(
    suffix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, size = _source(tmp_path / "in", suffix)
    for workers in (1, 4):
        shuffle(source, tmp_path / f"{workers}", buffer=10**6, range_size=size, workers=workers, force=True)
    told = [each.getMessage() for each in caplog.records]
    assert sum("this process reads" in each for each in told) == (0 if suffix == ".parquet" else 2)
    corgi2.index(source, block_size=size // 4)
    caplog.clear()
    shuffle(source, tmp_path / "indexed", buffer=10**6, range_size=size, force=True)
    assert not any("this process reads" in each.getMessage() for each in caplog.records)
    one, four, indexed = (
        {path: data for path, data in content(tmp_path / name).items() if "corgi2" not in path}
        for name in ("1", "4", "indexed")
    )
    assert one == four == indexed


@pytest.mark.parametrize("suffix", FORMATS)
def test_requests_are_as_planned_with_one_read_per_run_of_neighbours(suffix: str, s3: S3, tmp_path: Path) -> None:
    source, size = _source(tmp_path / "in", suffix)
    store = s3.store()
    for path in sorted(source.iterdir()):
        store.publish(f"in/{path.name}", [path.read_bytes()])
    corgi2.index(f"{s3.url}/in", block_size=size // 4, src_options=s3.options)
    settings = Settings(10**6, buffer_blocks=2, range_bytes=size)
    planned = plan_shuffle(f"{s3.url}/in", tmp_path / "out", settings, s3.options, force=True)
    s3.proxy.seen.clear()
    report = run_shuffle(planned)
    assert report.reads == planned.foresight.reads == planned.first.index.blocks.num_rows
    assert s3.proxy.requests().reads == report.reads
    assert report.writes == planned.foresight.writes
    assert report.reads <= len(_ranges(planned).first)
    assert suffix == ".parquet" or report.reads < planned.index.blocks.num_rows


@pytest.mark.parametrize("suffix", [".tar", ".jsonl"])
def test_neighbours_in_one_group_are_one_read(suffix: str, tmp_path: Path) -> None:
    """Two rounds of one group each: half of all coarse blocks that follow each other are in the same round."""
    write_source(tmp_path / "in", suffix, [400])
    size = max(path.stat().st_size for path in (tmp_path / "in").iterdir())
    settings = Settings(10**6, range_bytes=size // 40)
    planned = plan_shuffle(tmp_path / "in", tmp_path / "out", settings, force=True)
    read = planned.first.index
    assert len(planned.first.groups) == 2
    assert read.blocks.num_rows < len(ranges_of(planned.index, size // 40, 1).first)
    for members in planned.first.groups:
        start, length = (read.column(name)[np.sort(members)] for name in ("start", "length"))
        assert (start[1:] > (start + length)[:-1]).all(), "no two could be one"


@pytest.mark.parametrize("suffix", [".tar", ".jsonl"])
def test_a_range_that_has_changed_since_it_was_indexed_is_noticed(suffix: str, tmp_path: Path) -> None:
    """Also within a range that is read at once, but was indexed as several blocks."""
    source, size = _source(tmp_path / "in", suffix)
    path = sorted(source.iterdir())[3]
    corgi2.index(source, block_size=size // 4)
    data, times = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2 :: 97] = bytes(each ^ 1 for each in data[len(data) // 2 :: 97])
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(ShardError, match="is not what was indexed"):
        shuffle(source, tmp_path / "out", buffer=10**6, range_size=size, force=True)


@given(parts=st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=6), place=st.integers(0, 200))
def test_joined_checksums_find_what_each_would(parts: list[bytes], place: int) -> None:
    wanted = Checksum.join([len(part) for part in parts], [Checksum.of(part) for part in parts])
    twice = Checksum.join([len(b"".join(parts)), 1], [wanted, Checksum.of(b"a")])
    assert Checksum.like(twice, b"".join(parts) + b"a") == twice
    data = bytearray(b"".join(parts))
    assert Checksum.like(wanted, data) == wanted
    data[place % len(data)] ^= 1
    assert Checksum.like(wanted, data) != wanted
    assert Checksum.join([1, 1], [Checksum.of(b"a"), b""]) == b""


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"in_place": True}, "range_size= and in_place=True do not go together: every shard is needed until the last"),
        ({"passes": 2}, "range_size= and passes=2 do not go together: one pass of ranges mixes like two"),
        ({"with_replacement": True}, "a round takes every range exactly once"),
        ({"skip_bad": True}, "parts of a damaged shard would be in many groups"),
    ],
)
def test_what_ranges_do_not_go_with_is_refused(choices: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Settings(10**6, range_bytes=10**6, **choices)


@pytest.mark.parametrize("suffix", [".tar.gz", ".jsonl.zst"])
def test_compressed_shards_have_no_ranges(suffix: str, tmp_path: Path) -> None:
    source, _ = _source(tmp_path / "in", suffix)
    with pytest.raises(SourceError, match="is read whole.*passes=2"):
        shuffle(source, tmp_path / "out", buffer=10**6, range_size=100)
    assert not (tmp_path / "out").exists()


def test_where_nothing_can_be_taken_in_turn_it_is_refused(tmp_path: Path) -> None:
    source, _ = _source(tmp_path / "in", ".jsonl")
    with pytest.raises(SourceError, match=r"no block has two ranges of 1\.0 MB.*give a smaller range_size="):
        shuffle(source, tmp_path / "out", buffer=10**7, range_size="1MB")
    (tmp_path / "rows").mkdir()
    for number in range(4):
        (tmp_path / "rows" / f"{number}.parquet").write_bytes(parquet_of(pa.table({"a": range(100)})))
    with pytest.raises(SourceError, match="no shard has two ranges.*every shard is one row group"):
        shuffle(tmp_path / "rows", tmp_path / "out", buffer=10**7, range_size=100)


def _lines(folder: Path, counts: list[int]) -> int:
    """Shards of one kind each, of lines of equal length, in random order within themselves; the length."""
    folder.mkdir()
    for shard, count in enumerate(counts):
        lines = [json.dumps({"kind": f"{shard:04d}", "row": f"{row:04d}"}) + "\n" for row in range(count)]
        (folder / f"data-{shard:04d}.jsonl").write_text("".join(lines))
    return len(lines[0])


def _measured(folder: Path, kinds: npt.NDArray[np.float64], most: int, seed: int) -> float:
    """The mean H of the windows of an epoch of the real loader, the last one left out if it is smaller."""
    loader = corgi2.Loader(folder, buffer_blocks=most, seed=seed)
    catalog, window = loader.catalog, loader.world(1).window
    assert window == most
    records = catalog.index.column("records")
    order = epoch_rest(records, catalog.lineage, Rules(seed), 0, catalog.rounds).blocks
    ends = np.cumsum(records[order])[window - 1 :: window]
    given = np.array([int(sample["kind"]) for sample in loader])
    found = []
    for part in np.split(given, ends)[: len(ends)]:
        apart = np.bincount(part, minlength=len(kinds)) / len(part) - kinds
        found.append(len(part) * float((apart**2).sum()) / float(1 - (kinds**2).sum()))
    return float(np.mean(found))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("blocks", "b", "spread", "n_off", "k", "n_on"),
    [
        (64, 16, (0,), 4, 4, 4),
        (64, 16, (0,), 4, 4, 8),
        (64, 16, (0,), 4, 2, 8),
        (64, 16, (0,), 2, 4, 24),  # more than the 16 blocks of a round
        (32, 16, (0,), 4, 8, 20),  # rounds of 4 blocks, of which a window takes five
        (62, 16, (0,), 4, 4, 8),  # not divisible by n × k
        (64, 16, (-4, 0, 4), 4, 4, 4),  # ragged
        (64, 16, (-4, 0, 4), 4, 4, 20),
        (61, 16, (-3, 0, 5), 4, 4, 24),  # ragged, and ranges of a shard differ by a record
    ],
    ids=str,
)
def test_real_windows_of_real_output_have_the_h_of_the_closed_form(
    blocks: int, b: int, spread: tuple[int, ...], n_off: int, k: int, n_on: int, tmp_path: Path
) -> None:
    """Ragged blocks, N that n × k does not divide, and windows that are larger than a round among them."""
    counts = [b + spread[shard % len(spread)] for shard in range(blocks)]
    line = _lines(tmp_path / "in", counts)
    corgi2.index(tmp_path / "in", block_size=line)
    kinds, found = np.array(counts) / sum(counts), []
    settings = Settings(10**8, buffer_blocks=n_off, range_bytes=line * b // k)
    for seed in range(24):
        planned = plan_shuffle(tmp_path / "in", tmp_path / f"out-{seed}", replace(settings, seed=seed))
        run_shuffle(planned)
        found.append(_measured(tmp_path / f"out-{seed}", kinds, n_on, seed))
    values, ranges = np.array(found), _ranges(planned)
    assert ranges.most == k
    ragged = float(np.var(counts) / np.mean(counts) ** 2)
    data = Blocks(blocks, sum(counts) / blocks, sum(counts) / blocks, ragged)
    written = sum(counts) / planned.foresight.blocks
    expected = Rounds(data, blocks / len(planned.first.groups), k, ranges.gaps, written).window(n_on)
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - expected) <= 3 * error, (values.mean(), expected, error)
