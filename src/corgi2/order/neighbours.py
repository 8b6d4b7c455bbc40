"""Orders in which records with equal keys are never neighbours. Pure."""

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from corgi2.order.permutations import Indices


def keep_apart(order: Indices, keys: npt.NDArray[np.uint64], cuts: Sequence[int] = ()) -> Indices:
    """The order after as few swaps as it takes for no two neighbours to have equal keys. Deterministic.

    At each place in ``cuts`` a new shard begins, so its record has no neighbour before it. Raises ValueError if one
    key has so many records that no order would do.
    """
    order, first = order.copy(), np.zeros(len(order) + 1, bool)
    first[[0, len(order), *cuts]] = True
    clashes = np.flatnonzero((keys[order[1:]] == keys[order[:-1]]) & ~first[1:-1]) + 1
    for place in clashes.tolist():
        if _clashes(order, keys, first, place) and not _swap_away(order, keys, first, place):
            return _interleave(order, keys, first)
    return order


def _swap_away(order: Indices, keys: npt.NDArray[np.uint64], first: npt.NDArray[np.bool_], place: int) -> bool:
    """Swap with the next record, wrapping around at the end, that leaves no clash at either place."""
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
    """From front to back, always take a record of the key that has the most left, except the key just taken."""
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
                f"{int(counts.max())} of {len(order)} records have the same key, so some of them must be neighbours; "
                "give the records distinct keys, or mix more shards at once"
            )
        left, number = heapq.heappop(heap)
        result.append(waiting[number].pop())
        if held is not None:
            heapq.heappush(heap, held)
        held = (left + 1, number) if left < -1 else None
    return np.array(result, np.int64)
