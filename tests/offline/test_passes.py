"""Every variant of the shuffle keeps every record, and says the truth about where it came from."""

import hashlib
import itertools
import os
import re
import shutil
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgi2.dataset.index_file import open_index
from corgi2.dataset.scan import index_source
from corgi2.dataset.source import find_source
from corgi2.errors import ShardError, SourceError
from corgi2.offline.journal import Journal, Marker
from corgi2.offline.passes import Pass, next_pass
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.run import shuffle
from corgi2.offline.settings import Settings
from corgi2.offline.task import Task
from corgi2.proof.comparison import verify
from corgi2.records.arena import Arena
from corgi2.stores.opening import open_store
from tests.shards import opened
from tests.sources import SUFFIXES, content, underestimated, write_source

_ORIGIN = re.compile(r"(\d+) (\d+) x*")


def _blocks(folder: Path) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Each block's lineage, and its records as (source shard, number)."""
    source = find_source(folder)
    index = open_index(source)
    assert index is not None
    lineage = index.blocks.column("lineage").to_pylist()
    found = []
    for numbers, piece in zip(lineage, index.pieces(source, range(len(lineage))), strict=True):
        group = source.format.read([piece], Arena(1 << 22), decoding=True)
        samples = list(source.format.decoder(group, "").samples(np.arange(group.records)))
        texts = [sample.get("txt", sample.get("t")) for sample in samples]
        words = [text.decode() if isinstance(text, bytes) else str(text) for text in texts]
        found.append((numbers, [(int(m[1]), int(m[2])) for word in words if (m := _ORIGIN.fullmatch(word))]))
        assert len(found[-1][1]) == len(words)
    return found


@settings(max_examples=40)
@given(
    suffix=st.sampled_from(SUFFIXES),
    counts=st.lists(st.integers(3, 30), min_size=1, max_size=9),  # with fewer, equal keys may have to be neighbours
    n=st.integers(1, 5),
    passes=st.integers(1, 3),
    seed=st.integers(0, 3),
    sizes=st.sampled_from([{}, {"shard_records": 7}, {"shard_size": "1KB"}]),
    in_place=st.booleans(),
)
def test_every_variant_keeps_every_record_exactly_once(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    counts: list[int],
    n: int,
    passes: int,
    seed: int,
    sizes: dict[str, Any],
    in_place: bool,
) -> None:
    root = tmp_path_factory.mktemp("run")
    write_source(root / "in", suffix, counts)
    write_source(root / "out", suffix, counts)
    options: dict[str, Any] = {"buffer_blocks": n, "passes": passes, "seed": seed, "workers": 2, **sizes, "force": True}
    if in_place:
        shuffle(root / "out", in_place=True, **options)
    else:
        for path in (root / "out").iterdir():
            path.unlink()
        shuffle(root / "in", root / "out", **options)
    assert verify(root / "in", root / "out").same
    assert verify(root / "out").same
    records = [record for _, block in _blocks(root / "out") for record in block]
    assert sorted(records) == [(shard, n) for shard, count in enumerate(counts) for n in range(count)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_in_two_passes_a_group_takes_from_distinct_groups_and_the_lineage_says_which(
    suffix: str, tmp_path: Path
) -> None:
    write_source(tmp_path / "in", suffix, [10] * 16)
    shuffle(tmp_path / "in", tmp_path / "one", buffer_blocks=4)
    shuffle(tmp_path / "in", tmp_path / "two", buffer_blocks=4, passes=2)
    first = {shard: lineage[0] for lineage, records in _blocks(tmp_path / "one") for shard, _ in records}
    groups: dict[int, set[int]] = defaultdict(set)
    for (_, group), records in _blocks(tmp_path / "two"):
        groups[group] |= {first[shard] for shard, _ in records}
    assert all(len(taken) == 4 for taken in groups.values())  # 4 groups of the first pass, a block of each
    assert len(groups) == 4


def test_equal_lineage_means_the_same_groups_and_groups_write_equally_many_blocks(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [12] * 32)
    shuffle(tmp_path / "in", tmp_path / "one", buffer_blocks=4)
    shuffle(tmp_path / "in", tmp_path / "two", buffer_blocks=4, passes=2)
    first = {shard: lineage[0] for lineage, records in _blocks(tmp_path / "one") for shard, _ in records}
    sets: dict[int, set[int]] = defaultdict(set)
    counts: Counter[int] = Counter()
    for (number, group), records in _blocks(tmp_path / "two"):
        sets[number] |= {first[shard] for shard, _ in records}
        counts[group] += 1
    assert [len(taken) for taken in sets.values()] == [4, 4]
    assert not set.intersection(*sets.values())
    assert len(set(counts.values())) == 1


def test_what_lies_between_two_passes_is_deleted_as_it_is_consumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 9)
    between: list[int] = []
    real = Journal.write_marker

    def noted(self: Journal, number: int, *arguments: Any, **options: Any) -> None:
        real(self, number, *arguments, **options)
        between.append(len(list((tmp_path / "out" / self.pass_folder(1)).glob("*.jsonl"))))

    monkeypatch.setattr(Journal, "write_marker", noted)
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=3, passes=2)
    assert between[3:] == [9, 6, 3]
    assert not list((tmp_path / "out").rglob("*-*-*.jsonl"))


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_with_replacement_draws_records_of_the_source_and_as_many(suffix: str, passes: int, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [20] * 20)
    options: dict[str, Any] = {"buffer_blocks": 5, "with_replacement": True, "passes": passes}
    report = shuffle(tmp_path / "in", tmp_path / "out", **options)
    drawn = Counter(record for _, block in _blocks(tmp_path / "out") for record in block)
    assert report.records == drawn.total() == 400
    assert 400 * 0.2 < len(drawn) < 400 * 0.6
    assert set(drawn) <= {(shard, n) for shard in range(20) for n in range(20)}
    assert verify(tmp_path / "out").same
    assert not verify(tmp_path / "in", tmp_path / "out").same
    if ".tar" in suffix:
        for path in (tmp_path / "out").glob("*.tar"):
            with tarfile.open(path) as archive:
                names = archive.getnames()
            assert all(one != other for one, other in itertools.pairwise(names))


