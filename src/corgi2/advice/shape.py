"""What can be known about a data set before anything runs: its shape, how fast its store answers, what its shuffle
should have made of it. Reads only the listing, the index or the footers, and a sample of blocks.
"""

import os
from dataclasses import dataclass, replace

import numpy as np

from corgi2.advice.command import folder_beside, free_folder
from corgi2.advice.ranged import Ranged, find_ranged, is_unknown
from corgi2.advice.situation import Floats, Offline, Shape
from corgi2.dataset import (
    SAMPLE_BLOCKS,
    Index,
    Source,
    catalog_of,
    find_source,
    forecast,
    lineage_of,
    open_index,
    slack_of,
    spread,
)
from corgi2.offline import Foresight, Pass, Plan, Settings, first_pass, foresee, look_ahead
from corgi2.order import Step
from corgi2.quality import By, Measurement, Prediction, held_out_of, predict, raggedness, worst_after_shuffle
from corgi2.records import BLOCK_BYTES
from corgi2.stores import PART_BYTES, Options

_CLEARLY = 3.0
"""The ratio to the predicted h that chance alone does not produce."""


@dataclass(frozen=True, slots=True)
class Scouted:
    """A data set, and the passes that a shuffle of it would do."""

    source: Source
    shape: Shape
    one: Offline
    two: Offline
    measured: Measurement | None
    ranged: Ranged | None
    """A pass of ranges in rounds."""


def scout(uri: str | os.PathLike[str], buffer: int, by: By, h_d: float | None, options: Options | None) -> Scouted:
    """Plan a shuffle, without a target, and measure the blocks if a label or feature is given."""
    source = find_source(uri, options, "plan")
    plan, _, first = foresee(source, Settings(buffer_bytes=buffer))
    again = _twice(plan, first)
    twice = first_pass(first.source, first.index, again)
    index, lineage = first.index, lineage_of(first.index)
    measured = by.measure(first.source, index) if by else None
    blocks = index.blocks.num_rows
    records = index.records if index.is_counted else _guess_records(first.source, index)
    if measured is not None:
        records = max(blocks, round(measured.block_records * blocks))
        h_d = min(measured.h_D, records / blocks) if measured.tells else None
    is_counted = index.is_counted or (measured is not None and measured.sampled == blocks)
    shape = Shape(
        records=records,
        bytes=index.bytes,
        shards=len(first.source.entries),
        blocks=blocks,
        footprint=index.footprint,
        h_D=h_d,
        h_D_high=measured.h_D_high if h_d and measured is not None and measured.sampled < measured.blocks else None,
        h_worst=worst_after_shuffle(source, index) if lineage is not None and h_d is None else None,
        by=measured.by if measured is not None else (),
        ragged=raggedness(index),
        growth=plan.growth,
        is_counted=is_counted,
        is_local=source.store.is_local,
        connections=source.store.connections,
        ranges=source.store.ranges,
        reads_records=source.format.traits.has_record_ranges,
        has_ranges=source.format.traits.has_ranges,
        is_shuffled=lineage is not None,
        contradiction=_contradiction(source, index, by, measured, options) if lineage is not None else "",
        needs_index=not (source.store.is_local or source.format.traits.has_cheap_scan or index.is_counted),
        is_cut=_is_cut(source, index),
        sibling=held_out_of(source),
        url=os.fspath(uri),
        target=free_folder(folder_beside(os.fspath(uri), source.url), options or {}),
        notes=(*_notes(source, index, is_counted), *([] if measured is None or measured.tells else [measured.verdict])),
        decoded=int(index.column("length").max()) if source.format.traits.is_decoded else 0,
        sizes=_sizes(index, records),
        footprints=_held(source, index),
        lineage=lineage,
        rounds=catalog_of(source, index).rounds,
        knows_ranges=not is_unknown(source),
    )
    one, two = (_offline(look_ahead(*each, source.store)) for each in ((first, plan), (twice, again)))
    return Scouted(source, shape, one, two, measured, find_ranged(source, buffer))


