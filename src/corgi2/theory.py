"""What a shuffle buys, in closed form: pure functions, checked against enumeration and simulation.

Notation as in the paper: N blocks of b examples, m = N·b; n_off blocks in the offline buffer, n_on blocks in all online
buffers at one time (the window); h the block-wise variance parameter (the mean over blocks of
‖mean of block − mean of all‖² is h·σ²/b: b if every block is of one kind, about 1 if everything is shuffled, 0 if
every block is balanced); H = n_on·b·Var(mean of a window)/σ², the coefficient of Theorem 2's leading term.
"""

import math
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Blocks:
    """A data set as the theory sees it."""

    count: int
    """N, the number of blocks."""
    examples: float
    """b, the examples in each block; the mean, if they differ."""
    h: float
    """h_D, between 0 and b."""
    ragged: float = 0.0
    """The variance of the blocks' sizes over the square of their mean."""

    def __post_init__(self) -> None:
        if not (self.count >= 1 and self.examples >= 1 and self.ragged >= 0):
            raise ValueError(f"a data set has at least one block of one example (got {self.count} of {self.examples})")
        if not 0 <= self.h <= self.examples:
            raise ValueError(f"h_D lies between 0 and the {self.examples:g} examples of a block (got {self.h:g})")

    @property
    def total(self) -> float:
        """m, the number of all examples."""
        return self.count * self.examples

    def check(self, n: float, name: str = "n") -> None:
        if not 1 <= n <= self.count:
            raise ValueError(f"{name} lies between 1 and the {self.count} blocks there are (got {n})")


def between_groups(data: Blocks, n: float) -> float:
    """A: what is left of h between groups of n random blocks. Approximate if sizes differ: large blocks weigh more."""
    data.check(n)
    share = (1 + data.ragged) / (n + data.ragged)
    return data.h * share * (data.count - n) / (data.count - 1) if data.count > 1 else 0.0


def within_groups(data: Blocks, n: float, written: float | None = None) -> float:
    """W: what a shuffle within groups adds. Blocks of ``written`` examples are cut from them; of b, if None."""
    size, new = n * data.examples, _written(data, n, written)
    if size <= 1:
        return 0.0
    return (size - new) / (size - 1) * (1 - between_groups(data, n) / data.examples)


def _written(data: Blocks, n: float, written: float | None) -> float:
    if written is None:
        return data.examples
    if not 1 <= written <= n * data.examples:
        most = n * data.examples
        raise ValueError(f"new blocks have between 1 example and the {most:g} of a group (got {written:g})")
    return written


def h_after_pass(data: Blocks, n: int, written: float | None = None) -> float:
    """h' after an offline pass without replacement: exact."""
    scale = _written(data, n, written) / data.examples
    return between_groups(data, n) * scale + within_groups(data, n, written)


def h_of_parts(data: Blocks, parts: int) -> float:
    """h of blocks that are cut into equal parts, if each block lies in random order within itself."""
    b = data.examples
    if not 1 <= parts <= b:
        raise ValueError(f"a block of {b:g} examples has between 1 and {b:g} parts (got {parts})")
    return data.h / parts + ((1 - data.h / b) * (b - b / parts) / (b - 1) if b > 1 else 0.0)


def h_with_replacement(data: Blocks, n: int) -> float:
    """h' after the paper's Algorithm 2 as printed (Theorem 1): exact."""
    data.check(n)
    return 1 + (1 / n - 1 / (n * data.examples)) * data.h


def h_dealt(data: Blocks, n: int) -> float:
    """h' if each new block took equally many examples of each block of its group."""
    b = data.examples
    if b <= 1:
        return between_groups(data, n)
    return between_groups(data, n) + (1 - data.h / b) * (b - b / n) / (b - 1)


def h_after_passes(data: Blocks, n: int, passes: int) -> float:
    """h' after several passes whose groups are drawn anew each time; the map is affine, so this is exact."""
    if passes < 1:
        raise ValueError(f"there is at least one pass (got {passes})")
    for _ in range(passes):
        data = Blocks(data.count, data.examples, min(data.examples, h_after_pass(data, n)))
    return data.h


