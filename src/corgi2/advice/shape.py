"""What can be known of a data set before anything runs: its shape, how fast its store answers, what a shuffle of it
should have made of it. Reads no more than the listing, the index or the footers, and a sample of blocks.
"""

import os
from dataclasses import dataclass, replace

from corgi2.advice.methods import Offline, Shape
from corgi2.dataset import SAMPLE_BLOCKS, Index, Source, find_source, lineage_of, spread
from corgi2.offline import Pass, Settings, first_pass, foresee
from corgi2.quality import By, Measurement, raggedness
from corgi2.stores import PART_BYTES, Options, parse_url, reads_of


@dataclass(frozen=True, slots=True)
class Scouted:
    """A data set, and the passes that a shuffle of it would do."""

    source: Source
    shape: Shape
    one: Offline
    two: Offline
    measured: Measurement | None


def scout(uri: str | os.PathLike[str], buffer: int, by: By, h_d: float | None, options: Options | None) -> Scouted:
    """Plan a shuffle, without a target, and measure the blocks where it is said by what."""
    source = find_source(uri, options, "plan")
    plan, first = foresee(source, Settings(buffer_bytes=buffer))
    twice = first_pass(first.source, first.index, replace(plan, settings=replace(plan.settings, passes=2)))
    index = first.index
    measured = by.measure(first.source, index) if by else None
    blocks = index.blocks.num_rows
    records = index.records if index.is_counted else _guess_records(first.source, index)
    if measured is not None:
        records = max(blocks, round(measured.block_records * blocks))
        h_d = min(measured.h_D, records / blocks)
    shape = Shape(
        records=records,
        bytes=index.bytes,
        shards=len(first.source.entries),
        blocks=blocks,
        footprint=index.footprint,
        h_D=h_d,
        h_D_high=measured.h_D_high if measured is not None and measured.sampled < measured.blocks else None,
        ragged=raggedness(index),
        growth=plan.growth,
        is_local=source.store.is_local,
        reads_records=source.format.traits.has_record_ranges,
        is_shuffled=lineage_of(index) is not None,
        url=os.fspath(uri),
        is_folder=_has_neighbours(source, os.fspath(uri)),
        notes=_notes(source, index),
    )
    return Scouted(source, shape, _offline(first), _offline(twice), measured)


def _has_neighbours(source: Source, typed: str) -> bool:
    """Whether a folder was named, and one can lie beside it: not of a bucket's root, nor of this folder."""
    return (
        source.patterns is None
        and bool(parse_url(source.url).path.strip("/"))
        and typed.rstrip("/") not in ("", ".", "..")
    )


def _notes(source: Source, index: Index) -> tuple[str, ...]:
    notes = []
    if not index.is_counted:
        notes.append("records are estimated from a few shards; corgi2 index counts them")
        if index.bytes > PART_BYTES * index.shards.num_rows and source.format.traits.has_record_ranges:
            notes.append("without an index whole shards are blocks; corgi2 index cuts them into blocks of 64 MB")
    return tuple(notes)


def _offline(pass_: Pass) -> Offline:
    groups = len(pass_.groups)
    shards = groups * pass_.shards
    reads = sum(map(reads_of, pass_.index.column("length").tolist()))
    return Offline(groups, shards, shards * pass_.blocks, reads, between=0 if pass_.is_last else shards)


def _guess_records(source: Source, index: Index) -> int:
    """From the front of a few blocks."""
    picks = spread(index.blocks.num_rows, SAMPLE_BLOCKS)
    stored, records = 0.0, 0
    for piece in index.pieces(source, picks.tolist()):
        for taste in source.format.taste(piece):
            stored, records = stored + taste.stored_bytes, records + taste.group.records
    each = max(1.0, stored / max(1, records))
    return max(int(index.blocks.num_rows), round(index.bytes / each))
