"""What SGD feels of an order of blocks: H, V and R, exactly, from how many records of which block lie where.

A data set is described by its blocks' sizes and by h_D alone: blocks are assumed to differ at random, and so are the
records within each. Then the covariance of two records depends only on the blocks that they come from. A shuffle makes
*pools*, groups of records in random order, and the covariance of two records depends only on their pools; it follows
from how many records each pool takes from which earlier one. So only groups and orders are drawn, by the code of the
shuffle and of the loader; all sums over records are exact expectations.

- H is examples per window × Var(its mean)/σ², averaged over windows.
- V is the same for stretches of several windows.
- R(τ) is the variance that SGD with a memory of τ examples feels (an exponential average with that time constant), over
  that of independent draws, which give 1 (docs/planning.md).

Time: windows × (pools + earlier pools). Memory: a few rows of that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corgi2.order.groups import even_order
from corgi2.order.permutations import PICKS, Indices, permutation
from corgi2.order.rounds import round_order
from corgi2.theory import Memory

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pools:
    """Sets of records, each in random order, in units of σ². The covariance of two records of pools p and q is
    Σ mixed[p, k]·weights[k]·mixed[q, k] + (own[p] if p = q) + shift[p] + shift[q] + level."""

    sizes: Floats
    mixed: Floats
    """The share of each earlier pool in a pool; one row per pool."""
    weights: Floats
    own: Floats
    shift: Floats
    level: float
    square: Floats
    """E x² of one record of each pool, before the mean of all is subtracted."""

    @property
    def paired(self) -> Floats:
        """The covariance of two different records of each pool."""
        spread: Floats = (self.mixed**2 * self.weights).sum(axis=1)
        return spread + self.own + 2 * self.shift + self.level

    @property
    def alone(self) -> Floats:
        """The variance of a record of each pool."""
        return self.square + 2 * self.shift + self.level

    def h(self, blocks: int) -> float:
        """h of blocks, this many from each pool."""
        return float((self.alone + (self.sizes / blocks - 1) * self.paired).mean())


def pools_of_blocks(sizes: npt.ArrayLike, h: float) -> Pools:
    """The blocks of a data set, with these sizes and this h_D, which lies between 0 and their mean size."""
    counts = np.maximum(1.0, np.asarray(sizes, np.float64))
    return pools_of_groups(counts, counts**2, len(counts), h)


def pools_of_groups(sizes: Floats, squares: Floats, blocks: float, h: float) -> Pools:
    """Groups of whole blocks, each mixed: their records, the sums of the squares of their blocks' sizes, how many
    blocks there are in all, and the h_D of these."""
    total = float(sizes.sum())
    between, left = min(1.0, h * blocks / total), 1 - float(squares.sum()) / total**2
    effect, within = (between / left, 1 - between) if left > 1e-12 else (0.0, 1.0)
    own = (effect * (squares - sizes) - within * sizes) / _pairs(sizes)
    nothing = np.zeros((len(sizes), 0))
    shift, level = -effect * squares / sizes / total, effect * float(squares.sum()) / total**2
    return Pools(sizes, nothing, np.zeros(0), own, shift, level, np.full(len(sizes), effect + within))


def pools_of_counts(counts: Floats) -> Pools:
    """Blocks whose number of records per class is known: one row per block."""
    sizes = counts.sum(axis=1)
    shares = counts.sum(axis=0) / sizes.sum()
    sigma2 = 1 - float((shares**2).sum())
    means = counts / sizes[:, None] - shares
    squares = 1 - 2 * (counts @ shares) / sizes + float((shares**2).sum())
    paired = (sizes * (means**2).sum(axis=1) - squares) / np.maximum(1.0, sizes - 1)
    own = (paired - (means**2).sum(axis=1)) / sigma2
    weights = np.full(counts.shape[1], 1 / sigma2)
    return Pools(sizes, means, weights, own, np.zeros(len(sizes)), 0.0, squares / sigma2)


class Step(NamedTuple):
    """A pass: its groups, and how many blocks each of them writes."""

    groups: Sequence[Indices]
    blocks: int


def pools_after(sizes: npt.ArrayLike, h: float, steps: Sequence[Step]) -> Pools:
    """What passes leave of blocks with these sizes and this h_D: the groups of the last pass. The blocks of a later
    pass are those that the pass before wrote, group by group."""
    counts = np.maximum(1.0, np.asarray(sizes, np.float64))
    members, owner = _membership(steps[0].groups)
    count = len(steps[0].groups)
    held, squares = (np.bincount(owner, values[members], count).astype(np.float64) for values in (counts, counts**2))
    pools = pools_of_groups(held, squares, len(counts), h)
    for before, step in pairwise(steps):
        members, owner = _membership(step.groups)
        old = members // before.blocks
        place, each = owner * len(pools.sizes) + old, (pools.sizes / before.blocks)[old]
        taken = np.bincount(place, each, len(step.groups) * len(pools.sizes))
        pools = draw(pools, taken.reshape(len(step.groups), -1).astype(np.float64))
    return pools


class Dealt(NamedTuple):
    """Ranges of blocks that were dealt to groups."""

    sizes: Floats
    """The records of each range."""
    block: Indices
    """Of which block each is."""
    group: Indices
    """The group that takes it."""
    rounds: Indices
    """The round of each group."""


def pools_of_ranges(dealt: Dealt, h: float, h_ranges: float | None = None) -> Pools:
    """The groups of a pass of ranges in rounds, given h of the blocks. ``h_ranges`` is that of the ranges, if it is
    known; else the records of each block are taken to lie in random order."""
    sizes, block, group, rounds = dealt
    blocks, groups = np.bincount(block, sizes).astype(np.float64), len(rounds)
    place = group * len(blocks) + block
    taken = np.bincount(place, sizes, groups * len(blocks)).reshape(groups, -1).astype(np.float64)
    before, pairs = pools_of_blocks(blocks, h), sizes * (sizes - 1)
    closer, farther = _within_ranges(dealt, before, h_ranges)
    made = draw(replace(before, own=before.own + farther), taken)
    nearer = np.bincount(group, (closer - farther[block]) * pairs, groups) / _pairs(made.sizes)
    return replace(made, own=made.own + nearer)


def _within_ranges(dealt: Dealt, blocks: Pools, h_ranges: float | None) -> tuple[Floats, Floats]:
    """What to add to the covariance of two records of one range, for each range, and of two ranges of one block, for
    each block, such that ranges have the h that they should and blocks keep theirs."""
    sizes, block, nothing = dealt.sizes, dealt.block, np.zeros(len(blocks.sizes))
    pairs, others = sizes * (sizes - 1), blocks.sizes**2 - np.bincount(block, sizes**2)
    is_cut = (others > 1e-9)[block]
    weight = float((sizes - 1)[is_cut].sum())
    if h_ranges is None or weight <= 0:
        return np.zeros(len(sizes)), nothing
    usual = float((blocks.alone[block] + (sizes - 1) * blocks.paired[block]).sum())
    closer = np.where(is_cut, (h_ranges * len(sizes) - usual) / weight, 0.0)
    farther = np.divide(-np.bincount(block, closer * pairs), others, out=nothing, where=others > 1e-9)
    return closer, farther


def _pairs(sizes: Floats) -> Floats:
    """The number of pairs of different records; not used where there is only one record."""
    pairs = sizes * (sizes - 1)
    return np.where(pairs > 0, pairs, 1.0)


def _membership(groups: Sequence[Indices]) -> tuple[Indices, Indices]:
    """Blocks, and the group of each."""
    return np.concatenate(groups), np.repeat(np.arange(len(groups)), [len(group) for group in groups])


def draw(pools: Pools, taken: Floats) -> Pools:
    """New pools, each with this many records from every old one: one row per new pool. No record is in two of them."""
    sizes = taken.sum(axis=1)
    share = taken / sizes[:, None]
    mixed = np.hstack([share @ pools.mixed, share])
    weights = np.concatenate([pools.weights, pools.own])
    spread = (mixed**2 * weights).sum(axis=1)
    same = taken @ ((pools.mixed**2 * pools.weights).sum(axis=1) + pools.own)  # records are not paired with themselves
    paired = (sizes**2 * spread - same) / _pairs(sizes)
    return Pools(sizes, mixed, weights, paired - spread, share @ pools.shift, pools.level, share @ pools.square)


class Felt(NamedTuple):
    """What SGD feels of an order, in units of independent draws."""

    H: float
    R: float


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of an epoch: which pools' blocks lie in each, and how many records those have."""

    pools: Pools
    pool: Indices
    """The pool of each block, in the order of the epoch."""
    counts: Floats
    """The number of records in each block."""
    blocks: int
    """The number of blocks in a window; the last one may have fewer."""

    def sums(self) -> Iterator["_Sums"]:
        pools, count = self.pools, len(self.pools.sizes)
        paired, alone = pools.paired, pools.alone
        for start in range(0, len(self.pool), self.blocks):
            part = slice(start, start + self.blocks)
            taken = np.bincount(self.pool[part], self.counts[part], count).astype(np.float64)
            parts = np.concatenate([taken @ pools.mixed, taken])
            yield _Sums(
                float(taken.sum()), parts, float(taken @ pools.shift), float(taken @ alone), float(taken @ paired)
            )

    @property
    def _weights(self) -> Floats:
        return np.concatenate([self.pools.weights, self.pools.own])

    def felt(self, tau: float | None = None) -> Felt:
        """H, and R with a memory of ``tau`` examples; of a mean window, if None."""
        windows, weights, level = -(-len(self.pool) // self.blocks), self._weights, self.pools.level
        total = float(self.counts.sum())
        memory = Memory(tau or total * self.blocks / len(self.pool))
        found, full, felt = 0.0, max(1, len(self.pool) // self.blocks), 0.0
        before: _Sums | None = None
        for number, each in enumerate(self.sums()):
            pairs = each.times(each, weights, level) - each.paired
            if number < full or windows == 1:
                found += (each.alone + pairs) / each.size / full
            felt += each.alone + pairs * memory.within(each.size)
            if before is not None:
                felt += 2 * memory.entering(each.size) * before.times(each, weights, level)
                before = before.scaled(memory.over(each.size)).plus(each.scaled(memory.leaving(each.size)))
            else:
                before = each.scaled(memory.leaving(each.size))
        return Felt(found, felt / total)

    def variance(self, stretch: int) -> float:
        """V of stretches of this many windows; H, if it is 1."""
        weights, level, found = self._weights, self.pools.level, list[float]()
        sums = list(self.sums())[: len(self.pool) // self.blocks]
        for start in range(0, len(sums) - stretch + 1, stretch):
            whole = sums[start]
            for each in sums[start + 1 : start + stretch]:
                whole = whole.plus(each)
            found.append((whole.alone + whole.times(whole, weights, level) - whole.paired) / whole.size)
        if not found:
            raise ValueError(f"an epoch has {len(sums)} windows, fewer than a stretch of {stretch}")
        return float(np.mean(found))


class _Sums(NamedTuple):
    """Sums over the records of a window, from which the covariance of windows follows."""

    size: float
    parts: Floats
    shift: float
    alone: float
    paired: float

    def times(self, other: "_Sums", weights: Floats, level: float) -> float:
        """The sum of the covariances of all records of one with all of the other."""
        return (
            float((self.parts * weights) @ other.parts)
            + self.size * other.shift
            + self.shift * other.size
            + level * self.size * other.size
        )

    def scaled(self, factor: float) -> "_Sums":
        return _Sums(
            factor * self.size, factor * self.parts, factor * self.shift, factor * self.alone, factor * self.paired
        )

    def plus(self, other: "_Sums") -> "_Sums":
        return _Sums(
            self.size + other.size,
            self.parts + other.parts,
            self.shift + other.shift,
            self.alone + other.alone,
            self.paired + other.paired,
        )


def epoch_of_pools(
    count: int,
    blocks: int,
    seed: int,
    epoch: int,
    lineage: Indices | None,
    most: int | None = None,
    rounds: Indices | None = None,
) -> Indices:
    """The pool of each block in the order of an epoch, as `epoch_rest` makes it, given the number of blocks per pool:
    spread over their ``lineage``, one row per pool, in ``rounds`` if they were made in some, or else random. Only the
    first ``most``, if there are more."""
    most = min(count * blocks, most or count * blocks)
    key = (seed, PICKS, epoch)
    if lineage is None:
        return permutation(count * blocks, key)[:most] // blocks
    if rounds is not None:
        order = round_order(np.repeat(lineage, blocks, axis=0), np.repeat(rounds, blocks), key)
        return order[:most] // blocks
    return np.resize(even_order(lineage, key), most)
