"""Which blocks are mixed together: all of them in random order, cut into groups that fit, or spread over the groups of
the pass before. Pure."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from corgi2.order.permutations import Indices, draws, permutation
from corgi2.sizes import format_size

_ALIGNED = 1.25
"""Groups that are cut alike in every round are preferred, even if there are up to this many times as many of them."""


def make_groups(
    footprints: Indices,
    capacity: int,
    key: Sequence[int],
    most: int | None = None,
    lineage: Indices | None = None,
    with_replacement: bool = False,
) -> list[Indices]:
    """The groups of a pass, as `corgi2 shuffle` makes them: drawn, if that is asked for; else cut from all blocks in
    random order or, if their ``lineage`` is known, spread over the groups of the pass before."""
    if with_replacement:
        return draw_groups(footprints, capacity, key, most)
    if lineage is None:
        return cut_groups(footprints, capacity, key, most)
    return cut_evenly(footprints, lineage, capacity, key, most)


def cut_groups(footprints: Indices, capacity: int, key: Sequence[int], most: int | None = None) -> list[Indices]:
    """All blocks in random order, cut into the fewest groups of nearly equal counts that fit the capacity, and hold
    no more than ``most`` blocks.

    A block that does not fit alone is an error. Depends on nothing but its arguments.
    """
    check_blocks(footprints, capacity)
    order = permutation(len(footprints), key)
    return _cut(order, footprints, capacity, most, unit=1, period=len(order)) or np.split(order, len(order))


def draw_groups(footprints: Indices, capacity: int, key: Sequence[int], most: int | None = None) -> list[Indices]:
    """As many blocks in as many groups as `cut_groups` gives, but each block drawn from all of them (Algorithm 2 of
    the paper): some never, some often. Groups that would not fit with what was drawn for them are cut smaller."""
    check_blocks(footprints, capacity)
    order = draws(len(footprints), len(footprints), key)
    return _cut(order, footprints, capacity, most, unit=1, period=len(order)) or np.split(order, len(order))


def cut_evenly(
    footprints: Indices, lineage: Indices, capacity: int, key: Sequence[int], most: int | None = None
) -> list[Indices]:
    """Groups that take their blocks evenly from those of the pass before, as many as fit the capacity ("butterfly").

    A group that is smaller than the number of groups before takes from as many of them, all distinct; a larger one
    takes equally many from each. So do the sets of groups of earlier passes, by the columns of ``lineage``.
    """
    check_blocks(footprints, capacity)
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
    """All blocks, such that each run of them is spread as evenly as possible over the groups that they come from.

    ``lineage`` has one row per block, the coarsest level first. Blocks are permuted within their group, groups within
    their set, and so on; then comes the first block of every group, the second of every group, …, with one order of
    the groups for all rounds, which alternates between the sets.
    """
    ranks, members = [], np.arange(len(lineage))
    for level in range(lineage.shape[1], -1, -1):
        # members: a row of each subtree of this level; they are ranked at random among those with one parent
        _, parent = np.unique(lineage[members, :level], axis=0, return_inverse=True)
        rank = random_ranks(parent.ravel(), (*key, level))
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


def random_ranks(parents: Indices, key: Sequence[int]) -> Indices:
    """The place of each among those with the same parent, in random order."""
    order = permutation(len(parents), key)
    order = order[np.argsort(parents[order], kind="stable")]
    _, starts, counts = np.unique(parents[order], return_index=True, return_counts=True)
    ranks = np.empty(len(parents), np.int64)
    ranks[order] = np.arange(len(parents)) - np.repeat(starts, counts)
    return ranks


def check_blocks(footprints: Indices, capacity: int) -> None:
    largest = int(footprints.max(initial=0))
    if largest > capacity:
        raise ValueError(
            f"a block takes {format_size(largest)} in memory, more than the buffer of {format_size(capacity)}"
        )


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
