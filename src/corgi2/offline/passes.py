"""One pass of a shuffle as plain data: what to read, in which groups, and how many shards and blocks each writes.

The first pass is planned from the source, every later one from the markers of the pass before, so that a pass is a
function of the plan and of the records alone. No I/O here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from corgi2.budget import buffer_for, way_out
from corgi2.dataset import NO_ROUND, Index, Source, joined, make_index
from corgi2.errors import SourceError
from corgi2.offline.journal import Marker, NewShard
from corgi2.offline.new_shards import Origin
from corgi2.offline.plan import Plan
from corgi2.offline.ranges import Ranges, ranges_of
from corgi2.order import Drawing, Indices, descent
from corgi2.records import BLOCK_BYTES, Scan, number_array
from corgi2.sizes import format_size, plural
from corgi2.stores import Entry, Store

_SMALL_BLOCK_BYTES, _BLOCK_SHARE = 1_000_000, 64
_NO_LIMIT = 1 << 62

AT_ONCE = 8
"""Blocks of a group that are read from an object store at the same time. How many requests share each of them follows
from it, so that all requests are known beforehand, however many threads there are."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass. Every group writes ``shards`` shards of ``blocks`` blocks each."""

    number: int
    source: Source
    index: Index
    groups: list[Indices] = field(repr=False)
    lineage: list[list[int]] = field(repr=False)
    """The groups that the blocks of each group come from, in every pass."""
    shards: int
    blocks: int
    is_last: bool
    consumes: bool
    """Whether what a group has read is deleted once its marker is there."""
    count: int
    """How many groups there are, also for whoever knows only one of them."""
    held_shards: int = 0
    """Shards that a group writes of what it holds out."""
    rounds: tuple[int, ...] = field(default=(), repr=False)
    """The round of each group, if ranges are mixed in rounds."""

    def origin(self, group: int) -> Origin:
        """What the index will say of the blocks that a group writes."""
        return Origin(tuple(self.lineage[group]), self.rounds[group] if self.rounds else NO_ROUND)

    @property
    def n(self) -> int:
        return max(map(len, self.groups))


def first_pass(source: Source, index: Index, plan: Plan) -> Pass:
    _check_block_size(plan, source)
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
    ranges = None if plan.settings.range_bytes is None else ranges_in(index, plan, source)
    if ranges is not None:
        index = joined(index, np.arange(index.blocks.num_rows), ranges.first)
    decoding = _decoding_bytes(source, index)
    cut = _groups(number, index, plan, lineage, source, decoding, ranges)
    index, groups, is_last = cut.read, cut.groups, number == plan.settings.passes
    shards, blocks = _counts(index, plan, cut, source, is_last)
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
        count=len(groups),
        held_shards=_held_shards(plan, index, len(groups)) if number == 1 else 0,
        rounds=tuple(cut.rounds),
    )


def _decoding_bytes(source: Source, index: Index) -> int:
    """What decoding a block takes on its way, at the most."""
    return int(source.format.decoding_bytes(*_sizes(index)).max())


def _sizes(index: Index) -> tuple[Indices, Indices, Indices]:
    return index.column("length"), index.column("records"), index.column("footprint")


class _Cut(NamedTuple):
    """What is read, the groups of it, their rounds if there are any, and how many blocks the theory would count."""

    read: Index
    groups: list[Indices]
    rounds: list[int]
    blocks: int


