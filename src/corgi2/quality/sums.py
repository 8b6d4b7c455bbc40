"""Sums of the vectors that stand for records, block by block: one-hot vectors of labels, and numbers.

A label may have as many values as there are records, so its sums are kept as votes, and never as a matrix.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corgi2.errors import SourceError
from corgi2.order import Indices
from corgi2.quality.labels import look_up, look_up_label
from corgi2.quality.measurement import Floats

_LONG = 64
_AT_A_TIME = 65_536


@dataclass(frozen=True, slots=True)
class Votes:
    """How many records of a class lie in a block, for all pairs that have any."""

    block: Indices
    kind: Indices
    count: Floats

    def totals(self) -> Floats:
        """The total of each class."""
        return np.asarray(np.bincount(self.kind, self.count), np.float64)

    def dense(self, kinds: Indices, blocks: int) -> Floats:
        """Some classes, given in ascending order, as a matrix: one row per block."""
        place = np.searchsorted(kinds, self.kind)
        chosen = kinds[np.minimum(place, len(kinds) - 1)] == self.kind
        matrix = np.zeros((blocks, len(kinds)))
        matrix[self.block[chosen], place[chosen]] = self.count[chosen]
        return matrix


class Sums:
    """For every block: how many records, the sum of their vectors, the sum of their squares."""

    def __init__(self, labels: Sequence[str], features: Sequence[str]) -> None:
        self.labels, self.features = tuple(dict.fromkeys(labels)), tuple(dict.fromkeys(features))
        self._shift: Floats | None = None
        self._classes: dict[tuple[int, Any], int] = {}
        self._counts: list[int] = []
        self._votes: list[tuple[Indices, Floats]] = []
        self._totals: list[Floats] = []
        self._squares: list[float] = []
        self._begin()

    def _begin(self) -> None:
        self._count, self._seen, self._square = 0, dict[int, int](), 0.0
        self._dense: Floats = np.zeros(0)

    @property
    def classes(self) -> int:
        return len(self._classes)

    def add(self, columns: Mapping[str, Any], records: int) -> list[Floats]:
        """Add the labels of some records. Returns their features, to which more numbers may be added."""
        self._count += records
        self._square += records * len(self.labels)
        for number, label in enumerate(self.labels):
            for value, count in _counted(look_up_label(columns, label)):
                place = self._classes.setdefault((number, value), len(self._classes))
                self._seen[place] = self._seen.get(place, 0) + count
        return [_as_numbers(look_up(columns, name), name) for name in self.features]

    def add_dense(self, rows: Floats) -> None:
        """Add vectors, shifted to about their mean, which only reduces rounding errors."""
        if self._shift is None:
            self._shift = rows.mean(axis=0)
        if rows.shape[1] != len(self._shift):
            raise SourceError(f"vectors of {rows.shape[1]} numbers, but others have {len(self._shift)}")
        with np.errstate(over="ignore", invalid="ignore"):
            rows = rows - self._shift
            squares = float((rows**2).sum())
        if not np.isfinite(squares):
            raise SourceError("a feature is not a finite number, or is huge, in some records; leave it out, or fill it")
        total = rows.sum(axis=0)
        self._dense = total if not len(self._dense) else self._dense + total
        self._square += squares

    def end_block(self) -> None:
        kinds = np.fromiter(self._seen, np.int64, len(self._seen))
        self._votes.append((kinds, np.fromiter(self._seen.values(), np.float64, len(kinds))))
        self._counts.append(self._count)
        self._totals.append(self._dense)
        self._squares.append(self._square)
        self._begin()

    @property
    def counts(self) -> Floats:
        return np.array(self._counts, np.float64)

    @property
    def squares(self) -> Floats:
        return np.array(self._squares)

    def votes(self) -> Votes:
        block = np.repeat(np.arange(len(self._votes)), [len(kinds) for kinds, _ in self._votes])
        kinds = np.concatenate([kinds for kinds, _ in self._votes])
        return Votes(block, kinds, np.concatenate([counts for _, counts in self._votes]))

    def of_label(self) -> Indices:
        """For each class: the number of its label."""
        return np.fromiter((number for number, _ in self._classes), np.int64, len(self._classes))

    def products(self, votes: Votes) -> Floats:
        """The products of the sums of every two blocks."""
        dense = np.array(self._totals)
        result = dense @ dense.T
        for start in range(0, self.classes, _AT_A_TIME):
            part = votes.dense(np.arange(start, min(self.classes, start + _AT_A_TIME)), len(self._counts))
            result += part @ part.T
        return np.asarray(result)

    def names(self, kinds: Indices) -> list[str]:
        """The names of some classes, for people."""
        all_names, several = list(self._classes), len(self.labels) > 1
        chosen = [all_names[kind] for kind in kinds.tolist()]
        return [f"{self.labels[label]}={_text(value)}" if several else _text(value) for label, value in chosen]


def _counted(values: Any) -> Iterator[tuple[Any, int]]:
    """Each value, in order of first occurrence, and how often it occurs."""
    if isinstance(values, np.ndarray):
        kinds, firsts, counts = np.unique(values, return_index=True, return_counts=True)
        order = np.argsort(firsts)
        pairs = list(zip(kinds[order].tolist(), counts[order].tolist(), strict=True))
    else:
        pairs = list(Counter(values).items())
    for kind, count in pairs:
        yield _brief(kind) if kind == kind else "nan", count


def _brief(value: Any) -> Any:
    """A long text as its front and a digest: there may be one per record."""
    if not isinstance(value, str | bytes) or len(value) <= _LONG:
        return value
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return value[:40], hashlib.blake2b(data, digest_size=16).digest()


def _text(value: Any) -> str:
    value = value[0] if isinstance(value, tuple) else value
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip()[:40]


def _as_numbers(values: Any, name: str) -> Floats:
    """One row per record."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.reshape(len(values), -1).astype(np.float64)
    try:
        texts = [value.decode() if isinstance(value, bytes) else value for value in values]
        numbers = [float(text) if isinstance(text, str) else text for text in texts]
        return stacked(numbers, f"the feature {name!r}")
    except (ValueError, TypeError, OverflowError) as error:
        shown = str(values[0])[:60]
        raise SourceError(f"the feature {name!r} is not a number: {shown!r}; for kinds, give label=") from error


def stacked(rows: Sequence[Any], what: str) -> Floats:
    vectors = [np.ravel(np.asarray(row, np.float64)) for row in rows]
    if len({len(vector) for vector in vectors}) > 1:
        raise SourceError(f"{what} gives vectors of different lengths; leave it out, or make them equal")
    return np.stack(vectors)
