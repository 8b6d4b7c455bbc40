"""What a shuffle should have made of a data set, and what a loader's buffer would hold."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from corgi2 import theory
from corgi2.dataset import CORGI_FOLDER, Catalog, Index, Source, catalog_of, find_source, runs
from corgi2.errors import Corgi2Error
from corgi2.offline import Journal, Pass, Plan, dealt_in, first_pass, load_plan, look_ahead
from corgi2.online import room_for
from corgi2.order import (
    Dealt,
    Felt,
    Indices,
    Pools,
    Rules,
    Step,
    Windows,
    epoch_rest,
    pools_after,
    pools_of_blocks,
    pools_of_counts,
    pools_of_ranges,
    window_of,
)
from corgi2.quality.measurement import Floats
from corgi2.quality.measuring import Measurement, measure_blocks
from corgi2.sizes import plural
from corgi2.stores import Options, parse_url, secrets_of
from corgi2.theory import Blocks

_MOST_SHARES = 20_000_000
"""Groups times blocks, up to which it is looked at how much of each block lies in each group of ranges."""


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
    sizes = _sizes(index)
    return float(sizes.var() / sizes.mean() ** 2)


def _sizes(index: Index) -> Floats:
    """The sizes of blocks, relative to each other."""
    return index.column("records" if index.is_counted else "length").astype(np.float64)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the shuffle of a data set should have made of it."""

    before: Blocks
    n: int
    passes: int
    h: float
    source: Measurement
    """The measurement of the data before the shuffle."""
    pools: Pools | None = field(default=None, repr=False, compare=False)
    """The groups of the last pass, if known."""
    rounds: int = 0
    """Of ranges, if there were any."""

    @property
    def freedom(self) -> float:
        """How many groups could differ from what they are mixed from, each in every direction."""
        if self.pools is not None and self.rounds:
            return len(self.pools.sizes) - self.rounds
        return self.source.blocks / self.n - 1

    def as_text(self) -> str:
        passes = "a pass" if self.passes == 1 else plural(self.passes, "pass")
        how = f"of ranges in {plural(self.rounds, 'round')}, groups as large as" if self.rounds else "with"
        return f"h = {self.h:,.4g} after {passes} {how} n = {self.n:,}, from h_D = {self.before.h:,.4g} before"


def held_out_of(source: Source) -> str:
    """Where the rest is of what this was held out of; nothing, where no sound plan says so."""
    try:
        held = _kept(source)
    except Corgi2Error:
        return ""
    return "" if held is None else held[0].sibling


def holdout_text(sibling: str) -> str:
    """As ``inspect`` says it, with and without a label."""
    return f"  holdout  {sibling} is the rest: this is for validation, which needs no mixing"


def _kept(source: Source) -> tuple[Plan, Index] | None:
    """The plan of the latest shuffle that was finished there, and what it was made for."""
    paths = (entry.path for entry in source.store.list(CORGI_FOLDER))
    finished = [run for run, done in runs(paths).items() if done]
    return load_plan(Journal(source.store, max(finished))) if finished else None


def predict(source: Source, index: Index, by: By, options: Options | None) -> Prediction | str:
    """From what the data was mixed from, measured in the same way; or why that cannot be done."""
    held = _kept(source)
    if held is None:
        return "it is not known what it was mixed from"
    plan, old = held
    if plan.sibling:
        return f"it was held out of the data that {plan.sibling} was mixed from, and is not part of that"
    if plan.settings.in_place:
        return "it was mixed in place, and the shards it was mixed from are gone"
    try:
        before = replace(_opened(plan, source, options), entries=tuple(old.entries))
        if plan.settings.range_bytes is not None:
            return _of_ranges(before, old, plan, index, by)
        measured = by.measure(before, old)
    except Corgi2Error as error:
        return f"what it was mixed from cannot be read ({error})"
    first = first_pass(before, old, plan)
    data = Blocks(measured.blocks, measured.block_records, min(measured.h_D, measured.block_records), raggedness(old))
    n, h, pools = _after(first, plan, source, index, data)
    return Prediction(data, n, plan.settings.passes, h, measured, pools)


