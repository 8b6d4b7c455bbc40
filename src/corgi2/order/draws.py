"""Pure index arithmetic: permutations that last, and orders that keep equal keys apart. No I/O, numpy only."""

import heapq
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]

GROUPS, MIXTURES, SAMPLES, RESAMPLES = 0, 1, 4, 5
PICKS, BUFFERS = (1 << 32) + 2, (1 << 32) + 3
"""What is drawn: a part of every key, so that no two draws are alike. Offline, behind the number of the pass: blocks
for groups, the records of each. When measuring: blocks, and blocks of those again. Online: blocks for an epoch, the
records of each buffer; these are larger than any number of a pass."""

_STEP = 1 << 18
_ALIGNED = 1.25
"""Groups that are cut alike in every round may be so many times as many as those that are not."""


def permutation(count: int, key: Sequence[int]) -> Indices:
    """A uniform permutation of ``range(count)``, the same for the same key for ever.

    The key is a tuple such as (seed, pass, group). NumPy keeps its bit generators stable, not what ``Generator``
    makes of them, so random words are sorted that carry their index in their lowest bits: in place, 8 bytes an index.
    Of two indices, neither comes first more often than the other by more than one in 2^32 / count.
    """
    if count >= 1 << 32:
        raise ValueError(f"a permutation holds fewer than 2^32 indices (got {count})")
    words, low = _raw(count, key), np.uint64((1 << max(1, count - 1).bit_length()) - 1)
    words &= ~low
    for start in range(0, count, _STEP):
        words[start : start + _STEP] |= np.arange(start, min(count, start + _STEP), dtype=np.uint64)
    words.sort()
    words &= low
    return words.view(np.int64)


def _raw(count: int, key: Sequence[int]) -> npt.NDArray[np.uint64]:
    if not all(0 <= part < 1 << 64 for part in key):
        raise ValueError(f"seeds and counters lie between 0 and 2^64 (got {tuple(key)})")
    # SeedSequence takes 0, (0, 0) and 2^32, (0, 1) for the same: words of one width behind their number do not mix.
    words = [len(key), *(word for part in key for word in (part & 0xFFFFFFFF, part >> 32))]
    return np.random.Philox(np.random.SeedSequence(words)).random_raw(count)


def draws(count: int, bound: int, key: Sequence[int]) -> Indices:
    """Independent uniform draws from ``range(bound)``, the same for the same key for ever."""
    if not 0 < bound < 1 << 32:
        raise ValueError(f"draws are from 1 to 2^32 - 1 values (got {bound})")
    # The upper 32 bits, scaled: no value is likelier than another by more than one in 2^32 / bound.
    return ((_raw(count, key) >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32)).astype(np.int64)


def keep_apart(order: Indices, keys: npt.NDArray[np.uint64], cuts: Sequence[int] = ()) -> Indices:
    """The order with as few swaps as it takes until no two neighbours have equal keys. Deterministic.

    At a place in ``cuts`` a new shard begins, so that its record has no neighbour before it. Raises ValueError where
    one key has so many records that no order would do.
    """
    order, first = order.copy(), np.zeros(len(order) + 1, bool)
    first[[0, len(order), *cuts]] = True
    clashes = np.flatnonzero((keys[order[1:]] == keys[order[:-1]]) & ~first[1:-1]) + 1
    for place in clashes.tolist():
        if _clashes(order, keys, first, place) and not _swap_away(order, keys, first, place):
            return _interleave(order, keys, first)
    return order


def _swap_away(order: Indices, keys: npt.NDArray[np.uint64], first: npt.NDArray[np.bool_], place: int) -> bool:
    """Swap with the next record, around the end if need be, such that neither place has a clash."""
    for distance in range(1, len(order)):
        other = (place + distance) % len(order)
        order[[place, other]] = order[[other, place]]
        if not _clashes(order, keys, first, place) and not _clashes(order, keys, first, other):
            return True
        order[[place, other]] = order[[other, place]]
    return False


def _clashes(order: Indices, keys: npt.NDArray[np.uint64], first: npt.NDArray[np.bool_], place: int) -> bool:
    key = keys[order[place]]
    before = not first[place] and keys[order[place - 1]] == key
    return bool(before or (not first[place + 1] and keys[order[place + 1]] == key))


def _interleave(order: Indices, keys: npt.NDArray[np.uint64], first: npt.NDArray[np.bool_]) -> Indices:
    """From front to back, always a record of the key that has most left, and is not the one before."""
    _, group, counts = np.unique(keys[order], return_inverse=True, return_counts=True)
    waiting = [order[group == number].tolist()[::-1] for number in range(len(counts))]
    heap = [(-count, number) for number, count in enumerate(counts.tolist())]
    heapq.heapify(heap)
    result, held = [], None
    for place in range(len(order)):
        if first[place] and held is not None:
            heapq.heappush(heap, held)
            held = None
        if not heap:
            raise ValueError(
                f"{int(counts.max())} of {len(order)} records have the same key, so that some must be neighbours; "
                "give records keys of their own, or mix more shards at once"
            )
        left, number = heapq.heappop(heap)
        result.append(waiting[number].pop())
        if held is not None:
            heapq.heappush(heap, held)
        held = (left + 1, number) if left < -1 else None
    return np.array(result, np.int64)


