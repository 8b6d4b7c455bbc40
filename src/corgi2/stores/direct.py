"""Large writes straight from memory to the disk, past the page cache, where the file system lets."""

import errno
import fcntl
import mmap
import os

import numpy as np

from corgi2.records import SLAB_BYTES


class Direct:
    """Writes a file straight from memory to the disk, where the system lets: the page cache would take a copy of what
    nobody reads soon, and push out what somebody does. The end of a file, and a small one, go the usual way."""

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
                room[:] = np.frombuffer(data, np.uint8, size)  # NumPy copies without keeping others from running
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
                done = 0  # the file system wants other places and sizes than pages
            if done < len(data):  # what is left may begin anywhere
                self._go_usual_way()
            data = data[done:]

    def _go_usual_way(self) -> None:
        self._is_direct = self._is_direct and _set_direct(self._fd, False)


def _set_direct(fd: int, direct: bool) -> bool:
    """Whether it now is. Some systems and file systems cannot."""
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
