"""How badly shards are mixed: what is measured is true, and the interval says how sure it is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import corgi2
from corgi2 import theory
from corgi2.errors import SourceError
from corgi2.quality.measuring import measure
from tests.shards import parquet_of, tar_of


def _write(folder: Path, labels: list[list[Any]]) -> Path:
    """A JSON lines shard a block."""
    folder.mkdir(parents=True)
    for number, block in enumerate(labels):
        lines = [json.dumps({"label": label, "x": [float(number), 1.0]}) for label in block]
        (folder / f"data-{number:04d}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def _truth(labels: list[list[Any]]) -> float:
    """h_D by its definition, of one-hot vectors."""
    kinds = sorted({label for block in labels for label in block})
    vectors = [np.array([[label == kind for kind in kinds] for label in block], float) for block in labels]
    everything = np.concatenate(vectors)
    mean, sigma2 = everything.mean(axis=0), float(((everything - everything.mean(axis=0)) ** 2).sum(axis=1).mean())
    between = sum(len(block) * float(((block.mean(axis=0) - mean) ** 2).sum()) for block in vectors) / len(everything)
    return between * len(everything) / len(labels) / sigma2


def _blocks(count: int, b: int, pure: float, seed: int) -> list[list[int]]:
    """Blocks of which a share of the records is of one class."""
    rng = np.random.default_rng(seed)
    return [
        [int(number) % 10 if rng.random() < pure else int(rng.integers(10)) for _ in range(b)]
        for number in range(count)
    ]


@pytest.mark.parametrize("pure", [0, 0.3, 1])
def test_all_blocks_give_the_truth_itself(pure: float, tmp_path: Path) -> None:
    labels = _blocks(30, 20, pure, 0)
    found = measure(_write(tmp_path / "in", labels), ["label"])
    assert found.h_D == pytest.approx(_truth(labels))
    assert found.h_D_low == found.h_D == found.h_D_high
    assert (found.classes, found.sampled, found.blocks) == (10, 30, 30)
    assert found.homogeneity == pytest.approx(found.h_D / 20)


def test_ragged_blocks_weigh_by_their_records(tmp_path: Path) -> None:
    labels = [[number % 3] * (1 + number * 7 % 20) for number in range(12)]
    assert measure(_write(tmp_path / "in", labels), ["label"]).h_D == pytest.approx(_truth(labels))


@pytest.mark.slow
@pytest.mark.parametrize("pure", [0.0, 0.4, 1.0])
def test_the_interval_covers_the_truth(pure: float, tmp_path: Path) -> None:
    labels = _blocks(300, 12, pure, 1)
    folder, truth = _write(tmp_path / "in", labels), _truth(labels)
    covered = 0
    for seed in range(200):
        found = measure(folder, ["label"], sample=64, seed=seed)
        assert found.sampled == 64
        covered += found.h_D_low - 1e-9 <= truth <= found.h_D_high + 1e-9
    assert covered >= 180, covered


def test_the_verdict_is_a_plain_sentence(tmp_path: Path) -> None:
    assert "nearly one kind" in measure(_write(tmp_path / "pure", _blocks(30, 50, 1, 0)), ["label"]).verdict
    assert "nothing to gain" in measure(_write(tmp_path / "mixed", _blocks(30, 50, 0, 0)), ["label"]).verdict
    assert "an offline pass will help" in measure(_write(tmp_path / "half", _blocks(30, 50, 0.5, 0)), ["label"]).verdict


def test_a_pass_brings_h_to_what_the_theory_says(tmp_path: Path) -> None:
    labels = _blocks(40, 20, 1, 0)
    folder = _write(tmp_path / "in", labels)
    before = measure(folder, ["label"])
    found = []
    for seed in range(12):
        corgi2.shuffle(folder, tmp_path / f"out-{seed}", buffer=10**8, buffer_blocks=8, seed=seed)
        found.append(measure(tmp_path / f"out-{seed}", ["label"]).h_D)
    expected = theory.h_after_pass(theory.Blocks(40, 20, before.h_D), 8)
    assert abs(np.mean(found) - expected) <= 3 * np.std(found, ddof=1) / np.sqrt(len(found))


def test_features_and_functions_are_vectors(tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", _blocks(10, 5, 1, 0))
    by_feature = measure(folder, features=["x"])
    assert by_feature.h_D == pytest.approx(5)
    assert by_feature.sigma2 == pytest.approx(np.var(np.arange(10)))
    assert measure(folder, vector=lambda sample: sample["x"]).h_D == pytest.approx(by_feature.h_D)


def test_every_format_has_labels(tmp_path: Path) -> None:
    for name in ("tar", "parquet"):
        (tmp_path / name).mkdir()
    for shard in range(6):
        tar = tar_of([(f"{row:03d}.cls", b"%d" % (shard % 3)) for row in range(9)])
        (tmp_path / "tar" / f"a-{shard}.tar").write_bytes(tar)
        table = pa.table({"cls": [shard % 3] * 9, "value": [float(shard % 3)] * 9})
        (tmp_path / "parquet" / f"a-{shard}.parquet").write_bytes(parquet_of(table))
    for name in ("tar", "parquet"):
        assert measure(tmp_path / name, ["cls"]).h_D == pytest.approx(9)
    assert measure(tmp_path / "parquet", features=["value"]).h_D == pytest.approx(9)
    assert measure(tmp_path / "tar", features=["cls"]).h_D == pytest.approx(9)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"labels": ["class"]}, "no value of 'class'; it has: label, x, same"),
        ({"features": ["label"]}, "'label' is not a number: 'red'"),
        ({"labels": ["same"]}, "all sampled records have the same value"),
    ],
)
def test_what_cannot_be_measured_is_said(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for shard in range(3):
        line = json.dumps({"label": "red", "x": shard, "same": 1})
        (tmp_path / "in" / f"a-{shard}.jsonl").write_text(f"{line}\n" * 3)
    with pytest.raises(SourceError, match=words):
        measure(tmp_path / "in", **options)
    with pytest.raises(ValueError, match="give a label"):
        measure(tmp_path / "in")


def test_one_block_has_no_homogeneity_to_speak_of(tmp_path: Path) -> None:
    found = measure(_write(tmp_path / "in", [[0, 1, 0, 1]]), ["label"])
    assert found.h_D == pytest.approx(0)


def test_the_command_measures(tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", _blocks(10, 20, 1, 0))
    command = [sys.executable, "-m", "corgi2", "inspect", str(folder), "--label", "label"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "nearly one kind" in text
    found = json.loads(subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout)
    assert {"h_D", "h_D_low", "h_D_high", "homogeneity", "sigma2", "classes", "records"} <= found.keys()
    wrong = subprocess.run([*command[:-1], "nothing"], check=False, capture_output=True, text=True)
    assert wrong.returncode == 3
    assert "no value of 'nothing'; it has: label, x" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_label_that_no_sample_of_a_tar_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        members = [(f"{number}-{row}.cls", b"1") for row in range(4)]
        (tmp_path / "in" / f"t-{number}.tar").write_bytes(tar_of(members))
    with pytest.raises(SourceError, match="no value of 'nosuch'; it has: cls"):
        measure(tmp_path / "in", ["nosuch"])


@pytest.mark.parametrize(("shift", "scale"), [(0, 1), (1.7e12, 1), (0, 1e-9), (1e9, 1e3)])
def test_neither_shift_nor_scale_of_a_feature_matters(shift: float, scale: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    values = [np.round(rng.normal(size=50) + number % 3, 3) for number in range(12)]
    for number, rows in enumerate(values):
        lines = [json.dumps({"x": shift + scale * row}) for row in rows.tolist()]
        (tmp_path / "in" / f"d-{number}.jsonl").write_text("\n".join(lines) + "\n")
    means = np.array([rows.mean() for rows in values])
    everything = np.concatenate(values)
    truth = ((means - everything.mean()) ** 2).mean() * 50 / everything.var()
    assert measure(tmp_path / "in", features=["x"]).h_D == pytest.approx(truth, rel=1e-3)


def test_a_label_named_twice_counts_once_and_nan_is_one_class(tmp_path: Path) -> None:
    labels = _blocks(12, 10, 0.5, 0)
    once, twice = (measure(_write(tmp_path / str(len(names)), labels), names) for names in (["label"], ["label"] * 2))
    assert once.h_D == twice.h_D
    (tmp_path / "nan").mkdir()
    for number in range(4):
        table = pa.table({"label": [1.0, float("nan")] * 5})
        (tmp_path / "nan" / f"p-{number}.parquet").write_bytes(parquet_of(table))
    found = measure(tmp_path / "nan", ["label"])
    assert found.classes == 2
    assert found.h_D == pytest.approx(0)


@pytest.mark.parametrize("value", ["1" + "0" * 400, "1e300", "[1, 2]"])
def test_features_that_are_huge_or_of_different_lengths_are_refused(value: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"d-{number}.jsonl").write_text('{"x": 1}\n{"x": 2}\n{"x": ' + value + "}\n")
    with pytest.raises(SourceError, match="the feature 'x'|huge"):
        measure(tmp_path / "in", features=["x"])


def test_few_blocks_are_not_said_to_be_mixed(tmp_path: Path) -> None:
    labels = _blocks(60, 40, 0.35, 3)
    found = measure(_write(tmp_path / "in", labels), ["label"], sample=3)
    assert found.h_D_high > 5 or "nothing to gain" not in found.verdict
    sure = measure(tmp_path / "in", ["label"], sample=60)
    assert "nothing to gain" not in sure.verdict


def test_long_vectors_take_little_memory(tmp_path: Path) -> None:
    _write(tmp_path / "in", _blocks(8, 400, 0.5, 0))
    code = f"""
import numpy as np
from corgi2.quality.measuring import measure
rng = np.random.default_rng(0)
measure({str(tmp_path / "in")!r}, vector=lambda sample: rng.normal(size=50_000), sample=6)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) * 1024 < 500_000_000
