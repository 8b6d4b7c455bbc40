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


def keep_apart(order: Indices, keys: npt.NDArray[np.uint64]) -> Indices:
    """The order with as few swaps as it takes until no two neighbours have equal keys. Deterministic.

    Raises ValueError where one key has more than half of the records, so that no order would do.
    """
    order = order.copy()
    clashes = np.flatnonzero(keys[order[1:]] == keys[order[:-1]]) + 1
    for position in clashes.tolist():
        if keys[order[position]] == keys[order[position - 1]] and not _swap_away(order, keys, position):
            return _interleave(order, keys)
    return order


def _swap_away(order: Indices, keys: npt.NDArray[np.uint64], position: int) -> bool:
    """Swap with the nearest record behind, then before, such that neither place has a clash."""
    count, key = len(order), keys[order[position]]
    for distance in range(1, count):
        other = (position + distance) % count
        if keys[order[other]] == key:
            continue
        order[[position, other]] = order[[other, position]]
        if not _clashes(order, keys, position) and not _clashes(order, keys, other):
            return True
        order[[position, other]] = order[[other, position]]
    return False


def _clashes(order: Indices, keys: npt.NDArray[np.uint64], position: int) -> bool:
    key = keys[order[position]]
    return any(0 <= other < len(order) and keys[order[other]] == key for other in (position - 1, position + 1))


def _interleave(order: Indices, keys: npt.NDArray[np.uint64]) -> Indices:
    """The order that exists if any does: records by key, the commonest first, laid on every second place."""
    _, group, counts = np.unique(keys[order], return_inverse=True, return_counts=True)
    if 2 * int(counts.max()) > len(order) + 1:
        raise ValueError(
            f"{int(counts.max())} of {len(order)} records have the same key, so that some must be neighbours; "
            "give records keys of their own, or mix more shards at once"
        )
    by_count = order[np.lexsort((np.arange(len(order)), group, -counts[group]))]
    places = np.concatenate([np.arange(0, len(order), 2), np.arange(1, len(order), 2)])
    result = np.empty_like(order)
    result[places] = by_count
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
