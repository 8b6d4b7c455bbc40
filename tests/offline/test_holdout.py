"""A holdout and the rest are the source, record for record; each group gives its share; what was drawn stays drawn."""

import itertools
import math
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.chaos import census
from hypothesis import given, settings
from hypothesis import strategies as st

import corgi2
from corgi2.errors import SourceError, StoreError
from corgi2.offline import Journal, load_plan
from corgi2.offline.holdout import held_of, held_rows
from corgi2.offline.run import shuffle
from corgi2.offline.settings import Settings, parse_share
from corgi2.proof.comparison import verify
from corgi2.stores.local import LocalStore
from corgi2.stores.opening import open_store
from tests.shards import opened
from tests.sources import SUFFIXES, DyingError, content, underestimated, write_source

KINDS = ["record", "shard"]
WAYS: list[dict[str, Any]] = [{}, {"passes": 2}, {"in_place": True}, {"in_place": True, "passes": 2}]


def _records(folder: Path) -> Counter[str]:
    """By readers that are not ours."""
    return census.records({path.name: path.read_bytes() for path in folder.glob("data-*")})


class Scene:
    """A source, which in place is copied first, and a shuffle with a holdout."""

    def __init__(self, root: Path, suffix: str = ".jsonl", counts: list[int] | None = None, **options: Any) -> None:
        self.root = root
        self.options: dict[str, Any] = {"buffer_blocks": 3, "holdout": "20%", "holdout_by": "record"} | options
        self.source, self.val = root / "in", root / "val"
        write_source(self.source, suffix, counts or [20, 12, 25, 20, 20, 9, 20, 20])
        self.target = root / "out"
        self.reset()

    @property
    def in_place(self) -> bool:
        return "in_place" in self.options

    def reset(self) -> None:
        for folder in (self.target, self.val):
            shutil.rmtree(folder, ignore_errors=True)
        if self.in_place:
            shutil.copytree(self.source, self.target)

    def run(self, **options: Any) -> corgi2.Report:
        places = (self.target,) if self.in_place else (self.source, self.target)
        return shuffle(*places, holdout_to=self.val, **self.options | options)

    @property
    def is_finished(self) -> bool:
        return (self.target / ".corgi2" / f"c{int(self.in_place)}" / "done").exists()

    def both(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        return content(self.target), content(self.val)


@settings(max_examples=200)
@given(st.fractions(0, 1), st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(0, 99), st.integers(0, 99))
def test_a_group_gives_the_floor_or_the_ceiling_of_its_share_in_however_many_parts(
    share: Any, parts: list[int], seed: int, group: int
) -> None:
    share = min(0.999, max(0.001, float(share)))
    choice = Settings(seed=seed, holdout=share, holdout_by="record", holdout_to="x")
    ends = list(itertools.accumulate(parts, initial=0))
    rows = [held_rows(choice, group, at, before, part) for at, (before, part) in enumerate(zip(ends, parts))]  # noqa: B905
    assert all(len(set(some.tolist())) == len(some) for some in rows)
    assert all((some >= 0).all() and (some < part).all() for some, part in zip(rows, parts, strict=True))
    total = sum(map(len, rows))
    assert total == held_of(choice, group, ends[-1])
    assert math.floor(choice.record_share * ends[-1]) <= total <= math.ceil(choice.record_share * ends[-1])


def test_over_all_groups_the_share_is_the_one_that_was_asked_for() -> None:
    choice = Settings(holdout=0.05, holdout_by="record", holdout_to="x")
    held = [held_of(choice, group, 7) for group in range(4000)]
    assert abs(np.mean(held) - 0.35) < 0.03


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_held_out_and_the_rest_are_the_source(
    suffix: str, kind: str, way: dict[str, Any], tmp_path: Path
) -> None:
    scene = Scene(tmp_path, suffix, holdout_by=kind, **way)
    everything = _records(scene.source)
    report = scene.run()
    train, held = _records(scene.target), _records(scene.val)
    assert train + held == everything
    assert (report.records, report.held_records) == (train.total(), held.total())
    assert verify(scene.source, scene.target, holdout=scene.val).same
    assert not verify(scene.source, scene.target).same
    for folder in (scene.target, scene.val):
        assert verify(folder).same, verify(folder).as_text()
        assert verify(folder, quick=True).same
        assert corgi2.inspect(folder).damage == ()
    if kind == "record":
        folder = scene.target / ".corgi2" / f"c{int(scene.in_place)}" / "pass-1" / "groups"
        markers = [opened(path) for path in folder.iterdir()]
        for marker in markers:
            share = marker["input"]["count"] / 5
            assert math.floor(share) <= marker["held"]["count"] <= math.ceil(share)
    else:
        names = sorted(path.name for path in scene.val.glob("data-*"))
        assert len(names) == 2
        assert all((scene.val / name).read_bytes() == (scene.source / name).read_bytes() for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_command_holds_out_the_same_and_another_seed_others(kind: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, ".tar", holdout_by=kind)
    found = []
    for options in ({"workers": 1}, {"workers": 5}, {"seed": 1}):
        scene.reset()
        scene.run(**options)
        found.append(scene.both())
    assert found[0] == found[1]
    assert found[0][1] != found[2][1]


def test_a_group_that_is_mixed_in_parts_gives_its_share_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path, ".jsonl.zst", [60] * 8, buffer_blocks=None)
    whole = corgi2.offline.plan_shuffle(scene.source, scene.target, Settings(10**12)).index.footprint
    underestimated(monkeypatch)
    for passes in (1, 2):
        scene.reset()
        scene.run(buffer=whole // 3, passes=passes)
        assert _records(scene.target) + _records(scene.val) == _records(scene.source)
        assert _records(scene.val).total() == 96
        assert verify(scene.val).same


def test_few_records_of_equal_keys_are_held_out_in_shards_of_their_own(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ".tar", [3] * 12, buffer_blocks=12, holdout=0.3)
    scene.run()
    assert _records(scene.target) + _records(scene.val) == _records(scene.source)


CALLS = ("publish", "create", "readinto", "list", "head", "delete")


@pytest.mark.parametrize("way", [{}, {"in_place": True}], ids=["copying", "in place"])
@pytest.mark.parametrize("kind", KINDS)
def test_stopped_at_any_call_of_a_store_both_go_on_to_the_same_bytes(
    kind: str, way: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    scene = Scene(tmp_path, ".jsonl", [20] * 6, holdout_by=kind, workers=1, **way)
    scene.run()
    expected, everything = scene.both(), _records(scene.source)
    limit, calls = 0, iter(itertools.count())

    def dying(name: str) -> Any:
        real = getattr(LocalStore, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) == limit:
                raise DyingError("stopped")
            return real(*arguments, **options)

        return call

    for name in CALLS:
        monkeypatch.setattr(LocalStore, name, dying(name))
    for limit in itertools.count(0, 3):  # noqa: B007 - dying looks at it
        calls = itertools.count()
        scene.reset()
        try:
            scene.run()
        except DyingError:
            pass
        else:
            break
        calls = itertools.count(1_000_000)
        _check_nothing_is_lost(scene, everything)
        if not (scene.in_place and scene.is_finished):
            scene.run()
        assert scene.both() == expected
    assert limit > 40


def _check_nothing_is_lost(scene: Scene, everything: Counter[str]) -> None:
    """Wherever it was stopped, each record is in a shard of one of the two folders."""
    if scene.in_place:
        found = _records(scene.target) + _records(scene.val)
        assert not everything - found


@pytest.mark.parametrize("kind", KINDS)
def test_an_unfinished_holdout_is_no_data_set(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, holdout_by=kind)
    with monkeypatch.context() as patch:
        patch.setattr("corgi2.offline.shuffle_run.finish", lambda *_: (_ for _ in ()).throw(DyingError()))
        with pytest.raises(DyingError):
            scene.run()
    for folder in (scene.target, scene.val):
        with pytest.raises(SourceError, match="is not finished"):
            corgi2.inspect(folder)
    scene.run()
    assert verify(scene.val).same


def _half(scene: Scene) -> Iterator[None]:
    real, count = LocalStore.publish, itertools.count()

    def publish(store: LocalStore, path: str, *arguments: Any) -> Any:
        if "/groups/" in path and next(count) == 3:
            raise StoreError("full")
        return real(store, path, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "publish", publish)
        with pytest.raises(StoreError, match="full"):
            scene.run(workers=1)
    yield


@pytest.mark.parametrize("kind", KINDS)
def test_restart_discards_both_and_nothing_of_others(kind: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, holdout_by=kind)
    next(_half(scene))
    (scene.val / "thesis.txt").write_text("precious")
    with pytest.raises(SourceError, match=r"thesis\.txt was not written by the shuffle"):
        scene.run(restart=True, seed=1)
    (scene.val / "thesis.txt").unlink()
    scene.run(restart=True, seed=1)
    found = scene.both()
    scene.reset()
    scene.run(seed=1)
    assert scene.both() == found


@pytest.mark.parametrize("kind", KINDS)
def test_in_place_a_restart_is_refused_once_something_was_consumed(kind: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, holdout_by=kind, in_place=True)
    next(_half(scene))
    with pytest.raises(SourceError, match="restart=True would lose"):
        scene.run(restart=True, seed=1)
    scene.run()
    assert _records(scene.target) + _records(scene.val) == _records(scene.source)


def test_in_place_nothing_is_deleted_before_what_was_held_out_was_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalStore.publish

    def publish(store: LocalStore, path: str, pieces: Any, *arguments: Any) -> Any:
        entry = real(store, path, pieces, *arguments)
        if store.url.endswith("val") and path.startswith("data-"):
            place = Path(store.url, path)
            place.write_bytes(place.read_bytes()[:-1] + b"?")
        return entry

    for kind in KINDS:
        scene = Scene(tmp_path / kind, holdout_by=kind, in_place=True)
        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "publish", publish)
            with pytest.raises(SourceError, match="is not what was written there; nothing was deleted"):
                scene.run()
        assert {path.name for path in scene.source.iterdir()} <= {path.name for path in scene.target.iterdir()}


@pytest.mark.parametrize("kind", KINDS)
def test_other_holdouts_and_foreign_files_are_refused(kind: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, holdout_by=kind)
    next(_half(scene))
    other = KINDS[1 - KINDS.index(kind)]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"holdout": 0.1}, "with holdout=0.2, not holdout=0.1"),
        ({"holdout_by": other}, f"with holdout_by='{kind}', not holdout_by='{other}'"),
        ({"holdout_to": tmp_path / "x"}, f"with holdout_to='{scene.val}', not"),
    ]
    for options, said in cases:
        with pytest.raises(SourceError, match=said):
            shuffle(scene.source, scene.target, **{"holdout_to": scene.val} | scene.options | options)
    (scene.val / "data-x.jsonl").write_text("{}")
    with pytest.raises(SourceError, match=r"data-x\.jsonl: was not held out by the unfinished shuffle"):
        scene.run()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    with pytest.raises(SourceError, match="is not empty"):
        shuffle(scene.source, tmp_path / "new", holdout_to=tmp_path / "full", **scene.options)


