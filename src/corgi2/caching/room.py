"""The limit of a cache, for all processes together.

A file, `room`, counts the bytes of all entries. Under its lock, an entry's length is added before its file gets
that length, and taken off after the file is gone: whoever is killed in between leaves a number that is too large, never
one that is too small. It is counted anew when there seems to be no room.

    corgi2-cache         the marker
    room                 the counter
    DATASET/about        which data set it is; those who use it hold a shared lock on it
    DATASET/ENTRY        a range of a shard, and its checksum
    DATASET/ENTRY.part   one that is being fetched, by whoever holds a lock on it
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from corgi2.caching.locks import locked, try_lock, unlock

PART = ".part"
ABOUT = "about"

WAIT_SECONDS = 30.0
"""How long anybody waits for a lock."""

_COUNTER = "room"
_DIGITS = 20
_NAME = re.compile(r"[0-9a-f]{32}")
_RESERVE, _LEAST_RESERVE = 50, 1_000_000_000
"""One part in this many of a disk stays free, or this many bytes if that is less."""
_AGAIN_SECONDS = 20.0
"""Each process counts a full cache anew at most this often."""
_MAKE_ROOM = 64
"""If older data sets make room, they make one part in this many of the limit at once."""


@dataclass(slots=True)
class Room:
    """The room of a cache, as one process sees it."""

    folder: Path
    limit: int | None
    """None: as much as the disk has."""
    _counted: float = field(default=-_AGAIN_SECONDS, init=False)

    def take(self, fd: int, size: int, own: str) -> bool:
        """Give an empty file this size, if there is room, or if data sets other than ``own``, which nobody uses any
        more, make some. For what could never fit, nothing is removed."""
        if self.limit is not None and size > self.limit:
            return False
        with self._counter() as counter:
            if not (self._fits(counter.value, size) or self._makes_room(counter, size, own)):
                return False
            counter.set(counter.value + size)
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError:
                os.ftruncate(fd, 0)
                counter.set(counter.value - size)
                raise
            return True

    def publish(self, part: Path, path: Path) -> None:
        """Give a fetched entry its name. Under the lock, because whoever counts anew must find it under one of both."""
        with self._counter():
            part.rename(path)

    def remove(self, path: Path, fd: int) -> None:
        """Remove an entry, if it still is this open file."""
        with self._counter() as counter:
            self._unlink(counter, path, os.fstat(fd).st_ino)

    def _fits(self, used: int, size: int) -> bool:
        disk = os.statvfs(self.folder)
        free = disk.f_bavail * disk.f_frsize - min(disk.f_blocks * disk.f_frsize // _RESERVE, _LEAST_RESERVE)
        return size <= free and (self.limit is None or used + size <= self.limit)

    def _makes_room(self, counter: "_Counter", size: int, own: str) -> bool:
        if time.monotonic() - self._counted < _AGAIN_SECONDS:
            return False
        self.sweep()
        counter.set(sum(entry_bytes(path) for path in self.entries()))
        self._evict(counter, max(size, (self.limit or 0) // _MAKE_ROOM), own)
        fits = self._fits(counter.value, size)
        if not fits:
            self._counted = time.monotonic()
        return fits

    def _evict(self, counter: "_Counter", size: int, own: str) -> None:
        """Remove entries of data sets that nobody uses, the longest unused first, until there is room."""
        others = [path for path in data_sets(self.folder) if path.name != own]
        for path in sorted(others, key=_last_use):
            if self._fits(counter.value, size):
                return
            user = try_lock(path / ABOUT)
            if user is None:
                continue
            try:
                for entry in sorted(entries_of(path)):
                    self._unlink(counter, entry)
                    if self._fits(counter.value, size):
                        break
            finally:
                unlock(user)

    def clear(self) -> tuple[int, int]:
        """Remove all that nobody uses; how many bytes are gone, and how many are left."""
        with self._counter() as counter:
            before = sum(entry_bytes(path) for path in self.entries())
            counter.set(before)
            for path in data_sets(self.folder):
                user = try_lock(path / ABOUT)
                if user is not None:
                    for entry in entries_of(path):
                        self._unlink(counter, entry)
                    (path / ABOUT).unlink()
                    with suppress(OSError):  # another process has begun to use it
                        path.rmdir()
                    unlock(user)
            return before - counter.value, counter.value

    def sweep(self) -> None:
        """Remove what killed processes have left half-written."""
        for path in self.entries():
            if path.name.endswith(PART) and (fd := try_lock(path)) is not None:
                path.unlink(missing_ok=True)
                unlock(fd)

    def entries(self) -> Iterator[Path]:
        """The entries of all data sets, including half-written ones."""
        for path in data_sets(self.folder):
            yield from entries_of(path)

    def _unlink(self, counter: "_Counter", path: Path, inode: int | None = None) -> None:
        with suppress(FileNotFoundError):
            found = path.stat()
            if inode is None or found.st_ino == inode:
                path.unlink()
                counter.set(max(0, counter.value - found.st_size))

    @contextmanager
    def _counter(self) -> Iterator["_Counter"]:
        with locked(self.folder / _COUNTER, WAIT_SECONDS) as fd:
            yield _Counter(fd, self)


@dataclass(slots=True)
class _Counter:
    """The bytes of all entries, while its lock is held."""

    fd: int
    room: Room

    @property
    def value(self) -> int:
        text = os.pread(self.fd, _DIGITS, 0)
        if len(text) != _DIGITS or not text.isdigit():
            self.set(sum(entry_bytes(path) for path in self.room.entries()))
            return self.value
        return int(text)

    def set(self, value: int) -> None:
        os.pwrite(self.fd, b"%0*d" % (_DIGITS, value), 0)


def data_sets(folder: Path) -> list[Path]:
    """The folders of a cache, one per data set. Anything else there is not corgi2's."""
    return [
        Path(each.path)
        for each in os.scandir(folder)
        if _NAME.fullmatch(each.name) and each.is_dir(follow_symlinks=False)
    ]


def entries_of(data_set: Path) -> list[Path]:
    """The entries of one data set."""
    try:
        with os.scandir(data_set) as found:
            return [Path(each.path) for each in found if _NAME.fullmatch(each.name.removesuffix(PART))]
    except FileNotFoundError:
        return []


def entry_bytes(path: Path) -> int:
    """What an entry takes; nothing, if it was removed meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _last_use(data_set: Path) -> float:
    try:
        return (data_set / ABOUT).stat().st_mtime
    except FileNotFoundError:
        return 0.0
