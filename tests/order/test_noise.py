"""What SGD feels of an order, on the level of blocks, is what it feels record by record."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2 import theory
from corgi2.order.epochs import epoch_rest, window_of
from corgi2.order.groups import descent, make_groups
from corgi2.order.noise import (
    Dealt,
    Pools,
    Step,
    Windows,
    draw,
    epoch_of_pools,
    pools_after,
    pools_of_blocks,
    pools_of_counts,
    pools_of_groups,
    pools_of_ranges,
)
from corgi2.order.permutations import GROUPS, Indices, permutation
from corgi2.order.rounds import cut_rounds, rounds_of
from corgi2.order.simulate import Stored, h_of_labels, offline, online, r_of_labels, v_of_labels
from corgi2.order.worlds import Rules
from corgi2.theory import Blocks

Floats = npt.NDArray[np.float64]


class Mixed(NamedTuple):
    steps: list[Step]
    lineage: Indices


def _mixed(count: int, n: int, passes: int, seed: int) -> Mixed:
    """The groups that `simulate.offline` makes."""
    steps, lineage = list[Step](), None
    for number in range(1, passes + 1):
        known = None if lineage is None else np.repeat(lineage, steps[-1].blocks, axis=0)
        blocks = count if known is None else len(known)
        groups = make_groups(np.ones(blocks, np.int64), blocks, (seed, number, GROUPS), n, known)
        lineage = np.array(descent(groups, known))
        steps.append(Step(groups, max(1, round(blocks / len(groups)))))
    assert lineage is not None
    return Mixed(steps, lineage)


def _sizes(count: int, ragged: bool) -> Indices:
    if not ragged:
        return np.full(count, 8)
    return np.maximum(1, np.random.default_rng(0).lognormal(2, 0.8, count)).astype(np.int64)


CASES = [(60, 6, 6), (47, 7, 5), (64, 8, 12)]  # blocks, n, blocks in the online buffer


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("picks", ["even", "random"])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("count", "n", "buffer"), CASES)
def test_blocks_tell_what_records_do(count: int, n: int, buffer: int, ragged: bool, picks: str, passes: int) -> None:
    """Of any sizes, and n that divides nothing: H and R of simulated orders, within 3.5 standard errors."""
    sizes = _sizes(count, ragged)
    labels, ends = np.repeat(np.arange(count), sizes), np.cumsum(sizes)
    found, said = list[tuple[float, ...]](), list[tuple[float, ...]]()
    for seed in range(24):
        stored = Stored(np.split(np.arange(int(ends[-1])), ends[:-1]))
        for number in range(1, passes + 1):
            stored = offline(stored, n, seed, number)
        mixed = _mixed(count, n, passes, seed)
        pools, each = pools_after(sizes, float(sizes.mean()), mixed.steps), mixed.steps[-1].blocks
        lineage = mixed.lineage if picks == "even" else None
        window = window_of(buffer, 1, lineage, len(pools.sizes) * each)
        tau = window * float(ends[-1]) / (len(pools.sizes) * each)
        order = labels[online(stored, buffer, seed, 0, picks)]
        found.append((_h_of_blocks(order, stored, seed, window, picks), r_of_labels(order, count, tau)))
        pool = epoch_of_pools(len(pools.sizes), each, seed, 0, lineage)
        said.append(Windows(pools, pool, (pools.sizes / each)[pool], window).felt(tau))
    apart = np.array(found) - np.array(said)
    error = apart.std(axis=0, ddof=1) / np.sqrt(len(apart))
    assert (abs(apart.mean(axis=0)) <= 3.5 * error + 0.01 * np.mean(found, axis=0)).all(), (found[0], said[0])


def _h_of_blocks(order: Indices, stored: Stored, seed: int, window: int, picks: str) -> float:
    """H over the windows of so many blocks, whatever their sizes; a last one that is short is left out."""
    counts = np.array([len(block) for block in stored.blocks])
    blocks = epoch_rest(counts, stored.lineage, Rules(seed, picks=picks), 0).blocks
    ends = np.cumsum(counts[blocks])[window - 1 :: window]
    shares = np.bincount(order) / len(order)
    parts = np.split(order, ends)[: len(ends)]
    spreads = [
        len(part) * ((np.bincount(part, minlength=len(shares)) / len(part) - shares) ** 2).sum() for part in parts
    ]
    return float(np.mean(spreads) / (1 - (shares**2).sum()))


@given(st.integers(2, 40), st.integers(1, 6), st.integers(1, 2), st.integers(0, 9))
def test_an_epoch_of_pools_is_an_epoch_of_their_blocks(count: int, n: int, passes: int, seed: int) -> None:
    mixed = _mixed(count, min(n, count), passes, seed)
    each, pools = mixed.steps[-1].blocks, len(mixed.lineage)
    lineage = np.repeat(mixed.lineage, each, axis=0)
    for picks, given_ in (("even", mixed.lineage), ("random", None)):
        order = epoch_rest(np.ones(len(lineage), np.int64), lineage, Rules(seed, picks=picks), 3).blocks
        pool = epoch_of_pools(pools, each, seed, 3, given_)
        assert np.array_equal(order // each, pool)
        assert np.array_equal(epoch_of_pools(pools, each, seed, 3, given_, most=5), pool[:5])


def test_the_example_of_the_docs() -> None:
    """N = 1024, b = 64, 64 offline groups, 32 blocks resident in two halves."""
    mixed = _mixed(1024, 16, 1, 0)
    pools = pools_after(np.full(1024, 64), 64, mixed.steps)
    pool = epoch_of_pools(64, 16, 0, 0, mixed.lineage)
    windows = Windows(pools, pool, np.full(1024, 64.0), 16)
    assert windows.felt(1024) == pytest.approx((3.89, 2.03), abs=0.02)
    assert windows.felt().R == windows.felt(1024).R, "a memory of one window, if nothing is said"
    assert pytest.approx(1.2, abs=0.04) == windows.felt(4096).R
    assert windows.variance(4) == pytest.approx(0.89, abs=0.01)
    raw = theory.window_random(Blocks(1024, 64, 64), 16)
    assert theory.long_run(raw, 1024, 1024 * 64, 1024) == pytest.approx(45, abs=0.5)


@pytest.mark.parametrize("h", [0.5, 1.0, 4.0, 8.0])
def test_equal_blocks_give_the_closed_forms(h: float) -> None:
    data, mixed = Blocks(64, 8, h), _mixed(64, 8, 1, 0)
    pools = pools_after(np.full(64, 8), h, mixed.steps)
    assert pools.h(8) == pytest.approx(theory.h_after_pass(data, 8))
    assert pools.h(16) == pytest.approx(theory.h_after_pass(data, 8, written=4))
    for window in (2, 8, 16):
        pool = epoch_of_pools(8, 8, 0, 0, mixed.lineage)
        felt = Windows(pools, pool, np.full(64, 8.0), window).felt()
        assert pytest.approx(theory.window_even(data, 8, window)) == felt.H
    blocks = pools_of_blocks(np.full(64, 8), h)
    felt = Windows(blocks, permutation(64, (1,)), np.full(64, 8.0), 4).felt(50)
    assert pytest.approx(theory.window_random(data, 4)) == felt.H
    assert pytest.approx(theory.long_run(felt.H, 32, 512, 50)) == felt.R


def test_independent_draws_feel_like_one() -> None:
    for tau in (0.1, 1, 100, 1e5):
        assert theory.long_run(1, 64, 1e12, tau) == pytest.approx(1, abs=1e-6)
    labels = np.random.default_rng(0).integers(0, 10, 200_000)
    assert r_of_labels(labels, 10, 100) == pytest.approx(1, abs=0.05)
    assert v_of_labels(labels, 10, 100) == pytest.approx(1, abs=0.05)
    one = Windows(
        pools_of_groups(np.array([10.0**9]), np.array([10.0**9]), 10**9, 1.0),
        np.zeros(99, np.int64),
        np.full(99, 64.0),
        4,
    )
    assert one.felt(100) == pytest.approx((1, 1), abs=1e-3)


@given(st.floats(1, 1e4), st.integers(2, 60), st.integers(1, 60))
def test_a_whole_epoch_leaves_nothing_to_feel(tau: float, windows: int, window: int) -> None:
    """However badly windows are mixed: with a memory of many epochs, all that is felt is what an epoch leaves out."""
    assert theory.long_run(5.0, window, windows * window, 1e9) == pytest.approx(0, abs=1e-3)
    full = theory.long_run((windows - 1) * window / (windows * window - 1), window, windows * window, tau)
    assert 0 <= full <= 1 + 1e-9


@pytest.mark.parametrize("window", [1, 3, 7])
def test_what_is_counted_gives_what_its_records_give(window: int) -> None:
    """Counts of classes per block: the mean over all orders within windows."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(2, 9, 21)
    blocks = [rng.integers(0, 4, size) for size in sizes]
    counts = np.array([np.bincount(block, minlength=4) for block in blocks], np.float64)
    order = permutation(21, (2,))
    felt = Windows(pools_of_counts(counts), order, sizes[order].astype(np.float64), window).felt(9)
    found, parts = [], [np.concatenate([blocks[b] for b in order[at : at + window]]) for at in range(0, 21, window)]
    for _ in range(400):
        found.append(r_of_labels(np.concatenate([rng.permutation(part) for part in parts]), 4, 9))
    assert np.mean(found) == pytest.approx(felt.R, abs=4 * float(np.std(found)) / 20 + 1e-9)
    labels = np.concatenate(parts)
    shares = np.bincount(labels) / len(labels)
    spreads = [len(part) * ((np.bincount(part, minlength=4) / len(part) - shares) ** 2).sum() for part in parts]
    assert pytest.approx(np.mean(spreads) / (1 - (shares**2).sum())) == felt.H


