"""Whether blocks differ in what their records hold, if no label is known.

Every column, part and key is measured by itself, on a few records of a few blocks: numbers as they are, text and bytes
by how often each byte occurs in them and by how long they are. An h above what luck allows shows that blocks differ;
about 1 shows nothing, because records of different kinds may look alike in this. Values that count up (ids, times)
differ between blocks of any data, and are left out if they are recognised.
"""

import datetime
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from corgi2.dataset import Index, Source, lineage_of
from corgi2.errors import ShardError, SourceError
from corgi2.order import SAMPLES, permutation
from corgi2.progress import progress
from corgi2.quality.blocks import Blocks
from corgi2.quality.labels import paths_of
from corgi2.quality.measurement import Floats
from corgi2.sizes import format_number, plural

_BLOCKS, _RECORDS, _BYTES = 64, 256, 1_000_000_000
"""The most that is looked at: blocks, records of each, and bytes of all."""
_DEVIATIONS = 4.0
"""How much luck is allowed for, given that many things are looked at."""
_SHORT = 64
_LONGEST, _MOST_COLUMNS = 4096, 64
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Trait:
    """What records were measured by, and how far their blocks differ in it."""

    what: str
    h: float
    """h of whole blocks, as estimated from some records of each."""
    limit: float
    """What luck allows for shuffled blocks, on the same scale."""

    @property
    def shows(self) -> bool:
        return self.h > self.limit


@dataclass(frozen=True, slots=True)
class Content:
    """What records look like, block by block; the traits in which blocks differ most come first."""

    traits: tuple[Trait, ...]
    blocks: int
    records: float
    """Records looked at in each block, on average."""
    is_mixed: bool = False
    """Whether corgi2 has mixed the data."""
    problem: str | None = None
    """Why records could not be looked at."""

    @property
    def shows(self) -> bool:
        return any(trait.shows for trait in self.traits)

    def as_json(self) -> dict[str, Any]:
        shown = {"shows": self.shows, "blocks": self.blocks, "traits": [*map(asdict, self.traits)]}
        return {"content": shown | {"problem": self.problem}}

    def as_text(self) -> str:
        if self.problem is not None:
            return f"  content  not looked at: {self.problem}"
        looked = f"{plural(self.blocks, 'block')}, about {self.records:,.0f} records of each"
        if not self.shows:
            return (
                f"  content  does not show that blocks differ ({looked}), which is no all-clear: measure by label= or "
                "feature="
            )
        shown = [f"{format_number(trait.h)} by {trait.what}" for trait in self.traits if trait.shows]
        more = "a label tells more: label="
        if self.is_mixed:
            more = (
                "corgi2 has mixed them, and its loader evens out what is left; label= tells whether it is as predicted"
            )
        return (
            f"  content  shows that blocks differ: h is about {', '.join(shown[:_SHOWN])}, and 1 where everything is "
            f"shuffled ({looked}); {more}"
        )


def look_at_content(source: Source, index: Index, without: Collection[str] = (), seed: int = 0) -> Content | None:
    """None if there are no two blocks to compare. Nobody asked for this look, so an unreadable record is no error."""
    try:
        return _look(source, index, without, seed)
    except (ShardError, SourceError) as error:
        return Content((), 0, 0.0, problem=str(error))


def _look(source: Source, index: Index, without: Collection[str], seed: int) -> Content | None:
    count, lengths = index.blocks.num_rows, index.column("length")
    picks = permutation(count, (seed, SAMPLES))[:_BLOCKS]
    picks = np.sort(picks[: max(2, int(np.searchsorted(np.cumsum(lengths[picks]), _BYTES)))])
    if len(picks) < 2:
        return None
    blocks, samples = Blocks(source, index), []
    with progress("looking at records", int(lengths[picks].sum())) as bar:
        for number in picks.tolist():
            samples.append([dict(paths_of(sample)) for sample in blocks.some(number, _RECORDS)])
            bar.advance(int(lengths[number]))
    sizes = np.array([len(block) for block in samples])
    b = index.records / count if index.is_counted else float(sizes.mean())
    names = [name for name in samples[0][0] if name not in without][:_MOST_COLUMNS]
    found = [
        trait
        for name in names
        for what, rows in _vectors(name, [[record.get(name) for record in block] for block in samples])
        if (trait := _trait(what, rows, sizes, b)) is not None
    ]
    found.sort(key=lambda trait: (not trait.shows, -trait.h))
    return Content(tuple(found), len(picks), float(sizes.mean()), lineage_of(index) is not None)


def _vectors(name: str, blocks: Sequence[Sequence[Any]]) -> Iterator[tuple[str, Floats]]:
    """What the values of a name look like, one row per record."""
    values = [value for block in blocks for value in block]
    if all(isinstance(value, bytes | str) for value in values):
        data = [value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value for value in values]
        longest = max(map(len, data))
        if longest <= _SHORT and len(set(data)) > len(data) / 2:  # names of records
            return
        lengths = np.array([[len(text)] for text in data], np.float64)
        yield f"the bytes of {name!r}", np.stack([_histogram(text) for text in data])
        yield f"the length of {name!r}", np.log1p(lengths)
    elif (numbers := _numbers(values)) is not None and not _counts_up(numbers):
        yield repr(name), numbers


def _histogram(text: bytes) -> Floats:
    return np.bincount(np.frombuffer(text, np.uint8), minlength=256) / max(1, len(text))


def _numbers(values: Sequence[Any]) -> Floats | None:
    try:
        if all(isinstance(value, datetime.datetime) for value in values):
            values = [value.timestamp() for value in values]
        rows = np.array(values, np.float64).reshape(len(values), -1)
    except (TypeError, ValueError, OverflowError):
        return None
    return rows if 0 < rows.shape[1] <= _LONGEST and np.isfinite(rows).all() else None


def _counts_up(numbers: Floats) -> bool:
    """Whether numbers hardly ever fall from one record to the next: row numbers, or times."""
    steps = np.diff(numbers[:, 0])
    return numbers.shape[1] == 1 and bool((steps >= 0).mean() > 0.99) and len(np.unique(numbers)) > len(numbers) / 2


def _trait(what: str, rows: Floats, sizes: Any, b: float) -> Trait | None:
    """h of the records that were looked at, and from it that of whole blocks; None if all are alike."""
    square = float((rows**2).sum(axis=1).mean())
    rows = rows - rows.mean(axis=0)
    sigma2 = float((rows**2).sum(axis=1).mean())
    if sigma2 <= 1e-12 * square:
        return None
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    means = np.add.reduceat(rows, starts, axis=0) / sizes[:, None]
    some = len(rows) / len(sizes)
    h = float((sizes * (means**2).sum(axis=1)).sum() / len(rows)) * some / sigma2
    h *= len(sizes) / (len(sizes) - 1)  # their mean lies too close to them
    ways = sigma2**2 / float(((rows.T @ rows / len(rows)) ** 2).sum())
    part = 2 / (9 * (len(sizes) - 1) * max(1.0, ways))
    limit = (1 - part + _DEVIATIONS * np.sqrt(part)) ** 3
    scale = max(1.0, (b - 1) / max(1.0, some - 1))
    return Trait(what, min(b, max(0.0, 1 + (h - 1) * scale)), float(1 + (limit - 1) * scale))