def _of_ranges(before: Source, old: Index, plan: Plan, index: Index, by: By) -> Prediction:
    """Both the blocks and the ranges that they were cut into are measured: what is alike in a range is not mixed by
    taking it whole."""
    first = first_pass(before, old, plan)
    dealt, blocks, cut = dealt_in(first, old, plan)
    measured, parts = by.measure(before, blocks), by.measure(before, cut)
    b = measured.block_records
    data = Blocks(measured.blocks, b, min(measured.h_D, b), raggedness(blocks))
    n, rounds = max(1, round(data.count / len(first.groups))), len(set(first.rounds))
    h, pools = _after_rounds(dealt, data, index, min(parts.h_D, parts.block_records))
    return Prediction(data, n, 1, h, measured, pools, rounds)


def _after_rounds(
    dealt: Dealt, data: Blocks, index: Index, h_ranges: float | None = None
) -> tuple[float, Pools | None]:
    """h that a pass of ranges should have left in the blocks of an index, and its groups, if there are not too many."""
    groups = len(dealt.rounds)
    if groups * data.count > _MOST_SHARES:
        mixed = theory.Rounds(data, data.count / groups, int(dealt.rounds.max()) + 1)
        return mixed.h, None
    scaled = dealt._replace(sizes=dealt.sizes * (data.total / dealt.sizes.sum()))
    pools = pools_of_ranges(scaled, data.h, h_ranges)
    return pools.h(max(1, round(index.blocks.num_rows / groups))), pools


def worst_after_shuffle(source: Source, index: Index) -> float | None:
    """h of data that corgi2 has mixed, if every block was of one kind before; None where no sound plan tells."""
    try:
        held = _kept(source)
    except Corgi2Error:
        return None
    if held is None or held[0].sibling or not index.is_counted:
        return None
    plan, old = held
    first = first_pass(replace(source, entries=tuple(old.entries)), old, plan)
    if plan.settings.range_bytes is not None:
        return _worst_of_ranges(first, old, plan, index)
    b = index.records / old.blocks.num_rows
    _, h, _ = _after(first, plan, source, index, Blocks(old.blocks.num_rows, b, b, raggedness(old)))
    return float(min(h, index.records / index.blocks.num_rows))


def _worst_of_ranges(first: Pass, old: Index, plan: Plan, index: Index) -> float:
    dealt, blocks, _ = dealt_in(first, old, plan)
    count = blocks.blocks.num_rows
    h, _ = _after_rounds(dealt, Blocks(count, index.records / count, index.records / count), index)
    return float(min(h, index.records / index.blocks.num_rows))


def _after(first: Pass, plan: Plan, target: Source, index: Index, data: Blocks) -> tuple[int, float, Pools | None]:
    """n, what a shuffle should have made of the h of such blocks, and its last groups."""
    settings, n = plan.settings, min(data.count, max(1, round(data.count / len(first.groups))))
    written = max(1.0, min(index.records / index.blocks.num_rows, n * data.examples))
    pools = _pools(first, plan, target, data)
    if settings.with_replacement:
        h = theory.h_with_replacement(data, n)
    elif pools is not None:
        h = pools.h(max(1, round(index.blocks.num_rows / len(pools.sizes))))
    elif settings.passes == 2:
        between = data.total / (len(first.groups) * first.shards)
        h = theory.h_butterfly(data, n, written, max(1.0, min(between, n * data.examples)))
    else:
        h = theory.h_after_pass(data, min(data.count, n**settings.passes), written)
    return n, h, pools


def _pools(first: Pass, plan: Plan, target: Source, data: Blocks) -> Pools | None:
    """What the passes should have left, group by group; None if that is not known."""
    passes = look_ahead(first, plan, target.store).passes
    if plan.settings.with_replacement or not passes[-1].is_last:
        return None
    sizes = _sizes(first.index)
    steps = [Step(pass_.groups, pass_.shards * pass_.blocks) for pass_ in passes]
    return pools_after(sizes * (data.total / sizes.sum()), data.h, steps)


