"""What a shuffle will take, estimated from a small sample: the memory of a block, the size of the mixed output.

The sample is fixed, spread evenly over the blocks: the same for the same source, so plans do not depend on luck.
Memory: one block.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from corgi2.dataset.index_tables import Index, with_column
from corgi2.dataset.source import Source
from corgi2.errors import ShardError
from corgi2.host import release_unused
from corgi2.order import Indices, permutation
from corgi2.records import Group, Piece, end, gather, number_array, taker

SAMPLE_BLOCKS = 16
_SOME_BYTES = 32_000_000
"""Bytes of all samples together that are mixed and written to see how well they compress."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The index with footprints to plan with, and the output's size over the input's."""

    index: Index
    growth: float


def forecast(
    source: Source,
    index: Index,
    profile: str | None,
    buffer_bytes: int,
    skip_bad: bool = False,
    most: int = SAMPLE_BLOCKS,
) -> Forecast:
    """Correct estimated footprints, and predict the growth if the format compresses: mixing, of up to ``most`` blocks,
    destroys what order saved. Without a profile to write with, no growth is assumed. Blocks that are already known to
    be too large for the buffer are left as they are."""
    unsure = ~index.column("exact")
    if not unsure.any() and (profile is None or not source.format.traits.packs_by_order):
        return Forecast(index, 1.0)
    among = np.flatnonzero(unsure) if unsure.any() else np.arange(len(unsure))
    if source.format.traits.is_tasted_whole:
        among = among[index.column("footprint")[among] <= max(buffer_bytes, _SOME_BYTES)]
    picks = among[spread(len(among), SAMPLE_BLOCKS)]
    footprints = index.column("footprint").copy()
    grows = profile is not None and source.format.traits.packs_by_order
    chosen = set(picks[spread(len(picks), most)].tolist()) if grows else set()
    sample = _Sample(source, len(chosen))
    for number, piece in zip(picks.tolist(), index.pieces(source, picks.tolist()), strict=True):
        try:
            sample.add(piece, int(footprints[number]), is_mixed=number in chosen)
        except ShardError:
            if not skip_bad:
                raise
        release_unused()  # otherwise the allocator keeps the memory of every block
    if not sample.records:
        return Forecast(index, 1.0)
    footprints[unsure] = np.ceil(footprints[unsure] * (sample.measured / max(1, sample.estimated))).astype(np.int64)
    growth = sample.encoded(profile or "") / (sample.stored / sample.records) if sample.parts else 1.0
    return Forecast(replace(index, blocks=with_column(index.blocks, "footprint", number_array(footprints))), growth)


@dataclass(slots=True)
class _Sample:
    """What a few blocks have shown."""

    source: Source
    mixed: int
    """Blocks of which some records are to be mixed."""
    estimated: float = 0.0
    measured: float = 0.0
    stored: float = 0.0
    records: int = 0
    parts: list[pa.Table] = field(default_factory=list)

    def add(self, piece: Piece, footprint: int, is_mixed: bool) -> None:
        """Taste a block that was expected to take this much memory."""
        seen, room = 0, _SOME_BYTES // max(1, self.mixed)
        for taste in self.source.format.taste(piece):
            group = taste.group
            self.estimated += footprint * taste.stored_bytes / max(1, piece.length)
            self.measured += group.footprint
            self.stored += taste.stored_bytes
            self.records += group.records
            if is_mixed:
                tasted = footprint if self.source.format.traits.is_tasted_whole else group.footprint
                share = self.mixed * max(1, -(-tasted // _SOME_BYTES))
                self.parts.append(_some(group, seen, share, room))
                seen, room = seen + group.records, room - self.parts[-1].nbytes

    def encoded(self, profile: str) -> float:
        """Bytes per record once the parts, which are used up, are mixed and written."""
        mixed = Group(pa.concat_tables(self.parts).combine_chunks())
        self.parts.clear()
        release_unused()
        order = permutation(mixed.records, (1, mixed.records))
        writing = self.source.format.write([gather(mixed, order)], profile)
        try:
            size = sum(len(memoryview(piece).cast("B")) for piece in writing)
        finally:
            end(writing)
        release_unused()
        return size / mixed.records


def slack_of(source: Source, index: Index) -> float:
    """The ratio, at most 1, of what records take in memory to what is planned for them before they are counted, as one
    block shows it."""
    if index.is_counted:
        return 1.0
    middle = index.blocks.num_rows // 2
    (piece,) = index.pieces(source, [middle])
    try:
        tastes = list(source.format.taste(piece))
    except ShardError:  # reading the shard will report it
        return 1.0
    held, stored = sum(each.group.footprint for each in tastes), sum(each.stored_bytes for each in tastes)
    return float(min(1.0, held / stored * piece.length / int(index.column("footprint")[middle])))


def spread(count: int, most: int) -> Indices:
    """Numbers below ``count``, spread evenly."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))


def _some(group: Group, seen: int, share: int, room: int) -> pa.Table:
    """One in ``share`` of a block's records, at random; this group comes after ``seen`` earlier ones. Fewer, if they
    turn out to take more than there is room for."""
    count = -(-(seen + group.records) // share) - -(-seen // share)
    count = min(count, max(seen == 0, room * group.records // max(1, group.footprint)))
    order = permutation(group.records, (seen, group.records))[:count]
    return taker(group)(order)
