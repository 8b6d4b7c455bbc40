"""What can be known of a data set before anything runs: its shape, how fast its store answers, what a shuffle of it
should have made of it. Reads no more than the listing, the index or the footers, and a sample of blocks.
"""

import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from corgi2 import theory
from corgi2.advice.methods import Offline, Shape
from corgi2.dataset.blocks import Catalog, lineage_of
from corgi2.dataset.estimate import SAMPLE_BLOCKS, spread
from corgi2.dataset.index import Index
from corgi2.dataset.source import Source, find_source, runs
from corgi2.errors import Corgi2Error
from corgi2.offline.job import load_plan
from corgi2.offline.journal import Journal
from corgi2.offline.passes import Stage, first_stage
from corgi2.offline.planning import foresee
from corgi2.offline.recipe import Settings
from corgi2.online.buffers import room_for
from corgi2.order.deal import window_of
from corgi2.quality.measure import Measurement, measure_blocks
from corgi2.stores import PART_BYTES, Options
from corgi2.stores.local import LocalStore
from corgi2.theory import Blocks

_PROBES, _PROBE_BYTES, _STREAMS, _STREAM_BYTES = 8, 1_000, 4, 16_000_000


@dataclass(frozen=True, slots=True)
class By:
    """What blocks are measured by."""

    labels: Sequence[str] = ()
    features: Sequence[str] = ()
    sample: int = 64

    def measure(self, source: Source, index: Index) -> Measurement:
        return measure_blocks(source, index, self.labels, self.features, sample=self.sample)

    def __bool__(self) -> bool:
        return bool(self.labels or self.features)


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
    recipe, first = foresee(source, Settings(buffer_bytes=buffer))
    twice = first_stage(first.source, first.index, replace(recipe, settings=replace(recipe.settings, passes=2)))
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
        ragged=_ragged(index),
        growth=recipe.growth,
        is_local=isinstance(source.store, LocalStore),
        reads_records=source.format.has_ranges and not source.format.has_footer,
        is_shuffled=lineage_of(index) is not None,
        url=os.fspath(uri),
        is_folder=_has_neighbours(source, os.fspath(uri)),
        notes=_notes(source, index),
    )
    return Scouted(source, shape, _offline(first), _offline(twice), measured)


def _ragged(index: Index) -> float:
    sizes = index.column("records" if index.is_counted else "length").astype(np.float64)
    return float(sizes.var() / sizes.mean() ** 2)


def _has_neighbours(source: Source, typed: str) -> bool:
    """Whether a folder was named, and one can lie beside it: not of a bucket's root, nor of this folder."""
    path = source.url.partition("://")[2].partition("/")[2] if "://" in source.url else source.url
    return source.patterns is None and bool(path.strip("/")) and typed.rstrip("/") not in ("", ".", "..")


def _notes(source: Source, index: Index) -> tuple[str, ...]:
    notes = []
    if not index.is_counted:
        notes.append("records are estimated from a few shards; corgi2 index counts them")
        if index.bytes > PART_BYTES * index.shards.num_rows and source.format.has_ranges:
            notes.append("without an index whole shards are blocks; corgi2 index cuts them into blocks of 64 MB")
    return tuple(notes)


def _offline(stage: Stage) -> Offline:
    groups = len(stage.groups)
    shards = groups * stage.shards
    reads = int(np.ceil(stage.index.column("length") / PART_BYTES).sum())
    return Offline(groups, shards, shards * stage.blocks, reads, between=0 if stage.is_last else shards)


def _guess_records(source: Source, index: Index) -> int:
    """From the front of a few blocks."""
    picks = spread(index.blocks.num_rows, SAMPLE_BLOCKS)
    stored, records = 0.0, 0
    for piece in index.pieces(source, picks.tolist()):
        for taste in source.format.taste(piece):
            stored, records = stored + taste.stored_bytes, records + taste.group.records
    each = max(1.0, stored / max(1, records))
    return max(int(index.blocks.num_rows), round(index.bytes / each))


