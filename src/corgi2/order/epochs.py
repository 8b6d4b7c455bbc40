"""An epoch before it is dealt: all blocks in one order, and what is left of it once some have been read.

A window is what lies in the buffers of all readers at one time, so a step of SGD, which averages over all of them,
sees blocks that follow each other in that one order.
"""

from dataclasses import dataclass

import numpy as np

from corgi2.order.groups import even_order
from corgi2.order.nodes import Origin
from corgi2.order.permutations import BUFFERS, PICKS, Indices, permutation
from corgi2.order.rounds import round_order
from corgi2.order.worlds import Rules


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of an epoch: blocks in order, the number of records left in each, and, of begun blocks, which."""

    blocks: Indices
    counts: Indices
    rows: dict[int, Indices]
    """By block. A block that is missing here has all of its records left, in order."""
    origin: Origin

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def rows_of(self, block: int, first: int, last: int) -> Indices:
        """The records ``first`` to ``last``, exclusive, among those left of a block."""
        rows = self.rows.get(block)
        return np.arange(first, last) if rows is None else rows[first:last]


def epoch_rest(
    records: Indices, lineage: Indices | None, rules: Rules, epoch: int, rounds: Indices | None = None
) -> Rest:
    """A whole epoch. ``records`` per block; ``lineage`` as `even_order` takes it, if known; ``rounds`` if blocks were
    made in rounds."""
    key = (rules.seed, PICKS, epoch)
    if not rules.shuffle:
        order = np.arange(len(records))
    elif rules.picks == "even" and lineage is not None:
        order = even_order(lineage, key) if rounds is None else round_order(lineage, rounds, key)
    else:
        order = permutation(len(records), key)
    is_even = rules.shuffle and rules.picks == "even" and lineage is not None
    group = np.unique(lineage, axis=0, return_inverse=True)[1].ravel() if is_even and lineage is not None else None
    return Rest(order, records[order], {}, Origin(records, group, rounds if is_even else None))


def window_of(most: int, readers: int, lineage: Indices | None, blocks: int, rounds: Indices | None = None) -> int:
    """Blocks in all buffers, each of which holds at most ``most``: if possible, a multiple of the number of groups
    (of a round, if there are rounds), because then all of them are in it equally."""
    room = min(most * readers, blocks)
    if lineage is None or room == blocks:
        return room
    if rounds is not None:
        lineage = lineage[rounds == rounds[0]]
    groups = [len(np.unique(lineage[:, :level], axis=0)) for level in range(lineage.shape[1], 0, -1)]
    fitting = next((count for count in groups if count <= room), 1)
    return room // fitting * fitting


def buffer_order(count: int, rules: Rules, epoch: int, change: int, reader: int, buffer: int) -> Indices:
    """The order of the records of a buffer, as they lie in its pieces. ``change`` counts the earlier worlds."""
    return (
        permutation(count, (rules.seed, BUFFERS, epoch, change, reader, buffer)) if rules.shuffle else np.arange(count)
    )
