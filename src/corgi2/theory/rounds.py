"""Ranges in rounds: h and H of one pass that mixes like two."""

import math
from dataclasses import dataclass
from itertools import pairwise

from corgi2.theory.passes import Blocks, written_examples

_WINDOWS = 1_000
"""The most windows of an epoch that a mean is made of."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """What a pass of ranges in rounds leaves: each block is cut into ``ranges``, a round takes one of each, and groups
    of the size of n blocks are made of those. The examples within a block lie in random order. Exact if
    ``ranges`` divides b, and n × ``ranges`` divides N; approximate if blocks differ in size."""

    data: Blocks
    n: float
    ranges: int
    """In the block that has the most of them."""
    gaps: float = 0.0
    """What rounds differ by, because they do not hold equally much of every block: the sum over the blocks of the
    variance of what a round holds of each, over the square of all that a round holds."""
    written: float | None = None
    """The examples in each new block; b, if None."""

    def __post_init__(self) -> None:
        data, taken = self.data, self.n * self.ranges
        if not 1 <= self.ranges <= data.examples:
            raise ValueError(f"a block of {data.examples:g} examples cannot be cut into {self.ranges} ranges")
        if not self.ranges <= taken <= data.count:
            raise ValueError(f"a group takes {taken:g} ranges, but a round has {data.count}")

    @property
    def groups(self) -> float:
        """The number of groups in one round."""
        return self.data.count / (self.n * self.ranges)

    @property
    def _within_blocks(self) -> float:
        """The variance of the mean of a range around that of its block, in units of σ²."""
        b = self.data.examples
        return (1 - self.data.h / b) * (self.ranges - 1) / (b - 1) if b > 1 else 0.0

    @property
    def _round(self) -> float:
        """The variance of the mean of a round."""
        return self._within_blocks / self.data.count + self.gaps * self.data.h / self.data.examples

    @property
    def _group(self) -> float:
        """The variance of the mean of a group around that of its round."""
        data, taken = self.data, self.n * self.ranges
        if data.count == 1:
            return 0.0
        means = data.h / data.examples + self._within_blocks * (1 - 1 / data.count)
        return means * (1 + data.ragged) / taken * (data.count - taken) / (data.count - 1)

    @property
    def _new(self) -> float:
        return written_examples(self.data, self.n, self.written)

    def _drawn(self, blocks: float) -> float:
        """The variance of the sum of this many blocks of one group around what the group's mean would give."""
        size, drawn = self.n * self.data.examples, blocks * self._new
        return drawn * (1 - self._round - self._group) * (size - drawn) / (size - 1) if size > 1 else 0.0

    @property
    def h(self) -> float:
        """h' of the new blocks."""
        b = self._new
        return b * (self._round + self._group) + self._drawn(1) / b

    def window(self, n_on: int) -> float:
        """H of n_on new blocks: of one round after another, spread evenly over the groups of each. The mean of the
        windows of an epoch, which begin anywhere in a round."""
        blocks = self.data.total / self._new
        if not 1 <= n_on <= blocks + 1e-9:
            raise ValueError(f"the online window lies between 1 and the {blocks:g} blocks there are (got {n_on})")
        count = min(_WINDOWS, int(blocks / n_on + 1e-9))
        return sum(self._window(number * n_on, n_on) for number in range(count)) / count

    def _window(self, start: int, n_on: int) -> float:
        """H of n_on blocks from one that has this many before it."""
        b, k, each = self._new, self.ranges, self.data.total / self._new / self.ranges
        cuts = [start, *(each * number for number in range(math.floor(start / each + 1e-9) + 1, k + 1)), start + n_on]
        parts = [min(stop, start + n_on) - first for first, stop in pairwise(cuts) if first < start + n_on - 1e-9]
        spread = sum(part * part for part in parts) - n_on * n_on / k
        between = self._round * b * b * spread * k / (k - 1) if k > 1 else 0.0
        return (between + sum(map(self._of_round, parts))) / (n_on * b)

    def _of_round(self, blocks: float) -> float:
        """The variance of the sum of this many blocks of one round around what the round's mean would give."""
        b, groups = self._new, self.groups
        each = int(blocks / groups + 1e-9)
        over = max(0.0, blocks - each * groups)
        between = self._group * b * b * over * (groups - over) / (groups - 1) if groups > 1 else 0.0
        return between + (groups - over) * self._drawn(each) + over * self._drawn(each + 1)