def test_a_holdout_lies_neither_in_the_source_nor_in_the_target_nor_around_them(tmp_path: Path) -> None:
    write_source(tmp_path / "a" / "in", ".jsonl", [20] * 4)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "in")
    source, target = tmp_path / "a" / "in", tmp_path / "b" / "out"
    for val in ("a/in/val", "link/val", "a", "a/in", "b/out", "b/out/val", "b"):
        with pytest.raises(SourceError, match="lies in the (source|target)"):
            shuffle(source, target, holdout=0.1, holdout_by="record", holdout_to=tmp_path / val)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"holdout": 0.1}, "needs a share and a folder"),
        ({"holdout_to": "x", "holdout_by": "record"}, "needs a share and a folder"),
        ({"holdout": 0.1, "holdout_to": "x"}, "a uniform sample of all records, or holdout_by='shard'"),
        ({"holdout": "110%", "holdout_to": "x", "holdout_by": "record"}, "between 0 and 1"),
        ({"holdout": "much", "holdout_to": "x", "holdout_by": "record"}, "must be a share"),
        ({"holdout": 0.1, "holdout_to": "x", "holdout_by": "record", "with_replacement": True}, "give no holdout="),
    ],
)
def test_a_holdout_is_chosen_whole(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        shuffle(tmp_path / "in", tmp_path / "out", **options)


def test_a_share_is_written_in_either_way() -> None:
    assert parse_share("5%") == parse_share("0.05") == parse_share(0.05) == 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_shards_are_left_out_of_both(kind: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, ".tar", [20] * 10, holdout_by=kind, skip_bad=True)
    scene.run()
    bad = next(scene.val.glob("data-*")).name if kind == "shard" else "data-0004.tar"
    scene.reset()
    (scene.source / bad).write_bytes(b"junk" * 300)
    report = scene.run()
    assert [Path(each.shard).name for each in report.skipped] == [bad]
    assert (_records(scene.target) + _records(scene.val)).total() == 180
    assert verify(scene.val).same
    assert verify(scene.target).same


def test_each_of_the_two_names_the_other_and_says_that_it_was_checked_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.run()
    assert f"20.000% of the records were held out to {scene.val}" in verify(scene.target).as_text()
    assert f"the rest is in {scene.target}" in verify(scene.val).as_text()


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_holdout_in_place_nothing_is_named_that_is_gone_and_nothing_of_ours_disowned(
    kind: str, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, holdout_by=kind, in_place=True)
    scene.run()
    text = verify(scene.target).as_text()
    assert f"corgi2 verify {scene.val} checks that" in text
    assert "SRC" not in text
    with pytest.raises(SourceError, match="val: holds what an earlier shuffle has written there or held out; name an"):
        scene.run()
    assert f"held out to {scene.val}" in verify(scene.source, scene.target).as_text()
    plan, _ = load_plan(Journal(open_store(str(scene.val)), 0)) or pytest.fail("no plan")
    assert plan.sibling == str(scene.target)
    shard = next(scene.val.glob("data-*"))
    shard.write_bytes(shard.read_bytes()[:-2] + b"?\n")
    assert not verify(scene.val).same
    assert verify(scene.target).same
    assert not verify(scene.source, scene.target, holdout=scene.val).same


def test_one_shard_cannot_be_held_out_whole(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20])
    with pytest.raises(SourceError, match="would leave none; give holdout_by='record'"):
        shuffle(tmp_path / "in", tmp_path / "out", holdout=0.5, holdout_by="shard", holdout_to=tmp_path / "val")


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".tar", ".parquet"])
def test_what_was_foreseen_with_a_holdout_is_what_is_reported(
    suffix: str, kind: str, passes: int, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, suffix, [40] * 30, holdout=0.4, holdout_by=kind, passes=passes, buffer_blocks=None)
    corgi2.index(scene.source)
    asked = Settings(120_000, holdout_to=str(scene.val), **scene.options)
    planned = corgi2.offline.plan_shuffle(scene.source, scene.target, asked)
    report = scene.run(buffer=120_000)
    names = ("groups", "shards", "reads", "writes", "held_shards", "held_writes")
    assert {name: planned.as_json()[name] for name in names} == {name: report.as_json()[name] for name in names}
    assert report.held_writes == report.held_shards > 0
