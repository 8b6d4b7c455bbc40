"""What a shuffle should have made of a data set, and what a loader's buffer of it holds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from corgi2 import theory
from corgi2.dataset import Catalog, Index, Source, find_source, lineage_of, runs
from corgi2.errors import Corgi2Error
from corgi2.offline import Journal, first_pass, load_plan
from corgi2.online import room_for
from corgi2.order import window_of
from corgi2.quality.measuring import Measurement, measure_blocks
from corgi2.stores import Options
from corgi2.theory import Blocks


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


def raggedness(index: Index) -> float:
    sizes = index.column("records" if index.is_counted else "length").astype(np.float64)
    return float(sizes.var() / sizes.mean() ** 2)


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
    plan, old = held
    if plan.settings.in_place:
        return "it was mixed in place, and the shards it was mixed from are gone"
    try:
        before = replace(find_source(plan.source, options, "inspect"), entries=tuple(old.entries))
        measured = by.measure(before, old)
    except Corgi2Error as error:
        return f"what it was mixed from cannot be read ({error})"
    pass_, settings = first_pass(before, old, plan), plan.settings
    data = Blocks(measured.blocks, measured.block_records, min(measured.h_D, measured.block_records), raggedness(old))
    n = min(data.count, max(1, round(data.count / len(pass_.groups))))
    written = max(1.0, min(index.records / index.blocks.num_rows, n * data.examples))
    if settings.with_replacement:
        h = theory.h_with_replacement(data, n)
    elif settings.passes == 2:
        between = data.total / (len(pass_.groups) * pass_.shards)
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
