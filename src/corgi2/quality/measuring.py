"""How badly shards are mixed: σ², h_D and the homogeneity h_D/b, from a sample of blocks, with an interval.

A vector stands for a record's gradient: the one-hot vector of a label, numbers of a column, or the result of a
function. Blocks are sampled, not records: a block is what one request reads. Memory: one block, and one row per sampled
block.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from corgi2.dataset import Index, Source, find_source, index_of
from corgi2.order import SAMPLES, Indices, permutation
from corgi2.progress import progress
from corgi2.quality.blocks import Blocks
from corgi2.quality.estimate import estimate
from corgi2.quality.labels import LackError, telling_labels
from corgi2.quality.measurement import Floats, Heat, Measurement
from corgi2.quality.sums import Sums, stacked
from corgi2.records import Decoder
from corgi2.stores import Options

__all__ = ["Heat", "Measurement", "measure", "measure_blocks"]

SAMPLE = 64
_VECTORS = 64
"""Vectors of a function that are held at a time."""
_MOST_CLASSES = 1 << 20
"""Once there are more classes, no further block is sampled: they would fill the memory, and tell little."""
_TASTED_BLOCKS, _TASTED_RECORDS = 8, 200
"""Records looked at to recommend a better label, if the given one tells nothing."""

Vector = Callable[[Mapping[str, Any]], Any]


def measure(
    uri: str | os.PathLike[str],
    labels: Sequence[str] = (),
    features: Sequence[str] = (),
    vector: Vector | None = None,
    sample: int = SAMPLE,
    seed: int = 0,
    src_options: Options | None = None,
) -> Measurement:
    """Measure a data set by labels, by numbers, or by ``vector``, a function of a sample (a gradient, say)."""
    if not (labels or features or vector):
        raise ValueError("give a label, a feature or a function to measure by")
    if sample < 2:
        raise ValueError(f"at least two blocks must be sampled (got {sample})")
    source = find_source(uri, src_options, "inspect")
    return measure_blocks(source, index_of(source), labels, features, vector, sample, seed)


def measure_blocks(
    source: Source,
    index: Index,
    labels: Sequence[str] = (),
    features: Sequence[str] = (),
    vector: Vector | None = None,
    sample: int = SAMPLE,
    seed: int = 0,
) -> Measurement:
    """The same for a source whose blocks are known."""
    count = index.blocks.num_rows
    picks = permutation(count, (seed, SAMPLES))[: min(sample, count)]
    table, blocks = Sums(labels, features), Blocks(source, index)
    lengths, done = index.column("length"), 0
    with progress("measuring", int(lengths[picks].sum())) as bar:
        for number in picks.tolist():
            if done > 1 and table.classes > _MOST_CLASSES:
                break
            _add_block(table, blocks, number, vector)
            done += 1
            bar.advance(int(lengths[number]))
    found = estimate(table, picks[:done], count, index.records / count if index.is_counted else None, seed)
    if found.tells:
        return found
    tasted = (blocks.some(number, _TASTED_RECORDS) for number in picks[:_TASTED_BLOCKS].tolist())
    return replace(found, better=telling_labels(tasted))


def _add_block(table: Sums, blocks: Blocks, number: int, vector: Vector | None) -> None:
    names, first = {*table.labels, *table.features}, 0
    for decoder, records in blocks.parts(number, names if vector is None else None):
        try:
            parts = table.add(decoder.columns(records, names), len(records))
        except LackError as lack:
            raise blocks.lacking(number, first + lack.row, lack) from lack
        if vector is not None:
            _add_vectors(table, decoder, records, parts, vector)
        elif parts:
            table.add_dense(np.hstack(parts))
        first += len(records)
    table.end_block()


def _add_vectors(table: Sums, decoder: Decoder, records: Indices, parts: list[Floats], vector: Vector) -> None:
    """A few at a time, because they may be long."""
    for start in range(0, len(records), _VECTORS):
        part = slice(start, start + _VECTORS)
        vectors = stacked([vector(sample) for sample in decoder.samples(records[part])], "the function")
        table.add_dense(np.hstack([*(feature[part] for feature in parts), vectors]))
