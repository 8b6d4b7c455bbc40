"""Ranges in rounds: one pass that mixes like two. Pure.

Blocks are cut into ranges of whole records. A round takes one range of every block, and deals them at random to groups
that fit the buffer. A window that takes one block of every group of a round then holds a part of every block. There are
as many rounds as the block with most ranges has. Where a block has fewer, it is left out of some rounds, but all rounds
have equally many ranges.
"""

from collections.abc import Sequence

import numpy as np

from corgi2.order.groups import check_blocks, even_order, random_ranks
from corgi2.order.permutations import Indices, permutation

_RANGES, _BLOCKS, _GROUPS = range(3)
"""What is drawn, behind the key of a pass: the order of a block's ranges, the order of the blocks, and groups."""


def rounds_of(block: Indices, key: Sequence[int]) -> Indices:
    """The round of each range; ``block`` says of which block each is. The ranges of all blocks, the blocks and the
    ranges of each in random order, are dealt to the rounds in turn."""
    _, number, counts = np.unique(block, return_inverse=True, return_counts=True)
    order = permutation(len(counts), (*key, _BLOCKS))
    first = np.empty(len(counts), np.int64)
    first[order] = np.cumsum(counts[order]) - counts[order]
    dealt: Indices = (first[number.ravel()] + random_ranks(number.ravel(), (*key, _RANGES))) % counts.max()
    return dealt


def cut_rounds(
    footprints: Indices, rounds: Indices, capacity: int, key: Sequence[int], most: int | None = None
) -> tuple[list[Indices], Indices]:
    """The groups of all rounds, and the round of each. The ranges of a round, in random order, are cut into equally
    many groups of nearly equal counts, the fewest for which all groups of all rounds fit the capacity and hold no more
    than ``most`` ranges."""
    check_blocks(footprints, capacity)
    order = permutation(len(rounds), (*key, _GROUPS))
    order = order[np.argsort(rounds[order], kind="stable")]
    _, first, sizes = np.unique(rounds[order], return_index=True, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(footprints[order])])
    largest = int(np.diff(np.append(ends[first], ends[-1])).max())
    count = max(1, -(-largest // max(1, capacity)), -(-int(sizes.max()) // (most or int(sizes.max()))))
    while (cuts := _cuts(first, sizes, count)) is not None and (np.diff(ends[cuts]) > capacity).any():
        count += max(1, count // 64)
    starts = np.arange(len(order)) if cuts is None else cuts[:-1]
    return np.split(order, starts[1:]), rounds[order[starts]]


def _cuts(first: Indices, sizes: Indices, count: int) -> Indices | None:
    """Where groups begin, this many in every round, and where the last ends; None if every range is one."""
    if count >= sizes.max():
        return None
    within = np.arange(count) * sizes[:, None] // count
    cuts: Indices = np.unique(np.append(first[:, None] + within, first[-1] + sizes[-1]))
    return cuts


def round_order(lineage: Indices, rounds: Indices, key: Sequence[int]) -> Indices:
    """All blocks in the order of an epoch: the rounds in random order, and within each the first block of every group,
    then the second, and so on."""
    numbers, own = np.unique(rounds, return_inverse=True)
    order = even_order(lineage, (*key, 1))
    place = np.argsort(permutation(len(numbers), (*key, 0)))[own.ravel()]
    return order[np.argsort(place[order], kind="stable")]
