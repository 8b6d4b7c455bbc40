"""Which parts of blocks are mixed together, if blocks are read in ranges, one round after another. Pure.

A range is one block of the index, or several that follow each other in a shard, of about the size that was asked for. A
coarse block is k ranges of one shard. Every round takes one range of each coarse block (`corgi2.order.rounds` says
which), so that each group holds parts of as many of them as memory allows. There are about as many ranges in 64 MB, but
no more rounds than groups. If every shard is cut into a multiple of k ranges of equal size, then all rounds are alike,
whatever the shards hold; k is chosen such that this is nearly so.
"""

import math
from dataclasses import dataclass

import numpy as np

from corgi2.dataset import Index
from corgi2.order import Indices
from corgi2.records import BLOCK_BYTES

_TRIALS = 16
"""The most values of k that are tried."""
_SMALL_SHARDS = 0.1
"""Shards with fewer than k ranges, which cannot be in all rounds, hold at most this share of the bytes, if possible."""
_WASTE = 0.1
"""How much half-empty groups weigh, compared with uneven rounds."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """The blocks of an index, joined to ranges of coarse blocks."""

    first: Indices
    """The first block of each range."""
    sizes: Indices
    """Bytes of each range."""
    whole: Indices
    """The coarse block of each range."""

    @property
    def most(self) -> int:
        """k: the ranges of the coarse block that has most of them, and so the number of rounds."""
        return int(np.bincount(self.whole).max())

    @property
    def wholes(self) -> int:
        """N: the number of coarse blocks."""
        return int(self.whole[-1]) + 1

    @property
    def gaps(self) -> float:
        """What rounds differ by, because they do not hold equally much of every coarse block: the sum of the variances
        of its bytes, over the square of all bytes of a round; as `theory.Rounds` takes it."""
        own, squares = np.bincount(self.whole, self.sizes), np.bincount(self.whole, self.sizes.astype(float) ** 2)
        return float((squares / self.most - (own / self.most) ** 2).sum() / (own.sum() / self.most) ** 2)

    @property
    def unevenness(self) -> float:
        """The same in units of a range, between 0 and 1: the H that it adds, over the records of a range."""
        return self.gaps * len(self.sizes) / self.most


def ranges_of(index: Index, range_bytes: int, groups: int, most: int | None = None) -> Ranges:
    """The ranges of a data set that fills at least so many groups, each of ``most`` coarse blocks at the most."""
    shards = _Shards.of(index, range_bytes)
    limit = groups if most is None else max(groups, math.isqrt(int(shards.ranges.sum()) // most))
    largest = max(2, min(shards.rounds, limit))
    trials = np.unique(np.linspace(largest, max(2, largest // 2), _TRIALS).astype(int))[::-1]
    made = [(ranges := shards.cut(int(rounds)), _groups(ranges, groups, most)) for rounds in trials]
    fitting = [(ranges, count) for ranges, count in made if ranges.most <= count] or made[-1:]
    return min(fitting, key=lambda each: each[0].unevenness + _WASTE * _waste(each[0].most, each[1]))[0]


def _groups(ranges: Ranges, groups: int, most: int | None) -> int:
    return groups if most is None else max(groups, -(-ranges.wholes // most))


def _waste(rounds: int, groups: int) -> float:
    """How many more groups there are if every round has equally many."""
    return rounds * math.ceil(groups / rounds) / groups - 1


@dataclass(frozen=True, slots=True)
class _Shards:
    """Shards, to be cut into ranges."""

    size: int
    """Of a range, as asked for."""
    first: Indices
    """The first block of each shard, and the number of all blocks."""
    ends: Indices
    """Bytes before each block, and all bytes."""

    @classmethod
    def of(cls, index: Index, size: int) -> "_Shards":
        shard = index.column("shard")
        first = np.append(np.flatnonzero(np.diff(shard, prepend=-1)), len(shard))
        return cls(size, first, np.concatenate([[0], np.cumsum(index.column("length"))]))

    @property
    def blocks(self) -> Indices:
        return np.diff(self.first)

    @property
    def bytes(self) -> Indices:
        return np.diff(self.ends[self.first])

    @property
    def ranges(self) -> Indices:
        """Ranges of at least the size in each."""
        return np.clip(self.bytes // self.size, 1, self.blocks)

    @property
    def rounds(self) -> int:
        """About 64 MB in ranges, if these are small enough, but no more than most shards have, or could have if ranges
        were half as large."""
        sizes, possible = self.bytes, np.clip(2 * self.bytes // self.size, 1, self.blocks)
        usual = min(_exceeded(self.ranges, sizes, 0.5), _exceeded(possible, sizes, 1 - _SMALL_SHARDS))
        wanted = round(BLOCK_BYTES * int(self.ranges.sum()) / int(sizes.sum()))
        return min(usual, wanted) if wanted > 1 else usual

    def cut(self, rounds: int) -> Ranges:
        """Every shard in a multiple of so many ranges of nearly equal size, of at least half the size that was asked
        for; smaller shards in as many as they have."""
        blocks, sizes, first = self.blocks, self.bytes, self.first
        wholes = np.maximum(1, np.minimum(np.rint(sizes / (rounds * self.size)).astype(np.int64), blocks // rounds))
        is_full = (wholes * rounds <= blocks) & (2 * sizes >= wholes * rounds * self.size)
        counts = np.where(is_full, wholes * rounds, np.minimum(self.ranges, rounds - 1))
        shard, number = np.repeat(np.arange(len(counts)), counts), np.arange(int(counts.sum()))
        within = number - (np.cumsum(counts) - counts)[shard]
        at = self._nearest(self.ends[first[shard]] + sizes[shard] * (within / counts[shard]))
        at = np.minimum(at, first[shard + 1] - (counts[shard] - within))
        at = np.maximum.accumulate(at - number) + number  # no range is empty
        whole = np.cumsum(within % rounds == 0) - 1
        return Ranges(at, np.diff(np.append(self.ends[at], self.ends[-1])), whole)

    def _nearest(self, places: Indices) -> Indices:
        """The block that begins nearest to each place."""
        after = np.minimum(np.searchsorted(self.ends, places), len(self.ends) - 1)
        before = np.maximum(after - 1, 0)
        nearest: Indices = np.where(places - self.ends[before] < self.ends[after] - places, before, after)
        return nearest


def _exceeded(values: Indices, weights: Indices, share: float) -> int:
    """The largest value that this share of the weights has, or exceeds."""
    order = np.argsort(values)
    before = np.cumsum(weights[order]) - weights[order]
    return int(values[order][np.flatnonzero(before <= (1 - share) * weights.sum())[-1]])
