"""Theorem 1 and what goes beyond it: the mixing that the real command achieves is the one that the formulas give."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corgi2.offline.run import shuffle

N, B, N_OFF, SEEDS = 60, 12, 6, 40


def _write_blocks(folder: Path) -> None:
    """A block a shard, homogeneous but for two records: one value a block, so that h_D is nearly b."""
    folder.mkdir()
    values = np.random.Generator(np.random.Philox(1)).normal(size=N)
    for block in range(N):
        lines = [json.dumps({"v": values[block] if n > 1 else values[(7 * block + n) % N]}) for n in range(B)]
        (folder / f"data-{block:03d}.jsonl").write_text("\n".join(lines) + "\n")


def _values(folder: Path) -> list[np.ndarray[Any, Any]]:
    """The values of each shard. Every shard is one block."""
    return [
        np.array([json.loads(line)["v"] for line in path.read_text().splitlines()])
        for path in sorted(folder.glob("*.jsonl"))
    ]


def _h(blocks: list[np.ndarray[Any, Any]], mean: float, variance: float) -> float:
    """The block-wise variance parameter: the variance of the blocks' means, over that of b independent records."""
    assert {len(block) for block in blocks} == {B}
    return float(np.mean([(block.mean() - mean) ** 2 for block in blocks]) * B / variance)


def _without(h: float) -> float:
    """h' after one pass without replacement, blocks partitioned at random."""
    a = h * (N - N_OFF) / (N_OFF * (N - 1))
    return a + (N_OFF * B - B) / (N_OFF * B - 1) * (1 - a / B)


def _with(h: float) -> float:
    """h' after one pass of the paper's Algorithm 2."""
    return 1 + (1 / N_OFF - 1 / (N_OFF * B)) * h


def _butterfly(h: float) -> float:
    """h' after two passes, the second over blocks of distinct groups of the first."""
    groups = N // N_OFF
    a = h * (N - N_OFF) / (N_OFF * (N - 1))
    within = (N_OFF * B - B) / (N_OFF * B - 1) * (1 - a / B)
    picked = a * (groups - N_OFF) / (groups - 1) + within  # H of n blocks of distinct groups
    return picked / N_OFF + (N_OFF * B - B) / (N_OFF * B - 1) * (1 - picked / (N_OFF * B))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "formula"),
    [
        ({}, _without),
        ({"with_replacement": True}, _with),
        ({"with_replacement": True, "passes": 2}, lambda h: _with(_with(h))),
        ({"passes": 2}, _butterfly),
    ],
    ids=["without", "with", "with-2", "butterfly"],
)
def test_the_measured_mixing_is_the_predicted_one(
    options: dict[str, Any], formula: Callable[[float], float], tmp_path: Path
) -> None:
    _write_blocks(tmp_path / "in")
    blocks = _values(tmp_path / "in")
    everything = np.concatenate(blocks)
    mean, variance = float(everything.mean()), float(everything.var())
    measured = []
    for seed in range(SEEDS):
        shuffle(tmp_path / "in", tmp_path / f"{seed}", buffer_blocks=N_OFF, seed=seed, workers=1, **options)
        measured.append(_h(_values(tmp_path / f"{seed}"), mean, variance))
    expected = formula(_h(blocks, mean, variance))
    error = np.std(measured, ddof=1) / np.sqrt(SEEDS)
    print(f"{options}: h {_h(blocks, mean, variance):.3f}, h' {np.mean(measured):.3f} ± {error:.3f}, {expected:.3f}")
    assert abs(np.mean(measured) - expected) < 3 * error
