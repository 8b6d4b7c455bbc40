"""How badly shards are mixed: σ², h_D and the homogeneity h_D/b, from a sample of blocks, with an interval.

A record stands for its gradient by a vector: the one-hot of a label, numbers of a column, or whatever a function makes
of it. Blocks are sampled, not records: a block is what one request reads. Memory: one block, and a row a sampled block.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from corgi2.budget import reading_bytes
from corgi2.dataset import Index, Source, find_source, index_of
from corgi2.errors import ShardError, SourceError, TooLargeError
from corgi2.order import RESAMPLES, SAMPLES, Indices, draws, permutation
from corgi2.progress import progress
from corgi2.records import SLACK_BYTES, SLICE_BYTES, Arena, Decoder
from corgi2.sizes import format_size
from corgi2.stores import Options

SAMPLE = 64
_TIMES = 1000
_VECTORS = 64
"""Of a function, at a time."""
_DOUBT = 32
"""Some footprints are estimates; room that is not used costs nothing."""

Floats = npt.NDArray[np.float64]
Vector = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Heat:
    """How many records of each class lie in each sampled block."""

    classes: tuple[str, ...]
    blocks: tuple[int, ...]
    counts: Floats


@dataclass(frozen=True, slots=True)
class Measurement:
    """Of a data set's blocks."""

    sigma2: float
    h_D: float  # noqa: N815 - the paper's name
    h_D_low: float  # noqa: N815
    h_D_high: float  # noqa: N815
    homogeneity: float
    """h_D/b: 1 where every block is of one kind."""
    classes: int
    """Of labels; 0 where there are none."""
    blocks: int
    sampled: int
    block_records: float
    """b, the mean."""
    heat: Heat | None = field(default=None, repr=False, compare=False)
    """Where there are labels."""

    def as_json(self) -> dict[str, Any]:
        """Beside the keys of a description, whose words for blocks these do not replace."""
        return {name: value for name, value in asdict(self).items() if name not in ("blocks", "block_records", "heat")}

    def as_text(self) -> str:
        interval = f"95 % between {self.h_D_low:,.3g} and {self.h_D_high:,.3g}"
        if self.sampled == self.blocks:
            interval = "all blocks were read"
        return "\n".join(
            [
                f"  h_D      {self.h_D:,.4g} of at most b = {self.block_records:,.4g} ({interval}; {self.sampled:,} of "
                f"{self.blocks:,} blocks)",
                f"  mixing   {self.verdict}",
            ]
        )

    @property
    def verdict(self) -> str:
        """One plain sentence."""
        if self.h_D <= 5 < self.h_D_high:
            return "so few blocks do not tell whether they are mixed: give a larger sample"
        if self.h_D <= 2:
            return "the blocks are mixed about as well as a full shuffle would: there is nothing to gain"
        if self.h_D <= 5:
            return "blocks differ little from each other: a shuffle buffer will do"
        if self.homogeneity > 0.5:
            return "each block holds nearly one kind: training from a shuffle buffer alone will suffer"
        if self.homogeneity > 0.05:
            return "blocks differ much from each other: an offline pass will help"
        return "blocks differ somewhat from each other: a large buffer may do, an offline pass is safe"


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
        raise ValueError("name a label or a feature, or give a function, to measure by")
    if sample < 2:
        raise ValueError(f"at least two blocks are sampled (got {sample})")
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
    """The same of a source whose blocks are known."""
    count = index.blocks.num_rows
    picks = np.sort(permutation(count, (seed, SAMPLES))[: min(sample, count)])
    table = _Sums(labels, features, vector)
    lengths = index.column("length")
    with progress("measuring", int(lengths[picks].sum())) as bar:
        for number in picks.tolist():
            for decoder, records in _parts(source, index, number):
                table.add(decoder, records)
            table.end_block()
            bar.advance(int(lengths[number]))
    return _estimate(table, picks, count, index.records / count if index.is_counted else None, seed)