def cut_groups(footprints: Indices, capacity: int, key: Sequence[int], most: int | None = None) -> list[Indices]:
    """All blocks in random order, cut into the fewest groups of nearly equal counts that fit the capacity, and hold
    no more than ``most`` blocks.

    A block that does not fit alone is an error. Depends on the arguments, on nothing else.
    """
    _check_blocks(footprints, capacity)
    order = permutation(len(footprints), key)
    return _cut(order, footprints, capacity, most, unit=1, period=len(order)) or np.split(order, len(order))


def draw_groups(footprints: Indices, capacity: int, key: Sequence[int], most: int | None = None) -> list[Indices]:
    """As many blocks in as many groups as `cut_groups` gives, but each block drawn from all of them (Algorithm 2 of
    the paper): some never, some often. Groups that would not fit with what was drawn for them are cut smaller."""
    _check_blocks(footprints, capacity)
    order = draws(len(footprints), len(footprints), key)
    return _cut(order, footprints, capacity, most, unit=1, period=len(order)) or np.split(order, len(order))


def cut_evenly(
    footprints: Indices, lineage: Indices, capacity: int, key: Sequence[int], most: int | None = None
) -> list[Indices]:
    """Groups that take their blocks evenly from those of the pass before, as many as fit the capacity ("butterfly").

    A group that is smaller than the number of groups before takes from as many of them, all distinct; a larger one
    takes equally many from each. So do the sets of groups of earlier passes, by the columns of ``lineage``.
    """
    _check_blocks(footprints, capacity)
    order = even_order(lineage, key)
    prefixes = [len(np.unique(lineage[:, : level + 1], axis=0)) for level in range(lineage.shape[1])]
    periods = sorted({1, *prefixes, len(order)}, reverse=True)
    for period, unit in pairwise(periods):
        groups = _cut(order, footprints, capacity, most, unit, period)
        if groups and unit > 1:
            return groups
        # Runs that do not begin where a round does have distinct groups, too, but fewer of them have the same ones.
        loose = _cut(order, footprints, capacity, min(most or period, period), 1, len(order)) if unit == 1 else None
        if groups and loose:
            return groups if len(groups) <= _ALIGNED * len(loose) else loose
    return np.split(order, len(order))


def even_order(lineage: Indices, key: Sequence[int]) -> Indices:
    """All blocks, such that each run of them is spread as evenly as can be over the groups that they come from.

    ``lineage`` has a row a block, the coarsest level first. Blocks are permuted within their group, groups within
    their set, and so on; then comes the first block of every group, the second of every group, …, with one order of
    the groups for all rounds, which alternates between the sets.
    """
    ranks, members = [], np.arange(len(lineage))
    for level in range(lineage.shape[1], -1, -1):
        # members: a row of each subtree of this level; they are ranked at random among those with one parent
        _, parent = np.unique(lineage[members, :level], axis=0, return_inverse=True)
        rank = _ranks(parent.ravel(), (*key, level))
        _, own = np.unique(lineage[:, : level + 1], axis=0, return_inverse=True)
        ranks.append(rank[own.ravel()] if level < lineage.shape[1] else rank)
        _, members = np.unique(lineage[:, :level], axis=0, return_index=True)
    return np.lexsort(ranks[::-1])


def descent(groups: Sequence[Indices], lineage: Indices | None) -> list[list[int]]:
    """What each group hands down to its blocks. A number for every pass: equal where groups take from the same groups
    of that pass; the group's own is last."""
    if lineage is None:
        return [[number] for number in range(len(groups))]
    seen: list[dict[bytes, int]] = [{} for _ in range(lineage.shape[1])]
    found = []
    for number, group in enumerate(groups):
        sets = [np.unique(lineage[group, level]).tobytes() for level in range(lineage.shape[1])]
        found.append([ids.setdefault(members, len(ids)) for ids, members in zip(seen, sets, strict=True)] + [number])
    return found


def _ranks(parents: Indices, key: Sequence[int]) -> Indices:
    """The place of each among those with the same parent, in random order."""
    order = permutation(len(parents), key)
    order = order[np.argsort(parents[order], kind="stable")]
    _, starts, counts = np.unique(parents[order], return_index=True, return_counts=True)
    ranks = np.empty(len(parents), np.int64)
    ranks[order] = np.arange(len(parents)) - np.repeat(starts, counts)
    return ranks


def _check_blocks(footprints: Indices, capacity: int) -> None:
    largest = int(footprints.max(initial=0))
    if largest > capacity:
        raise ValueError(f"a block takes {largest} bytes in memory, more than the buffer of {capacity}")


def _cut(
    order: Indices, footprints: Indices, capacity: int, most: int | None, unit: int, period: int
) -> list[Indices] | None:
    """The order in the fewest pieces that fit, each period cut alike at multiples of a unit; None where even single
    units do not fit."""
    ends = np.concatenate([[0], np.cumsum(footprints[order])])
    units = -(-period // unit)
    most = len(order) if most is None else most
    count = max(1, -(-int(ends[-1]) // max(1, capacity)) // -(-len(order) // period), -(-period // most))
    while count <= units:
        within = np.arange(count) * units // count * unit
        bounds = (np.arange(0, len(order), period)[:, None] + within).ravel()
        bounds = np.append(bounds[bounds < len(order)], len(order))
        if (np.diff(ends[bounds]) <= capacity).all() and np.diff(bounds).max() <= most:
            return np.split(order, bounds[1:-1])
        count += max(1, count // 64)
    return None
