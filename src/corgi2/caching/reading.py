"""Reading through a cache: from the disk if a range is there, else from the store, and then it is kept.

An epoch reads every block once, in a new order, so what was used last is what is needed last: a cache that replaces it
hits little. This one keeps what it has and admits no more when it is full, so that a cache for a quarter of the data
answers a quarter of the reads.
"""

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from corgi2.caching.locks import POLL_SECONDS, try_lock, unlock
from corgi2.caching.place import check_apart, make_place
from corgi2.caching.room import ABOUT, PART, WAIT_SECONDS, Room
from corgi2.records import ShardFile
from corgi2.sizes import format_size
from corgi2.stores import Entry, Store

_log = logging.getLogger("corgi2")

_SUM_BYTES = 16

_counting = threading.Lock()

# Held across a fork, so that no child inherits it locked by a thread that it does not have.
os.register_at_fork(before=_counting.acquire, after_in_parent=_counting.release, after_in_child=_counting.release)


def open_cache(folder: str | os.PathLike[str], limit: int | None, store: Store, entries: Sequence[Entry]) -> "Cache":
    """The part of a cache that is for these shards of a store."""
    place = Path(os.path.abspath(os.path.expanduser(os.fspath(folder))))  # noqa: PTH100, PTH111 - as addresses are read
    if store.is_local:
        check_apart(place, Path(store.url))
    make_place(place)
    name = hashlib.sha256(store.url.encode())
    for entry in entries:
        name.update(f"\0{entry.path}\0{entry.size}\0{entry.etag}".encode())
    cache = Cache(Room(place, limit), name.hexdigest()[:32], store.url)
    cache.use()
    return cache


@dataclass(slots=True)
class Cache:
    """The entries of one data set, as one process sees them."""

    room: Room
    name: str
    url: str
    hits: int = 0
    misses: int = 0
    _users: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    """By process: an open file whose lock says that the data set is in use."""
    _failed: bool = field(default=False, init=False)
    _is_told: bool = field(default=False, init=False)
    """That the limit is less than a block."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, (self.room, self.name, self.url)

    @property
    def folder(self) -> Path:
        return self.room.folder / self.name

    def use(self) -> None:
        """Say that this process uses the data set: nobody removes it to make room."""
        if self._failed or os.getpid() in self._users:
            return
        try:
            self.folder.mkdir(exist_ok=True)
            about, deadline = self.folder / ABOUT, time.monotonic() + WAIT_SECONDS
            while (fd := try_lock(about, shared=True)) is None:
                if time.monotonic() > deadline:  # by a process that was stopped while it made room
                    raise TimeoutError(f"{about} is locked for more than {WAIT_SECONDS:g} s")
                time.sleep(POLL_SECONDS)
            self._users[os.getpid()] = fd
            os.pwrite(fd, json.dumps({"url": self.url}).encode(), 0)
        except OSError as error:
            self._give_up(error)

    def shard(self, file: ShardFile, stop: threading.Event) -> "CachedShard":
        """A shard that is read through this cache."""
        return CachedShard(file, self, stop)

    def readinto(self, file: ShardFile, start: int, buffer: memoryview, stop: threading.Event) -> None:
        """From the disk, or from the store."""
        self.use()
        path = self.folder / _entry_name(file, start, len(buffer))
        if not self._failed:
            try:
                if self._read(path, buffer) or self._fetch(path, file, start, buffer, stop):
                    return
            except _StoreFailure as failure:
                raise failure.error from None
            except OSError as error:
                self._give_up(error)
        file.readinto(start, buffer)
        self._count(misses=1)

    def _read(self, path: Path, buffer: memoryview) -> bool:
        """Whether the entry is there, and sound. A damaged one is removed."""
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            kept = bytearray(_SUM_BYTES)
            if _filled(fd, buffer, kept) and bytes(kept) == _sum(buffer):
                self._count(hits=1)
                return True
            _log.warning("%s: is damaged, and read again from %s", path, self.url)
            self.room.remove(path, fd)
            return False
        finally:
            os.close(fd)

    def _fetch(self, path: Path, file: ShardFile, start: int, buffer: memoryview, stop: threading.Event) -> bool:
        """Whether this process, or another one, could keep the entry, so that the buffer is filled."""
        part, deadline = path.with_name(path.name + PART), time.monotonic() + WAIT_SECONDS
        while (fd := try_lock(part)) is None:
            if stop.is_set():
                raise _StoreFailure(InterruptedError(f"{file.name}: stopped"))
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
            if self._read(path, buffer):
                return True
        try:
            return self._fetched(fd, path, part, file, start, buffer)
        finally:
            unlock(fd)

    def _fetched(self, fd: int, path: Path, part: Path, file: ShardFile, start: int, buffer: memoryview) -> bool:
        """The same, with the lock of the entry in hand."""
        if path.exists():  # another process was faster
            part.unlink()
            return self._read(path, buffer)
        size = len(buffer) + _SUM_BYTES
        self._check_size(size)
        if os.fstat(fd).st_size != size and not self.room.take(fd, size, self.name):
            part.unlink()
            return False
        try:
            file.readinto(start, buffer)
        except BaseException as error:
            self.room.remove(part, fd)
            raise _StoreFailure(error) from error
        self._count(misses=1)
        _write(fd, buffer)
        self.room.publish(part, path)
        return True

    def _check_size(self, size: int) -> None:
        if not self._is_told and self.room.limit is not None and size > self.room.limit:
            self._is_told = True
            limit = format_size(self.room.limit)
            _log.warning("cache_size=%r is less than a block of %s, which is not kept", limit, format_size(size))

    def _count(self, hits: int = 0, misses: int = 0) -> None:
        with _counting:
            self.hits += hits
            self.misses += misses

    def _give_up(self, error: OSError) -> None:
        """Read without the cache from now on, in this process."""
        if not self._failed:
            self._failed = True
            _log.warning("the cache in %s is not used any more: %s", self.room.folder, error.strerror or error)


class _StoreFailure(Exception):  # noqa: N818 - carries an error through the handling of those of the disk
    def __init__(self, error: BaseException) -> None:
        self.error = error


@dataclass(frozen=True, slots=True)
class CachedShard:
    """A shard whose ranges are kept on the disk as they were read."""

    file: ShardFile
    cache: Cache
    stop: threading.Event

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def size(self) -> int:
        return self.file.size

    @property
    def version(self) -> str:
        return self.file.version

    def readinto(self, start: int, buffer: memoryview) -> None:
        self.cache.readinto(self.file, start, buffer, self.stop)


def _entry_name(file: ShardFile, start: int, length: int) -> str:
    return hashlib.sha256(f"{file.name}\0{file.version}\0{start}\0{length}".encode()).hexdigest()[:32]


def _sum(data: memoryview) -> bytes:
    return xxhash.xxh3_128_digest(data)


def _filled(fd: int, buffer: memoryview, kept: bytearray) -> bool:
    """Whether a file holds exactly as much as both buffers, which are then filled."""
    size, done = len(buffer) + len(kept), 0
    if os.fstat(fd).st_size != size:
        return False
    while done < len(buffer):
        done += (got := os.preadv(fd, [buffer[done:]], done))
        if not got:
            return False
    return os.preadv(fd, [kept], done) == len(kept)


def _write(fd: int, buffer: memoryview) -> None:
    done = 0
    while done < len(buffer):
        done += os.pwrite(fd, buffer[done:], done)
    os.pwrite(fd, _sum(buffer), done)
