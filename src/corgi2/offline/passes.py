"""One pass of a shuffle as plain data: what to read, in which groups, and how many shards and blocks each writes.

The first pass is planned from the source, every later one from the markers of the pass before, so that a plan is a
function of the plan and of the records alone. No I/O here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from corgi2.budget import buffer_for, way_out
from corgi2.dataset import Index, Source, make_index
from corgi2.errors import SourceError
from corgi2.offline.journal import Marker, NewShard
from corgi2.offline.plan import Plan
from corgi2.order import GROUPS, Indices, cut_evenly, cut_groups, descent, draw_groups
from corgi2.records import BLOCK_BYTES, Scan
from corgi2.sizes import format_size
from corgi2.stores import Entry, Store

_SMALL_BLOCK_BYTES, _BLOCK_SHARE = 1_000_000, 64
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass. Every group writes ``shards`` shards of ``blocks`` blocks each."""

    number: int
    source: Source
    index: Index
    groups: list[Indices] = field(repr=False)
    lineage: list[list[int]] = field(repr=False)
    """What the index will say of the blocks that each group writes."""
    shards: int
    blocks: int
    is_last: bool
    consumes: bool
    """Whether what a group has read is deleted once its marker is there."""

    @property
    def n(self) -> int:
        return max(map(len, self.groups))


def first_pass(source: Source, index: Index, plan: Plan) -> Pass:
    return _planned(1, source, index, plan, None)


def next_pass(before: Pass, markers: Sequence[Marker], plan: Plan, store: Store) -> Pass:
    """The pass over what the pass before has written."""
    shards = sorted(
        ((shard, before.lineage[marker.group]) for marker in markers for shard in marker.shards),
        key=lambda pair: pair[0].path,
    )
    scans = [
        (Entry(shard.path, shard.size, shard.checksum.hex(), is_listed=False), _scan(shard, tuple(numbers)))
        for shard, numbers in shards
    ]
    lineage = [numbers for _, scan in scans for numbers in scan.lineage]
    index = make_index(plan.suffix, BLOCK_BYTES, scans)
    source = Source(store, tuple(entry for entry, _ in scans), before.source.format)
    return _planned(before.number + 1, source, index, plan, np.array(lineage, np.int64))


def _scan(shard: NewShard, lineage: tuple[int, ...]) -> Scan:
    """What lies between two passes is read whole: a footer comes with it. Only a shard that was mixed in parts, because
    all of it did not fit the buffer, would not fit again: its blocks are read one by one."""
    if len(shard.blocks) > 1:
        return Scan(shard.blocks, lineage=(lineage,) * len(shard.blocks))
    (block,) = shard.blocks
    whole = replace(block, start=0, length=shard.size, checksum=shard.checksum)
    return Scan((whole,), lineage=(lineage,))


def _planned(number: int, source: Source, index: Index, plan: Plan, lineage: Indices | None) -> Pass:
    decoding = _decoding_bytes(source, index)
    groups = _groups(number, index, plan, lineage, source, decoding)
    is_last = number == plan.settings.passes
    shards, blocks = _counts(index, plan, groups, source, is_last)
    return Pass(
        number,
        source,
        index,
        groups,
        descent(groups, lineage),
        shards,
        blocks,
        is_last,
        consumes=plan.settings.in_place or number > 1,
    )


def _decoding_bytes(source: Source, index: Index) -> int:
    """What decoding a block takes on its way, at the most."""
    return int(source.format.decoding_bytes(*_sizes(index)).max())


def _sizes(index: Index) -> tuple[Indices, Indices, Indices]:
    return index.column("length"), index.column("records"), index.column("footprint")


