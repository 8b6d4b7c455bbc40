"""What the rest of corgi2 asks of a store, and the values that they exchange."""

import copy
import math
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from corgi2.errors import ChangedError
from corgi2.records import Buffer

PART_BYTES = 64_000_000
"""One request moves at most this much; a larger object goes in parts."""

CONNECTIONS = 16
"""Requests of one process that may be in flight, unless the store's options say otherwise."""

RANGE_BYTES = 4_000_000
"""A read that is split into ranges, so that several connections share it, asks for at least this much in each."""

CHANGED = "has changed since it was listed; when nothing writes to it any more, run the command again"

GONE = "has disappeared since it was listed; restore it, if that was not intended, and run the command again"

_ATTEMPTS = 5

_LEAST_PART_BYTES, _PART_SHARE, _WHOLE_PARTS = 8_000_000, 64, 4

Options = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class File:
    """What a listing knows about the file behind a name. All names of one file have equal values."""

    device: int
    inode: int
    changed_ns: int
    """When it was last changed in any way; no program can set this time back."""
    is_linked: bool = field(default=False, compare=False)
    """Whether the name leads there through a symbolic link, to the file or to a folder below the store's root."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a listing. The etag changes whenever the content does; it is empty if not known."""

    path: str
    size: int
    etag: str
    file: File | None = field(default=None, compare=False, repr=False)
    """The file on disk, if it was listed there."""
    is_listed: bool = field(default=True, compare=False, repr=False)
    """False if the etag is corgi2's own, which no store knows."""


_counting = threading.Lock()

# Held across a fork, so that no child inherits it locked by a thread that it does not have.
os.register_at_fork(before=_counting.acquire, after_in_parent=_counting.release, after_in_child=_counting.release)


@dataclass(slots=True)
class Requests:
    """How often a store was asked. Safe to count from many threads."""

    lists: int = 0
    reads: int = 0
    writes: int = 0
    deletes: int = 0

    def count(self, *, lists: int = 0, reads: int = 0, writes: int = 0, deletes: int = 0) -> None:
        with _counting:
            self.lists += lists
            self.reads += reads
            self.writes += writes
            self.deletes += deletes

    def since(self, earlier: "Requests") -> "Requests":
        """The difference to an earlier count."""
        return Requests(
            self.lists - earlier.lists,
            self.reads - earlier.reads,
            self.writes - earlier.writes,
            self.deletes - earlier.deletes,
        )

    def add(self, other: "Requests") -> None:
        self.count(lists=other.lists, reads=other.reads, writes=other.writes, deletes=other.deletes)


class Store(Protocol):
    """What the rest of corgi2 asks of a store. Paths are relative to its root, with ``/`` between parts."""

    @property
    def url(self) -> str: ...
    @property
    def requests(self) -> Requests: ...

    @property
    def is_local(self) -> bool:
        """Whether its files lie on this machine: requests cost nothing, and writing holds nothing in memory."""

    @property
    def connections(self) -> int:
        """How many requests of one process may be in flight."""

    @property
    def ranges(self) -> int:
        """How many of these may share one read; 1 leaves every block to one request."""

    def list(self, folder: str = "", levels: int | None = None) -> list[Entry]:
        """All objects below a folder, or only this many levels of it, by path; empty if there is no such folder."""

    def head(self, path: str) -> Entry | None:
        """One object, or None if there is none."""

    def readinto(self, entry: Entry, start: int, buffer: memoryview, ranges: int = 1) -> None:
        """Fill the buffer with an object's bytes from ``start`` on, if it is still what was listed; with up to
        ``ranges`` requests at the same time, if each of them is large enough."""

    def publish(self, path: str, pieces: Iterable[Buffer], part_bytes: int = PART_BYTES) -> Entry:
        """Write an object atomically, replacing any of that name; in parts if it is large."""

    def publish_together(self, files: Iterable[tuple[str, Iterable[Buffer]]]) -> Sequence[Entry]:
        """Write several small objects, each atomically; on a disk at little more than the cost of a copy."""

    def create(self, path: str, data: bytes) -> bool:
        """Write an object if there is none of that name; False if there is."""

    def delete(self, path: str) -> None:
        """Delete an object; a missing one counts as deleted."""

    def free_bytes(self) -> int | None:
        """Free room in bytes, or None if it is unlimited."""

    def check_writable(self) -> None:
        """Raise an error if it is clear, without writing, that nothing can be written here."""

    def keeps_versions(self, path: str) -> bool:
        """Whether this object, once deleted, would still take room as an old version."""

    def holds(self, other: "Store", levels: int | None = None) -> bool:
        """Whether another store is this one, or lies below it: at most this many levels, links followed."""

    def sweep(self, folder: str = "") -> None:
        """Remove half-written files that killed processes have left below a folder."""


