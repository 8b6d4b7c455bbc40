"""What an inspection says holds for the data, and speaks of what was asked."""

import html
import json
from pathlib import Path

import numpy as np
import pytest

import corgi2
from corgi2.advice import plan


def _write(folder: Path, blocks: int, b: int, classes: int) -> Path:
    """A block a shard, of one class each; ``lang`` is random, and ``id`` different everywhere."""
    folder.mkdir()
    for number in range(blocks):
        rows = [
            {"cls": number % classes, "lang": "xyz"[(row * 7 + number) % 3], "id": f"{number}-{row}"}
            for row in range(b)
        ]
        (folder / f"a-{number:03d}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_an_error_names_the_option_that_it_is_about(tmp_path: Path) -> None:
    source = _write(tmp_path / "in", 4, 50, 2)
    with pytest.raises(corgi2.SourceError, match="online_buffer='1MB' would do") as error:
        corgi2.inspect(source, label="cls", online_buffer=100)
    assert " buffer=" not in str(error.value)


def _seen(folder: Path, window: int) -> float:
    """H of windows of so many blocks, as a loader gives them: by the labels that come out."""
    loader, found = corgi2.Loader(folder, buffer_blocks=window), list[float]()
    assert loader.world(1).window == window
    for _ in range(8):
        labels = np.array([sample["cls"] for sample in loader])
        hot = np.eye(labels.max() + 1)[labels]
        hot -= hot.mean(axis=0)
        size = window * len(labels) // loader.catalog.index.blocks.num_rows
        parts = hot[: len(hot) // size * size].reshape(-1, size, hot.shape[1])
        found.append(size * float((parts.mean(axis=1) ** 2).sum(axis=1).mean() / (hot**2).sum(axis=1).mean()))
    return float(np.mean(found))


@pytest.mark.parametrize(("passes", "n"), [(1, 8), (1, 7), (1, 13), (2, 4), (2, 7), (2, 1)])
def test_what_is_said_of_even_picks_is_what_a_loader_gives(passes: int, n: int, tmp_path: Path) -> None:
    """With groups of equal and of unequal sizes, and after two passes."""
    source = _write(tmp_path / "in", 40, 30, 8)
    corgi2.shuffle(source, tmp_path / "out", buffer=10**8, buffer_blocks=n, passes=passes, force=n == 1)
    mixing = corgi2.inspect(tmp_path / "out", label="cls").mixing
    assert mixing is not None
    assert mixing.outcome is not None
    window = mixing.outcome.window
    assert pytest.approx(_seen(tmp_path / "out", window.blocks), rel=0.3, abs=0.15) == window.H
    if window.blocks == 1:
        assert pytest.approx(mixing.measured.h_D) == window.H


def test_labels_are_suggested_by_how_far_blocks_differ_in_them(tmp_path: Path) -> None:
    """One that sounds like a label and is random would give a false all-clear."""
    found = corgi2.inspect(_write(tmp_path / "in", 12, 60, 6), label="id").as_json()
    assert found["better_labels"] == ["cls", "lang"]


def test_a_verdict_is_about_its_labels_and_the_same_on_the_page(tmp_path: Path) -> None:
    source = _write(tmp_path / "in", 40, 30, 8)
    corgi2.shuffle(source, tmp_path / "out", buffer=10**8, buffer_blocks=8)
    for folder, label in ((source, "cls"), (source, "lang"), (source, ("cls", "lang")), (tmp_path / "out", "cls")):
        found = corgi2.inspect(folder, label=label)
        named = "by 'cls' and 'lang' together" if not isinstance(label, str) else f"by '{label}'"
        assert found.mixing is not None
        assert named in found.mixing.verdict
        for shown in (found.as_text(), html.unescape(found.as_page())):
            assert found.mixing.verdict in shown
    assert "offline pass" not in found.as_page()


def test_inspect_and_plan_do_not_contradict_each_other(tmp_path: Path) -> None:
    """Whether a buffer is enough is said by who knows it."""
    source = _write(tmp_path / "in", 40, 30, 8)
    assert "corgi2 plan tells" in corgi2.inspect(source, label="cls").as_text()
    assert "corgi2 plan" not in corgi2.inspect(source, label="lang").as_text()
    why = plan(source, label="lang", latency=1, bandwidth="1GB", online_buffer="100KB").why
    assert "already mixed by 'lang'" in why
    assert "other labels may show more" in why