def _groups(
    number: int,
    index: Index,
    plan: Plan,
    lineage: Indices | None,
    source: Source,
    decoding: int,
    ranges: Ranges | None,
) -> _Cut:
    """Each takes the buffer, less what decoding takes, or one block alone, if that is more. In a later pass, a block
    may take a little more than the buffer, as it did when it was written: what it was made of is perhaps gone."""
    settings = plan.settings
    footprints, most = index.column("footprint"), settings.buffer_blocks
    largest = int(footprints.max())
    enough = buffer_for(footprints, source.format.decoding_bytes(*_sizes(index)))
    to_mix = max(enough, int(np.sort(footprints)[-2:].sum()) + decoding)  # with less, it would be refused as useless
    if lineage is None and largest <= plan.buffer_bytes < enough:
        raise SourceError(
            f"{plan.source}: a block takes {format_size(largest)} in memory, beside what reading takes, more than "
            f"the buffer of {format_size(plan.buffer_bytes)} holds",
            hint=way_out(to_mix),
            kind="memory",
        )
    limit = plan.buffer_bytes if lineage is None else max(plan.buffer_bytes, largest)
    capacity = min(limit, max(largest, plan.buffer_bytes - decoding))
    drawing = Drawing(settings.seed, number, settings.with_replacement)
    try:
        if ranges is not None:
            return _in_rounds(index, ranges, source, capacity, drawing, most)
        groups = drawing.groups(footprints, capacity, most, lineage)
    except ValueError as error:
        raise SourceError(f"{plan.source}: {error}", hint=way_out(to_mix), kind="memory") from error
    if most is not None and number == 1 and len(groups) > -(-len(footprints) // most):
        enough = int(np.sort(footprints)[-most:].sum())
        raise SourceError(
            f"{plan.source}: {plural(most, 'block')} take up to {format_size(enough)} in memory, more than the buffer "
            f"of {format_size(plan.buffer_bytes)} holds beside what reading takes",
            hint=way_out(enough + decoding),
            kind="memory",
        )
    return _Cut(index, groups, [], len(footprints))


def ranges_in(index: Index, plan: Plan, source: Source) -> Ranges:
    """One range per block would be one pass like any other."""
    settings, range_bytes = plan.settings, plan.settings.range_bytes or 1
    ranges = ranges_of(index, range_bytes, -(-index.footprint // plan.buffer_bytes), settings.buffer_blocks)
    if ranges.most == 1:
        unit = "block" if source.format.traits.has_record_ranges else "shard"
        raise SourceError(
            f"{plan.source}: no {unit} has two ranges of {format_size(range_bytes)} to be taken in turn",
            hint="give a smaller range_size=, or passes=2"
            if source.format.traits.has_record_ranges
            else "every shard is one row group, or record batch: write smaller ones, or give passes=2",
        )
    return ranges


def _in_rounds(index: Index, ranges: Ranges, source: Source, capacity: int, drawing: Drawing, most: int | None) -> _Cut:
    """Groups of ranges. Neighbours in one group are read together, unless they are decoded, which takes memory."""
    limit = None if most is None else most * ranges.most
    groups, rounds = drawing.groups_in_rounds(index.column("footprint"), ranges.whole, capacity, limit)
    shards = np.bincount(index.column("shard"), index.column("length"))
    blocks = int(np.maximum(1, np.rint(shards / BLOCK_BYTES)).sum())
    if not source.format.traits.is_decoded:
        index, groups = _with_neighbours_joined(index, groups)
    return _Cut(index, groups, rounds.tolist(), blocks)


def _with_neighbours_joined(index: Index, groups: list[Indices]) -> tuple[Index, list[Indices]]:
    """Blocks that follow each other in a shard and are in one group become one."""
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    order = np.concatenate(groups)
    order = order[np.lexsort((order, owner))]
    shard, start = index.column("shard")[order], index.column("start")[order]
    ends = start + index.column("length")[order]
    follows = (shard[1:] == shard[:-1]) & (start[1:] == ends[:-1]) & (owner[1:] == owner[:-1])
    first = np.flatnonzero(np.append(True, ~follows))
    cuts = np.flatnonzero(np.diff(owner[first])) + 1
    by_place = np.argsort(order[first])
    number = np.empty(len(first), np.int64)
    number[by_place] = np.arange(len(first))
    made = joined(index, order, first)
    return replace(made, blocks=made.blocks.take(number_array(by_place))), np.split(number, cuts)


def _counts(index: Index, plan: Plan, made: _Cut, source: Source, is_last: bool) -> tuple[int, int]:
    """Shards per group, and blocks per shard."""
    settings, cut = plan.settings, made.groups
    sizes = GroupSizes(made.blocks, index.footprint, len(cut), plan.buffer_bytes)
    if not is_last:
        return sizes.shards_between, 1
    held = settings.record_share if settings.passes == 1 else Fraction(0)
    shards = max(1, min(round(wanted_shards(plan, index) / len(cut)), _fewest_records(index, cut, held)))
    if not source.format.traits.has_ranges:
        return shards, 1
    blocks = sizes.blocks_per_shard(shards, keeps_size=not (settings.shard_records or settings.shard_bytes))
    if settings.block_bytes is not None:
        blocks = max(sizes.blocks_per_shard(shards, False), _in_blocks(index, plan, len(cut) * shards))
    return shards, blocks


def _check_block_size(plan: Plan, source: Source) -> None:
    if plan.settings.block_bytes is not None and not source.format.traits.has_ranges:
        raise SourceError(
            f"{plan.source}: block_size= cuts blocks within shards, and a shard of {source.format.name} is read whole",
            hint="give shard_size= instead",
        )


def _in_blocks(index: Index, plan: Plan, shards: int) -> int:
    """How many blocks of the size that was asked for, or a little less, each of this many new shards has."""
    return math.ceil(written_bytes_of(index, plan) / shards / (plan.settings.block_bytes or 1) - 1e-9)


def written_bytes_of(index: Index, plan: Plan) -> float:
    """About what a pass over these blocks writes, less what is held out; what was mixed once has grown already."""
    left = 1 - float(plan.settings.record_share)
    return index.bytes * (plan.growth * left if plan.settings.passes == 1 else 1)


def _held_shards(plan: Plan, index: Index, groups: int) -> int:
    share = float(plan.settings.record_share)
    return max(1, round(wanted_shards(plan, index) / (1 - share) * share / groups)) if share else 0


def wanted_shards(plan: Plan, index: Index) -> float:
    """As many as the source has, or as what was asked for comes to, less what is held out."""
    settings = plan.settings
    left = 1 - float(settings.record_share)
    if settings.shard_records is not None and index.is_counted:
        return index.records / settings.shard_records * (left if settings.passes == 1 else 1)
    if settings.shard_bytes is not None:
        return written_bytes_of(index, plan) / settings.shard_bytes
    return plan.shards * left


def largest_block(buffer_bytes: int) -> int:
    """The most memory that a new block may take."""
    return min(BLOCK_BYTES, max(_SMALL_BLOCK_BYTES, buffer_bytes // _BLOCK_SHARE))


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
        return self.footprint / (self.groups * largest_block(self.buffer_bytes))

    @property
    def shards_between(self) -> int:
        """Shards of one block that a group writes for the next pass."""
        return max(1, round(self._read), math.ceil(self._fewest))

    def blocks_per_shard(self, shards: int, keeps_size: bool = True) -> int:
        """Blocks in each shard of a group that writes this many; ``keeps_size`` if shards are about as large as those
        that it read."""
        return max(1, round(self._read / shards) if keeps_size else 0, math.ceil(self._fewest / shards))


def _fewest_records(index: Index, groups: Sequence[Indices], held: Fraction) -> int:
    """The fewest records of any group, if they are counted: with more shards than that, some would have none and not be
    written, and their numbers would be missing."""
    if not index.is_counted:
        return _NO_LIMIT
    records = index.column("records")
    fewest = min(int(records[group].sum()) for group in groups)
    return fewest - math.ceil(held * fewest)
