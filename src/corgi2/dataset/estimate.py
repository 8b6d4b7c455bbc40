"""What a shuffle will take, from a small sample: the memory of a block, the size of the mixed output.

A fixed sample, spread evenly over the blocks: the same for the same source, so that plans do not depend on luck.
Memory: one block.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from corgi2.dataset.index_tables import Index, with_column
from corgi2.dataset.source import Source
from corgi2.errors import ShardError
from corgi2.host import release_unused
from corgi2.order import Indices, permutation
from corgi2.records import Group, end, gather, number_array, taker

SAMPLE_BLOCKS = 16
_SOME_BYTES = 32_000_000
"""Of all together, mixed and written to see how well they compress."""


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
    """Correct footprints that are estimates; predict the growth where the format compresses: mixing destroys what
    order saved, with up to ``most`` blocks mixed. Without a profile to write with, nothing grows. Blocks that are too
    large for the buffer by what is known of them are left as they are."""
    unsure = ~index.column("exact")
    if not unsure.any() and (profile is None or not source.format.traits.packs_by_order):
        return Forecast(index, 1.0)
    among = np.flatnonzero(unsure) if unsure.any() else np.arange(len(unsure))
    if source.format.traits.is_tasted_whole:
        among = among[index.column("footprint")[among] <= max(buffer_bytes, _SOME_BYTES)]
    picks = among[spread(len(among), SAMPLE_BLOCKS)]
    footprints, lengths = index.column("footprint").copy(), index.column("length")
    estimated = measured = stored = 0.0
    records = 0
    parts: list[pa.Table] = []
    grows = profile is not None and source.format.traits.packs_by_order
    chosen = set(picks[spread(len(picks), most)].tolist()) if grows else set()
    for number, piece in zip(picks.tolist(), index.pieces(source, picks.tolist()), strict=True):
        seen, room = 0, _SOME_BYTES // max(1, len(chosen))
        try:
            for taste in source.format.taste(piece):
                estimated += footprints[number] * taste.stored_bytes / max(1, int(lengths[number]))
                measured += taste.group.footprint
                stored += taste.stored_bytes
                records += taste.group.records
                if number in chosen:
                    tasted = footprints[number] if source.format.traits.is_tasted_whole else taste.group.footprint
                    share = len(chosen) * max(1, -(-tasted // _SOME_BYTES))
                    parts.append(_some(taste.group, seen, share, room))
                    seen, room = seen + taste.group.records, room - parts[-1].nbytes
        except ShardError:
            if not skip_bad:
                raise
    if not records:
        return Forecast(index, 1.0)
    footprints[unsure] = np.ceil(footprints[unsure] * (measured / max(1, estimated))).astype(np.int64)
    growth = _encoded(source, parts, profile or "") / (stored / records) if parts else 1.0
    return Forecast(replace(index, blocks=with_column(index.blocks, "footprint", number_array(footprints))), growth)


def spread(count: int, most: int) -> Indices:
    """Numbers below ``count``, spread evenly."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))


def _some(group: Group, seen: int, share: int, room: int) -> pa.Table:
    """One in ``share`` of a block's records, at random, of which this group comes after so many that were seen; fewer,
    where they turn out to take more than there is room for."""
    count = -(-(seen + group.records) // share) - -(-seen // share)
    count = min(count, max(seen == 0, room * group.records // max(1, group.footprint)))
    order = permutation(group.records, (seen, group.records))[:count]
    return taker(group)(order)


def _encoded(source: Source, parts: list[pa.Table], profile: str) -> float:
    """Bytes a record, once the parts are mixed and written."""
    mixed = Group(pa.concat_tables(parts).combine_chunks())
    order = permutation(mixed.records, (1, mixed.records))
    writing = source.format.write([gather(mixed, order)], profile)
    try:
        size = sum(len(memoryview(piece).cast("B")) for piece in writing)
    finally:
        end(writing)
    release_unused()
    return size / mixed.records
