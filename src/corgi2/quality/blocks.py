"""The blocks of a data set as they are measured: read one at a time, and decoded some records at a time."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from corgi2.budget import reading_bytes
from corgi2.dataset import Index, Source
from corgi2.errors import ShardError, SourceError, TooLargeError
from corgi2.order import Indices
from corgi2.quality.labels import LackError, paths_of
from corgi2.records import SLACK_BYTES, SLICE_BYTES, Arena, Decoder, Group
from corgi2.sizes import format_size

_DOUBT = 32
"""A factor, because some footprints are estimates; room that is not used costs nothing."""
_NAMES = 200
"""The most letters, in an error, of the names that a record has."""


@dataclass(frozen=True, slots=True)
class Blocks:
    source: Source
    index: Index

    def parts(self, number: int, paths: Collection[str] | None) -> Iterator[tuple[Decoder, Indices]]:
        """The records of a block, some at a time; without values that no path leads to, if they can be left out."""
        group, decoder = self._read(number, paths)
        step = max(1, SLICE_BYTES * group.records // max(1, group.footprint))
        for start in range(0, group.records, step):
            yield decoder, np.arange(start, min(group.records, start + step))

    def some(self, number: int, count: int) -> Iterator[Any]:
        """Whole records of a block, spread over it."""
        group, decoder = self._read(number, None)
        yield from decoder.samples(np.unique(np.linspace(0, group.records - 1, count).astype(np.int64)))

    def lacking(self, number: int, record: int, lack: LackError) -> SourceError:
        """What a record of a block lacks, and what it has."""
        shard, records = (self.index.column(name) for name in ("shard", "records"))
        before = np.flatnonzero(shard[:number] == shard[number])
        place = f"{self.index.pieces(self.source, [number])[0].file.name}: record {records[before].sum() + record:,}"
        if lack.problem is not None:
            return SourceError(f"{place}: {lack.problem}")
        _, decoder = self._read(number, None)
        (sample,) = decoder.samples(np.array([record]))
        paths = [path for path, _ in paths_of(sample)]
        if lack.path in paths:
            return SourceError(f"{place}: {lack.path!r} is null there; measure by another label, or fill it in first")
        known = ", ".join(paths)
        return SourceError(f"{place} has no value of {lack.path!r}; it has: {known[:_NAMES] or 'nothing'}")

    def _read(self, number: int, paths: Collection[str] | None) -> tuple[Group, Decoder]:
        source, (piece,) = self.source, self.index.pieces(self.source, [number])
        arena = Arena(min(_DOUBT * int(self.index.column("footprint")[number]), reading_bytes(None)) + SLACK_BYTES)
        try:
            group = source.format.read([piece], arena, decoding=True, only=paths)
        except MemoryError as error:
            problem = f"a block does not fit {format_size(arena.capacity)}; shuffle it into smaller ones"
            raise TooLargeError(piece.file.name, piece.start, problem) from error
        if not group.records:
            raise ShardError(piece.file.name, piece.start, "holds no record; remove it")
        return group, source.format.decoder(group, source.url)
