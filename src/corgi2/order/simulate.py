"""Orders of training: where each example lands under every method that people use. Pure: indices in, indices out.

All are functions of a layout, a seed and an epoch: N blocks of b examples lie one after another, and n blocks, or as
many examples, fit in a buffer. The orders of Corgi² come from the code of the offline pass and of the loader.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from corgi2.order.drawing import Drawing
from corgi2.order.epochs import buffer_order, epoch_rest, window_of
from corgi2.order.groups import descent
from corgi2.order.permutations import Indices, draws, permutation
from corgi2.order.worlds import Rules

EXCHANGED = 0.1
"""The share of its examples that a worker gives away before an epoch, in exchange for as many."""

_ORDER, _SLOTS, _SENT, _MOVED = range(100, 104)
"""Purposes of draws, besides those that `permutations` lists."""


@dataclass(frozen=True, slots=True)
class Layout:
    """N blocks of b examples, and a buffer that holds n of them."""

    blocks: int
    examples: int
    buffer: int

    def __post_init__(self) -> None:
        if self.blocks < 1 or self.examples < 1 or not 1 <= self.buffer <= self.blocks:
            raise ValueError(f"a buffer must hold between one block and all of them (got {self})")

    @property
    def total(self) -> int:
        return self.blocks * self.examples

    @property
    def window(self) -> int:
        """Examples in a buffer."""
        return self.buffer * self.examples


Order = Callable[[Layout, int, int], Indices]


def random_access(layout: Layout, seed: int, epoch: int) -> Indices:
    """A new full shuffle for every epoch: one request per example."""
    return permutation(layout.total, (seed, _ORDER, epoch))


def shuffle_once(layout: Layout, seed: int, epoch: int) -> Indices:  # noqa: ARG001
    """One full shuffle, the same in every epoch: stored once, then read in order."""
    return permutation(layout.total, (seed, _ORDER))


def sequential(layout: Layout, seed: int, epoch: int) -> Indices:  # noqa: ARG001
    """The order in storage."""
    return np.arange(layout.total)


def sliding_window(layout: Layout, seed: int, epoch: int) -> Indices:
    """A shuffle buffer, as in TensorFlow: each example is a random one of those in the buffer, and the next one read
    takes its place."""
    total, size = layout.total, layout.window
    slots = draws(total, size, (seed, _SLOTS, epoch)).tolist()
    waiting, order = list(range(size)), []
    for read, slot in zip(range(size, total), slots, strict=False):
        order.append(waiting[slot])
        waiting[slot] = read
    left = permutation(size, (seed, _ORDER, epoch)).tolist()
    return np.array(order + [waiting[slot] for slot in left], np.int64)


def reservoir(layout: Layout, seed: int, epoch: int) -> Indices:
    """Multiplexed Reservoir Sampling: half of the buffer is a reservoir of what is read in this epoch, the other half
    is that of the epoch before. Examples that the reservoir drops go to training, interleaved with the other half,
    which is repeated in a cycle. In the first epoch the other half is empty."""
    dropped, _ = _reservoir(layout, seed, epoch)
    if epoch == 0:
        return dropped
    _, kept = _reservoir(layout, seed, epoch - 1)
    order = np.empty(2 * len(dropped), np.int64)
    order[::2], order[1::2] = dropped, np.resize(kept, len(dropped))
    return order


def _reservoir(layout: Layout, seed: int, epoch: int) -> tuple[Indices, Indices]:
    """What a reservoir drops while all examples are read, and what it keeps."""
    total, size = layout.total, max(1, layout.window // 2)
    words = draws(total, (1 << 32) - 1, (seed, _SLOTS, epoch))
    slots = (words * np.arange(1, total + 1) >> 32).tolist()  # a draw from those read so far
    kept, dropped = list(range(size)), []
    for read in range(size, total):
        slot = slots[read]
        if slot < size:
            dropped.append(kept[slot])
            kept[slot] = read
        else:
            dropped.append(read)
    return np.array(dropped, np.int64), np.array(kept, np.int64)


def block_only(layout: Layout, seed: int, epoch: int) -> Indices:
    """Blocks in random order, each in its stored order."""
    blocks = permutation(layout.blocks, (seed, _ORDER, epoch))
    return np.arange(layout.total).reshape(layout.blocks, -1)[blocks].ravel()


def partial_exchange(layout: Layout, seed: int, epoch: int, share: float = EXCHANGED) -> Indices:
    """As many workers as there are buffers, each with its share of the data in memory. Before every epoch each sends
    some of its examples, at random, and receives as many; then it shuffles what it has. All take steps together."""
    workers = -(-layout.blocks // layout.buffer)
    bounds = (np.arange(workers + 1) * layout.total // workers).tolist()
    held = np.arange(layout.total)
    for round_ in range(epoch + 1):
        sent = [_some(slice(*cut), share, (seed, _SENT, round_, worker)) for worker, cut in enumerate(pairwise(bounds))]
        places = np.concatenate(sent)
        held[places] = held[places[permutation(len(places), (seed, _MOVED, round_))]]
    step, worker = np.empty(layout.total, np.int64), np.empty(layout.total, np.int64)
    for number, (start, stop) in enumerate(pairwise(bounds)):
        step[start:stop] = permutation(stop - start, (seed, _ORDER, epoch, number))
        worker[start:stop] = number
    ordered: Indices = held[np.lexsort((worker, step))]
    return ordered


def _some(span: slice, share: float, key: Sequence[int]) -> Indices:
    """A random share of the places of a span, in order."""
    count = span.stop - span.start
    chosen: Indices = span.start + np.sort(permutation(count, key)[: round(share * count)])
    return chosen


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks as they lie in storage: the examples of each, and the groups that they come from."""

    blocks: list[Indices]
    lineage: Indices | None = None
    rounds: Indices | None = None