def probe(source: Source) -> tuple[float, float]:
    """Bytes a second of several reads at a time, and the seconds until one small read is answered."""
    picks = np.linspace(0, len(source.entries) - 1, _PROBES).astype(int).tolist()
    waits = []
    for number in picks:
        shard = source.shard(number)
        size = min(_PROBE_BYTES, shard.size)
        began = time.perf_counter()
        shard.readinto((shard.size - size) // 2, memoryview(bytearray(size)))
        waits.append(time.perf_counter() - began)

    def stream(number: int) -> int:
        shard = source.shard(number)
        size = min(_STREAM_BYTES, shard.size)
        shard.readinto(0, memoryview(bytearray(size)))
        return size

    began = time.perf_counter()
    with ThreadPoolExecutor(_STREAMS) as pool:
        total = sum(pool.map(stream, picks[:: _PROBES // _STREAMS]))
    return max(1.0, total / (time.perf_counter() - began)), statistics.median(waits)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the shuffle of a data set should have made of it."""

    before: Blocks
    n: int
    passes: int
    h: float

    def as_text(self) -> str:
        passes = "a pass" if self.passes == 1 else f"{self.passes} passes"
        return f"h = {self.h:,.4g} after {passes} with n = {self.n:,}, from h_D = {self.before.h:,.4g} before"


def predict(source: Source, index: Index, by: By, options: Options | None) -> Prediction | str:
    """From what the data was mixed from, measured in the same way; or why that cannot be done."""
    finished = [run for run, done in runs(entry.path for entry in source.store.list()).items() if done]
    held = load_plan(Journal(source.store, max(finished))) if finished else None
    if held is None:
        return "nothing says what it was mixed from"
    recipe, old = held
    if recipe.settings.in_place:
        return "it was mixed in place, and the shards it was mixed from are gone"
    try:
        before = replace(find_source(recipe.source, options, "inspect"), entries=tuple(old.entries))
        measured = by.measure(before, old)
    except Corgi2Error as error:
        return f"what it was mixed from cannot be read ({error})"
    stage, settings = first_stage(before, old, recipe), recipe.settings
    data = Blocks(measured.blocks, measured.block_records, min(measured.h_D, measured.block_records), _ragged(old))
    n = min(data.count, max(1, round(data.count / len(stage.groups))))
    written = max(1.0, min(index.records / index.blocks.num_rows, n * data.examples))
    if settings.with_replacement:
        h = theory.h_with_replacement(data, n)
    elif settings.passes == 2:
        between = data.total / (len(stage.groups) * stage.shards)
        h = theory.h_butterfly(data, n, written, max(1.0, min(between, n * data.examples)))
    else:
        h = theory.h_after_pass(data, min(data.count, n**settings.passes), written)
    return Prediction(data, n, settings.passes, h)


@dataclass(frozen=True, slots=True)
class Evenness:
    """The classes of what lies in one online buffer at a time: how many records of one there are, give or take."""

    blocks: int
    records: float
    classes: int
    H: float
    H_full: float
    mean: float
    spread: float
    spread_full: float

    def as_text(self) -> str:
        return (
            f"{self.blocks:,} blocks, {self.records:,.0f} records: {self.mean:,.1f} ± {self.spread:,.1f} of a class; "
            f"a full shuffle would give ± {self.spread_full:,.1f}"
        )


def evenness(
    source: Source, index: Index, buffer: int, measured: Measurement, predicted: Prediction | None
) -> Evenness:
    """Of one reader's buffer. The spread is the root of the mean variance over the classes: √(records·H·σ²/classes)."""
    catalog = Catalog(source, index, lineage_of(index))
    blocks = window_of(room_for(catalog, buffer, 1, None).blocks, 1, catalog.lineage, index.blocks.num_rows)
    data = Blocks(measured.blocks, measured.block_records, min(measured.h_D, measured.block_records))
    mixed, full = theory.window_random(data, blocks), theory.window_full(data, blocks)
    if predicted is None and catalog.lineage is not None:
        groups = len(np.unique(catalog.lineage[:, :1], axis=0))
        mixed = theory.window_even_later(data, groups, blocks)
    elif predicted is not None:
        written = max(1.0, min(data.examples, predicted.n * predicted.before.examples))
        window = min(blocks, int(predicted.before.total / written))
        reach = min(predicted.before.count, predicted.n**predicted.passes)
        mixed = theory.window_even(predicted.before, reach, window, written)
    records, classes = blocks * measured.block_records, measured.classes
    variance = records * measured.sigma2 / classes
    return Evenness(
        blocks,
        records,
        classes,
        mixed,
        full,
        records / classes,
        float(np.sqrt(variance * max(0.0, mixed))),
        float(np.sqrt(variance * full)),
    )
