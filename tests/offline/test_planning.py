"""Plans: from the listing where that is enough, within the buffer, and never begun where they would not end."""

import json
import logging
import os
import shutil
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corgi2.dataset.index_file import save_index
from corgi2.dataset.scan import index_source
from corgi2.dataset.source import find_source
from corgi2.errors import DamageError, ShardError, SourceError, StoreError
from corgi2.offline.plan_file import commit_plan, load_plan
from corgi2.offline.planned import Shuffle
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.run import run_shuffle, shuffle
from corgi2.offline.settings import Settings
from corgi2.proof.comparison import verify
from corgi2.records.arena import Arena
from corgi2.stores.local import LocalStore
from tests.conftest import S3
from tests.shards import compressed
from tests.sources import SUFFIXES, content, write_source


def _plan(root: Path, **choices: Any) -> Shuffle:
    return plan_shuffle(root / "in", root / "out", Settings(**choices), force=True)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_planning_writes_nothing(suffix: str, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [20] * 5)
    _plan(tmp_path, buffer_bytes=10**6, passes=2)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "in" / ".corgi2").exists()


@pytest.mark.parametrize(("suffix", "sampled"), [(".tar", 0), (".jsonl", 16), (".jsonl.zst", 16), (".tar.gz", 16)])
def test_a_block_costs_one_read_and_one_write_beside_a_fixed_sample(
    suffix: str, sampled: int, s3: S3, tmp_path: Path
) -> None:
    write_source(tmp_path / "in", suffix, [20] * 30)
    store = s3.store()
    for path in sorted((tmp_path / "in").iterdir()):
        store.publish(f"in/{path.name}", [path.read_bytes()])
    s3.proxy.seen.clear()
    report = shuffle(f"{s3.url}/in", tmp_path / "out", buffer_blocks=5, src_options=s3.options)
    assert s3.proxy.requests().reads == 30 + sampled
    assert report.reads == 30


@pytest.mark.parametrize("kind", [pa.int8(), pa.bool_(), pa.int64()], ids=str)
def test_groups_of_narrow_rows_fit_the_buffer_that_they_were_planned_for(kind: pa.DataType, tmp_path: Path) -> None:
    """A row in a list of rows, and in the permutation, takes more than its values."""
    (tmp_path / "in").mkdir()
    for shard in range(20):
        values = pa.array(np.arange(100_000) % 2).cast(kind)
        pq.write_table(pa.table({"a": values}), tmp_path / "in" / f"{shard:02d}.parquet")
    planned = _plan(tmp_path, buffer_bytes=12_000_000)
    assert len(planned.first.groups) > 1
    for group in planned.first.groups:
        pieces = planned.index.pieces(planned.first.source, group.tolist())
        assert planned.first.source.format.read(pieces, Arena(1 << 26)).footprint <= 12_000_000


def test_with_an_index_blocks_within_shards_are_mixed(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [200] * 3)
    source = find_source(tmp_path / "in")
    save_index(source.store, index_source(source, block_bytes=4000))
    planned = _plan(tmp_path, buffer_blocks=4)
    assert planned.index.blocks.num_rows > 12
    run_shuffle(planned)
    assert verify(tmp_path / "in", tmp_path / "out").same