def as_stored(layout: Layout) -> Stored:
    return Stored(np.split(np.arange(layout.total), layout.blocks))


def offline(stored: Stored, n: int, seed: int, number: int = 1, with_replacement: bool = False) -> Stored:
    """What a pass of ``corgi2 shuffle --buffer-blocks n`` leaves, group by group; ``number`` counts the passes."""
    count, drawing = len(stored.blocks), Drawing(seed, number, with_replacement)
    groups = drawing.groups(np.ones(count, np.int64), count, n, stored.lineage)
    each = max(1, round(count / len(groups)))
    blocks = _mixed(stored.blocks, groups, drawing, each)
    return Stored(blocks, np.repeat(np.array(descent(groups, stored.lineage)), each, axis=0))


def offline_in_rounds(stored: Stored, n: int, ranges: int, seed: int) -> Stored:
    """What a pass leaves if it cuts every block into this many ranges, or as many as it has examples, and takes one of
    each in every round; its groups are as large as n blocks. There are no more rounds than groups."""
    count = len(stored.blocks)
    ranges = min(ranges, -(-count // n))
    cut = [np.array_split(block, min(ranges, len(block))) for block in stored.blocks]
    parts, block = [part for parts in cut for part in parts], np.repeat(np.arange(count), [len(one) for one in cut])
    sizes, drawing = np.array([len(part) for part in parts]), Drawing(seed, 1)
    groups, rounds = drawing.groups_in_rounds(sizes, block, int(sizes.sum()), n * ranges)
    each = max(1, round(count / len(groups)))
    blocks = _mixed(parts, groups, drawing, each)
    return Stored(blocks, np.repeat(np.arange(len(groups)), each)[:, None], np.repeat(rounds, each))


def _mixed(parts: Sequence[Indices], groups: Sequence[Indices], drawing: Drawing, each: int) -> list[Indices]:
    """The new blocks, this many of each group."""
    blocks = []
    for group, members in enumerate(groups):
        rows = np.concatenate([parts[member] for member in members.tolist()])
        rows = rows[drawing.rows(len(rows), group)]
        blocks += np.split(rows, np.arange(1, each) * len(rows) // each)
    return blocks


def published(stored: Stored) -> Stored:
    """The same in the order of the new shards, which are numbered across groups: first shards first, then second."""
    if stored.lineage is None:
        return stored
    group = stored.lineage[:, -1]
    place = np.arange(len(group)) - np.searchsorted(group, group)
    order = np.lexsort((group, place))
    rounds = None if stored.rounds is None else stored.rounds[order]
    return Stored([stored.blocks[block] for block in order.tolist()], stored.lineage[order], rounds)


def online(stored: Stored, n: int, seed: int, epoch: int, picks: str = "even") -> Indices:
    """The order in which a loader with buffers of n blocks yields examples."""
    rules = Rules(seed, picks=picks)
    lineage = stored.lineage if picks == "even" else None
    counts = np.array([len(block) for block in stored.blocks])
    order = epoch_rest(counts, stored.lineage, rules, epoch, stored.rounds).blocks.tolist()
    window = window_of(n, 1, lineage, len(counts), stored.rounds)
    parts = []
    for number, start in enumerate(range(0, len(order), window)):
        rows = np.concatenate([stored.blocks[block] for block in order[start : start + window]])
        parts.append(rows[buffer_order(len(rows), rules, epoch, 0, 0, number)])
    return np.concatenate(parts)


def corgipile(layout: Layout, seed: int, epoch: int) -> Indices:
    """Random blocks are read into a buffer, which is shuffled."""
    return online(as_stored(layout), layout.buffer, seed, epoch)


def corgi2(
    layout: Layout, seed: int, epoch: int, passes: int = 1, picks: str = "even", with_replacement: bool = False
) -> Indices:
    """The same from blocks that offline passes have mixed."""
    stored = as_stored(layout)
    for number in range(1, passes + 1):
        stored = offline(stored, layout.buffer, seed, number, with_replacement)
    return online(published(stored), layout.buffer, seed, epoch, picks)


def in_rounds(layout: Layout, seed: int, epoch: int, ranges: int = 4) -> Indices:
    """The same after one pass that takes ranges of blocks, in rounds."""
    stored = offline_in_rounds(as_stored(layout), layout.buffer, ranges, seed)
    return online(published(stored), layout.buffer, seed, epoch)


def _corgi2(**given: Any) -> Order:
    return lambda layout, seed, epoch: corgi2(layout, seed, epoch, **given)


def class_counts(labels: Indices, classes: int, window: int) -> Indices:
    """How many of each class lie in each window of an order of labels; a short last window is left out."""
    windows = len(labels) // window
    place = np.arange(windows * window) // window * classes + labels[: windows * window]
    return np.bincount(place, minlength=windows * classes).reshape(windows, classes)


def h_of_labels(labels: Indices, classes: int, window: int) -> float:
    """H of an order of labels: examples per window × the mean squared distance of its class shares / σ²."""
    shares = np.bincount(labels, minlength=classes) / len(labels)
    apart = class_counts(labels, classes, window) / window - shares
    return float(window * (apart**2).sum(axis=1).mean() / (1 - (shares**2).sum()))


def v_of_labels(labels: Indices, classes: int, length: int) -> float:
    """V of an order of labels: like H, but over stretches of this many examples that begin at every place."""
    apart = np.eye(classes)[labels] - np.bincount(labels, minlength=classes) / len(labels)
    ends = np.concatenate([np.zeros((1, classes)), np.cumsum(apart, axis=0)])
    sums = ends[length:] - ends[:-length]
    return float((sums**2).sum(axis=1).mean() / length / (apart**2).sum(axis=1).mean())


def r_of_labels(labels: Indices, classes: int, tau: float) -> float:
    """R(τ) of an order of labels: the variance that SGD with a memory of τ examples feels, over that of independent
    draws. Anything earlier is assumed to be independent."""
    apart = np.eye(classes)[labels] - np.bincount(labels, minlength=classes) / len(labels)
    size = 1 << (2 * len(labels) - 1).bit_length()
    powers = (np.abs(np.fft.rfft(apart, size, axis=0)) ** 2).sum(axis=1)
    lagged = np.fft.irfft(powers, size)[: len(labels)]  # by the distance of two examples
    weights = 2 * np.exp(-np.arange(len(labels)) / tau)
    weights[0] = 1
    return float(lagged @ weights / lagged[0])


ORDERS: dict[str, Order] = {
    "random access": random_access,
    "shuffle once": shuffle_once,
    "sequential": sequential,
    "sliding window": sliding_window,
    "reservoir (MRS)": reservoir,
    "block-only": block_only,
    "CorgiPile": corgipile,
    "partial exchange": partial_exchange,
    "Corgi², with replacement": _corgi2(picks="random", with_replacement=True),
    "Corgi², random picks": _corgi2(picks="random"),
    "Corgi², even picks": _corgi2(),
    "Corgi², ranges of 1/4 in rounds": in_rounds,
    "Corgi², 2 passes, random picks": _corgi2(passes=2, picks="random"),
    "Corgi², 2 passes, even picks": _corgi2(passes=2),
}
