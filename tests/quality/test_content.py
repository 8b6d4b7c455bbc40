"""Without a label: sorted data is told from shuffled data by what records look like; never an all-clear."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import corgi2
from corgi2.quality.content import Content
from tests.shards import parquet_of, tar_of

BLOCKS, B = 30, 40


def _kinds(is_sorted: bool) -> np.ndarray:
    kinds = np.arange(BLOCKS * B) * 5 // (BLOCKS * B)
    return (kinds if is_sorted else np.random.default_rng(0).permutation(kinds)).reshape(BLOCKS, B)


def _text(rng: np.random.Generator, kind: int) -> bytes:
    """Letters whose frequencies differ a little between kinds."""
    weights = np.ones(26) + (np.arange(26) % 5 == kind)
    return bytes(rng.choice(26, 120, p=weights / weights.sum()) + 97)


def _write(folder: Path, format: str, kinds: np.ndarray) -> Path:
    rng = np.random.default_rng(1)
    folder.mkdir()
    for number, block in enumerate(kinds):
        names = [f"{number:04d}{row:04d}" for row in range(B)]
        if format == "tar":
            data = tar_of([(f"{name}.jpg", _text(rng, kind)) for name, kind in zip(names, block, strict=True)])
        elif format == "jsonl":
            rows = [{"id": name, "a": {"text": _text(rng, k).decode()}} for name, k in zip(names, block, strict=True)]
            data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        else:
            values, times = rng.normal(size=B) + block, number * B + np.arange(B)
            data = parquet_of(pa.table({"x": values, "at": pa.array(times, pa.timestamp("s")), "row": times}))
        (folder / f"a-{number:03d}.{format}").write_bytes(data)
    return folder


def _look(folder: Path) -> Content:
    content = corgi2.inspect(folder).content
    assert content is not None
    return content


@pytest.mark.parametrize(
    ("format", "what"),
    [("tar", "the bytes of 'jpg'"), ("jsonl", "the bytes of 'a.text'"), ("parquet", "'x'")],
)
def test_sorted_data_is_told_from_shuffled_data(format: str, what: str, tmp_path: Path) -> None:
    found = _look(_write(tmp_path / "sorted", format, _kinds(True)))
    assert found.traits[0].what == what
    assert 2 < found.traits[0].h <= B
    assert f"shows that blocks differ: h is about {found.traits[0].h:.3g} by {what}" in found.as_text()
    mixed = _look(_write(tmp_path / "mixed", format, _kinds(False)))
    assert not mixed.shows
    assert "does not show that blocks differ" in mixed.as_text()
    assert "no all-clear" in mixed.as_text()
    assert mixed.as_json()["content"]["shows"] is False


def test_what_counts_up_and_what_names_records_is_left_out(tmp_path: Path) -> None:
    for format, names in (("parquet", ["'x'"]), ("jsonl", ["the bytes of 'a.text'"])):
        found = _look(_write(tmp_path / format, format, _kinds(False)))
        assert [trait.what for trait in found.traits] == names


def test_luck_is_not_taken_for_order(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(2)
    for number in range(BLOCKS):
        columns = {f"x{column}": rng.exponential(size=B) for column in range(60)}
        (tmp_path / "in" / f"a-{number:03d}.parquet").write_bytes(parquet_of(pa.table(columns)))
    found = _look(tmp_path / "in")
    assert len(found.traits) == 60
    assert not found.shows


def test_the_h_of_whole_blocks_is_estimated_from_some_records(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(3)
    for number in range(20):
        table = pa.table({"x": rng.normal(size=3000) + number % 5})
        (tmp_path / "in" / f"a-{number:03d}.parquet").write_bytes(parquet_of(table))
    found = _look(tmp_path / "in")
    assert found.records == 256
    assert found.traits[0].h == pytest.approx(corgi2.inspect(tmp_path / "in", feature="x").as_json()["h_D"], rel=0.2)


def test_a_limited_memory_a_label_or_damage_leave_it_out(tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", "jsonl", _kinds(True))
    assert corgi2.inspect(folder, buffer=10**8).content is None
    assert "content" not in corgi2.inspect(folder, label="id").as_json()
    (folder / "b.jsonl").write_text("{")
    assert corgi2.inspect(folder).content is None


def test_what_cannot_be_looked_at_ends_nothing(tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", "jsonl", _kinds(True))
    (folder / "a-003.jsonl").write_text("{not JSON}\n")
    found = corgi2.inspect(folder)
    assert found.damage == ()
    assert found.content is not None
    assert "content  not looked at: " in found.as_text()
    assert "a-003.jsonl: at byte 0" in found.as_text()


def test_of_mixed_data_it_says_who_evens_out_the_rest(tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", "jsonl", _kinds(True))
    corgi2.shuffle(folder, tmp_path / "out", buffer=10**8, buffer_blocks=2)
    assert "its loader evens out what is left" in _look(tmp_path / "out").as_text()
