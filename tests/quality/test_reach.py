"""A label tells only if a bad order would show in it: no all-clear without."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corgi2
from corgi2.quality.estimate import reach_of
from corgi2.quality.measuring import measure
from corgi2.quality.sums import Sums
from tests.shards import parquet_of, tar_of


def _sums(labels: list[list[Any]]) -> Sums:
    table = Sums(["label"], [])
    for block in labels:
        table.add({"label": block}, len(block))
        table.end_block()
    return table


def _reach(labels: list[list[Any]], chosen: list[int] | None = None) -> float:
    part = labels if chosen is None else [labels[number] for number in chosen]
    return reach_of("label", _sums(part).votes(), len(part), len(labels), len(labels[0])).h_D_max


def _h(labels: list[list[Any]]) -> float:
    table = np.array([np.bincount(block, minlength=1 + max(map(max, labels))) for block in labels])
    p = table.sum(axis=0) / table.sum()
    means = table / table.sum(axis=1, keepdims=True)
    return float(((means - p) ** 2).sum(axis=1).mean() * len(labels[0]) / (1 - (p**2).sum()))


@given(st.integers(2, 6), st.integers(1, 8), st.lists(st.integers(1, 9), min_size=2, max_size=40), st.randoms())
def test_no_order_of_the_records_has_a_larger_h(blocks: int, b: int, sizes: list[int], random: Any) -> None:
    labels = [kind for kind, size in enumerate(sizes) for _ in range(size)][: blocks * b]
    labels += [len(sizes)] * (blocks * b - len(labels))
    if len(set(labels)) < 2:
        return
    for order in (sorted(labels), random.sample(labels, len(labels))):
        cut = [order[start : start + b] for start in range(0, len(order), b)]
        assert _h(cut) <= _reach(cut) + 1e-9


@pytest.mark.parametrize("size", [1, 2, 5, 10, 20])
def test_sorted_records_have_the_largest_h(size: int) -> None:
    labels = [record // size for record in range(200)]
    cut = [labels[start : start + 10] for start in range(0, 200, 10)]
    assert _h(cut) == pytest.approx(_reach(cut))


@pytest.mark.parametrize("size", [1, 3, 30, 3000])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_a_sample_knows_what_all_blocks_know(size: int, is_sorted: bool) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60_000) // size
    if not is_sorted:
        rng.shuffle(labels)
    cut = labels.reshape(600, 100).tolist()
    found = [_reach(cut, rng.choice(600, 32, replace=False).tolist()) for _ in range(20)]
    assert np.mean(found) == pytest.approx(min(size, 100), rel=0.15)


def _write(folder: Path, sorted_by: str, records: int = 600) -> Path:
    """Twelve tars of samples whose class, and the user who made them, are known in JSON."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = [
        {"id": f"i{row}", "user": f"u{row // 3}", "cls": row * 4 // records} for row in range(records)
    ]
    order = range(records) if sorted_by == "id" else rng.permutation(records).tolist()
    folder.mkdir()
    per = records // 12
    for shard in range(12):
        members = []
        for at in order[shard * per : shard * per + per]:
            row = rows[at]
            members += [(f"{at:06d}.cls", b"%d" % row["cls"]), (f"{at:06d}.json", json.dumps(row).encode())]
            members.append((f"{at:06d}.txt", f"a text of its own, {at}, ".encode() * 9))
        (folder / f"train-{shard:02d}.tar").write_bytes(tar_of(members))
    return folder


@pytest.mark.parametrize("order", ["id", "random"])
@pytest.mark.parametrize("label", ["json", "txt", "json.id", "json.user", "__key__"])
def test_a_label_that_hardly_two_records_share_gives_no_all_clear(label: str, order: str, tmp_path: Path) -> None:
    for sample in (64, 5):
        folder = tmp_path / f"in-{sample}"
        found = measure(_write(folder, order), [label], sample=sample)
        assert not found.tells
        assert found.h_D_max < 5
        assert found.as_json()["tells"] is False
        assert found.as_json()["better_labels"] == ["cls", "json.cls"]
        assert f"{label!r} does not tell how well blocks are mixed" in found.verdict
        assert "measure by label='cls' (or 'json.cls')" in found.verdict
        assert "nothing to gain" not in found.verdict


def test_a_label_that_tells_says_what_it_said(tmp_path: Path) -> None:
    found = measure(_write(tmp_path / "in", "random"), ["cls"])
    assert found.tells
    assert found.h_D_max > 30
    assert "nothing to gain" in found.verdict
    assert "nearly one kind" in measure(_write(tmp_path / "sorted", "id"), ["json.cls"]).verdict


def test_one_label_of_several_that_does_not_tell_is_named(tmp_path: Path) -> None:
    found = measure(_write(tmp_path / "in", "random"), ["cls", "json.id"])
    assert [reach.label for reach in found.silent] == ["json.id"]
    assert "nothing to gain" not in found.verdict


@pytest.mark.parametrize("b", [1, 2, 3, 4])
def test_small_blocks_have_small_h_and_their_labels_tell_all_the_same(b: int, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for shard in range(60):
        table = pa.table({"cls": [shard % 3] * b, "id": [f"{shard}-{row}" for row in range(b)]})
        (tmp_path / "in" / f"a-{shard:02d}.parquet").write_bytes(parquet_of(table))
    assert measure(tmp_path / "in", ["cls"]).tells
    assert measure(tmp_path / "in", ["id"]).tells == (b == 1)


def test_nothing_is_recommended_where_nothing_is_shared(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for shard in range(5):
        table = pa.table({"id": [f"{shard}-{row}" for row in range(40)], "x": np.random.default_rng(shard).random(40)})
        (tmp_path / "in" / f"a-{shard}.parquet").write_bytes(parquet_of(table))
    found = measure(tmp_path / "in", ["id"])
    assert found.better == ()
    assert "a label that many records share, by numbers (feature=)" in found.verdict


def test_very_many_values_do_not_fill_the_memory(tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", "id")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corgi2.quality.measuring._MOST_CLASSES", 100)
        found = measure(folder, ["txt"])
    assert found.sampled == 3
    assert not found.tells
    assert found.heat is not None
    assert list(found.heat.blocks) == sorted(found.heat.blocks)


def test_a_plan_does_not_believe_a_label_that_does_not_tell(tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", "id")
    advice = corgi2.plan(folder, label="json.id", buffer=10**6, latency=30, bandwidth=10**8)
    assert advice.shape.h_D is None
    assert any("'json.id' does not tell" in note and "label='cls'" in note for note in advice.notes)
    assert "already mixed" not in advice.why
    assert corgi2.plan(folder, label="cls", buffer=10**6, latency=30, bandwidth=10**8).shape.h_D is not None
