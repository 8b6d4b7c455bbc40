"""Where records lie in bytes, as values, and what is particular to one framed format."""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from corgi2.errors import ShardError, TooLargeError
from corgi2.order import Indices
from corgi2.records import Decoder, Loose
from corgi2.sizes import format_size

Bytes = npt.NDArray[np.uint8]

Hashes = npt.NDArray[np.uint64]

LOOSE_BYTES = 16
"""Bytes per record if something travels with some: how much lies before it, and how much after it."""

BETWEEN_BYTES = 64
"""Room for what lies between two blocks in memory: a terminator, a row that is not a record, its offset."""

ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class Where:
    """The place of some bytes: the shard's name, their offset in it, and how many can follow at most."""

    name: str
    base: int
    limit: int
    last: bool
    """Nothing follows these bytes."""
    known: bool = False
    """They were checked before: only their content is asked for."""
    decoding: bool = False
    """The places of the parts of records are asked for, too."""
    most: int = ENDLESS
    """Bytes of the largest record that there is memory for."""

    def from_(self, offset: int, last: bool) -> "Where":
        """The place of a part of these bytes."""
        return replace(self, base=self.base + offset, limit=self.limit - offset, last=last and self.last)

    def too_large(self, offset: int, size: int, about: str = "") -> TooLargeError:
        texts = format_size(size), format_size(self.most)
        taken, limit = texts if texts[0] != texts[1] else (f"{size:,} bytes", f"{self.most:,} bytes")
        problem = (
            f"a record of {about}{taken}, with what lies around it, does not fit the {limit} that reading may take; "
            "give a larger buffer"
        )
        return TooLargeError(self.name, self.base + offset, problem)

    def error(self, offset: int, problem: str) -> ShardError:
        return ShardError(self.name, self.base + offset, problem)


@dataclass(frozen=True, slots=True)
class Frames:
    """The span of record i is ``data[offsets[i]:offsets[i + 1]]``; what follows the last offset is not complete yet,
    or, after the end mark, padding."""

    offsets: Indices
    begin: Indices | None = None
    """Where each record itself begins, if that is not where its span does."""
    end: int | None = None
    """Where the last record itself ends, if something travels after it."""
    ended: bool = False
    keys: Hashes | None = None
    members: "Members | None" = None
    parts: "Parts | None" = None

    @staticmethod
    def of(begin: Indices, end: Indices, stop: int | None, **more: Any) -> "Frames":
        """Records that begin and end there; up to ``stop``, or, if more may come, without the last of them."""
        if not len(begin):
            return Frames(np.zeros(1, np.int64), **more)
        offsets = np.concatenate([[0], end[:-1], [] if stop is None else [stop]]).astype(np.int64, copy=False)
        begin, last = begin[: len(offsets) - 1], int(end[-1])
        is_tight = bool((begin == offsets[:-1]).all())
        return Frames(offsets, None if is_tight else begin, None if stop in (None, last) else last, **more)

    @property
    def is_loose(self) -> bool:
        """Whether anything travels in the spans besides the records."""
        return self.begin is not None or self.end is not None

    @property
    def loose(self) -> Loose | None:
        """What travels in the spans besides the records, if anything does."""
        if not self.is_loose:
            return None
        lead, tail = np.zeros(len(self.offsets) - 1, np.int64), np.zeros(len(self.offsets) - 1, np.int64)
        if self.begin is not None:
            lead = self.begin - self.offsets[:-1]
        if self.end is not None:
            tail[-1] = self.offsets[-1] - self.end
        return Loose(lead, tail)


@dataclass(frozen=True, slots=True)
class Members:
    """The parts of keyed records: part j has the name ``names[j]`` (a hash) and belongs to record ``records[j]``."""

    records: Indices
    names: Hashes


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the parts of records that will be decoded lie. Numbers are as short as possible."""

    counts: npt.NDArray[Any]
    """For each record: how many parts it has."""
    begin: npt.NDArray[Any]
    """For each part: where it begins, counted from the start of its record."""
    size: npt.NDArray[Any]
    cut: npt.NDArray[Any]
    """Where its name is cut into the record's key and its own."""
    names: dict[int, bytes]
    """Names that are not in the usual place."""

    @staticmethod
    def joined(several: "Sequence[Parts]") -> "Parts":
        names, before = dict[int, bytes](), 0
        for parts in several:
            names |= {before + number: name for number, name in parts.names.items()}
            before += len(parts.begin)
        return Parts(
            np.concatenate([parts.counts for parts in several]),
            np.concatenate([parts.begin for parts in several]),
            np.concatenate([parts.size for parts in several]),
            np.concatenate([parts.cut for parts in several]),
            names,
        )


@dataclass(frozen=True, slots=True)
class Lying:
    """Records as they lie in memory: the span of record i from ``offsets[rows[i]]`` on."""

    memory: mmap.mmap
    offsets: Indices
    rows: Indices
    loose: Loose | None
    parts: Parts | None
    begins: Indices
    """Of each piece, one behind another."""
    homes: tuple[tuple[str, int], ...]
    """The shard that each piece came from, and where it lies there."""

    def where(self, at: int) -> tuple[str, int]:
        """The shard, and the offset in it, of a byte in memory."""
        piece = int(np.searchsorted(self.begins, at, "right")) - 1
        shard, start = self.homes[piece]
        return shard, start + at - int(self.begins[piece])

    def shards(self, records: Indices) -> list[str]:
        """The shard that each record came from."""
        pieces = np.searchsorted(self.begins, self.starts(records), "right") - 1
        return [self.homes[piece][0] for piece in pieces.tolist()]

    def starts(self, records: Indices) -> Indices:
        rows = self.rows[records]
        return np.asarray(self.offsets[rows] if self.loose is None else self.offsets[rows] + self.loose.lead[rows])

    def stops(self, records: Indices) -> Indices:
        rows = self.rows[records] + 1
        return np.asarray(self.offsets[rows] if self.loose is None else self.offsets[rows] - self.loose.tail[rows - 1])


class Framing(Protocol):
    """What is particular to one framed format."""

    name: str
    terminator: bytes
    """Bytes that the last record may lack, but needs before another can follow."""
    trailer: bytes
    """What ends a shard."""
    record_overhead: int
    """Bytes of memory per record besides its offset, its row and its place in the permutation."""
    smallest_record: int
    """Bytes of the smallest record that there can be."""

    def split(self, data: Bytes, where: Where) -> Frames:
        """The complete records at the front of the data, which starts at a span."""

    def split_side_by_side(self, data: Bytes, cuts: Indices, where: Where) -> list[Frames] | None:
        """The same for several pieces at once, from each of the cuts to the next: all frames of each piece, nothing of
        which follows elsewhere. None if they must be split one by one, to learn which is damaged, or because that is
        cheap."""

    def begins_record(self, data: Bytes, where: Where) -> bool:
        """Whether a record begins in the data, which starts at a span. It need not be complete."""

    def items(self, loose: Bytes) -> Iterator[Indices]:
        """Bytes that belong to no record, cut into items that are hashed by themselves: a member, a line."""

    def check(self, name: str, frames: Sequence[tuple[int, Frames]]) -> None:
        """Given all frames of a shard with their offsets, refuse what shows only in all of them together."""

    def decoder(self, lying: Lying) -> Decoder:
        """Decodes records that were split for it."""
