"""No all-clear that the data does not support."""

from pathlib import Path

import pytest

import corgi2
from corgi2.quality import is_mixed


def _sorted(folder: Path, b: int, shards: int = 24) -> Path:
    folder.mkdir()
    for shard in range(shards):
        lines = "".join(f'{{"cls": {shard}, "x": "{"x" * 200}"}}\n' for _ in range(b))
        (folder / f"{shard:03d}.jsonl").write_text(lines)
    return folder


@pytest.mark.parametrize("b", [1, 2, 3, 4, 8, 50])
def test_sorted_data_never_gets_an_all_clear_however_small_its_blocks(b: int, tmp_path: Path) -> None:
    source = _sorted(tmp_path / "in", b)
    verdict = corgi2.inspect(source, label="cls").as_text()
    assert "nothing to gain" not in verdict
    assert "differ little" not in verdict
    assert "already mixed" not in corgi2.plan(source, label="cls", latency=1, bandwidth="1GB").why


@pytest.mark.parametrize("buffer", [1_000, 2_000, 4_000, 8_000])
def test_a_buffer_below_a_shard_clears_neither_the_data_nor_the_loader(buffer: int, tmp_path: Path) -> None:
    source = _sorted(tmp_path / "in", 60)
    advice = corgi2.plan(source, label="cls", buffer=buffer, online_buffer="100KB", latency=1, bandwidth="1GB")
    assert "already mixed" not in advice.why
    assert advice.recommended.name != "CorgiPile"


@pytest.mark.parametrize("most", [1.0, 1.5, 2.0, 3.0, 5.0, 100.0])
def test_what_any_order_would_show_is_no_all_clear(most: float) -> None:
    assert not is_mixed(most, most)
    assert is_mixed(1.0, most) == (most >= 2)
