"""A pass of ranges in rounds, as a shuffle would plan it, where the index or the footers tell where ranges begin."""

from dataclasses import dataclass, field

import numpy as np

from corgi2.dataset import Source, open_index
from corgi2.errors import SourceError
from corgi2.offline import Settings, dealt_in, foresee, look_ahead
from corgi2.order import Dealt
from corgi2.stores import RANGE_BYTES


@dataclass(frozen=True, slots=True)
class Ranged:
    """What it reads and writes, and what it leaves."""

    groups: int
    n: int
    shards: int
    blocks: int
    reads: int
    writes: int
    dealt: Dealt = field(repr=False, compare=False)

    @property
    def wholes(self) -> int:
        """The blocks that are cut into ranges."""
        return int(self.dealt.block[-1]) + 1

    def scaled(self, records: float) -> Dealt:
        """With this many records in all."""
        return self.dealt._replace(sizes=self.dealt.sizes * (records / float(self.dealt.sizes.sum())))


def is_unknown(source: Source) -> bool:
    """Whether all has to be read to find where ranges begin."""
    index = open_index(source)
    return source.format.traits.has_record_ranges and (index is None or index.block_bytes > RANGE_BYTES)


def find_ranged(source: Source, buffer: int) -> Ranged | None:
    """None if that is not known, or if such a pass would be refused."""
    largest = max(entry.size for entry in source.entries)
    if not source.format.traits.has_ranges or largest < 2 * RANGE_BYTES or is_unknown(source):
        return None
    try:
        plan, index, first = foresee(source, Settings(buffer_bytes=buffer, range_bytes=RANGE_BYTES))
    except SourceError:
        return None
    found = look_ahead(first, plan, source.store)
    dealt, _, _ = dealt_in(first, index, plan)
    counts = found.groups, found.n, found.shards, found.blocks, found.reads, found.writes
    return Ranged(*counts, dealt._replace(sizes=dealt.sizes.astype(np.float64)))
