"""Of data that corgi2 has mixed: whether it is as predicted, and what a loader sees."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import corgi2
from corgi2 import theory
from corgi2.quality.estimate import estimate
from corgi2.quality.measuring import Measurement
from corgi2.quality.outcome import limits_of
from corgi2.quality.prediction import Prediction
from corgi2.quality.sums import Sums
from corgi2.theory import Blocks


def _write(folder: Path, blocks: int, b: int, classes: int) -> Path:
    folder.mkdir()
    for number in range(blocks):
        lines = [json.dumps({"cls": number % classes, "id": f"{number}-{row}"}) + "\n" for row in range(b)]
        (folder / f"a-{number:03d}.jsonl").write_text("".join(lines))
    return folder


def _measured(labels: np.ndarray) -> Measurement:
    table = Sums(["cls"], [])
    for block in labels:
        table.add({"cls": block}, len(block))
        table.end_block()
    return estimate(table, np.arange(len(labels)), len(labels), None, 0)


@pytest.mark.parametrize("classes", [2, 5, 40])
@pytest.mark.parametrize("n", [4, 10])
def test_luck_with_the_groups_is_not_taken_for_a_fault(classes: int, n: int) -> None:
    rng = np.random.default_rng(0)
    before = np.repeat(np.arange(40) % classes, 20).reshape(40, 20)
    source = _measured(before)
    data = Blocks(40, 20, 20)
    predicted = Prediction(data, n, 1, theory.h_after_pass(data, n), source)
    outside = 0
    for _ in range(300):
        groups = rng.permutation(before).reshape(40 // n, n * 20)
        after = _measured(rng.permuted(groups, axis=1).reshape(40, 20))
        low, high = limits_of(after, predicted)
        outside += not low <= after.h_D <= high
    assert outside <= 3
    assert high < 18


@pytest.mark.parametrize("passes", [1, 2])
def test_mixed_data_is_said_to_be_as_predicted_and_what_a_loader_sees(passes: int, tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", 40, 20, 8)
    corgi2.shuffle(folder, tmp_path / "out", buffer=10**8, buffer_blocks=8, passes=passes)
    found = corgi2.inspect(tmp_path / "out", label="cls")
    text, said = found.as_text(), found.as_json()
    assert said["agrees"] is True
    assert said["h_predicted_low"] < said["h_D"] < said["h_predicted_high"]
    assert "mixed by corgi2: h = " in text
    assert ", as predicted (" in text
    assert "offline pass" not in text
    assert said["window"]["H"] <= 1.05
    assert said["window"]["H_full"] == pytest.approx(theory.window_full(Blocks(40, 20, 1), said["window"]["blocks"]))
    if passes == 1:
        assert said["window"]["blocks"] == 5
        assert "windows of 5 blocks, one of each group" in text
        assert said["window"]["H_random"] > 1.5


@pytest.mark.parametrize("sample", [64, 16])
def test_ranges_in_rounds_are_as_predicted(sample: int, tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", 40, 60, 8)
    corgi2.index(folder, block_size=200)
    corgi2.shuffle(folder, tmp_path / "out", buffer=10**8, buffer_blocks=4, range_size=600)
    found = corgi2.inspect(tmp_path / "out", label="cls", sample=sample)
    text, said = found.as_text(), found.as_json()
    assert said["agrees"] is True
    assert 1.0 < said["h_predicted"] < 60 / 4 - 3
    assert "of ranges in " in text
    assert "one of each group of a round" in text
    assert said["window"]["H"] <= 1.05
    assert said["window"]["blocks"] < 10


def test_a_fault_is_said_plainly(tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", 40, 20, 8)
    corgi2.shuffle(folder, tmp_path / "out", buffer=10**8, buffer_blocks=8)
    mixing = corgi2.inspect(tmp_path / "out", label="cls").mixing
    assert mixing is not None
    assert mixing.outcome is not None
    outcome = mixing.outcome
    for h, word in ((19.0, "worse"), (0.01, "better")):
        wrong = replace(outcome, measured=replace(outcome.measured, h_D=h, h_D_low=h, h_D_high=h))
        assert wrong.agrees is False
        assert f"{word} than predicted" in wrong.verdict
        assert "corgi2 verify SRC DST" in wrong.verdict


def test_a_label_that_does_not_tell_confirms_no_prediction(tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", 40, 20, 8)
    corgi2.shuffle(folder, tmp_path / "out", buffer=10**8, buffer_blocks=8)
    found = corgi2.inspect(tmp_path / "out", label="id")
    assert found.as_json()["agrees"] is None
    assert "'id' does not tell" in found.as_text()
    assert "predicted" not in found.as_text()


def test_what_was_mixed_in_place_shows_what_a_loader_sees(tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", 40, 20, 8)
    corgi2.shuffle(folder, in_place=True, buffer=10**8, buffer_blocks=8)
    found = corgi2.inspect(folder, label="cls", online_buffer="1MB")
    assert found.as_json()["agrees"] is None
    assert "mixed by corgi2: h = " in found.as_text()
    assert "in this buffer of 40 blocks" in found.as_text()
    assert "no prediction: it was mixed in place" in found.as_text()
