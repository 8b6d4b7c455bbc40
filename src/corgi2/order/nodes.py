"""Blocks that come back to the same node in every epoch, because its disk keeps them. Pure.

Every block has a home: a node, chosen once, such that each node has a part of every group of the offline pass. A node's
share of an epoch is in an order of its own. All ranks take the groups in the same order, but each begins at another
place of it, so that together they hold, at any time, equally much of every group.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from corgi2.order.groups import random_ranks
from corgi2.order.permutations import HOMES, Indices


class Origin(NamedTuple):
    """What is known of all blocks of a data set, by their numbers."""

    records: Indices
    group: Indices | None = None
    """The group that made it, if windows are spread evenly over groups."""
    round: Indices | None = None
    """The round of its group, if there are rounds."""


def assign(counts: Indices, readers: int, window: int, quotas: Indices) -> Indices:
    """A reader for every block. In every window each reader takes its turn; the largest blocks go to the readers that
    are furthest from their quota."""
    if readers == 1:
        return np.zeros(len(counts), np.int64)
    chosen, ahead = np.empty(len(counts), np.int64), -quotas
    for start in range(0, len(counts), window):
        stop = min(len(counts), start + window)
        by_size = start + np.argsort(-counts[start:stop], kind="stable")
        for at in range(0, stop - start, readers):
            some = by_size[at : at + readers]
            who = np.argsort(ahead, kind="stable")[: len(some)]
            chosen[some] = who
            ahead[who] += counts[some]
    return chosen


def homes_of(origin: Origin, ranks: int, seed: int) -> Indices:
    """The rank, and so the node, that each block comes back to: evenly in the blocks of every group, and in records."""
    total = int(origin.records.sum())
    group = np.zeros(len(origin.records), np.int64) if origin.group is None else origin.group
    order = np.lexsort((random_ranks(group, (seed, HOMES)), group))
    homes = np.empty(len(order), np.int64)
    homes[order] = assign(origin.records[order], ranks, ranks, np.full(ranks, total // ranks))
    return homes


def orders_at_home(blocks: Indices, origin: Origin, nodes: Sequence[int], seed: int) -> list[Indices]:
    """An order of blocks, shared out to nodes with so many ranks each: the places in it of each node's blocks.

    A node follows as many streams as it has ranks, side by side, so that nodes of any size advance alike.
    """
    ranks = sum(nodes)
    stream = homes_of(origin, ranks, seed)[blocks]
    order, stream = _streams(blocks, stream, origin, ranks)
    _, size = np.unique(stream, return_counts=True)
    at = (_counted(stream) + 0.5) / np.repeat(size, size)
    node = np.repeat(np.arange(len(nodes)), nodes)[stream]
    order, node = order[(by_node := np.lexsort((stream, at, node)))], node[by_node]
    return np.split(order, np.searchsorted(node, np.arange(1, len(nodes))))


def _streams(blocks: Indices, stream: Indices, origin: Origin, ranks: int) -> tuple[Indices, Indices]:
    """Places, ordered by stream, and the stream of each. A stream has the first block of every group, then the second,
    and so on. All streams have one order of the groups, and each begins at another place of it."""
    if origin.group is None:
        order = np.argsort(stream, kind="stable")
        return order, stream[order]
    group = origin.group[blocks]
    first = np.zeros(int(group.max(initial=0)) + 1, np.int64)
    first[group[::-1]] = np.arange(len(blocks))[::-1]  # where each group is met first
    turn, begun = _counted(stream * len(first) + group), np.zeros(len(blocks), np.int64)
    if origin.round is not None:
        _, met, of = np.unique(origin.round[blocks], return_index=True, return_inverse=True)
        begun = met[of.ravel()]
    order = np.lexsort((first[group], turn, begun, stream))
    stretch = np.stack([stream, begun, turn])[:, order]
    start = np.flatnonzero(np.concatenate([[True], (stretch[:, 1:] != stretch[:, :-1]).any(axis=0)])[: len(order)])
    size = np.diff(np.append(start, len(order)))
    starts, sizes = np.repeat(start, size), np.repeat(size, size)
    shift = sizes * stretch[0] // ranks
    rolled = starts + (np.arange(len(order)) - starts + shift) % np.maximum(1, sizes)
    return order[rolled], stretch[0]


def _counted(values: Indices) -> Indices:
    """How many equal values come before each."""
    order = np.argsort(values, kind="stable")
    _, starts, counts = np.unique(values[order], return_index=True, return_counts=True)
    found = np.empty(len(values), np.int64)
    found[order] = np.arange(len(values)) - np.repeat(starts, counts)
    return found