@dataclass(frozen=True, slots=True)
class StoredShard:
    """A shard in a store, as formats see it: a name, a size, bytes."""

    store: Store
    entry: Entry
    ranges: int = 1
    """How many requests may share one read."""

    @property
    def name(self) -> str:
        return f"{self.store.url}/{self.entry.path}"

    @property
    def size(self) -> int:
        return self.entry.size

    @property
    def version(self) -> str:
        return self.entry.etag

    def readinto(self, start: int, buffer: memoryview) -> None:
        if self.ranges == 1:
            self.store.readinto(self.entry, start, buffer)
        else:
            self.store.readinto(self.entry, start, buffer, self.ranges)


def counting(store: Store, requests: Requests) -> Store:
    """The same store, whose requests are counted elsewhere."""
    other = copy.copy(store)
    other.requests = requests  # type: ignore[misc]
    return other


def sharing(store: Store, readers: int) -> Store:
    """The same store for one of so many processes that read together, with its part of the connections."""
    if readers == 1 or store.is_local:
        return store
    other = copy.copy(store)
    other.readers = readers  # type: ignore[attr-defined]
    return other


def reads_of(size: float, ranges: int = 1) -> int:
    """Requests that it takes to read this many bytes, if up to ``ranges`` requests may share a read."""
    return max(1, math.ceil(size / PART_BYTES), min(ranges, int(size / RANGE_BYTES)))


def spans_of(size: int, ranges: int = 1) -> list[tuple[int, int]]:
    """What each of these requests asks for, as evenly as possible; empty if there is nothing to read."""
    count = reads_of(size, ranges)
    cuts = [size * number // count for number in range(count + 1)]
    return [(first, last) for first, last in pairwise(cuts) if last > first]


def ranges_for(connections: int, at_once: int) -> int:
    """How many requests share each of the reads that are in flight at once, so that all connections are used."""
    return max(1, -(-connections // max(1, at_once)))


def upload_bytes(buffer_bytes: int) -> int:
    """The size of the parts of a large object, given this buffer: its writers hold a few of them besides it."""
    return min(PART_BYTES, max(_LEAST_PART_BYTES, buffer_bytes // _PART_SHARE))


def whole_bytes(part_bytes: int) -> int:
    """The largest object that is written whole, by one request: several parts, because parts cost two more requests."""
    return min(PART_BYTES, _WHOLE_PARTS * part_bytes)


def writes_of(size: float, part_bytes: int) -> int:
    """Requests that it takes to write this many bytes: if they go in parts, one more to begin, and one to end."""
    return 1 if size <= whole_bytes(part_bytes) else math.ceil(size / part_bytes) + 2


def read_object(store: Store, entry: Entry) -> bytearray:
    """A small object, whole."""
    data = bytearray(entry.size)
    store.readinto(entry, 0, memoryview(data))
    return data


def read_path(store: Store, path: str) -> bytearray | None:
    """A small object as it is now, whole; None if there is none. If it is replaced meanwhile, it is read again."""
    for _ in range(_ATTEMPTS):
        entry = store.head(path)
        if entry is None:
            return None
        try:
            return read_object(store, entry)
        except ChangedError as error:
            changed = error
    raise changed