def _opened(plan: Plan, shuffled: Source, options: Options | None) -> Source:
    """The original data, by the name and the options that were given then. Secrets are not kept: those for the shuffled
    data are used if both lie in stores of the same kind."""
    is_akin = parse_url(plan.named).scheme == parse_url(shuffled.url).scheme
    return find_source(plan.named, {**(secrets_of(options or {}) if is_akin else {}), **plan.options}, "inspect")


_EPOCHS, _MOST_WINDOWS = 4, 1_000
"""So many orders of the loader are looked at, and so many windows of each."""


@dataclass(frozen=True, slots=True)
class Evenness:
    """The classes in one online buffer at a time: how many records of one class there are, give or take; and what SGD
    feels over time: R, with a memory of as many records."""

    blocks: int
    records: float
    classes: int
    H: float
    H_full: float
    R: float
    R_full: float
    mean: float
    spread: float
    spread_full: float

    def as_text(self) -> str:
        return (
            f"{plural(self.blocks, 'block')}, {self.records:,.0f} records: {self.mean:,.1f} ± {self.spread:,.1f} of a "
            f"class; a full shuffle would give ± {self.spread_full:,.1f}\n"
            f"  felt     H = {self.H:,.3g}; over time, for SGD that remembers as many records, R = {self.R:,.3g}; a "
            f"full shuffle has {self.H_full:,.3g} and {self.R_full:,.3g}"
        )


def evenness(
    source: Source, index: Index, buffer: int, measured: Measurement, predicted: Prediction | None
) -> Evenness:
    """Of one reader's buffer. The spread is the root of the mean variance over the classes: √(records·H·σ²/classes)."""
    catalog = catalog_of(source, index)
    blocks = window_of(
        room_for(catalog, buffer, 1, None, "online_buffer").blocks,
        1,
        catalog.lineage,
        index.blocks.num_rows,
        catalog.rounds,
    )
    data, records, classes = measured.data, blocks * measured.block_records, measured.classes
    full = theory.window_full(data, blocks)
    felt = felt_in(catalog, blocks, measured, predicted)
    variance = records * measured.sigma2 / classes
    return Evenness(
        blocks,
        records,
        classes,
        felt.H,
        full,
        felt.R,
        theory.long_run(full, records, data.total, records),
        records / classes,
        float(np.sqrt(variance * max(0.0, felt.H))),
        float(np.sqrt(variance * full)),
    )


def felt_in(catalog: Catalog, window: int, measured: Measurement, predicted: Prediction | None) -> Felt:
    """Windows of so many blocks, on orders of the loader: by the classes of all blocks, if they were read; else by what
    the shuffle should have left, or, where that is not known, with all of h but 1 between the groups. Raw blocks are
    drawn at random."""
    data, lineage, heat = measured.data, catalog.lineage, measured.heat
    tau = window * data.examples
    if heat is not None and measured.sampled == measured.blocks and measured.classes == len(heat.classes):
        return _on_orders(catalog, window, pools_of_counts(heat.counts), np.arange(data.count), tau)
    if lineage is None:
        spread = theory.window_random(data, window)
        return Felt(spread, theory.long_run(spread, tau, data.total, tau))
    if predicted is not None and predicted.pools is not None and lineage[:, -1].max() < len(predicted.pools.sizes):
        return _on_orders(catalog, window, predicted.pools, lineage[:, -1], tau)
    _, group = np.unique(lineage, axis=0, return_inverse=True)
    held = np.bincount(group.ravel(), catalog.index.column("records")).astype(np.float64)
    share = max(0.0, data.h - 1) / data.examples
    return _on_orders(catalog, window, pools_of_blocks(held, share * float(held.mean())), group.ravel(), tau)


def _on_orders(catalog: Catalog, window: int, pools: Pools, pool: Indices, tau: float) -> Felt:
    """The mean over some epochs of the loader."""
    counts, found = catalog.index.column("records"), list[Felt]()
    for epoch in range(_EPOCHS):
        rest = epoch_rest(counts, catalog.lineage, Rules(), epoch, catalog.rounds)
        order = rest.blocks[: window * _MOST_WINDOWS]
        found.append(Windows(pools, pool[order], counts[order].astype(np.float64), window).felt(tau))
    return Felt(float(np.mean([each.H for each in found])), float(np.mean([each.R for each in found])))
