"""Pure index arithmetic: permutations that last, and orders that keep equal keys apart. No I/O, numpy only."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def permutation(count: int, key: Sequence[int]) -> Indices:
    """A uniform permutation of ``range(count)``, the same for the same key for ever.

    The key is a tuple such as (seed, pass, group). NumPy keeps its bit generators stable, not what ``Generator``
    makes of them, so the order is an argsort of raw bits; ties, one in 2^64 pairs, fall by index.
    """
    if not all(0 <= part < 1 << 64 for part in key):
        raise ValueError(f"seeds and counters lie between 0 and 2^64 (got {tuple(key)})")
    # SeedSequence takes 0, (0, 0) and 2^32, (0, 1) for the same: words of one width behind their number do not mix.
    words = [len(key), *(word for part in key for word in (part & 0xFFFFFFFF, part >> 32))]
    raw = np.random.Philox(np.random.SeedSequence(words)).random_raw(count)
    return np.argsort(raw, kind="stable").astype(np.int64, copy=False)


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
    """Records by key, the commonest first, laid on every second place of the shards, then on those between."""
    _, group, counts = np.unique(keys[order], return_inverse=True, return_counts=True)
    starts = np.flatnonzero(first[:-1])
    within = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    places = np.argsort(within % 2, kind="stable")
    result = np.empty_like(order)
    result[places] = order[np.lexsort((np.arange(len(order)), group, -counts[group]))]
    if ((keys[result[1:]] == keys[result[:-1]]) & ~first[1:-1]).any():
        raise ValueError(
            f"{int(counts.max())} of {len(order)} records have the same key, so that some must be neighbours; "
            "give records keys of their own, or mix more shards at once"
        )
    return result


def cut_groups(footprints: Indices, capacity: int, key: Sequence[int]) -> list[Indices]:
    """All blocks in random order, cut into the fewest groups of nearly equal counts that fit the capacity.

    A block that does not fit alone is an error. Depends on the footprints, the capacity and the key, on nothing else.
    """
    largest = int(footprints.max(initial=0))
    if largest > capacity:
        raise ValueError(f"a block takes {largest} bytes in memory, more than the buffer of {capacity}")
    order = permutation(len(footprints), key)
    ends = np.concatenate([[0], np.cumsum(footprints[order])])
    count = max(1, -(-int(ends[-1]) // max(1, capacity)))
    while True:
        bounds = np.arange(count + 1) * len(order) // count
        if (np.diff(ends[bounds]) <= capacity).all():
            return np.split(order, bounds[1:-1])
        count += max(1, count // 64)