@pytest.mark.parametrize("in_place", [False, True], ids=["copying", "in place"])
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".jsonl", ".jsonl.zst"])
def test_what_lies_between_two_passes_is_mixed_again_even_where_it_did_not_fit_the_buffer(
    suffix: str, in_place: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three blocks become two shards, of which one does not fit; runs that were stopped there go on, too."""
    write_source(tmp_path / "in", suffix, [200] * 5)
    write_source(tmp_path / "out", suffix, [200] * (5 if in_place else 0))
    footprints = plan_shuffle(tmp_path / "in", tmp_path / "x", Settings(10**12)).index.column("footprint")
    buffer = int(footprints.max() * 1.3)
    options: dict[str, Any] = {"in_place": in_place, "passes": 2, "buffer": buffer, "buffer_blocks": 3}
    places = (tmp_path / "out",) if in_place else (tmp_path / "in", tmp_path / "out")
    underestimated(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("corgi2.offline.shuffle_run.next_pass", lambda *_: (_ for _ in ()).throw(ValueError("stopped")))
        with pytest.raises(ValueError, match="stopped"):
            shuffle(*places, **options)
    markers = [opened(path) for path in (tmp_path / "out").rglob("pass-1/groups/*")]
    shards = [shard for marker in markers for shard in marker["shards"]]
    assert sum(len(shard["blocks"]) for shard in shards) > 2 * len(markers)
    shuffle(*places, **options)
    assert verify(tmp_path / "in", tmp_path / "out").same
    assert verify(tmp_path / "out").same


@pytest.mark.parametrize("in_place", [False, True], ids=["copying", "in place"])
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".jsonl", ".jsonl.zst"])
def test_a_block_that_takes_a_little_more_than_the_buffer_is_read_in_every_pass(
    suffix: str, in_place: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "in", suffix, [200] * 4)
    write_source(tmp_path / "out", suffix, [200] * (4 if in_place else 0))
    index = index_source(find_source(tmp_path / "in"))
    options: dict[str, Any] = {"passes": 2, "buffer": int(index.column("footprint").max() * 0.96), "buffer_blocks": 1}
    places = (tmp_path / "out",) if in_place else (tmp_path / "in", tmp_path / "out")
    underestimated(monkeypatch)
    shuffle(*places, in_place=in_place, force=True, **options)
    assert verify(tmp_path / "in", tmp_path / "out").same


def _until_marker(patch: pytest.MonkeyPatch, number: int) -> None:
    """A shuffle is stopped when it is to write a marker, after so many others."""
    real, calls = Journal.write_marker, itertools.count()

    def write_marker(*arguments: Any, **choices: Any) -> None:
        if next(calls) == number:
            raise ValueError("stopped")
        real(*arguments, **choices)

    patch.setattr(Journal, "write_marker", write_marker)


_DAMAGES: dict[str, Callable[[Path], object]] = {
    "altered": lambda path: path.write_bytes(path.read_bytes()[:-9] + b"\xff" + path.read_bytes()[-8:]),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "gone": lambda path: path.unlink(),
}


def _follow(hint: str, data: Path, backup: Path) -> dict[str, Any]:
    """Do what an error says is the way out; what to add to the command."""
    if match := re.search(r"from a backup \(([^)]*)\)", hint):
        for name in match[1].split(", "):
            shutil.copy(backup / name, data / name)
    if match := re.search(r"delete (\S+?)(?: there)?,", hint):
        (data / match[1]).unlink()
    assert match or "restart=True" in hint
    return {"restart": True} if "restart=True" in hint else {}


_BETWEEN = [(2, 0, False, True), (2, 1, False, False), (3, 1, False, True), (2, 1, True, False)]
"""Passes, groups of the last one that are done, in place or not, with --skip-bad or not."""


@pytest.mark.parametrize("damage", _DAMAGES)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_damaged_between_two_passes_stops_the_shuffle_and_the_way_out_is_one(
    suffix: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever pass it lies before, and whether some groups of that pass are done already."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for number, (passes, done, in_place, skip_bad) in enumerate(_BETWEEN):
        root = tmp_path / str(number)
        write_source(root / "in", suffix, [20] * 9)
        shutil.copytree(root / "in", root / ("out" if in_place else "copy"))
        places = (root / "out",) if in_place else (root / "in", root / "out")
        options: dict[str, Any] = {"buffer_blocks": 3, "passes": passes, "in_place": in_place, "skip_bad": skip_bad}
        groups = len(plan_shuffle(places[0], None if in_place else places[-1], Settings(**options)).first.groups)
        with pytest.MonkeyPatch.context() as patch:
            _until_marker(patch, (passes - 1) * groups + done)
            with pytest.raises(ValueError, match="stopped"):
                shuffle(*places, **options, workers=1)
        between = sorted((root / "out" / ".corgi2").rglob(f"pass-{passes - 1}/*{suffix}"))
        _DAMAGES[damage](between[-1])
        with pytest.raises(ShardError, match=f"damaged or gone since pass {passes - 1} wrote it") as caught:
            shuffle(*places, **options)
        assert caught.value.shard == str(between[-1])
        assert "--skip-bad" not in str(caught.value)
        assert not list((root / "out").glob(".corgi2/c*/done"))
        options |= _follow(caught.value.hint or "", root / "out", root / "in")
        report = shuffle(*places, **options)
        assert (report.records, report.skipped) == (180, ())
        assert verify(root / "in", root / "out").same
        assert verify(root / "out").same


def test_a_pass_that_read_other_records_than_the_one_before_wrote_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 9)
    real = next_pass

    def forgetful(before: Pass, markers: Sequence[Marker], *arguments: Any) -> Pass:
        first = replace(markers[0], shards=markers[0].shards[1:])
        return real(before, [first, *markers[1:]], *arguments)

    monkeypatch.setattr("corgi2.offline.shuffle_run.next_pass", forgetful)
    with pytest.raises(SourceError, match="pass 2 read .* but the pass before wrote"):
        shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=3, passes=2)
    assert not (tmp_path / "out" / ".corgi2" / "c0" / "done").exists()


def test_another_shard_size_is_about_what_was_asked_for(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [50] * 12)
    total = sum(path.stat().st_size for path in (tmp_path / "in").iterdir())
    shuffle(tmp_path / "in", tmp_path / "bytes", shard_size=total // 5)
    shuffle(tmp_path / "in", tmp_path / "records", shard_records=60)
    assert len(find_source(tmp_path / "bytes").entries) == 5
    counts = index_source(find_source(tmp_path / "records")).column("records").tolist()
    assert counts == [60] * 10


def test_new_shards_are_numbered_without_a_gap_so_that_a_brace_range_names_them(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [30] * 10)
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=3)
    names = sorted(path.name for path in (tmp_path / "out").glob("*.tar"))
    assert names == [f"data-{number:06d}.tar" for number in range(len(names))]


@pytest.mark.parametrize("options", [{}, {"passes": 2}, {"in_place": True}], ids=str)
def test_any_run_of_new_shards_is_spread_over_the_groups_as_evenly_as_can_be(
    options: dict[str, Any], tmp_path: Path
) -> None:
    write_source(tmp_path / "in", ".jsonl", [12] * 20)
    target = tmp_path / "in" if "in_place" in options else tmp_path / "out"
    shuffle(*{tmp_path / "in": None, target: None}, buffer_blocks=4, **options)
    index = open_index(find_source(target))
    assert index is not None
    first = np.searchsorted(index.column("shard"), np.arange(index.shards.num_rows))
    lineage = index.blocks.column("lineage").to_pylist()
    groups = [lineage[block][-1] for block in first]  # of the shards, by name
    assert len(set(groups)) >= 4
    for start, end in itertools.combinations(range(len(groups) + 1), 2):
        counts = [groups[start:end].count(group) for group in set(groups)]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("passes", [1, 2])
def test_whoever_knows_one_group_names_its_shards_like_whoever_knows_all(passes: int, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [12] * 10)
    planned = plan_shuffle(tmp_path / "in", tmp_path / "out", Settings(buffer_blocks=3, passes=passes))
    task, shards = Task(planned.plan, planned.target, planned.first), range(planned.first.shards)
    names = [[task.path(group, shard) for shard in shards] for group in range(len(planned.first.groups))]
    assert names == [[task.only(group).path(group, shard) for shard in shards] for group in range(len(names))]
    assert len({name for group in names for name in group}) == len(names) * len(shards)


@pytest.mark.parametrize(
    ("suffix", "options", "sha256"),
    [
        (".jsonl", {}, "7e2eeef0791a4bf3"),
        (".jsonl", {"passes": 2}, "1f2083ff032825ff"),
        (".jsonl", {"with_replacement": True}, "25928e181fa15b7a"),
        (".tar", {}, "66386ad96bc86357"),
    ],
)
def test_the_bytes_are_pinned(suffix: str, options: dict[str, Any], sha256: str, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [9, 12, 5, 9, 14, 9, 9])
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=3, seed=5, **options)
    shards = sorted((tmp_path / "out").glob(f"*{suffix}"))
    data = b"".join(path.name.encode() + path.read_bytes() for path in shards)
    assert hashlib.sha256(data).hexdigest()[:16] == sha256


def test_lineage_and_sums_are_kept_as_files_that_no_reader_takes_for_data(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".parquet", [30] * 6)
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=6, passes=2)
    visible = [path for path in (tmp_path / "out").rglob("*.parquet") if ".corgi2" not in path.parts]
    assert (
        len(visible) == len(list((tmp_path / "out").rglob("*.parquet"))) == len(find_source(tmp_path / "out").entries)
    )
    sums = opened(tmp_path / "out" / ".corgi2" / "c0" / "done")["passes"]
    assert [part["input"] == part["output"] for part in sums] == [True, True]
    assert open_store(str(tmp_path / "out")).head(".corgi2/index") is not None
    assert content(tmp_path / "out")
