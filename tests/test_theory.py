"""The closed forms are exact: against every outcome of small cases, and against simulation on real permutations."""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2 import theory
from corgi2.order.groups import cut_evenly, cut_groups, even_order
from corgi2.order.permutations import permutation
from corgi2.theory import Blocks

Floats = npt.NDArray[np.float64]
SMALL = [(0, 0, 1, 1, 2, 2, 3, 3), (0, 1, 0, 1, 5, 5, 2, 2), (0, 3, 1, 3, 0, 3, 1, 1)]
"""N = 4 blocks of b = 2 numbers each."""


def _moments(values: tuple[int, ...]) -> tuple[Fraction, Fraction, Blocks]:
    mean = Fraction(sum(values), len(values))
    sigma2 = sum(((Fraction(value) - mean) ** 2 for value in values), Fraction()) / len(values)
    blocks = [Fraction(values[at] + values[at + 1], 2) for at in range(0, 8, 2)]
    between = sum(((block - mean) ** 2 for block in blocks), Fraction()) / 4
    return mean, sigma2, Blocks(4, 2, float(between * 2 / sigma2))


def _groupings() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Ways to part four blocks into two groups."""
    for first in combinations(range(4), 2):
        if 0 in first:
            second = tuple(block for block in range(4) if block not in first)
            yield first, (second[0], second[1])


def _shuffles(values: tuple[int, ...], group: tuple[int, ...]) -> Iterator[tuple[Fraction, Fraction]]:
    """The means of the two new blocks of a group, in all ways."""
    records = [values[2 * block + row] for block in group for row in (0, 1)]
    for chosen in combinations(range(4), 2):
        rest = [place for place in range(4) if place not in chosen]
        yield Fraction(sum(records[place] for place in chosen), 2), Fraction(sum(records[place] for place in rest), 2)


def _average(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction()) / len(values)


@pytest.mark.parametrize("values", SMALL)
def test_a_pass_without_replacement_is_exact(values: tuple[int, ...]) -> None:
    mean, sigma2, data = _moments(values)
    squares = [
        (block - mean) ** 2
        for grouping in _groupings()
        for group in grouping
        for blocks in _shuffles(values, group)
        for block in blocks
    ]
    assert theory.h_after_pass(data, 2) == pytest.approx(float(_average(squares) * 2 / sigma2))


@pytest.mark.parametrize("values", SMALL)
def test_a_pass_with_replacement_is_exact(values: tuple[int, ...]) -> None:
    mean, sigma2, data = _moments(values)
    squares = []
    for group in product(range(4), repeat=2):
        records = [values[2 * block + row] for block in group for row in (0, 1)]
        squares += [(Fraction(a + b, 2) - mean) ** 2 for a, b in product(records, repeat=2)]
    assert theory.h_with_replacement(data, 2) == pytest.approx(float(_average(squares) * 2 / sigma2))


@pytest.mark.parametrize("values", SMALL)
def test_a_pass_that_deals_is_exact(values: tuple[int, ...]) -> None:
    mean, sigma2, data = _moments(values)
    squares = [
        (Fraction(values[2 * first + row] + values[2 * second + other], 2) - mean) ** 2
        for grouping in _groupings()
        for first, second in grouping
        for row, other in product((0, 1), repeat=2)
    ]
    assert theory.h_dealt(data, 2) == pytest.approx(float(_average(squares) * 2 / sigma2))


@pytest.mark.parametrize("values", SMALL)
def test_even_picks_are_exact(values: tuple[int, ...]) -> None:
    """A window of two blocks, one of each group."""
    mean, sigma2, data = _moments(values)
    squares = [
        ((a + b) / 2 - mean) ** 2
        for one, other in _groupings()
        for first in _shuffles(values, one)
        for second in _shuffles(values, other)
        for a, b in product(first, second)
    ]
    assert theory.window_even(data, 2, 2) == pytest.approx(float(_average(squares) * 4 / sigma2))


def _shuffled(labels: Floats, groups: list[Any], key: tuple[int, ...]) -> Floats:
    """New blocks from groups of old ones, without replacement."""
    b = labels.shape[1]
    new = []
    for number, group in enumerate(groups):
        records = labels[group].reshape(-1)
        new.append(records[permutation(len(records), (*key, number))].reshape(-1, b))
    return np.concatenate(new)


def _homogeneity(blocks: Floats) -> float:
    """h of blocks of labels."""
    means = blocks.mean(axis=1)
    return float(((means - blocks.mean()) ** 2).mean() * blocks.shape[1] / blocks.var())


def _windows(blocks: Floats, order: npt.NDArray[np.int64], n_on: int) -> float:
    """H of the first window of an order."""
    window = blocks[order[:n_on]]
    return float((window.mean() - blocks.mean()) ** 2 * window.size / blocks.var())


CASES = [(64, 8, 6, 8), (64, 8, 6, 20), (60, 6, 5, 4), (32, 16, 4, 3)]  # N, n_off, b, n_on


@pytest.mark.slow
@pytest.mark.parametrize(("count", "n", "b", "n_on"), CASES)
def test_the_forms_agree_with_simulation(count: int, n: int, b: int, n_on: int) -> None:
    runs, labels = 1500, np.repeat(np.random.default_rng(0).normal(size=count), b).reshape(count, b)
    labels += 0.3 * np.random.default_rng(1).normal(size=labels.shape)
    data = Blocks(count, b, _homogeneity(labels))
    lineage = np.repeat(np.arange(count // n), n)[:, None]
    found: dict[str, list[float]] = {name: [] for name in ("h", "twice", "butterfly", "random", "even", "full")}
    for run in range(runs):
        once = _shuffled(labels, np.split(permutation(count, (run, 1)), count // n), (run, 2))
        found["h"].append(_homogeneity(once))
        found["random"].append(_windows(once, permutation(count, (run, 3)), n_on))
        found["even"].append(_windows(once, even_order(lineage, (run, 4)), n_on))
        again = _shuffled(once, np.split(permutation(count, (run, 5)), count // n), (run, 6))
        found["twice"].append(_homogeneity(again))
        if n <= count // n:
            spread = _shuffled(once, np.split(even_order(lineage, (run, 7)), count // n), (run, 8))
            found["butterfly"].append(_homogeneity(spread))
        full = labels.reshape(-1)[permutation(labels.size, (run, 9))].reshape(count, b)
        found["full"].append(_windows(full, np.arange(count), n_on))
    expected = {
        "h": theory.h_after_pass(data, n),
        "twice": theory.h_after_passes(data, n, 2),
        "butterfly": theory.h_butterfly(data, n),
        "random": theory.window_after_pass(data, n, n_on),
        "even": theory.window_even(data, n, n_on),
        "full": theory.window_full(data, n_on),
    }
    for name, values in found.items():
        if values:
            error = np.std(values, ddof=1) / math.sqrt(len(values))
            assert abs(np.mean(values) - expected[name]) <= 3.5 * error, f"{name}: {np.mean(values)} {expected[name]}"


@pytest.mark.slow
@pytest.mark.parametrize(("count", "n", "b", "n_on", "cut"), [(64, 8, 6, 8, 2), (60, 6, 4, 25, 4), (32, 16, 4, 3, 2)])
def test_new_blocks_of_another_size_agree_with_simulation(count: int, n: int, b: int, n_on: int, cut: int) -> None:
    labels = np.repeat(np.random.default_rng(0).normal(size=count), b).reshape(count, b)
    labels += 0.3 * np.random.default_rng(1).normal(size=labels.shape)
    data, written = Blocks(count, b, _homogeneity(labels)), b / cut
    lineage = np.repeat(np.arange(count // n), n * cut)[:, None]
    found: dict[str, list[float]] = {"h": [], "even": [], "parts": []}
    for run in range(1500):
        once = _shuffled(labels, np.split(permutation(count, (run, 1)), count // n), (run, 2)).reshape(count * cut, -1)
        found["h"].append(_homogeneity(once))
        found["even"].append(_windows(once, even_order(lineage, (run, 4)), n_on))
        inside = _shuffled(labels, [np.array([block]) for block in range(count)], (run, 5))
        found["parts"].append(_homogeneity(inside.reshape(count * cut, -1)))
    expected = {
        "h": theory.h_after_pass(data, n, written),
        "even": theory.window_even(data, n, n_on, written),
        "parts": theory.h_of_parts(data, cut),
    }
    for name, values in found.items():
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        assert abs(np.mean(values) - expected[name]) <= 3.5 * error, f"{name}: {np.mean(values)} {expected[name]}"


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_ragged_blocks_are_mixed_about_as_their_spread_says(sigma: float) -> None:
    count, n = 120, 8
    sizes = np.maximum(1, np.random.default_rng(0).lognormal(3, sigma, count)).astype(int)
    b, ragged = float(sizes.mean()), float(sizes.var() / sizes.mean() ** 2)
    found, predicted = [], []
    for run in range(400):
        values = np.random.default_rng(run).normal(size=count)
        everything = np.repeat(values, sizes)
        mean, variance = everything.mean(), everything.var()
        between = 0.0
        for number, group in enumerate(np.split(permutation(count, (run, 1)), count // n)):
            records = np.concatenate([np.full(sizes[block], values[block]) for block in group])
            for block in np.array_split(records[permutation(len(records), (run, 2, number))], n):
                between += len(block) * (block.mean() - mean) ** 2
        found.append(between / everything.size * b / variance)
        predicted.append(theory.h_after_pass(Blocks(count, b, b, ragged), n))
    assert np.mean(found) == pytest.approx(np.mean(predicted), rel=0.08)
    assert np.mean(found) > 1.08 * theory.h_after_pass(Blocks(count, b, b), n)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "n", "n_on"), [(128, 4, 8), (256, 8, 4), (180, 18, 18), (400, 10, 10)])
def test_two_passes_mix_about_as_one_of_a_squared_buffer(count: int, n: int, n_on: int) -> None:
    b, runs = 16, 400
    labels = np.repeat(np.random.default_rng(0).normal(size=count), b).reshape(count, b)
    data, sizes = Blocks(count, b, b), np.ones(count, np.int64)
    found, h = [], []
    for run in range(runs):
        first = cut_groups(sizes, count, (run, 1), n)
        before = np.array([[number] for number, group in enumerate(first) for _ in group])
        second = cut_evenly(sizes, before, count, (run, 2), n)
        twice = _shuffled(_shuffled(labels, list(first), (run, 3)), list(second), (run, 4))
        sets = [np.unique(before[group, 0]).tobytes() for group in second]
        lineage = np.array([[sets.index(sets[i]), i] for i, group in enumerate(second) for _ in group])
        order = even_order(lineage, (run, 5))
        found.append(np.mean([_windows(twice, order[at:], n_on) for at in range(0, count - n_on + 1, n_on)]))
        h.append(_homogeneity(twice))
    assert np.mean(found) == pytest.approx(theory.window_butterfly(data, n, n_on), rel=0.1)
    assert np.mean(h) == pytest.approx(theory.h_butterfly(data, n), rel=0.05)


@pytest.mark.parametrize(
    ("numbers", "pile", "random", "even", "full"),
    [
        ((256, 16, 16, 64), 60.2, 4.38, 0.88, 0.94),
        ((400, 20, 20, 100), 95.2, 5.40, 0.91, 0.95),
        ((1024, 64, 16, 64), 63.1, 1.88, 0.97, 0.98),
        ((1024, 16, 64, 64), 60.1, 4.53, 0.88, 0.94),
        ((1000, 25, 25, 100), 97.6, 4.71, 2.42, 0.98),
        ((1024, 16, 16, 64), 63.1, 4.75, 3.88, 0.98),
    ],
)
def test_known_values(numbers: tuple[int, int, int, int], pile: float, random: float, even: float, full: float) -> None:
    count, n_off, n_on, b = numbers
    data = Blocks(count, b, b)
    values = (
        theory.window_random(data, n_on),
        theory.window_after_pass(data, n_off, n_on),
        theory.window_even(data, n_off, n_on),
        theory.window_full(data, n_on),
    )
    assert values == pytest.approx((pile, random, even, full), abs=0.06)


@given(st.integers(2, 200), st.integers(1, 200), st.floats(0, 1), st.data())
def test_forms_stay_within_their_bounds(count: int, b: int, part: float, data: st.DataObject) -> None:
    blocks = Blocks(count, b, part * b)
    n, n_on = data.draw(st.integers(1, count)), data.draw(st.integers(1, count))
    for value in (theory.h_after_pass(blocks, n), theory.h_dealt(blocks, n), theory.h_after_passes(blocks, n, 3)):
        assert -1e-9 <= value <= b * (1 + 1e-9)
    assert theory.window_even(blocks, n, n_on) >= -1e-9
    assert theory.window_even(blocks, n, count) == pytest.approx(0, abs=1e-9)
    assert theory.window_random(blocks, count) == 0


def test_impossible_input_is_refused() -> None:
    with pytest.raises(ValueError, match="h_D lies between 0 and the 10 examples"):
        Blocks(5, 10, 11)
    with pytest.raises(ValueError, match="n lies between 1 and the 5 blocks"):
        theory.h_after_pass(Blocks(5, 10, 1), 6)
    with pytest.raises(ValueError, match="the online window lies between 1 and"):
        theory.window_random(Blocks(5, 10, 1), 0)
    with pytest.raises(ValueError, match="at least one block"):
        Blocks(0, 10, 1)
    with pytest.raises(ValueError, match="at least one byte"):
        theory.largest_block(0, 1, 1)
    with pytest.raises(ValueError, match="new blocks have between 1 example and the 20 of a group"):
        theory.h_after_pass(Blocks(5, 10, 1), 2, 21)
    with pytest.raises(ValueError, match="has between 1 and 10 parts"):
        theory.h_of_parts(Blocks(5, 10, 1), 11)
    with pytest.raises(ValueError, match="window lies between 1 and the 10 blocks"):
        theory.window_even(Blocks(5, 10, 1), 2, 11, 5)


def test_requests_are_those_of_table_1() -> None:
    examples, blocks, epochs = 1_000_000, 1_000, 90
    assert theory.requests_random_access(examples, epochs).total == epochs * examples
    assert theory.requests_shuffle_once(examples, blocks, epochs).total == examples + (epochs + 1) * blocks
    assert theory.requests_corgipile(blocks, epochs).total == epochs * blocks
    assert theory.requests_corgi2(blocks, blocks, epochs).total == (epochs + 2) * blocks
    assert theory.requests_corgi2(blocks, 4 * blocks, 1).offline == 5 * blocks
    assert theory.requests_corgi2(blocks, blocks, 0, passes=3).offline == 6 * blocks
    assert theory.parts(100, 64) == 2


def test_what_replacement_leaves() -> None:
    assert theory.surviving() == pytest.approx(0.4685, abs=1e-4)
    assert theory.surviving(2) == pytest.approx(0.312, abs=1e-3)


def test_an_improvement_needs_blocks_that_are_not_mixed() -> None:
    assert theory.improves(Blocks(100, 50, 50), 10)
    assert not theory.improves(Blocks(100, 50, 1), 10)
    for h in (1.05, 1.2, 2.0):
        data = Blocks(100, 50, h)
        assert theory.improves(data, 10) == (theory.h_with_replacement(data, 10) < h)


def test_the_bound_falls_with_what_was_seen() -> None:
    data = Blocks(100, 50, 50)
    early, late = theory.theorem2(data, 10, 1e4), theory.theorem2(data, 10, 1e6)
    assert late.leading == pytest.approx(early.leading / 100)
    assert late.third < late.second < late.leading
    assert theory.theorem2(data, 100, 1e4).leading == 0
    assert theory.step_size(0, data, 10, 1, 24) == pytest.approx(6 / (500 * 24))
    assert theory.least_delay(1, 0, 0, 1) == 24
    assert theory.largest_block(64e9, 32e9, 27e12) == pytest.approx(64e9 * 32e9 / 27e12)
