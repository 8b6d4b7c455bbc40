"""Many small archives that lie side by side, split into records at once: NumPy takes as long for one as for all.

The result is that of splitting each archive alone. An archive that is damaged, or in which a record needs a closer look
(hard links, sizes in extended headers, no record at all), is left to that.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from corgi2.errors import ShardError
from corgi2.formats.framed.frames import Bytes, Frames, Members, Parts, Where
from corgi2.formats.tar.archive import Archive, read_archives
from corgi2.formats.tar.names import Names, hash_names
from corgi2.formats.tar.parts import parts_of, second_members
from corgi2.order import Indices


def split_side_by_side(data: Bytes, cuts: Indices, where: Where) -> list[Frames] | None:
    """The records of each piece, from ``cuts[i]`` to ``cuts[i + 1]``; None if the pieces must be split one by one."""
    try:
        found = read_archives(data, cuts, where)
        if found is None or found[0].links:
            return None
        archive, stops = found
        several = _Several.of(archive, hash_names(archive, where), cuts, stops)
        return None if several is None else list(several.frames(where))
    except ShardError:
        return None


@dataclass(frozen=True, slots=True)
class _Several:
    """Members with a key, record by record, of all pieces."""

    archive: Archive
    names: Names
    cuts: Indices
    stops: Indices
    keyed: Indices
    record: Indices
    """The record of each of them."""
    first: Indices
    """The first member of each record."""
    last: Indices
    bounds: Indices
    """The first record of each piece, and the end."""

    @staticmethod
    def of(archive: Archive, names: Names, cuts: Indices, stops: Indices) -> "_Several | None":
        """None if a piece has no record."""
        keyed = np.flatnonzero(names.has_key)
        keys, home = names.key[keyed], np.searchsorted(cuts, archive.start[keyed], "right") - 1
        begins = np.append(True, (keys[1:] != keys[:-1]) | (home[1:] != home[:-1]))[: len(keyed)]
        bounds = np.searchsorted(home[begins], np.arange(len(cuts)))
        if not np.diff(bounds).all():
            return None
        ends = np.append(begins[1:], True)
        record = np.cumsum(begins) - 1
        return _Several(archive, names, cuts, stops, keyed, record, keyed[begins], keyed[ends], bounds)

    def frames(self, where: Where) -> Iterator[Frames]:
        home = np.repeat(np.arange(len(self.stops)), np.diff(self.bounds))
        begin = self.archive.start[self.first] - self.cuts[home]
        end = self._after[self.last] - self.cuts[home]
        stops, sizes = self.stops - self.cuts[:-1], np.diff(self.cuts)
        keys, ended, firsts = self.names.key[self.first], stops < sizes, np.searchsorted(self.record, self.bounds)
        beside = zip(self._members(where, firsts), self._parts(where, firsts), strict=True)
        pieces = zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), stops.tolist(), ended.tolist(), strict=True)
        for (start, stop, at, is_ended), (members, parts) in zip(pieces, beside, strict=True):
            some = slice(start, stop)
            yield Frames.of(begin[some], end[some], at, ended=is_ended, keys=keys[some], members=members, parts=parts)

    @property
    def _after(self) -> Indices:
        """Where each member ends: at the next one, or where its piece does."""
        after = np.append(self.archive.start[1:], 0)
        after[np.searchsorted(self.archive.start, self.cuts[1:]) - 1] = self.stops
        return after

    def _members(self, where: Where, firsts: Indices) -> Iterator[Members | None]:
        parts = self.names.part[self.keyed]
        if not where.known and len(second_members(self.record, parts)):
            raise where.error(0, "a second member in one sample")  # the piece that has it says which
        for number, (start, stop) in enumerate(zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)):
            records = self.record[start:stop] - self.bounds[number]
            yield None if where.known else Members(records, parts[start:stop])

    def _parts(self, where: Where, firsts: Indices) -> Iterator[Parts | None]:
        if not where.decoding:
            yield from [None] * len(self.stops)
            return
        whole = parts_of(self.archive, self.names, self.keyed, self.record, self.first)
        for number, (start, stop) in enumerate(zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)):
            texts = (
                {at - start: whole.names[at] for at in range(start, stop) if at in whole.names} if whole.names else {}
            )
            counts = whole.counts[self.bounds[number] : self.bounds[number + 1]]
            yield Parts(counts, whole.begin[start:stop], whole.size[start:stop], whole.cut[start:stop], texts)