def test_labels_in_windows_and_at_every_place() -> None:
    labels = np.repeat(np.arange(50), 20)
    assert v_of_labels(labels, 50, 1) == pytest.approx(1)
    assert h_of_labels(labels, 50, 20) == pytest.approx(20)
    assert v_of_labels(labels, 50, 20) == pytest.approx(20 * 2 / 3, rel=0.05)  # most places straddle two blocks


@given(st.integers(1, 30), st.integers(2, 9), st.floats(0, 1))
def test_covariances_of_an_epoch_add_up_to_nothing(count: int, size: int, share: float) -> None:
    """All examples together have no variance, after passes of any kind."""
    blocks = pools_of_blocks(np.arange(1, count + 1) * size, share * size)
    half = draw(blocks, np.vstack([blocks.sizes / 2, blocks.sizes / 2]))
    for pools in (blocks, half):
        everything = Windows(pools, np.arange(len(pools.sizes)), pools.sizes, len(pools.sizes))
        assert pytest.approx(0, abs=1e-6 * pools.sizes.sum()) == everything.felt(1e9).R


def _dealt(count: int, b: int, ranges: int, n: int, seed: int) -> Dealt:
    """Equal blocks, each cut into ranges, in rounds."""
    block, key = np.repeat(np.arange(count), ranges), (seed, 1)
    groups, rounds = cut_rounds(np.ones(len(block), np.int64), rounds_of(block, key), n * ranges, key)
    group = np.empty(len(block), np.int64)
    group[np.concatenate(groups)] = np.repeat(np.arange(len(groups)), [len(members) for members in groups])
    return Dealt(np.full(len(block), b / ranges), block, group, rounds)


