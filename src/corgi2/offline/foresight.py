"""What a shuffle will ask of its stores and leave there, known before it runs: groups, reads, writes, shards, blocks.

Reads and writes are those of shards, also between passes. The plan, one marker per group and the index come on top.
`corgi2 plan`, ``--dry-run`` and the report of the run count in the same way. It follows from the plan alone: the source
of a shuffle that is resumed, or finished long ago, may be gone.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from corgi2.offline.holdout import held_of
from corgi2.offline.journal import Marker, NewShard
from corgi2.offline.passes import AT_ONCE, Pass, next_pass
from corgi2.offline.plan import Plan
from corgi2.order import Indices
from corgi2.records import Block, Digest
from corgi2.stores import Store, ranges_for, reads_of, upload_bytes, writes_of

_MOST_BETWEEN = 100_000
"""The most shards between two passes that are looked at one by one; with more, as many groups as before are assumed."""


@dataclass(frozen=True, slots=True)
class Foresight:
    """All passes of a shuffle."""

    passes: tuple[Pass, ...]
    groups: int
    """The total of all passes."""
    n: int
    """n of the first pass."""
    reads: int
    writes: int
    shards: int
    """The shards that it leaves."""
    blocks: int
    """The blocks in them."""
    held_shards: int = 0
    """What it holds out, elsewhere."""
    held_writes: int = 0


def look_ahead(first: Pass, plan: Plan, target: Store, aside: Store | None = None) -> Foresight:
    """What follows from the first pass. ``target`` is where it writes to, or a store of the same kind, and ``aside``
    where held-out records go."""
    passes = list(_passes(first, plan, target))
    count = plan.settings.passes
    reads = writes = 0
    for pass_ in passes:
        times = count - len(passes) + 1 if pass_ is passes[-1] else 1  # passes that were not looked at
        lengths = pass_.index.column("length")
        reads += times * _reads(pass_, lengths)
        sizes = [size / pass_.shards for size in _written(pass_, plan, lengths)]
        writes += times * pass_.shards * _writes(sizes, plan, target)
    last = passes[-1]
    held = _held_sizes(first, plan)
    shards = len(last.groups) * last.shards
    groups = sum(len(pass_.groups) for pass_ in passes) + (count - len(passes)) * len(last.groups)
    about_held = len(held), _writes(held, plan, aside or target)
    return Foresight(tuple(passes), groups, first.n, reads, writes, shards, shards * last.blocks, *about_held)


def _writes(sizes: Iterable[float], plan: Plan, store: Store) -> int:
    """Requests for shards of these sizes."""
    part_bytes = upload_bytes(plan.buffer_bytes)
    return sum(1 if store.is_local else writes_of(size, part_bytes) for size in sizes)


def _written(pass_: Pass, plan: Plan, lengths: Indices) -> list[float]:
    """Bytes that each group writes, without what it holds out."""
    growth = plan.growth if pass_.number == 1 else 1.0
    return [
        float(lengths[members].sum()) * growth * _left(pass_, group, plan) for group, members in enumerate(pass_.groups)
    ]


def _left(pass_: Pass, group: int, plan: Plan) -> float:
    """The share of a group's records that is not held out."""
    share, records = plan.settings.record_share, int(pass_.index.column("records")[pass_.groups[group]].sum())
    if pass_.number > 1 or not share:
        return 1.0
    return 1 - held_of(plan.settings, group, records) / records if records else 1 - float(share)


def _held_sizes(first: Pass, plan: Plan) -> list[float]:
    """Bytes of each shard that is held out; if records are not counted, every group is assumed to have enough."""
    if not plan.settings.record_share:
        return [float(entry.size) for entry in plan.held]
    lengths, records, sizes = first.index.column("length"), first.index.column("records"), list[float]()
    for group, members in enumerate(first.groups):
        known = int(records[members].sum())
        count = min(first.held_shards, held_of(plan.settings, group, known)) if known else first.held_shards
        held = float(lengths[members].sum()) * plan.growth * (1 - _left(first, group, plan))
        sizes += [held / count] * count
    return sizes


def _reads(pass_: Pass, lengths: Indices) -> int:
    """On a disk, a block is one read. A block drawn with replacement is read once for each group that has it."""
    groups, store = [np.unique(group) for group in pass_.groups], pass_.source.store
    if store.is_local:
        return sum(map(len, groups))
    ranges = [ranges_for(store.ranges, min(AT_ONCE, len(group))) for group in groups]
    return sum(
        reads_of(length, shared) for group, shared in zip(groups, ranges, strict=True) for length in lengths[group]
    )


def _passes(first: Pass, plan: Plan, target: Store) -> Iterator[Pass]:
    pass_ = first
    yield pass_
    while not pass_.is_last and len(pass_.groups) * pass_.shards <= _MOST_BETWEEN:
        markers = [_marker(pass_, group, plan) for group in range(len(pass_.groups))]
        pass_ = next_pass(pass_, markers, plan, target)
        yield pass_


def _marker(pass_: Pass, group: int, plan: Plan) -> Marker:
    """What a group will have written for the next pass, in shards of equal size."""
    index, members, count = pass_.index, pass_.groups[group], pass_.shards
    growth, slack = (plan.growth, plan.slack) if pass_.number == 1 else (1.0, 1.0)
    left = _left(pass_, group, plan)
    sums = {name: round(int(index.column(name)[members].sum()) * left) for name in ("length", "records", "footprint")}
    size = max(1, round(sums["length"] * growth / count))
    shards = tuple(
        NewShard(
            f"{group:06d}-{shard:03d}",
            size,
            b"",
            (Block(0, size, (shard + 1) * sums["records"] // count - shard * sums["records"] // count, foot),),
        )
        for shard, foot in enumerate([math.ceil(sums["footprint"] * slack / count)] * count)
    )
    return Marker(group, Digest(), Digest(), shards)
