"""Large writes straight from memory to the disk, past the page cache, if the file system allows it; and such reads, to
measure how fast a disk is."""

import contextlib
import errno
import fcntl
import mmap
import os

import numpy as np

from corgi2.records import SLAB_BYTES
from corgi2.stores.store import StoredShard


class Direct:
    """Writes a file straight from memory to the disk, if the system allows it: the page cache would keep a copy that
    nobody reads soon, and evict what is in use. The end of a file, and small files, go the usual way."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._slab, self._filled = memoryview(mmap.mmap(-1, SLAB_BYTES)), 0
        self._is_direct = _set_direct(fd, True)

    def write(self, data: memoryview) -> None:
        while data:
            if not self._filled and len(data) >= SLAB_BYTES and _is_aligned(data):
                size = len(data) // SLAB_BYTES * SLAB_BYTES
                self._put(data[:size])
            else:
                size = min(len(data), SLAB_BYTES - self._filled)
                room = np.frombuffer(self._slab, np.uint8, size, self._filled)
                room[:] = np.frombuffer(data, np.uint8, size)  # NumPy copies without holding the GIL
                self._filled += size
                if self._filled == SLAB_BYTES:
                    self._put(self._slab)
                    self._filled = 0
            data = data[size:]

    def finish(self) -> None:
        self._go_usual_way()
        self._put(self._slab[: self._filled])

    def _put(self, data: memoryview) -> None:
        while data:
            try:
                done = os.write(self._fd, data)
            except OSError as error:
                if error.errno != errno.EINVAL or not self._is_direct:
                    raise
                done = 0  # the file system wants another alignment than pages
            if done < len(data):  # what is left may begin anywhere
                self._go_usual_way()
            data = data[done:]

    def _go_usual_way(self) -> None:
        self._is_direct = self._is_direct and _set_direct(self._fd, False)


def _set_direct(fd: int, direct: bool) -> bool:
    """Whether the file is direct now. Some systems and file systems cannot do that."""
    if not hasattr(os, "O_DIRECT"):
        return False
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags & ~os.O_DIRECT)
    except OSError:
        return False
    return direct


def _is_aligned(data: memoryview) -> bool:
    return bool(np.frombuffer(data, np.uint8).ctypes.data % mmap.PAGESIZE == 0)


def read_uncached(shard: StoredShard, start: int, size: int) -> bool:
    """Read some bytes of a local shard from the disk, past the page cache. False if the file system cannot do that and
    they would come from memory: then it tells nothing about the disk."""
    fd = os.open(shard.name, os.O_RDONLY)
    try:
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        room = memoryview(mmap.mmap(-1, -(-(start + size - first) // mmap.PAGESIZE) * mmap.PAGESIZE))
        if _set_direct(fd, True):
            with contextlib.suppress(OSError):  # some file systems refuse only now
                return os.preadv(fd, [room], first) > 0
            _set_direct(fd, False)
        if _is_cached(fd, room, first):
            return False
        return os.preadv(fd, [room], first) > 0
    finally:
        os.close(fd)


def _is_cached(fd: int, room: memoryview, start: int) -> bool:
    """Whether these bytes would come from memory; True if that cannot be told."""
    if not hasattr(os, "RWF_NOWAIT"):
        return True
    try:
        return os.preadv(fd, [room], start, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except OSError:
        return True