def h_butterfly(data: Blocks, n: int, written: float | None = None, between: float | None = None) -> float:
    """h' after two passes, the second of which groups blocks of distinct groups of the first; if there are fewer than
    n groups, equally many blocks of each. The blocks between the passes have ``between`` examples; b, if None."""
    data.check(n)
    groups, middle = math.ceil(data.count / n), _written(data, n, between)
    fitting = max(1, int(n * data.examples / middle + 1e-9))
    again = min(fitting // groups * groups or fitting, int(data.total / middle + 1e-9))
    spread = window_even(data, data.count / groups, again, middle)
    size, new = again * middle, _written(data, again * middle / data.examples, written)
    within = (size - new) / (size - 1) * (1 - spread / size) if size > 1 else 0.0
    return spread * new / size + within


def window_random(data: Blocks, n_on: int) -> float:
    """H of n_on blocks drawn at random, without replacement, from blocks of parameter h."""
    data.check(n_on, "the online window")
    return data.h * (data.count - n_on) / (data.count - 1) if data.count > 1 else 0.0


def window_after_pass(data: Blocks, n_off: int, n_on: int) -> float:
    """H of n_on blocks drawn at random after an offline pass; ``data`` is the data before it."""
    return window_random(Blocks(data.count, data.examples, min(data.examples, h_after_pass(data, n_off))), n_on)


def window_even(data: Blocks, n_off: float, n_on: int, written: float | None = None) -> float:
    """H of a window spread evenly over the groups of one offline pass of n_off blocks each; ``data`` is the data before
    it, and the n_on blocks of the window have ``written`` examples each."""
    data.check(n_off)
    scale = _written(data, n_off, written) / data.examples
    if not 1 <= n_on <= data.count / scale + 1e-9:
        raise ValueError(
            f"the online window lies between 1 and the {data.count / scale:g} blocks there are (got {n_on})"
        )
    groups, each = data.count / n_off, n_off / scale
    a, w = between_groups(data, n_off) * scale, within_groups(data, n_off, written)
    return _evenly(a, w, groups, each, n_on)


def _evenly(between: float, within: float, groups: float, each: float, n_on: int) -> float:
    """H of n_on blocks spread over groups of ``each``, given what is left between groups and within them."""
    k = int(n_on / groups + 1e-9)
    over = n_on - k * groups
    if k == 0:
        return between * (groups - n_on) / (groups - 1) + within
    left = within * (each - k) / (each - 1) if each > 1 else 0.0
    return between * over * (groups - over) / (n_on * (groups - 1)) + left if groups > 1 else left


def window_butterfly(
    data: Blocks, n_off: float, n_on: int, written: float | None = None, between: float | None = None
) -> float:
    """The approximate H of a window spread evenly over the lineage of two butterfly passes. These mix n² blocks as well
    as one pass with a buffer of n² would, and this is its H; more blocks, if those between the passes are smaller."""
    data.check(n_off)
    again = n_off * data.examples / _written(data, n_off, between)
    return window_even(data, min(data.count, n_off * again), n_on, written)


def window_even_later(blocks: Blocks, groups: int, n_on: int) -> float:
    """The approximate H of blocks that were already mixed in this many groups: all of their h except 1 is assumed to
    lie between the groups."""
    return _evenly(max(0.0, blocks.h - 1), min(1.0, blocks.h), groups, blocks.count / groups, n_on)


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
    """Of the block that has most."""
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
        return _written(self.data, self.n, self.written)

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


def h_full(data: Blocks) -> float:
    """h of blocks of a full shuffle."""
    return (data.total - data.examples) / (data.total - 1) if data.total > 1 else 0.0


def window_full(data: Blocks, n_on: int) -> float:
    """H of a window of a full shuffle."""
    data.check(n_on, "the online window")
    return (data.total - n_on * data.examples) / (data.total - 1) if data.total > 1 else 0.0


class Memory:
    """SGD that remembers τ examples: one k places back has the weight aᵏ, a = e^(−1/τ). The methods are means of aᵏ."""

    __slots__ = ("_rate",)

    def __init__(self, tau: float) -> None:
        if not tau > 0:
            raise ValueError(f"the memory τ must be above 0 examples (got {tau:g})")
        self._rate = 1 / tau

    def over(self, size: float) -> float:
        """What is left after this many examples."""
        return math.exp(-self._rate * size)

    def entering(self, size: float) -> float:
        """Over this many places, the first of which is one step after what came before."""
        return -math.expm1(-self._rate * size) / math.expm1(min(700.0, self._rate)) / size

    def leaving(self, size: float) -> float:
        """Over this many places, the last of which has not aged yet."""
        return math.expm1(-self._rate * size) / math.expm1(-self._rate) / size

    def within(self, size: float) -> float:
        """Over pairs of different places among this many."""
        if size <= 1:
            return 1.0
        gone = -math.expm1(-self._rate)
        return 2 * (1 - gone) / gone * (size + math.expm1(-self._rate * size) / gone) / (size * (size - 1))


def long_run(spread: float, window: float, total: float, tau: float) -> float:
    """R(τ), the variance that SGD with a memory of τ examples feels, over that of independent draws: for windows of
    ``window`` examples, out of ``total`` in an epoch, that are drawn at random and whose H is ``spread``. In an epoch
    every example comes once, so windows make up for each other."""
    if not 1 <= window <= total:
        raise ValueError(f"a window has between one example and the {total:g} there are (got {window:g})")
    memory = Memory(tau)
    same = memory.within(window) * (spread - 1)
    if total <= window:
        return 1 + same
    rest = (total - 1) * memory.within(total) - (window - 1) * memory.within(window)
    return 1 + same - spread / (total - window) * rest


def largest_block(offline_bytes: float, online_bytes: float, data_bytes: float) -> float:
    """Bytes of the largest blocks for which an offline pass and even picks reach the full shuffle: n_off·n_on ≥ N."""
    if min(offline_bytes, online_bytes, data_bytes) <= 0:
        raise ValueError("buffers and data must have at least one byte")
    return min(offline_bytes, data_bytes) * min(online_bytes, data_bytes) / data_bytes


def improves(data: Blocks, n: int) -> bool:
    """Whether the paper's pass with replacement lowers h: h_D > nb/((n−1)·b + 1)."""
    data.check(n)
    return data.h > n * data.examples / ((n - 1) * data.examples + 1)


def surviving(passes: int = 1) -> float:
    """The share of distinct examples that drawing blocks, and then examples, with replacement leaves."""
    if passes < 1:
        raise ValueError(f"there is at least one pass (got {passes})")
    lost = 0.0
    for _ in range(passes):
        lost = math.exp(math.exp(lost - 1) - 1)
    return 1 - lost


@dataclass(frozen=True, slots=True)
class Bound:
    """Theorem 2: three terms. The paper leaves out its constants, so only ratios of leading terms should be shown."""

    leading: float
    second: float
    third: float


def theorem2(data: Blocks, n: int, seen: float, sigma2: float = 1.0) -> Bound:
    """The bound after ``seen`` examples, with buffers of n blocks of parameter h."""
    data.check(n)
    if seen <= 0:
        raise ValueError(f"a bound after {seen:g} examples says nothing")
    alpha = (n - 1) / (data.count - 1) if data.count > 1 else 1.0
    beta = alpha**2 + (1 - alpha) ** 2 * (data.examples - 1) ** 2
    gamma = (n / data.count) ** 3
    return Bound((1 - alpha) * data.h * sigma2 / seen, beta / seen**2, gamma * data.total**3 / seen**3)


def step_size(step: int, data: Blocks, n: int, mu: float, delay: float) -> float:
    """Theorem 2's η_t = 6/(b·n·μ·(t + a))."""
    data.check(n)
    if mu <= 0 or delay <= 0 or step < 0:
        raise ValueError("μ and a must be above 0, and t at least 0")
    return 6 / (data.examples * n * mu * (step + delay))


def least_delay(lipschitz: float, gradient: float, hessian: float, mu: float) -> float:
    """The least a of Theorem 2, from L, G, L_H and μ."""
    if mu <= 0:
        raise ValueError("μ must be above 0")
    curved = 8 * lipschitz * gradient + 24 * lipschitz**2 + 28 * hessian * gradient
    return max(curved / mu**2, 24 * lipschitz / mu)


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests to a store, before training and in all of its epochs."""

    offline: int
    online: int

    @property
    def total(self) -> int:
        return self.offline + self.online


def requests_random_access(examples: int, epochs: int) -> Requests:
    return Requests(0, examples * epochs)


def requests_shuffle_once(examples: int, blocks: int, epochs: int) -> Requests:
    """Every example is fetched, and all blocks are written, then read in order."""
    return Requests(examples + blocks, blocks * epochs)


def requests_corgipile(blocks: int, epochs: int) -> Requests:
    """Reading the shards in order takes just as many."""
    return Requests(0, blocks * epochs)


def requests_corgi2(
    blocks_in: int, blocks_out: int, epochs: int, passes: int = 1, between: int | None = None
) -> Requests:
    """A pass reads and writes every block once. ``between`` blocks lie between two passes."""
    if passes < 1:
        raise ValueError(f"there is at least one pass (got {passes})")
    middle = blocks_out if between is None else between
    return Requests(blocks_in + 2 * middle * (passes - 1) + blocks_out, blocks_out * epochs)


def requests_rounds(blocks: int, ranges: int, blocks_out: int, epochs: int) -> Requests:
    """Ranges in rounds: every range is read, every new block is written, once."""
    return Requests(blocks * ranges + blocks_out, blocks_out * epochs)


def parts(size: int, part_bytes: int) -> int:
    """Requests for one object that is moved in parts."""
    if part_bytes < 1:
        raise ValueError(f"a part must have at least one byte (got {part_bytes})")
    return max(1, -(-size // part_bytes))
