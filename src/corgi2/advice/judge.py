"""How well each way mixes: h of its blocks, H of a window, and R, what SGD feels over time.

If the blocks of a data set are known, or are all alike, everything follows from them by `corgi2.order.noise`: which
groups a shuffle draws, which windows a loader sees. For very many blocks the closed forms of `corgi2.theory` are used.
Those are exact for blocks of one size that fill all groups equally, and otherwise off by up to a fifth.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from corgi2 import theory
from corgi2.advice.ranged import Ranged
from corgi2.advice.situation import Offline, Shape
from corgi2.order import (
    Indices,
    Pools,
    Windows,
    epoch_of_pools,
    permutation,
    pools_after,
    pools_of_blocks,
    pools_of_groups,
    pools_of_ranges,
    window_of,
)
from corgi2.theory import Blocks

_MOST_WORK, _MOST_WINDOWS = 10_000_000, 1_000
"""The most windows of an epoch that are looked at, and the most windows × groups."""
_DRAWS = 4
_RAGGED = 0.01
"""A raggedness that changes nothing visible."""


class Quality(NamedTuple):
    """How well a way mixes, in units of independent draws."""

    h: float
    H: float
    H_full: float
    R: float
    R_full: float
    window: int
    """Blocks."""
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the ways of one data set, for SGD with a memory of τ examples."""

    shape: Shape
    tau: float

    def full(self, h: float, blocks: Blocks, window: int) -> Quality:
        """A full shuffle, through a window of this many blocks."""
        spread = theory.window_full(blocks, window)
        felt = self._long_run(spread, blocks, window)
        return Quality(h, spread, spread, felt, felt, window)

    def random(self, blocks: Blocks, window: int, is_exact: bool = True) -> Quality:
        """Windows of random blocks, in closed form."""
        return self._judged(blocks, theory.window_random(blocks, window), window, is_exact)

    def pile(self, blocks: Blocks, window: int) -> Quality:
        """What a loader makes of the data as it is: with random blocks or, if corgi2 wrote it, with even picks."""
        sizes, lineage = self.shape.sizes, self.shape.lineage
        if lineage is not None and len(lineage) == blocks.count:
            return self._shuffled(blocks, window, lineage)
        is_ragged = sizes is not None and self.shape.ragged > _RAGGED and len(sizes) == blocks.count
        if sizes is None or not is_ragged or not _is_cheap(len(sizes), len(sizes) // window):
            return self.random(blocks, window, is_exact=not is_ragged)
        pools = pools_of_blocks(sizes, blocks.h)
        orders = (permutation(len(sizes), (draw,)) for draw in range(_DRAWS))
        felt = [Windows(pools, order, pools.sizes[order], window).felt(self.tau) for order in orders]
        return self._felt(blocks, window, float(np.mean([each.H for each in felt])), [each.R for each in felt])

    def _shuffled(self, blocks: Blocks, window: int, lineage: Indices) -> Quality:
        """All of their h except 1 is assumed to lie between the groups that wrote them."""
        rows, first, group = np.unique(lineage, axis=0, return_index=True, return_inverse=True)
        rounds = None if self.shape.rounds is None else self.shape.rounds[first]
        window = window_of(window, 1, lineage, blocks.count, self.shape.rounds)
        if not _is_cheap(len(rows), blocks.count // window):
            return self._judged(blocks, theory.window_even_later(blocks, len(rows), window), window, is_exact=False)
        sizes = np.full(blocks.count, blocks.examples) if self.shape.sizes is None else self.shape.sizes
        held = np.bincount(group.ravel(), sizes).astype(np.float64)
        share = max(0.0, blocks.h - 1) / blocks.examples
        pools = pools_of_blocks(held, share * float(held.mean()))
        return self._even(blocks, pools, blocks.count // len(rows) or 1, window, rows, rounds)

    def mixed(self, offline: Offline, blocks: int, window: int, picks: str) -> Quality:
        """What a shuffle leaves, in this many blocks."""
        data, passes = self.shape.theory, 2 if offline.between else 1
        written = self.shape.records / blocks
        pools, lineage = self._pools(offline)
        if pools is None or lineage is None:
            return self._closed(offline, blocks, window, picks)
        each = max(1, blocks // len(pools.sizes))
        new = Blocks(blocks, written, min(written, max(0.0, pools.h(each))))
        if picks == "random":
            return self.random(new, window)
        window = window_of(window, 1, lineage, blocks)
        if passes == 1 and not _is_cheap(len(pools.sizes), min(_MOST_WINDOWS, blocks // window)):
            reach = min(data.count, round(data.count / len(pools.sizes)))
            return self._judged(new, theory.window_even(data, reach, window, written), window, is_exact=False)
        return self._even(new, pools, each, window, lineage)

    def ranged(self, ranged: Ranged, window: int) -> Quality:
        """What a pass of ranges that is planned leaves."""
        data, groups, rounds = self._wholes(ranged.wholes), ranged.groups, ranged.dealt.rounds
        if groups * data.count > _MOST_WORK:
            return self.rounds(data, groups, int(rounds.max()) + 1, window)
        pools, lineage = pools_of_ranges(ranged.scaled(data.total), data.h), np.arange(groups)[:, None]
        each, written = max(1, ranged.blocks // groups), self.shape.records / ranged.blocks
        new = Blocks(ranged.blocks, max(1.0, written), min(max(1.0, written), max(0.0, pools.h(each))))
        window = window_of(window, 1, lineage, ranged.blocks, rounds)
        return self._even(new, pools, each, window, lineage, rounds)

    def _wholes(self, count: int) -> Blocks:
        """The data in this many blocks. Neighbours that become one are taken to be alike; parts of one, to be mixed."""
        data = self.shape.theory
        b = data.total / count
        if count <= data.count:
            return Blocks(count, b, min(b, data.h / data.examples * b), data.ragged)
        return Blocks(
            count, b, min(b, theory.h_of_parts(data, max(1, min(round(count / data.count), int(data.examples)))))
        )

    def rounds(self, data: Blocks, groups: int, ranges: int, window: int, written: float | None = None) -> Quality:
        """What a pass of ranges in rounds leaves of blocks, in this many groups, in closed form; new blocks have
        ``written`` examples."""
        n, new = max(1.0, data.count / groups), written or data.examples
        mixed = theory.Rounds(
            data, n, max(1, min(ranges, int(data.count / n), int(data.examples))), written=min(new, n * data.examples)
        )
        each = max(1, round(mixed.groups))
        window = window // each * each or window
        blocks = Blocks(max(1, round(data.total / new)), new, min(new, mixed.h))
        return self._judged(blocks, mixed.window(min(window, blocks.count)), window, is_exact=False)

    def _pools(self, offline: Offline) -> tuple[Pools | None, Indices | None]:
        """The groups of the last pass. If there are too many equal blocks to be drawn, those of one pass are known."""
        data = self.shape.theory
        if offline.steps:
            sizes = np.full(data.count, data.examples) if self.shape.sizes is None else self.shape.sizes
            return pools_after(sizes, data.h, offline.steps), offline.lineage
        if offline.between or self.shape.sizes is not None:
            return None, None
        counts = np.diff(np.arange(offline.groups + 1) * data.count // offline.groups).astype(np.float64)
        pools = pools_of_groups(counts * data.examples, counts * data.examples**2, data.count, data.h)
        return pools, np.arange(offline.groups)[:, None]

    def _closed(self, offline: Offline, blocks: int, window: int, picks: str) -> Quality:
        """Two passes over very many blocks."""
        data, n = self.shape.theory, min(offline.n, self.shape.blocks)
        written = max(1.0, min(self.shape.records / blocks, n * data.examples))
        middle = max(1.0, min(self.shape.records / max(1, offline.between), n * data.examples))
        h = theory.h_butterfly(data, n, written, middle) if offline.between else theory.h_after_pass(data, n, written)
        new = Blocks(blocks, written, min(written, h))
        if picks == "random":
            return self.random(new, window, is_exact=False)
        groups = max(1, round(data.count / (n * n * data.examples / middle if offline.between else n)))
        window = min(window // groups * groups or window, int(data.total / written))
        if offline.between:
            spread = theory.window_butterfly(data, n, window, written, middle)
        else:
            spread = theory.window_even(data, n, window, written)
        return self._judged(new, spread, window, is_exact=False)

    def _even(
        self, blocks: Blocks, pools: Pools, each: int, window: int, lineage: Indices, rounds: Indices | None = None
    ) -> Quality:
        windows = max(1, min(_MOST_WINDOWS, _MOST_WORK // (len(pools.sizes) + pools.mixed.shape[1])))
        order = epoch_of_pools(len(pools.sizes), each, 0, 0, lineage, window * windows, rounds)
        felt = Windows(pools, order, (pools.sizes / each)[order], window).felt(self.tau)
        return self._felt(blocks, window, felt.H, [felt.R])

    def _judged(self, blocks: Blocks, spread: float, window: int, is_exact: bool) -> Quality:
        felt = self._long_run(spread, blocks, window)
        found = self._felt(blocks, window, spread, [felt])
        return found._replace(is_exact=is_exact)

    def _felt(self, blocks: Blocks, window: int, spread: float, felt: list[float]) -> Quality:
        full = self.full(blocks.h, blocks, window)
        return Quality(blocks.h, max(0.0, spread), full.H, max(0.0, float(np.mean(felt))), full.R, window)

    def _long_run(self, spread: float, blocks: Blocks, window: int) -> float:
        size = min(max(1.0, window * blocks.examples), blocks.total)
        return theory.long_run(spread, size, blocks.total, self.tau)


def _is_cheap(pools: int, windows: int) -> bool:
    return pools * max(1, windows) <= _MOST_WORK
