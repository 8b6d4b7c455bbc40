"""Which ranges of which blocks the groups of a pass in rounds hold: what its quality follows from. Pure."""

import numpy as np

from corgi2.dataset import Index, joined
from corgi2.offline.passes import Pass, ranges_in
from corgi2.offline.plan import Plan
from corgi2.offline.ranges import Ranges
from corgi2.order import Dealt, Indices


def dealt_in(first: Pass, index: Index, plan: Plan) -> tuple[Dealt, Index, Index]:
    """The ranges of a plan that was made for this index, and how they were dealt; the blocks that they are cut from,
    and the ranges themselves, to be read."""
    ranges, every = ranges_in(index, plan, first.source), np.arange(index.blocks.num_rows)
    cut = joined(index, every, ranges.first)
    counts = cut.column("records" if index.is_counted else "length").astype(np.float64)
    dealt = Dealt(counts, ranges.whole, _groups(first, cut), np.array(first.rounds, np.int64))
    return dealt, joined(index, every, _wholes(ranges)), cut


def _wholes(ranges: Ranges) -> Indices:
    """The first block of the index in each coarse block."""
    return ranges.first[np.flatnonzero(np.diff(ranges.whole, prepend=-1))]


def _groups(first: Pass, cut: Index) -> Indices:
    """The group of each range. A pass may read neighbours in one piece."""
    read = first.index
    owner = np.empty(read.blocks.num_rows, np.int64)
    owner[np.concatenate(first.groups)] = np.repeat(np.arange(len(first.groups)), list(map(len, first.groups)))
    longest = int((cut.column("start") + cut.column("length")).max()) + 1
    places, wanted = (each.column("shard").astype(np.int64) * longest + each.column("start") for each in (read, cut))
    order = np.argsort(places)
    found: Indices = owner[order[np.searchsorted(places[order], wanted, "right") - 1]]
    return found
