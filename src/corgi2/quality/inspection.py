"""``corgi2 inspect``: what a data set is made of, what is wrong with it, and how badly it is mixed."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from corgi2.arguments import suggesting
from corgi2.dataset import Index, find_source, left_alone, survey_of
from corgi2.errors import ShardError
from corgi2.quality.content import Content, look_at_content
from corgi2.quality.mixing import Mixing, look_at_mixing
from corgi2.quality.prediction import By, held_out_of, holdout_text
from corgi2.sizes import format_size, parse_size, plural
from corgi2.stores import Options


@dataclass(frozen=True, slots=True)
class Extent:
    """Smallest, median and largest."""

    smallest: int
    median: int
    largest: int


@dataclass(frozen=True, slots=True, repr=False)
class Inspection:
    """Damaged shards are in ``damage`` and count in ``shards`` and ``bytes``, but their records count nowhere."""

    url: str
    format: str
    shards: int
    blocks: int
    records: int
    bytes: int
    block_bytes: Extent
    block_records: Extent
    indexed: bool
    damage: tuple[ShardError, ...]
    others: tuple[str, ...]
    mixing: Mixing | None = None
    """How badly blocks are mixed, if that was asked for and no shard is damaged."""
    content: Content | None = None
    """Otherwise, whether blocks differ in what their records look like, unless memory was limited."""
    sibling: str = ""
    """Where the rest is of what this was held out of."""

    def as_json(self) -> dict[str, Any]:
        """As the command line prints it."""
        fields = ("url", "format", "shards", "blocks", "records", "bytes", "indexed", "others")
        extents = {name: asdict(getattr(self, name)) for name in ("block_bytes", "block_records")}
        damage = {"damage": [str(error) for error in self.damage]}
        held = {"held_out_of": self.sibling} if self.sibling else {}
        looked = (part.as_json() for part in (self.mixing, self.content) if part is not None)
        return {name: getattr(self, name) for name in fields} | extents | damage | held | next(looked, {})

    def as_text(self) -> str:
        """As the command line prints it."""
        size, records = self.block_bytes, self.block_records
        lines = [
            f"{self.url}",
            f"  format   {self.format}",
            f"  shards   {self.shards:,}",
            f"  blocks   {self.blocks:,}",
            f"  records  {self.records:,}",
            f"  bytes    {self.bytes:,} ({format_size(self.bytes)})",
            "  block    smallest, median, largest: "
            f"{format_size(size.smallest)}, {format_size(size.median)}, {format_size(size.largest)}; "
            f"{records.smallest:,}, {records.median:,}, {records.largest:,} records",
            f"  index    {'up to date' if self.indexed else 'none that is up to date; corgi2 index makes one'}",
            f"  damage   {len(self.damage) or 'none'}" + (" of the shards, listed below" if self.damage else ""),
        ]
        if self.others:
            lines.append(f"  others   {left_alone(self.others)}")
        lines += [part.as_text() for part in (self.mixing, self.content) if part is not None]
        if self.sibling and self.mixing is None:
            lines.append(holdout_text(self.sibling))
        return "\n".join(lines)

    def as_page(self, wording: Callable[[str], str] = str) -> str:
        """A page of HTML with pictures of the blocks, which loads nothing; ``wording`` is applied to what it says."""
        if self.mixing is None:
            raise ValueError("a page shows classes: give label=")
        return self.mixing.as_page(self.url, wording)

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        damaged = f", {plural(len(self.damage), 'damaged shard')}" if self.damage else ""
        mixed = f", h_D = {self.mixing.measured.h_D:.4g}" if self.mixing is not None else ""
        return (
            f"<Inspection of {self.url}: {plural(self.records, 'record')} in {plural(self.shards, 'shard')} of "
            f"{self.format}{mixed}{damaged}>"
        )


@suggesting
def inspect(
    src: str | os.PathLike[str],
    *,
    label: str | Sequence[str] = (),
    feature: str | Sequence[str] = (),
    sample: int = 64,
    online_buffer: int | str | None = None,
    after: str | os.PathLike[str] | None = None,
    buffer: int | str | None = None,
    src_options: Options | None = None,
) -> Inspection:
    """Say what a data set is made of: format, shards, blocks, records, bytes, and the damage found.

    Reads all shards once, unless an index is up to date (of Parquet, the footers only). Writes nothing. With a label or
    a feature it also measures how badly blocks are mixed: h_D is about the number of records in a block if each block
    holds one kind, and about 1 if they are shuffled. Without either, and without ``buffer``, it looks at some
    records of up to 64 blocks, and says whether blocks differ in numbers, bytes or lengths.

    Args:
        src: A folder, one shard, a glob or a brace range, in any store.
        label: Measure mixing by this tar part, column or JSON key, or by several.
        feature: The same by numbers, or vectors of them.
        sample: How many blocks to measure.
        online_buffer: Also say how even the classes of a loader's buffer of this size would be; takes one label.
        after: A second data set to measure in the same way, such as the first one after a shuffle.
        buffer: Memory to read with, 1 GB by default; the largest record must fit.
        src_options: Options for the store (docs/stores.md).
    """
    labels, features = (tuple([given] if isinstance(given, str) else given) for given in (label, feature))
    if online_buffer is not None and not labels:
        raise ValueError("online_buffer= is about classes: give label=, too")
    if after is not None and not (labels or features):
        raise ValueError("after= needs something to measure by: give label= or feature=, too")
    source = find_source(src, src_options, "inspect")
    survey, is_indexed = survey_of(source, None if buffer is None else parse_size(buffer))
    mixing = None
    if (labels or features) and not survey.damage:
        by, size = By(labels, features, sample), None if online_buffer is None else parse_size(online_buffer)
        second = None if after is None else os.fspath(after)
        mixing = look_at_mixing(source, survey.index, by, src_options, size, second)
    is_free = mixing is None and buffer is None and not survey.damage
    return Inspection(
        url=source.url,
        format=source.format.name,
        shards=len(source.entries),
        blocks=survey.index.blocks.num_rows,
        records=survey.index.records,
        bytes=sum(entry.size for entry in source.entries),
        block_bytes=_extent(survey.index, "length"),
        block_records=_extent(survey.index, "records"),
        indexed=is_indexed,
        damage=survey.damage,
        others=source.others,
        mixing=mixing,
        content=look_at_content(source, survey.index) if is_free else None,
        sibling=held_out_of(source),
    )


def _extent(index: Index, column: str) -> Extent:
    values = index.column(column)
    if not len(values):
        return Extent(0, 0, 0)
    return Extent(int(values.min()), int(np.median(values)), int(values.max()))