def _parts(source: Source, index: Index, number: int) -> Iterator[tuple[Decoder, Indices]]:
    """The records of a block, some at a time."""
    (piece,) = index.pieces(source, [number])
    arena = Arena(min(_DOUBT * int(index.column("footprint")[number]), reading_bytes(None)) + SLACK_BYTES)
    try:
        group = source.format.read([piece], arena, decoding=True)
    except MemoryError as error:
        problem = f"a block that does not fit {format_size(arena.capacity)}; shuffle it into smaller ones"
        raise TooLargeError(piece.file.name, piece.start, problem) from error
    if not group.records:
        raise ShardError(piece.file.name, piece.start, "holds no record; remove it")
    decoder = source.format.decoder(group, source.url)
    step = max(1, SLICE_BYTES * group.records // max(1, group.footprint))
    for start in range(0, group.records, step):
        yield decoder, np.arange(start, min(group.records, start + step))


class _Sums:
    """For every block: how many records, the sum of their vectors, the sum of their squares."""

    def __init__(self, labels: Sequence[str], features: Sequence[str], vector: Vector | None) -> None:
        self._labels, self._features = tuple(dict.fromkeys(labels)), tuple(dict.fromkeys(features))
        self._vector = vector
        self._shift: Floats | None = None
        self._classes: dict[tuple[str, Any], int] = {}
        self._blocks: list[tuple[int, dict[int, int], Floats, float]] = []
        self._begin()

    def _begin(self) -> None:
        self._count, self._votes, self._square = 0, dict[int, int](), 0.0
        self._dense: Floats = np.zeros(0)

    @property
    def classes(self) -> int:
        return len(self._classes)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes, as people read them."""
        several = len(self._labels) > 1
        return tuple(f"{label}={_text(value)}" if several else _text(value) for label, value in self._classes)

    def add(self, decoder: Decoder, records: Indices) -> None:
        columns = decoder.columns(records, {*self._labels, *self._features})
        for name in (*self._labels, *self._features):
            _check_there(columns.get(name), name, decoder, records)
        self._count += len(records)
        for label in self._labels:
            for value, count in _counted(columns[label]):
                place = self._classes.setdefault((label, value), len(self._classes))
                self._votes[place] = self._votes.get(place, 0) + count
        self._square += len(records) * len(self._labels)
        if self._features or self._vector:
            parts = [_as_numbers(columns[name], name) for name in self._features]
            if self._vector is None:
                self._add_dense(np.hstack(parts))
                return
            for start in range(0, len(records), _VECTORS):  # they may be long
                part = slice(start, start + _VECTORS)
                vectors = _stacked([self._vector(sample) for sample in decoder.samples(records[part])], "the function")
                self._add_dense(np.hstack([*(feature[part] for feature in parts), vectors]))

    def _add_dense(self, rows: Floats) -> None:
        """Moved to about their mean, which changes nothing but what rounding does to them."""
        if self._shift is None:
            self._shift = rows.mean(axis=0)
        if rows.shape[1] != len(self._shift):
            raise SourceError(f"vectors of {rows.shape[1]} numbers, where others have {len(self._shift)}")
        with np.errstate(over="ignore", invalid="ignore"):
            rows = rows - self._shift
            squares = float((rows**2).sum())
        if not np.isfinite(squares):
            raise SourceError("a feature is no finite number, or is huge, in some records; leave it out, or fill it")
        total = rows.sum(axis=0)
        self._dense = total if not len(self._dense) else self._dense + total
        self._square += squares

    def end_block(self) -> None:
        self._blocks.append((self._count, self._votes, self._dense, self._square))
        self._begin()

    def arrays(self) -> tuple[Floats, Floats, Floats]:
        """Counts, sums and squares, a row a block."""
        counts = np.array([count for count, *_ in self._blocks], np.float64)
        sums = np.zeros((len(self._blocks), len(self._classes)))
        for row, (_, votes, _, _) in enumerate(self._blocks):
            sums[row, list(votes)] = list(votes.values())
        dense = np.array([dense for _, _, dense, _ in self._blocks])
        return counts, np.hstack([sums, dense]), np.array([square for *_, square in self._blocks])


def _check_there(values: Any, name: str, decoder: Decoder, records: Indices) -> None:
    """A part, a key or a column that records lack is no label."""
    if values is None or (isinstance(values, list) and None in values):
        first = 0 if values is None else values.index(None)
        (sample,) = decoder.samples(records[first : first + 1])
        known = ", ".join(key for key in sample if not key.startswith("__")) if isinstance(sample, dict) else "no keys"
        raise SourceError(f"a record has no value of {name!r}; it has: {known[:200]}")


def _counted(values: Any) -> Iterator[tuple[Any, int]]:
    """Each value, in the order of their first, and how often it is there."""
    if isinstance(values, np.ndarray) and values.ndim == 1:
        kinds, firsts, counts = np.unique(values, return_index=True, return_counts=True)
        order = np.argsort(firsts)
        for kind, count in zip(kinds[order].tolist(), counts[order].tolist(), strict=True):
            yield kind if kind == kind else "nan", count
    else:
        yield from Counter(map(_hashable, values)).items()


def _hashable(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.ndarray) else str(value) if isinstance(value, list | dict) else value


def _text(value: Any) -> str:
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip()[:40]


def _as_numbers(values: Any, name: str) -> Floats:
    """A row a record."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.reshape(len(values), -1).astype(np.float64)
    try:
        texts = [value.decode() if isinstance(value, bytes) else value for value in values]
        numbers = [float(text) if isinstance(text, str) else text for text in texts]
        return _stacked(numbers, f"the feature {name!r}")
    except (ValueError, TypeError, OverflowError) as error:
        shown = str(values[0])[:60]
        raise SourceError(f"the feature {name!r} is no number: {shown!r}; for kinds, give label=") from error


def _stacked(rows: Sequence[Any], what: str) -> Floats:
    vectors = [np.ravel(np.asarray(row, np.float64)) for row in rows]
    if len({len(vector) for vector in vectors}) > 1:
        raise SourceError(f"{what} gives vectors of different lengths; leave it out, or make them equal")
    return np.stack(vectors)


def _estimate(table: _Sums, picks: Indices, blocks: int, records: float | None, seed: int) -> Measurement:
    """Of so many blocks of so many records on average; where that is not known, as many as in the sampled ones."""
    counts, sums, squares = table.arrays()
    sampled, block_records = len(counts), float(counts.mean()) if records is None else records
    sigma2, h = _parameters(counts, sums, squares, np.ones((1, sampled)), blocks)
    if sigma2[0] <= 1e-12 * float(squares.sum() / counts.sum()):
        more = "" if sampled == blocks else "; a larger sample may have others"
        raise SourceError(f"all sampled records have the same value: there is no variance, and nothing to mix{more}")
    low = high = float(h[0]) * block_records
    if sampled < blocks:
        chosen = draws(_TIMES * sampled, sampled, (seed, RESAMPLES)).reshape(_TIMES, sampled)
        times = np.stack([np.bincount(row, minlength=sampled) for row in chosen]).astype(np.float64)
        _, spread = _parameters(counts, sums, squares, times, blocks)
        bounds = np.quantile(spread[np.isfinite(spread)], [0.025, 0.975]) * block_records
        shrink = np.sqrt(1 - sampled / blocks)  # a sample of nearly all leaves little doubt
        low, high = (float(low + (bound - low) * shrink) for bound in bounds)
    value = float(h[0]) * block_records
    return Measurement(
        sigma2=float(sigma2[0]),
        h_D=value,
        h_D_low=min(value, max(0.0, low)),
        h_D_high=max(value, min(block_records, high)),
        homogeneity=value / block_records,
        classes=table.classes,
        blocks=blocks,
        sampled=sampled,
        block_records=block_records,
        heat=_heat(table.names, picks, sums) if table.classes else None,
    )


def _heat(names: Sequence[str], picks: Indices, sums: Floats) -> Heat:
    """Classes by name, numbers by size."""
    order = sorted(range(len(names)), key=lambda place: (len(names[place]) * names[place].isdigit(), names[place]))
    return Heat(tuple(names[place] for place in order), tuple(picks.tolist()), sums[:, order])


def _parameters(counts: Floats, sums: Floats, squares: Floats, times: Floats, blocks: int) -> tuple[Floats, Floats]:
    """σ² and h_D/b̄ of samples of blocks, in which each block is so many times: a row a sample."""
    weights = times * counts
    total = weights.sum(axis=1)
    middle = (times @ (sums @ sums.T) * times).sum(axis=1) / total**2
    between = times @ ((sums**2).sum(axis=1) / counts) / total - middle
    within = times @ (squares - (sums**2).sum(axis=1) / counts) / total
    size = len(counts)
    if size < blocks:  # the mean of a sample lies too near its blocks
        between = between * size / (size - 1) * (blocks - 1) / blocks
    between = np.maximum(between, 0)
    sigma2 = within + between
    with np.errstate(invalid="ignore", divide="ignore"):
        return sigma2, between / sigma2
