"""``corgi2 inspect``: what a data set is made of, and what is wrong with it."""

import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from corgi2.dataset import Index, Source, Survey, find_source, load_index, open_index, survey_source
from corgi2.sizes import format_size, parse_size
from corgi2.stores import Options


@dataclass(frozen=True, slots=True)
class Extent:
    """Smallest, median and largest."""

    smallest: int
    median: int
    largest: int


@dataclass(frozen=True, slots=True)
class Description:
    """Damaged shards are in ``damage`` and counted in ``shards`` and ``bytes``, their records in nothing."""

    url: str
    format: str
    shards: int
    blocks: int
    records: int
    bytes: int
    block_bytes: Extent
    block_records: Extent
    indexed: bool
    damage: tuple[str, ...]
    others: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def as_text(self) -> str:
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
        return "\n".join(lines)


def left_alone(others: tuple[str, ...]) -> str:
    """A line about files that are no shards."""
    shown = ", ".join(others[:5]) + (", …" if len(others) > 5 else "")
    if len(others) == 1:
        return f"1 file is no shard and is left where it is: {shown}"
    return f"{len(others)} files are no shards and are left where they are: {shown}"


def inspect(
    uri: str | os.PathLike[str], storage_options: Options | None = None, *, buffer: int | str | None = None
) -> Description:
    """Describe a data set: from its index where that is up to date, else by a scan of all its shards, of which the
    largest record must fit ``buffer``, 1 GB if it is not given."""
    return describe(*look_at(uri, storage_options, None if buffer is None else parse_size(buffer)))


def look_at(
    uri: str | os.PathLike[str], storage_options: Options | None = None, buffer_bytes: int | None = None
) -> tuple[Source, Survey, bool]:
    """A source, what is in it, and whether an index said so."""
    source = find_source(uri, storage_options, "inspect")
    index = open_index(source)
    if index is not None:
        return source, Survey(index, ()), True
    return source, survey_source(source, known=load_index(source.store), buffer_bytes=buffer_bytes), False


def describe(source: Source, survey: Survey, indexed: bool) -> Description:
    index = survey.index
    return Description(
        url=source.url,
        format=source.format.name,
        shards=len(source.entries),
        blocks=index.blocks.num_rows,
        records=index.records,
        bytes=sum(entry.size for entry in source.entries),
        block_bytes=_extent(index, "length"),
        block_records=_extent(index, "records"),
        indexed=indexed,
        damage=tuple(map(str, survey.damage)),
        others=source.others,
    )


def _extent(index: Index, column: str) -> Extent:
    values = index.column(column)
    if not len(values):
        return Extent(0, 0, 0)
    return Extent(int(values.min()), int(np.median(values)), int(values.max()))