def _twice(plan: Plan, first: Pass) -> Plan:
    """The same in two passes, which mix more blocks, so that data that compresses well by its order may grow more."""
    slack = slack_of(first.source, first.index)
    twice = replace(plan, settings=replace(plan.settings, passes=2), slack=slack)
    if not first.source.format.traits.packs_by_order:
        return twice
    blocks = first.index.blocks.num_rows
    found = forecast(first.source, first.index, plan.profile, plan.buffer_bytes, most=blocks)
    return replace(twice, growth=found.growth)


def _sizes(index: Index, records: int) -> Floats:
    """Records of each block; as its bytes tell, where they are not counted."""
    known = index.column("records" if index.is_counted else "length").astype(np.float64)
    sizes: Floats = known * (records / known.sum())
    return sizes


def _held(source: Source, index: Index) -> Floats:
    """Bytes in memory of each block, as the loader takes them: it believes an index that is up to date."""
    own = open_index(source)
    known = own if own is not None and own.blocks.num_rows == index.blocks.num_rows else index
    return known.column("footprint").astype(np.float64)


def _is_cut(source: Source, index: Index) -> bool:
    """Whether shards that do not fit the offline buffer were cut more finely than a loader reads them."""
    own, blocks = open_index(source), index.blocks.num_rows
    read = len(source.entries) if own is None else own.blocks.num_rows
    return source.format.traits.has_record_ranges and 2 * index.bytes / blocks < min(BLOCK_BYTES, index.bytes / read)


def _contradiction(source: Source, index: Index, by: By, measured: Measurement | None, options: Options | None) -> str:
    """Why data that was shuffled is not what its shuffle should have left."""
    predicted = predict(source, index, by, options) if measured is not None else None
    if measured is None or not isinstance(predicted, Prediction):
        return ""
    if measured.h_D_low <= _CLEARLY * max(1.0, predicted.h):
        return ""
    return f"h_D = {measured.h_D:,.3g} was measured, but its shuffle should have left {predicted.h:,.3g}"


def _notes(source: Source, index: Index, is_counted: bool) -> tuple[str, ...]:
    notes = []
    if not is_counted:
        notes.append("records are estimated from a few shards; corgi2 index counts them")
    is_large = index.bytes > PART_BYTES * index.shards.num_rows
    if is_large and not index.is_counted and source.format.traits.has_record_ranges:
        notes.append("without an index whole shards are blocks; corgi2 index cuts them into blocks of 64 MB")
    return tuple(notes)


def _offline(found: Foresight) -> Offline:
    first, last = found.passes[0], found.passes[-1]
    steps = tuple(Step(pass_.groups, pass_.shards * pass_.blocks) for pass_ in found.passes) if last.is_last else ()
    return Offline(
        groups=found.groups,
        n=found.n,
        shards=found.shards,
        blocks=found.blocks,
        reads=found.reads,
        writes=found.writes,
        between=0 if first.is_last else len(first.groups) * first.shards,
        first_groups=len(first.groups),
        steps=steps,
        lineage=np.array(last.lineage) if steps else None,
        footprints=_footprints(last) if steps else None,
    )


def _footprints(last: Pass) -> Floats:
    """Of the groups of a pass."""
    held = last.index.column("footprint")
    return np.array([held[group].sum() for group in last.groups], np.float64)


def _guess_records(source: Source, index: Index) -> int:
    """The number of records, estimated from the front of a few blocks."""
    picks = spread(index.blocks.num_rows, SAMPLE_BLOCKS)
    stored, records = 0.0, 0
    for piece in index.pieces(source, picks.tolist()):
        for taste in source.format.taste(piece):
            stored, records = stored + taste.stored_bytes, records + taste.group.records
    each = max(1.0, stored / max(1, records))
    return max(int(index.blocks.num_rows), round(index.bytes / each))
