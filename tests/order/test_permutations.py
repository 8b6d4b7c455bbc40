from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2.order.neighbours import keep_apart
from corgi2.order.permutations import permutation

SMALL_KEYS = st.lists(st.integers(0, 5), min_size=1, max_size=30)


@given(st.integers(0, 300), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4))
def test_a_permutation_holds_every_index_once(count: int, key: list[int]) -> None:
    assert sorted(permutation(count, key).tolist()) == list(range(count))


def test_permutations_are_pinned_for_ever() -> None:
    assert permutation(10, (0,)).tolist() == [2, 0, 1, 4, 5, 6, 7, 8, 3, 9]
    assert permutation(10, (0, 0)).tolist() == [3, 8, 7, 2, 6, 1, 9, 5, 4, 0]
    assert permutation(10, (0, 1)).tolist() == [7, 0, 1, 8, 3, 2, 4, 9, 6, 5]
    assert permutation(10, (2**32,)).tolist() == [3, 8, 6, 5, 7, 9, 4, 1, 2, 0]
    assert permutation(1000, (7, 1, 2))[:8].tolist() == [529, 207, 883, 865, 596, 601, 759, 31]


def test_neighbouring_seeds_and_counters_share_no_order() -> None:
    orders = {tuple(permutation(20, (seed, counter, 1))) for seed in range(10) for counter in range(10)}
    assert len(orders) == 100


def test_every_order_of_three_is_equally_likely() -> None:
    seen = Counter(tuple(permutation(3, (seed, 1)).tolist()) for seed in range(6000))
    assert len(seen) == 6
    assert all(850 < count < 1150 for count in seen.values())  # five standard deviations


def test_a_negative_seed_is_refused_with_its_value() -> None:
    with pytest.raises(ValueError, match=r"got \(-1, 2\)"):
        permutation(3, (-1, 2))


@given(SMALL_KEYS, st.integers(0, 1000), st.integers(1, 4))
def test_equal_keys_are_kept_apart_wherever_an_order_exists(keys: list[int], seed: int, shards: int) -> None:
    hashes, order = np.array(keys, np.uint64), permutation(len(keys), (seed,))
    cuts = [part * len(keys) // shards for part in range(1, shards)]
    room = sum(-(-len(part) // 2) for part in np.split(order, cuts))
    if max(Counter(keys).values()) > room:
        with pytest.raises(ValueError, match="same key"):
            keep_apart(order, hashes, cuts)
        return
    apart = keep_apart(order, hashes, cuts)
    assert sorted(apart.tolist()) == list(range(len(keys)))
    assert all((part[1:] != part[:-1]).all() for part in np.split(hashes[apart], cuts))
    assert keep_apart(order, hashes, cuts).tolist() == apart.tolist()


def test_orders_without_neighbours_of_one_key_are_left_as_they_are() -> None:
    order = permutation(1000, (1,))
    assert keep_apart(order, np.arange(1000, dtype=np.uint64)).tolist() == order.tolist()


def test_keeping_apart_moves_few_records() -> None:
    keys = np.tile(np.arange(1000, dtype=np.uint64), 16)
    order = permutation(len(keys), (3,))
    assert (keep_apart(order, keys) != order).sum() < 100