def _window_of_rounds(pools: Pools, dealt: Dealt, n: int, b: int, window: int) -> float:
    count = len(dealt.rounds)
    order = epoch_of_pools(count, n, 0, 0, np.arange(count)[:, None], None, dealt.rounds)
    return Windows(pools, order, np.full(len(order), float(b)), window).felt().H


@pytest.mark.parametrize(("count", "b", "ranges", "n", "h"), [(64, 32, 4, 4, 32.0), (96, 24, 3, 8, 5.0)])
def test_ranges_of_equal_blocks_give_the_closed_forms(count: int, b: int, ranges: int, n: int, h: float) -> None:
    dealt, closed = _dealt(count, b, ranges, n, 0), theory.Rounds(Blocks(count, b, h), n, ranges)
    pools, groups = pools_of_ranges(dealt, h), round(closed.groups)
    assert pools.h(n) == pytest.approx(closed.h)
    for window in (groups, 2 * groups):
        assert _window_of_rounds(pools, dealt, n, b, window) == pytest.approx(closed.window(window))


def test_what_is_alike_within_a_range_counts() -> None:
    count, b, ranges, n, rng = 64, 32, 4, 4, np.random.default_rng(0)
    effects = np.repeat(rng.normal(size=(count, 1)) + rng.normal(size=(count, ranges)), b // ranges, axis=1)
    values = effects + 0.3 * rng.normal(size=(count, b))
    values = (values - values.mean()) / values.std()
    parts = values.reshape(count * ranges, -1)
    h, h_ranges = (float(each.shape[1] * (each.mean(axis=1) ** 2).mean()) for each in (values, parts))
    found, seen = list[float](), list[float]()
    for seed in range(400):
        dealt = _dealt(count, b, ranges, n, seed)
        groups = rng.permuted(parts[np.argsort(dealt.group, kind="stable")].reshape(len(dealt.rounds), -1), axis=1)
        means = groups.reshape(len(dealt.rounds), n, b).mean(axis=2)
        found.append(b * float((means**2).mean()))
        seen += [len(own := means[dealt.rounds == r, 0]) * b * own.mean() ** 2 for r in range(ranges)]
    pools = pools_of_ranges(dealt, h, h_ranges)
    assert pools.h(n) == pytest.approx(np.mean(found), abs=4 * float(np.std(found)) / 20)
    window = _window_of_rounds(pools, dealt, n, b, len(dealt.rounds) // ranges)
    assert window == pytest.approx(np.mean(seen), abs=4 * float(np.std(seen)) / 40)
    assert pools_of_ranges(dealt, h).h(n) < 0.8 * pools.h(n)