@pytest.mark.parametrize("suffix", [".tar", ".jsonl"])
def test_a_shard_larger_than_the_buffer_is_scanned_and_read_in_parts(
    suffix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_source(tmp_path / "in", suffix, [20, 2000, 20, 20])
    size = (tmp_path / "in" / f"data-0001{suffix}").stat().st_size
    with caplog.at_level(logging.WARNING, "corgi2"):
        report = shuffle(tmp_path / "in", tmp_path / "out", buffer=size // 3)
    assert "1 shard of more than the buffer's" in caplog.text
    assert report.groups > 3
    assert verify(tmp_path / "in", tmp_path / "out").same


@pytest.mark.parametrize("suffix", [".tar.gz", ".jsonl.zst", ".parquet"])
def test_a_compressed_shard_larger_than_the_buffer_is_refused_with_the_buffer_that_would_do(
    suffix: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        texts = [json.dumps({"t": os.urandom(200).hex()}) for _ in range(3000)]
        path = tmp_path / "in" / f"data-{number}{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.table({"t": texts}), path)
        elif suffix == ".jsonl.zst":
            path.write_bytes(compressed("\n".join(texts).encode(), suffix))
        else:
            write_source(tmp_path / f"tar{number}", suffix, [1500])
            path.write_bytes((tmp_path / f"tar{number}" / f"data-0000{suffix}").read_bytes())
    with pytest.raises(SourceError, match=r"more than the buffer of 100 KB; buffer='(\d+)MB' would do") as caught:
        _plan(tmp_path, buffer_bytes=100_000)
    enough = int(str(caught.value).split("buffer='")[1].split("MB")[0]) * 1_000_000
    shuffle(tmp_path / "in", tmp_path / "out", buffer=enough)
    assert verify(tmp_path / "in", tmp_path / "out").same


def test_more_blocks_than_fit_are_refused_rather_than_cut(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 10)
    with pytest.raises(SourceError, match=r"8 blocks take up to .* in memory, more than the buffer of .* would do"):
        _plan(tmp_path, buffer_bytes=70_000, buffer_blocks=8)


def test_a_buffer_that_would_do_for_so_many_blocks_does(tmp_path: Path) -> None:
    """Decoding takes memory beside the group, which the advice must count."""
    (tmp_path / "in").mkdir()
    for number in range(8):
        table = pa.table({"t": [os.urandom(40_000) for _ in range(50)]})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet", use_dictionary=False)
    with pytest.raises(SourceError, match="4 blocks take up to .* would do") as caught:
        _plan(tmp_path, buffer_bytes=3_000_000, buffer_blocks=4)
    enough = int(str(caught.value).split("buffer='")[1].split("MB")[0]) * 1_000_000
    assert _plan(tmp_path, buffer_bytes=enough, buffer_blocks=4).first.n == 4


def test_the_block_that_takes_most_to_decode_counts_not_the_largest(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    many = pa.table({"t": [b"%0100d" % number for number in range(60_000)]})
    pq.write_table(many, tmp_path / "in" / "many.parquet", compression="zstd", use_dictionary=False)
    for number in range(5):
        few = pa.table({"t": [os.urandom(100_000) for _ in range(55)]})
        pq.write_table(few, tmp_path / "in" / f"wide-{number}.parquet", use_dictionary=False)
    planned = _plan(tmp_path, buffer_bytes=20_000_000)
    footprint, length = (planned.index.column(name) for name in ("footprint", "length"))
    assert footprint.argmax() == 0
    assert length.argmax() != 0
    assert planned.first.n * footprint.min() <= 20_000_000 - (footprint + length).max()


def test_n_follows_from_the_buffer_alone(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 12)
    largest = int(_plan(tmp_path).index.column("footprint").max())
    for n in (1, 2, 3, 5, 12):
        assert _plan(tmp_path, buffer_bytes=n * largest).first.n == {5: 4}.get(n, n)  # 3 groups of 4, not 5, 5, 2


def test_settings_that_make_no_sense_are_refused_with_their_values() -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"passes": 0}, "passes=0 must be at least 1"),
        ({"buffer_bytes": 0}, "buffer=0 must be at least 1"),
        ({"seed": -1}, "seed=-1 is negative"),
        ({"seed": 1 << 64}, "seed=18446744073709551616 is not less than 2^64"),
        ({"passes": 9}, "passes=9"),
        ({"shard_bytes": 5, "shard_records": 5}, "give one of them"),
    )
    for choices, words in cases:
        with pytest.raises(ValueError, match="must|passes|one of|negative|less") as caught:
            Settings(**choices)
        assert words in str(caught.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_skip_bad_leaves_out_damaged_shards_and_lists_them(suffix: str, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [20] * 8)
    bad = tmp_path / "in" / f"data-0003{suffix}"
    bad.write_bytes(bad.read_bytes()[: bad.stat().st_size // 2])
    with pytest.raises((ShardError, DamageError), match="data-0003"):
        shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=4)
    report = shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=4, skip_bad=True, restart=True)
    assert report.records == 140
    (line,) = map(str, report.skipped)
    assert f"data-0003{suffix}: at byte " in line
    bad.rename(tmp_path / "bad")
    assert verify(tmp_path / "in", tmp_path / "out").same
    assert verify(tmp_path / "out").same


@pytest.mark.parametrize("seed", range(4))
def test_skip_bad_draws_with_replacement_from_the_sound_blocks(seed: int, tmp_path: Path) -> None:
    """A shard whose records' sizes tell it from others, and which is damaged where only reading finds it."""
    write_source(tmp_path / "in", ".tar", [20] * 8)
    bad = tmp_path / "in" / "data-0003.tar"
    bad.write_bytes(bad.read_bytes()[: bad.stat().st_size // 2])
    options: dict[str, Any] = {"buffer_blocks": 4, "with_replacement": True, "seed": seed}
    report = shuffle(tmp_path / "in", tmp_path / "out", skip_bad=True, **options)
    assert len(report.skipped) <= 2
    assert report.records % 20 == 0
    texts = [record for path in (tmp_path / "out").glob("*.tar") for record in _texts(path)]
    assert len(texts) == report.records
    assert not [text for text in texts if text.startswith("3 ")]
    assert verify(tmp_path / "out").same


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".jsonl.zst"])
def test_skip_bad_with_nothing_but_bad_shards_is_an_error(suffix: str, passes: int, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"data-{number}{suffix}").write_bytes(b"junk" * 300)
    for _ in range(2):
        with pytest.raises(SourceError, match="no shard is sound .3 damaged, such as .*; nothing was left to shuffle"):
            shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2, passes=passes, skip_bad=True)


def test_a_link_is_no_way_into_the_source(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 4)
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for src, dst in (("in", "link/out"), ("link", "in/out"), ("in", "link")):
        with pytest.raises(SourceError, match="lies in the source"):
            plan_shuffle(tmp_path / src, tmp_path / dst, Settings())


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_shards_are_numbered_without_a_gap_where_records_are_few_and_counted(suffix: str, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [1, 1, 9, 9])
    source = find_source(tmp_path / "in")
    save_index(source.store, index_source(source))
    for options in ({}, {"shard_records": 1}, {"passes": 2}):
        out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        shuffle(tmp_path / "in", out, buffer_blocks=1, force=True, **options)  # type: ignore[arg-type]
        names = sorted(path.name for path in out.glob(f"*{suffix}"))
        assert names == [f"data-{number:06d}{suffix}" for number in range(len(names))]
        assert verify(tmp_path / "in", out).same


def _texts(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return [archive.extractfile(member).read().decode() for member in archive]  # type: ignore[union-attr]


def _stop(root: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Begin a shuffle that stops after its first group."""
    real, calls = LocalStore.publish, iter(range(1000))

    def publish(self: LocalStore, path: str, pieces: Any, *part: int) -> Any:
        if "/groups/" in path and next(calls) == 1:
            raise SourceError("stopped")
        return real(self, path, pieces, *part)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "publish", publish)
        with pytest.raises(SourceError, match="stopped"):
            shuffle(root / "in", root / "out", **options)


@pytest.mark.parametrize("name", ["data-0000.jsonl", "data-000099.jsonl", "notes/thesis.txt"])
def test_an_unfinished_target_refuses_files_that_are_not_its_own_and_touches_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 8)
    _stop(tmp_path, monkeypatch, buffer_blocks=2)
    foreign = tmp_path / "out" / name
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text('{"t": "precious"}')
    before = content(tmp_path / "out")
    with pytest.raises(SourceError, match=f"{name}: is not a shard of the unfinished shuffle there .* move it away"):
        shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2)
    assert content(tmp_path / "out") == before
    foreign.unlink()
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2)
    assert verify(tmp_path / "in", tmp_path / "out").same


def test_restart_discards_an_unfinished_target_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 8)
    _stop(tmp_path, monkeypatch, buffer_blocks=2, seed=1)
    (tmp_path / "out" / "thesis.txt").write_text("precious")
    with pytest.raises(SourceError, match=r"thesis\.txt was not written by the shuffle"):
        shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=4, restart=True)
    (tmp_path / "out" / "thesis.txt").unlink()
    report = shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=4, restart=True)
    assert (report.groups, report.resumed_groups) == (2, 0)
    shuffle(tmp_path / "in", tmp_path / "whole", buffer_blocks=4)
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    with pytest.raises(SourceError, match="a finished shuffle, which restart=True does not discard"):
        shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=4, restart=True)


def test_a_restart_that_cannot_begin_discards_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 8)
    _stop(tmp_path, monkeypatch, buffer_blocks=2)
    before = content(tmp_path / "out")
    with pytest.raises(SourceError, match="would do"):
        shuffle(tmp_path / "in", tmp_path / "out", buffer=10, restart=True)
    assert content(tmp_path / "out") == before
    held = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.tar"))
    needed = _plan(tmp_path, buffer_blocks=2).needed_bytes
    monkeypatch.setattr(LocalStore, "free_bytes", lambda _: needed - held)
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=4, restart=True)
    assert verify(tmp_path / "in", tmp_path / "out").same


def test_a_restart_that_is_stopped_leaves_a_target_that_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 6)
    shuffle(tmp_path / "in", tmp_path / "whole", buffer_blocks=2)
    real = LocalStore.delete
    for moment in range(20):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        _stop(tmp_path, monkeypatch, buffer_blocks=2)
        calls = iter(range(1000))

        def delete(self: LocalStore, path: str, calls: Any = calls, moment: int = moment) -> None:
            if next(calls) == moment:
                raise SourceError("stopped")
            real(self, path)

        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "delete", delete)
            try:
                shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2, restart=True)
            except SourceError as error:
                assert str(error) == "stopped"
            else:
                break
        if (tmp_path / "out" / ".corgi2" / "c0" / "plan").exists():
            shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2)
            assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert moment > 4


def test_too_little_room_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 8)
    size = sum(path.stat().st_size for path in (tmp_path / "in").iterdir())
    monkeypatch.setattr(LocalStore, "free_bytes", lambda _: size - 1)
    with pytest.raises(
        SourceError, match=r"are free, .* are needed; make room, name another disk, or shuffle with in_pl"
    ):
        shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2)
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(LocalStore, "free_bytes", lambda _: size // 2 + 100)
    shuffle(tmp_path / "in", in_place=True, buffer_blocks=2)
    monkeypatch.setattr(LocalStore, "free_bytes", lambda _: size // 3)
    with pytest.raises(SourceError, match="are free"):
        shuffle(tmp_path / "in", in_place=True, buffer_blocks=4)


def test_growth_is_predicted_from_a_sample(tmp_path: Path) -> None:
    """Shards in order compress well; mixed, they do not."""
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(0)
    for shard in range(24):
        day = np.sort(rng.integers(0, 1000, 20_000)) + shard * 1000
        table = pa.table({"time": day, "place": np.full(20_000, shard), "value": rng.integers(0, 50, 20_000)})
        pq.write_table(table, tmp_path / "in" / f"day-{shard:02d}.parquet", compression="zstd")
    planned = _plan(tmp_path, buffer_blocks=8)
    report = run_shuffle(planned)
    before = sum(path.stat().st_size for path in (tmp_path / "in").iterdir())
    assert report.bytes > 1.5 * before
    assert abs(planned.plan.growth / (report.bytes / before) - 1) < 0.2
    assert f"predicted to take {planned.plan.growth:.2f} of the input" in planned.describe()
    assert planned.needed_bytes > 1.4 * before


def test_the_line_before_the_run_says_what_replacement_drops(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 400)
    planned = _plan(tmp_path, buffer_blocks=20, with_replacement=True)
    drawn = Counter(np.concatenate(planned.first.groups).tolist())
    assert drawn.total() == 400
    assert 0.58 < len(drawn) / 400 < 0.68  # 63 % of the blocks are read
    assert 0.5 < planned.dropped < 0.56
    assert "WARNING: drawn with replacement: about 5" in planned.describe()


def test_the_line_before_a_run_counts_the_reads_and_the_losses_of_all_passes(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 40)
    planned = _plan(tmp_path, buffer_blocks=5, passes=2)
    report = run_shuffle(planned)
    assert (
        planned.as_json().items() >= {"reads": report.reads, "writes": report.writes, "groups": report.groups}.items()
    )
    twice = plan_shuffle(
        tmp_path / "in", tmp_path / "drawn", Settings(buffer_blocks=5, passes=2, with_replacement=True)
    )
    run_shuffle(twice)
    lines = [line for path in (tmp_path / "drawn").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert abs(1 - len(set(lines)) / (40 * 30) - twice.dropped) < 0.06


def test_a_group_of_one_block_and_a_buffer_beyond_memory_are_warned_of(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 4)
    assert "WARNING: n = 1" in _plan(tmp_path, buffer_blocks=1).describe()
    assert "WARNING" not in _plan(tmp_path, buffer_blocks=2).describe()


def test_memory_of_this_process_is_spoken_of_where_groups_are_made_here(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [10] * 8)
    planned = _plan(tmp_path, buffer_bytes=10**15)
    assert "that this process may use: the run would be refused" in planned.describe()
    assert "WARNING" not in planned.describe(is_here=False)
    assert "memory up to 1.2 PB for each task" in planned.describe(is_here=False)


def test_small_shards_are_said_to_take_more_than_predicted(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    values = np.random.default_rng(0).integers(0, 1 << 60, 100_000)
    pq.write_table(pa.table({"x": values}), tmp_path / "in" / "a.parquet", row_group_size=10_000)
    assert "of the input, and more, because shards are so small" in _plan(tmp_path, shard_records=1000).describe()
    assert "so small" not in _plan(tmp_path, shard_records=50_000).describe()


def test_a_target_that_cannot_be_written_to_is_refused_before_anything_happens(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 4)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file: is a file, not a folder"):
        plan_shuffle(tmp_path / "in", tmp_path / "file" / "out", Settings())


def test_ways_out_are_ways_out(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 4)
    run_shuffle(plan_shuffle(tmp_path / "in", tmp_path / "out", Settings()))
    with pytest.raises(SourceError, match="it is finished: name an empty folder, or delete this one"):
        plan_shuffle(tmp_path / "in", tmp_path / "out", Settings(seed=1))
    (tmp_path / "in" / "data-0000.jsonl").touch()
    with pytest.raises(SourceError, match="keep it, or delete its folder"):
        plan_shuffle(tmp_path / "in", tmp_path / "out", Settings())


def test_a_damaged_first_shard_is_left_out_as_any_other(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".parquet", [20] * 5)
    (tmp_path / "in" / "data-0000.parquet").write_bytes(b"junk" * 300)
    report = shuffle(tmp_path / "in", tmp_path / "out", skip_bad=True)
    assert report.records == 80
    assert "data-0000.parquet" in report.skipped[0].shard
    with pytest.raises(ShardError, match=r"data-0000\.parquet"):
        shuffle(tmp_path / "in", tmp_path / "other")


@pytest.mark.parametrize("passes", [1, 2, 3])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_a_shuffle_will_do_follows_from_its_plan_alone(suffix: str, passes: int, tmp_path: Path) -> None:
    """In place, shards are consumed while it runs; when it is resumed, it says the same as when it began."""
    write_source(tmp_path / "in", suffix, [20] * 12)
    settings = Settings(buffer_bytes=10**6, buffer_blocks=4, passes=passes, in_place=True)
    planned = plan_shuffle(tmp_path / "in", None, settings)
    said = planned.as_json() | {"free_bytes": None}
    commit_plan(planned)
    for path in (tmp_path / "in").glob("data-*"):
        path.unlink()
    plan, index = load_plan(planned.journal) or (None, None)
    assert plan is not None
    assert index is not None
    assert replace(planned, plan=plan, index=index).as_json() | {"free_bytes": None} == said
