"""What the rest of corgi2 asks of a store, and the values that they speak in."""

import math
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from corgi2.errors import ChangedError
from corgi2.records import Buffer

PART_BYTES = 64_000_000
"""One request moves at most this much; a larger object goes in parts."""

CHANGED = "has changed since it was listed; when nothing writes to it any more, run the command again"

GONE = "is gone since it was listed; restore it, if that was not meant, and run the command again"

_ATTEMPTS = 5

_LEAST_PART_BYTES, _PART_SHARE, _WHOLE_PARTS = 8_000_000, 64, 4

Options = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class File:
    """What a listing knows of the file behind a name. Names of one file have equal ones."""

    device: int
    inode: int
    changed_ns: int
    """When it was changed in any way, as no program can set it back."""
    is_linked: bool = field(default=False, compare=False)
    """Whether the name leads there through a symbolic link, of the file or of a folder below the store's root."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of a listing. The etag changes whenever the content does; it is empty where it is not known."""

    path: str
    size: int
    etag: str
    file: File | None = field(default=None, compare=False, repr=False)
    """On a disk, if it was listed there."""
    is_listed: bool = field(default=True, compare=False, repr=False)
    """False where the etag is one of ours, which no store knows."""


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
        """How often more than in an earlier count."""
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

    def list(self, folder: str = "", levels: int | None = None) -> list[Entry]:
        """All objects below a folder, or so many levels of it, by path. None where there is no such folder."""

    def head(self, path: str) -> Entry | None:
        """One object, or None where there is none."""

    def readinto(self, entry: Entry, start: int, buffer: memoryview) -> None:
        """Fill the buffer with an object's bytes from ``start`` on, if it still is what was listed."""

    def publish(self, path: str, pieces: Iterable[Buffer], part_bytes: int = PART_BYTES) -> Entry:
        """Write an object, replacing one of that name, atomically, in parts where it is large."""

    def create(self, path: str, data: bytes) -> bool:
        """Write an object if there is none of that name; False if there is."""

    def delete(self, path: str) -> None:
        """Delete an object; one that is not there counts as deleted."""

    def free_bytes(self) -> int | None:
        """Room for more, or None where there is no end of it."""

    def check_writable(self) -> None:
        """Refuse a place that can be seen not to take anything, without writing to it."""

    def keeps_versions(self, path: str) -> bool:
        """Whether this object, once deleted, would still take room as an old version."""

    def holds(self, other: "Store", levels: int | None = None) -> bool:
        """Whether another one is this one, or lies below it: at most so many levels, links followed."""

    def sweep(self, folder: str = "") -> None:
        """Remove what processes that were killed have left half written below a folder."""


@dataclass(frozen=True, slots=True)
class StoredShard:
    """A shard in a store, as formats see it: a name, a size, bytes."""

    store: Store
    entry: Entry

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
        self.store.readinto(self.entry, start, buffer)


def reads_of(size: float) -> int:
    """Requests that it takes to read so many bytes."""
    return max(1, math.ceil(size / PART_BYTES))


def upload_bytes(buffer_bytes: int) -> int:
    """The parts of a large object, for whoever has such a buffer: its writers hold a few of them beside it."""
    return min(PART_BYTES, max(_LEAST_PART_BYTES, buffer_bytes // _PART_SHARE))


def whole_bytes(part_bytes: int) -> int:
    """The largest object that is written whole, by one request: several parts, because parts cost two requests more."""
    return min(PART_BYTES, _WHOLE_PARTS * part_bytes)


def read_object(store: Store, entry: Entry) -> bytearray:
    """A small object, whole."""
    data = bytearray(entry.size)
    store.readinto(entry, 0, memoryview(data))
    return data


def read_path(store: Store, path: str) -> bytearray | None:
    """A small object as it is now, whole; None where there is none. One that is replaced meanwhile is read again."""
    for _ in range(_ATTEMPTS):
        entry = store.head(path)
        if entry is None:
            return None
        try:
            return read_object(store, entry)
        except ChangedError as error:
            changed = error
    raise changed
