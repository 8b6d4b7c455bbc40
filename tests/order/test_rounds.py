"""Ranges in rounds: every range once, one of each block in a round, and windows as the closed form says."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2 import theory
from corgi2.order import simulate
from corgi2.order.groups import random_ranks
from corgi2.order.permutations import permutation
from corgi2.order.rounds import cut_rounds, round_order, rounds_of
from corgi2.order.simulate import Layout, as_stored, h_of_labels, offline_in_rounds, online
from corgi2.theory import Blocks, Rounds

Floats = npt.NDArray[np.float64]
KEY = (7, 1, 0)
counts = st.lists(st.integers(1, 9), min_size=1, max_size=30)


@given(counts=counts, seed=st.integers(0, 1000))
def test_no_round_has_two_ranges_of_a_block_and_all_rounds_have_equally_many(counts: list[int], seed: int) -> None:
    block = np.repeat(np.arange(len(counts)), counts)
    rounds, most = rounds_of(block, (seed, 1, 0)), max(counts)
    assert rounds.min() >= 0
    assert rounds.max() < most
    for number, count in enumerate(counts):
        assert len(np.unique(rounds[block == number])) == count
    dealt = np.bincount(rounds, minlength=most)
    assert dealt.max() - dealt.min() <= 1


@given(counts=counts, capacity=st.integers(9, 60), most=st.none() | st.integers(1, 20), seed=st.integers(0, 1000))
def test_every_range_is_in_one_group_of_its_round_and_groups_fit(
    counts: list[int], capacity: int, most: int | None, seed: int
) -> None:
    block = np.repeat(np.arange(len(counts)), counts)
    footprints = 1 + random_ranks(block, (seed,))
    rounds = rounds_of(block, (seed, 1, 0))
    groups, numbers = cut_rounds(footprints, rounds, capacity, (seed, 1, 0), most)
    assert np.array_equal(np.sort(np.concatenate(groups)), np.arange(len(block)))
    for group, number in zip(groups, numbers.tolist(), strict=True):
        assert set(rounds[group].tolist()) == {number}
        assert footprints[group].sum() <= capacity
        assert len(group) <= (most or len(group))
    made, dealt = np.bincount(numbers), np.bincount(rounds)
    assert (made == np.minimum(made.max(), dealt)).all(), "equally many in every round"
    for number in range(len(made)):
        sizes = [len(group) for group, own in zip(groups, numbers.tolist(), strict=True) if own == number]
        assert max(sizes) - min(sizes) <= 1


def test_a_range_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="a block takes 9 B in memory, more than the buffer of 8 B"):
        cut_rounds(np.array([1, 9]), np.array([0, 0]), 8, KEY)


@given(groups=st.integers(1, 6), rounds=st.integers(1, 4), each=st.integers(1, 4), seed=st.integers(0, 100))
def test_an_epoch_goes_round_by_round_and_group_by_group(groups: int, rounds: int, each: int, seed: int) -> None:
    lineage = np.repeat(np.arange(groups * rounds), each)[:, None]
    number = np.repeat(np.arange(groups * rounds) // groups, each)
    order = round_order(lineage, number, (seed, 2))
    assert np.array_equal(np.sort(order), np.arange(len(lineage)))
    for start in range(0, len(order), groups):
        some = order[start : start + groups]
        assert len(np.unique(lineage[some])) == groups, "one block of every group"
        assert len(np.unique(number[some])) == 1, "of one round"


def test_the_ranges_are_drawn_the_same_for_ever() -> None:
    block = np.repeat(np.arange(4), [3, 2, 4, 1])
    rounds = rounds_of(block, KEY)
    assert rounds.tolist() == [1, 0, 3, 0, 1, 3, 2, 1, 0, 2]
    groups, numbers = cut_rounds(np.ones(len(block), np.int64), rounds, 2, KEY)
    assert numbers.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [group.tolist() for group in groups] == [[8], [1, 3], [4], [7, 0], [6], [9], [5], [2]]
    assert round_order(np.arange(6)[:, None], np.arange(6) // 3, KEY).tolist() == [5, 4, 3, 1, 0, 2]


def _made(blocks: int, n_off: int, ranges: int) -> int:
    """New blocks: equally many of every group, of which every round has equally many."""
    groups = -(-blocks // (n_off * ranges)) * ranges
    return groups * round(blocks / groups)


def _measured(blocks: int, examples: int, n_off: int, n_on: int, ranges: int, kinds: int, seeds: int) -> Floats:
    """H of the windows of simulated epochs, one number per seed; blocks of one kind each, or of several in turn."""
    rows, made = np.arange(blocks * examples), _made(blocks, n_off, ranges)
    labels = rows // examples if kinds == 1 else rows // examples * kinds + rows % examples % kinds
    found = []
    for seed in range(seeds):
        layout = Layout(blocks, examples, n_off)
        stored = as_stored(layout)
        mixed = [block[permutation(examples, (seed, 99, number))] for number, block in enumerate(stored.blocks)]
        done = offline_in_rounds(simulate.Stored(mixed), n_off, ranges, seed)
        order = online(done, n_on, seed, 0)
        found.append(h_of_labels(labels[order], int(labels.max()) + 1, n_on * blocks * examples // made))
    return np.array(found)


@pytest.mark.parametrize(
    ("blocks", "examples", "n_off", "n_on", "ranges", "kinds"),
    [
        (64, 16, 4, 4, 4, 1),
        (64, 16, 4, 8, 4, 1),
        (64, 16, 4, 4, 2, 1),
        (128, 16, 4, 8, 4, 1),
        (64, 16, 4, 4, 4, 4),
        (64, 16, 8, 16, 2, 2),
        (64, 16, 4, 24, 4, 2),
        (32, 8, 4, 12, 8, 1),
        (64, 16, 4, 20, 4, 1),
        (64, 16, 2, 24, 4, 1),
        (62, 16, 4, 8, 4, 1),
    ],
)
def test_windows_are_as_even_as_the_closed_form_says(
    blocks: int, examples: int, n_off: int, n_on: int, ranges: int, kinds: int
) -> None:
    found = _measured(blocks, examples, n_off, n_on, ranges, kinds, seeds=60)
    share = 1 / (blocks * kinds)
    means = kinds * (1 / kinds - share) ** 2 + (blocks - 1) * kinds * share**2
    h = examples * means / (1 - share)
    groups = -(-blocks // (n_off * ranges)) * ranges
    written = blocks * examples / _made(blocks, n_off, ranges)
    expected = Rounds(Blocks(blocks, examples, h), blocks / groups, ranges, written=written).window(n_on)
    assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(len(found)) + 1e-9, (found.mean(), expected)


def test_the_examples_of_the_docs() -> None:
    """docs/how-it-works.md: H of a full shuffle as soon as n_off · ranges · n_on reaches N."""
    large = Blocks(4096, 128, 128)
    assert Rounds(large, 16, 16).window(16) == pytest.approx(0.93, abs=0.01)
    assert Rounds(large, 16, 4).window(16) == pytest.approx(2.42, abs=0.01)
    assert Rounds(Blocks(1024, 64, 64), 16, 4).window(16) == pytest.approx(0.92, abs=0.01)


@given(
    blocks=st.integers(2, 50),
    b=st.integers(2, 40),
    n=st.integers(1, 50),
    n_on=st.integers(1, 50),
    share=st.floats(0, 1),
)
def test_one_range_per_block_is_one_pass(blocks: int, b: int, n: int, n_on: int, share: float) -> None:
    n, n_on = min(n, blocks), min(n_on, blocks)
    data = Blocks(blocks, b, share * b)
    assert Rounds(data, n, 1).h == pytest.approx(theory.h_after_pass(data, n))
    if blocks % n == 0 and n_on % (blocks // n) == 0:
        assert Rounds(data, n, 1).window(n_on) == pytest.approx(theory.window_even(data, n, n_on), abs=1e-9)
