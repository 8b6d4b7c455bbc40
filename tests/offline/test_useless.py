"""A shuffle that would gain nothing is refused, with the smallest buffer that would mix, unless it is forced."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgi2.dataset import find_source, index_source, save_index
from corgi2.errors import SourceError
from corgi2.offline import look_ahead, useless
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.run import shuffle
from corgi2.offline.settings import Settings
from tests.sources import content, enough_for, write_source

HUGE = 10**12


def _refusal(source: Path, target: Path | None, **choices: Any) -> SourceError:
    with pytest.raises(SourceError) as caught:
        plan_shuffle(source, target, Settings(**choices))
    return caught.value


def _in_small_blocks(folder: Path, shards: int = 4, records: int = 200) -> Path:
    """Lines in blocks of a few, as an index says."""
    write_source(folder, ".jsonl", [records] * shards)
    source = find_source(folder)
    save_index(source.store, index_source(source, 1000))
    return folder


@settings(max_examples=25)
@given(counts=st.lists(st.integers(1, 40), min_size=2, max_size=12), extra=st.floats(0, 0.9))
def test_groups_of_one_block_are_refused_and_the_buffer_that_is_named_would_mix(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], extra: float
) -> None:
    root = tmp_path_factory.mktemp("run")
    write_source(root / "in", ".jsonl", counts)
    footprints = plan_shuffle(root / "in", root / "x", Settings(HUGE)).index.column("footprint")
    buffer = int(footprints.max() * (1 + extra))
    planned = plan_shuffle(root / "in", root / "out", Settings(buffer), force=True)
    if planned.first.n > 1:
        assert plan_shuffle(root / "in", root / "out", Settings(buffer)).first.n == planned.first.n
        return
    assert "WARNING: n = 1" in planned.describe()
    error = _refusal(root / "in", root / "out", buffer_bytes=buffer)
    assert error.kind == "memory"
    assert "n = 1: every block is shuffled in itself" in str(error)
    assert plan_shuffle(root / "in", root / "out", Settings(enough_for(error))).first.n > 1
    assert not (root / "out").exists()


def test_few_shards_that_would_become_many_are_refused_and_what_is_named_would_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(useless, "_FEW", 20)
    monkeypatch.setattr(useless, "_STEP_BYTES", 1)
    source, out = _in_small_blocks(tmp_path / "in"), tmp_path / "out"
    blocks = plan_shuffle(source, out, Settings(HUGE)).first.n
    assert blocks > 80
    error = _refusal(source, out, buffer_blocks=2)
    groups = -(-blocks // 2)
    assert f"{groups} groups write at least one shard each: there would be {groups} shards, not 4" in str(error)
    enough = -(-blocks // 20)
    assert f"buffer_blocks={enough} or more would do" in str(error)
    assert len(plan_shuffle(source, out, Settings(buffer_blocks=enough)).first.groups) <= 20
    assert len(plan_shuffle(source, out, Settings(buffer_blocks=2, shard_records=40)).first.groups) == groups
    small = int(2.5 * plan_shuffle(source, out, Settings(HUGE)).index.column("footprint").max())
    planned = plan_shuffle(source, out, Settings(small), force=True)
    assert "shards, not 4; buffer='1MB' would do" in str(_refusal(source, out, buffer_bytes=small))
    enough = useless._enough_bytes(planned.plan, planned.first)
    assert len(plan_shuffle(source, out, Settings(enough)).first.groups) <= 20
    assert "shards, not 4" in str(_refusal(source, out, buffer_bytes=enough - 1))


@pytest.mark.parametrize("choices", [{"buffer_blocks": 1}, {"buffer_blocks": 1, "in_place": True}], ids=str)
def test_one_block_at_a_time_is_refused_unless_it_is_forced(choices: dict[str, Any], tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 4)
    target = None if "in_place" in choices else tmp_path / "out"
    error = _refusal(tmp_path / "in", target, **choices)
    assert str(error).endswith("buffer_blocks=2 or more would do; force=True does it anyway")
    assert shuffle(tmp_path / "in", target, **choices, force=True).n == 1
    again = _refusal(tmp_path / "in", tmp_path / "x", buffer_blocks=1, passes=2)
    assert "nothing is mixed" in str(again)


def test_one_block_alone_is_mixed_in_itself(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20])
    assert shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=1).n == 1


@pytest.mark.parametrize("force", [False, True])
def test_what_was_forced_once_resumes_with_and_without_it(force: bool, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 4)
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=1, force=True)
    whole = content(tmp_path / "out")
    (tmp_path / "out" / ".corgi2" / "c0" / "done").unlink()
    (tmp_path / "out" / ".corgi2" / "c0" / "pass-1" / "groups" / "000001").unlink()
    assert shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=1, force=force).resumed_groups == 3
    assert content(tmp_path / "out") == whole


@settings(max_examples=15)
@given(counts=st.lists(st.integers(1, 40), min_size=2, max_size=12), extra=st.floats(0, 0.9))
def test_two_passes_that_mix_nothing_are_refused_and_the_buffer_that_is_named_would_mix(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], extra: float
) -> None:
    root = tmp_path_factory.mktemp("run")
    write_source(root / "in", ".jsonl", counts)
    footprints = plan_shuffle(root / "in", root / "x", Settings(HUGE)).index.column("footprint")
    chosen = Settings(int(footprints.max() * (1 + extra)), passes=2)
    planned = plan_shuffle(root / "in", root / "out", chosen, force=True)
    if max(each.n for each in look_ahead(planned.first, planned.plan, planned.target).passes) > 1:
        assert plan_shuffle(root / "in", root / "out", chosen).first.n == planned.first.n
        return
    error = _refusal(root / "in", root / "out", buffer_bytes=chosen.buffer_bytes, passes=2)
    assert "n = 1: every block is shuffled in itself" in str(error)
    better = plan_shuffle(root / "in", root / "out", Settings(enough_for(error), passes=2))
    assert max(each.n for each in look_ahead(better.first, better.plan, better.target).passes) > 1


def test_two_passes_of_one_block_at_a_time_indeed_mix_nothing(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 4)
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=1, passes=2, force=True)
    paths = [(tmp_path / side).glob("*.jsonl") for side in ("in", "out")]
    old, new = ([sorted(path.read_bytes().splitlines()) for path in each] for each in paths)
    assert sorted(old) == sorted(new)
