"""The blocks to plan with: from the listing, or from the index or the footers where there are any. A scan is the last
resort, and is announced."""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from corgi2.dataset import (
    Index,
    Source,
    forecast,
    merge,
    of_index,
    open_index,
    sketch_source,
    survey_source,
    whole_shards,
)
from corgi2.errors import DamageError, NoRecordError, ShardError, SourceError
from corgi2.offline.settings import Settings
from corgi2.offline.skipped import Skipped
from corgi2.records import BLOCK_BYTES, numpy_of
from corgi2.sizes import format_size, plural

_log = logging.getLogger("corgi2")

EMPTY = "the shard is empty (zero bytes); restore it from its source, or remove it"
_GLANCES = 16
"""Shards that are looked at together; each takes one small read."""
_BLOCKS_AT_LEAST = 8
"""A shard that is too large is cut into blocks, of which the buffer holds this many."""
_BLOCKS_A_RANGE = 4
"""If a scan has to find where ranges begin."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The shards and blocks to plan with."""

    source: Source
    index: Index
    growth: float
    skipped: tuple[Skipped, ...]


def outline(source: Source, settings: Settings, buffer_bytes: int, profile: str) -> Outline:
    if not settings.skip_bad:
        _check_filled(source)
    index, skipped = _blocks(source, settings, buffer_bytes)
    source = of_index(source, index)
    if settings.in_place or settings.skip_bad:
        index = whole_shards(index)
    blocks = index.blocks.num_rows
    n = (
        blocks
        if settings.passes > 1
        else min(settings.buffer_blocks or blocks, blocks * buffer_bytes // index.footprint)
    )
    guess = forecast(source, index, profile, buffer_bytes, settings.skip_bad, max(1, n))
    index = guess.index
    if not (settings.in_place or settings.skip_bad):
        index = _cut_large(source, index, buffer_bytes)
    return Outline(source, index, guess.growth, skipped)


def _check_filled(source: Source) -> None:
    """An empty file is what a failed copy leaves: it is a shard of no format, and the listing shows it."""
    empty = [f"{source.url}/{entry.path}" for entry in source.entries if not entry.size]
    if empty:
        raise DamageError([ShardError(name, 0, EMPTY) for name in empty])


def _check_records(source: Source) -> None:
    """In place, a shard without a record would stop the shuffle at a point of no return. The front of a shard shows
    whether it has one, unless a long stretch of something else comes first: these few shards are read whole."""
    with ThreadPoolExecutor(_GLANCES) as pool:
        shown = list(
            pool.map(lambda number: source.format.shows_record(source.shard(number)), range(len(source.entries)))
        )
    unsure = tuple(entry for entry, shows in zip(source.entries, shown, strict=True) if not shows)
    damage = survey_source(replace(source, entries=unsure)).damage if unsure else ()
    empty = [error for error in damage if isinstance(error, NoRecordError)]
    if empty:
        raise DamageError(empty)


def _blocks(source: Source, settings: Settings, buffer_bytes: int) -> tuple[Index, tuple[Skipped, ...]]:
    """From the index, the footers, the listing, or, if there is no other way, a scan."""
    if settings.range_bytes is not None:
        return _in_ranges(source, settings.range_bytes, buffer_bytes), ()
    index = open_index(source)
    if index is not None:
        return index, ()
    needs_counts = settings.shard_records is not None and settings.passes == 1
    if not source.format.traits.has_cheap_scan and not needs_counts:
        if settings.in_place:
            _check_records(source)
        return sketch_source(source), ()
    if not source.format.traits.has_cheap_scan:
        size = format_size(sum(entry.size for entry in source.entries))
        _log.warning("shard_records= has to count the records first: scanning %s (corgi2 index would keep it)", size)
    traits = source.format.traits
    block_bytes = _block_bytes(buffer_bytes) if traits.has_cheap_scan and traits.cuts_blocks else BLOCK_BYTES
    survey = survey_source(source, block_bytes, buffer_bytes=buffer_bytes)
    if survey.damage and not (settings.skip_bad and survey.index.shards.num_rows):
        raise DamageError(survey.damage)
    return survey.index, tuple(map(Skipped.of, survey.damage))


def _in_ranges(source: Source, range_bytes: int, buffer_bytes: int) -> Index:
    """Blocks that are no larger than the ranges, if the format allows: from an index that has them, or by a scan. That
    cuts smaller ones, so that ranges of equal size can be made of them."""
    traits = source.format.traits
    if not traits.has_ranges:
        raise SourceError(
            f"{source.url}: range_size= reads parts of shards, and a shard of {source.format.name} is read whole",
            hint="give passes=2 instead",
        )
    index = open_index(source)
    if index is not None and (not traits.cuts_blocks or index.block_bytes <= range_bytes):
        return index
    block_bytes = max(1, range_bytes // _BLOCKS_A_RANGE)
    if traits.has_record_ranges:
        _log.warning(
            "%s: finding where ranges of %s begin: this process reads %s once more "
            "(corgi2 index --block-size %d would keep it)",
            source.url,
            format_size(range_bytes),
            format_size(sum(entry.size for entry in source.entries)),
            block_bytes,
        )
    survey = survey_source(source, block_bytes, buffer_bytes=buffer_bytes)
    if survey.damage:
        raise DamageError(survey.damage)
    return survey.index


def _block_bytes(buffer_bytes: int) -> int:
    """The size of blocks of which the buffer holds several."""
    return max(1, min(BLOCK_BYTES, buffer_bytes // _BLOCKS_AT_LEAST))


def _cut_large(source: Source, index: Index, buffer_bytes: int) -> Index:
    """Shards that do not fit the buffer, cut into blocks, where the format can be read in parts."""
    whole = (index.column("start") == 0) & (
        index.column("length") == numpy_of(index.shards["size"])[index.column("shard")]
    )
    large = index.column("shard")[whole & (index.column("footprint") > buffer_bytes)]
    if not len(large) or not source.format.traits.has_record_ranges:
        return index
    part = replace(source, entries=tuple(source.entries[int(number)] for number in large))
    size = format_size(sum(entry.size for entry in part.entries))
    _log.warning(
        "%s of more than the buffer's %s, to be read in parts: scanning %s first",
        plural(len(large), "shard"),
        format_size(buffer_bytes),
        size,
    )
    block_bytes = _block_bytes(buffer_bytes)
    survey = survey_source(part, block_bytes, buffer_bytes=buffer_bytes)
    if survey.damage:
        raise DamageError(survey.damage)
    return merge(index, replace(survey.index, block_bytes=index.block_bytes))
