"""The windows of the real loader, on the output of the real command, mix as the theory says.

The source's blocks are homogeneous. H is the number of records of a window times the squared distance of its mean from
the mean of all, over the variance of one record, with the source block of a record as its one-hot vector.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import corgi2
from corgi2.online import Feed, Picks
from corgi2.online.place import Cursor, Place
from corgi2.order.dealing import deal
from corgi2.order.epochs import epoch_rest

BLOCKS, RECORDS, GROUP = 64, 12, 8  # N, b, n_off
GROUPS = BLOCKS // GROUP
SEEDS, EPOCHS = 30, (0, 1, 7)
A = RECORDS * (BLOCKS - GROUP) / (GROUP * (BLOCKS - 1))
W = (GROUP * RECORDS - RECORDS) / (GROUP * RECORDS - 1) * (1 - A / RECORDS)


def _even(window: int) -> float:
    """H of even picks, as in docs/how-it-works.md."""
    k, r = divmod(window, GROUPS)
    if k == 0:
        return A * (GROUPS - window) / (GROUPS - 1) + W
    return A * r * (GROUPS - r) / (window * (GROUPS - 1)) + W * (GROUP - k) / (GROUP - 1)


def _random(window: int) -> float:
    return (A + W) * (BLOCKS - window) / (BLOCKS - 1)


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One source, shuffled with many seeds."""
    folder = tmp_path_factory.mktemp("quality")
    (folder / "in").mkdir()
    for block in range(BLOCKS):
        lines = [json.dumps({"block": block, "row": row}) + "\n" for row in range(RECORDS)]
        (folder / "in" / f"data-{block:03d}.jsonl").write_text("".join(lines))
    for seed in range(SEEDS):
        corgi2.shuffle(folder / "in", folder / f"out-{seed}", buffer=10**8, buffer_blocks=GROUP, seed=seed)
    return [folder / f"out-{seed}" for seed in range(SEEDS)]


def _windows(
    folder: Path, ranks: int, workers: int, blocks: int, picks: Picks, seed: int, epoch: int, nodes: Sequence[int] = ()
) -> Iterator[list[int]]:
    """The source blocks of the records that lie in all buffers at one time, window after window."""
    windows: dict[int, list[int]] = {}
    for rank in range(ranks):
        place: dict[str, Any] = {"rank": rank, "world_size": ranks, "affinity": nodes or None}
        feed = Feed(folder, buffer_blocks=blocks, picks=picks, seed=seed, **place)
        world, records = feed.world(workers), feed.catalog.index.column("records")
        dealt = deal(epoch_rest(records, feed.catalog.lineage, feed.rules, epoch), world, feed.rules)
        for worker in range(workers):
            given = [sample["block"] for sample in feed.read(Cursor(Place(epoch)), worker, workers)]
            for part in dealt.buffers(rank * workers + worker):
                size = int(part.counts.sum())
                windows.setdefault(int(part.buffer[0]), []).extend(given[:size])
                given = given[size:]
            assert not given
    yield from (windows[number] for number in sorted(windows))


def _measure(window: list[int]) -> float:
    means = np.bincount(window, minlength=BLOCKS) / len(window)
    return float(len(window) * ((means - 1 / BLOCKS) ** 2).sum() / (1 - 1 / BLOCKS))


def _agrees(values: npt.NDArray[np.float64], expected: float) -> bool:
    """One value a seed, with its mean within three standard errors."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return bool(abs(values.mean() - expected) <= 3 * error)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "workers", "blocks", "nodes"),
    [
        (1, 1, 8, ()),
        (2, 2, 2, ()),
        (1, 1, 16, ()),
        (4, 1, 1, ()),
        (4, 1, 2, (1, 1, 1, 1)),
        (4, 1, 4, (2, 2)),
        (4, 1, 2, (1, 3)),
    ],
    ids=lambda value: str(value),
)
def test_even_picks_have_the_h_of_the_theory_in_every_epoch_and_in_the_last_window(
    shuffled: list[Path], ranks: int, workers: int, blocks: int, nodes: tuple[int, ...]
) -> None:
    """Also if blocks come back to the nodes that keep them."""
    window = ranks * workers * blocks
    full = (BLOCKS - window) * RECORDS / (BLOCKS * RECORDS - 1)
    runs = [
        [
            [_measure(part) for part in _windows(folder, ranks, workers, blocks, "even", seed, epoch, nodes)]
            for epoch in EPOCHS
        ]
        for seed, folder in enumerate(shuffled)
    ]
    measured, expected = np.array(runs), _even(window)
    assert measured.shape == (SEEDS, len(EPOCHS), BLOCKS // window)
    for number, epoch in enumerate(EPOCHS):
        by_seed = measured[:, number].mean(axis=1)
        assert _agrees(by_seed, expected), f"epoch {epoch}: {by_seed.mean()} != {expected}"
    last = measured[:, :, -1].mean(axis=1)
    assert _agrees(last, expected), f"last windows: {last.mean()} != {expected}"
    if window >= GROUPS:
        assert measured.mean() <= 1.05 * full, "as good as a full shuffle"


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "workers", "blocks"), [(1, 1, 8), (2, 2, 2)])
def test_random_picks_have_the_h_of_the_paper(shuffled: list[Path], ranks: int, workers: int, blocks: int) -> None:
    window = ranks * workers * blocks
    by_seed = np.array(
        [
            [_measure(part) for part in _windows(folder, ranks, workers, blocks, "random", seed, epoch)]
            for seed, folder in enumerate(shuffled)
            for epoch in EPOCHS
        ]
    ).reshape(SEEDS, -1)
    assert _agrees(by_seed.mean(axis=1), _random(window)), f"{by_seed.mean()} != {_random(window)}"


@pytest.mark.slow
def test_two_records_of_one_source_block_meet_as_often_as_after_a_full_shuffle(shuffled: list[Path]) -> None:
    chances = []
    for seed, folder in enumerate(shuffled):
        met = 0
        for window in _windows(folder, 2, 2, 2, "even", seed, 0):
            counts = np.bincount(window, minlength=BLOCKS)
            met += int((counts * (counts - 1)).sum())
        chances.append(met / (BLOCKS * RECORDS * (RECORDS - 1)))
    exact = (RECORDS - 1) / (GROUP * RECORDS - 1)
    full = (GROUPS * RECORDS - 1) / (BLOCKS * RECORDS - 1)
    assert _agrees(np.array(chances), exact)
    assert abs(exact / full - 1) < 0.1