def _groups(
    number: int, index: Index, plan: Plan, lineage: Indices | None, source: Source, decoding: int
) -> list[Indices]:
    """Each takes the buffer, less what decoding takes; or one block alone, where that is more. In a later pass, a block
    may take a little more than the buffer, as it did when it was written: what it was made of is perhaps gone."""
    settings = plan.settings
    footprints, most = index.column("footprint"), settings.buffer_blocks
    largest = int(footprints.max())
    enough = buffer_for(footprints, source.format.decoding_bytes(*_sizes(index)))
    if lineage is None and largest <= plan.buffer_bytes < enough:
        raise SourceError(
            f"{plan.source}: a block takes {format_size(largest)} in memory, beside what reading takes, more than "
            f"the buffer of {format_size(plan.buffer_bytes)} holds",
            hint=way_out(enough),
            kind="memory",
        )
    limit = plan.buffer_bytes if lineage is None else max(plan.buffer_bytes, largest)
    capacity = min(limit, max(largest, plan.buffer_bytes - decoding))
    key = (settings.seed, number, GROUPS)
    try:
        if settings.with_replacement:
            groups = draw_groups(footprints, capacity, key, most)
        elif lineage is None:
            groups = cut_groups(footprints, capacity, key, most)
        else:
            groups = cut_evenly(footprints, lineage, capacity, key, most)
    except ValueError as error:
        raise SourceError(f"{plan.source}: {error}", hint=way_out(enough), kind="memory") from error
    if most is not None and number == 1 and len(groups) > -(-len(footprints) // most):
        enough = int(np.sort(footprints)[-most:].sum())
        raise SourceError(
            f"{plan.source}: {most} blocks take up to {format_size(enough)} in memory, more than the buffer of "
            f"{format_size(plan.buffer_bytes)} holds beside what reading takes",
            hint=way_out(enough + decoding),
            kind="memory",
        )
    return groups


def _counts(index: Index, plan: Plan, cut: Sequence[Indices], source: Source, is_last: bool) -> tuple[int, int]:
    """Shards per group, and blocks per shard."""
    settings, sizes = plan.settings, GroupSizes(index.blocks.num_rows, index.footprint, len(cut), plan.buffer_bytes)
    if not is_last:
        return sizes.shards_between, 1
    total: float = plan.shards
    if settings.shard_records is not None:
        total = index.records / settings.shard_records
    elif settings.shard_bytes is not None:
        total = index.bytes * (plan.growth if plan.settings.passes == 1 else 1) / settings.shard_bytes
    shards = max(1, min(round(total / len(cut)), _fewest_records(index, cut)))
    if not source.format.traits.has_ranges:
        return shards, 1
    return shards, sizes.blocks_per_shard(shards, keeps_size=not (settings.shard_records or settings.shard_bytes))


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """How finely a group is written: at least as many blocks as were read, of about `BLOCK_BYTES` at the most, and of
    no more than a 64th of the buffer, because some formats write whole blocks."""

    blocks: int
    footprint: int
    """Of all blocks, in memory."""
    groups: int
    buffer_bytes: int

    @property
    def _read(self) -> float:
        """Blocks that a group reads."""
        return self.blocks / self.groups

    @property
    def _fewest(self) -> float:
        """Blocks that it takes for none to be too large."""
        largest = min(BLOCK_BYTES, max(_SMALL_BLOCK_BYTES, self.buffer_bytes // _BLOCK_SHARE))
        return self.footprint / (self.groups * largest)

    @property
    def shards_between(self) -> int:
        """Shards of one block that a group writes for the next pass."""
        return max(1, round(self._read), math.ceil(self._fewest))

    def blocks_per_shard(self, shards: int, keeps_size: bool = True) -> int:
        """Of a group that writes so many shards; ``keeps_size`` where these are about as large as those it read."""
        return max(1, round(self._read / shards) if keeps_size else 0, math.ceil(self._fewest / shards))


def _fewest_records(index: Index, groups: Sequence[Indices]) -> int:
    """Of a group, where it is known: of more shards than that some would not be written, and their numbers missing."""
    if not index.is_counted:
        return _NO_LIMIT
    records = index.column("records")
    return min(int(records[group].sum()) for group in groups)
