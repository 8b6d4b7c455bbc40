"""One reservation of memory that is reused for each group."""

import mmap
import sys
import threading
from typing import cast

import numpy as np
import numpy.typing as npt

SLACK_BYTES = 8_000_000
"""Room in an arena for data other than records: a format's own description of its blocks."""


def reserve(size: int, is_lean: bool = False) -> memoryview:
    """Zeroed memory that costs nothing until it is touched; in huge pages, whose first touch is three times as fast.
    If lean, in small ones, so that hardly more is taken than is touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0x4000 if sys.platform == "linux" else 0)  # MAP_NORESERVE
    memory = mmap.mmap(-1, max(1, size), flags=flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE if is_lean else mmap.MADV_HUGEPAGE)
    return memoryview(memory)[:size]


class Arena:
    """Room for the bytes of one group, handed out from front to back, by any thread.

    A claim is a promise that nobody else writes there until `clear`. Before an arena is cleared, the tables that lie
    over it must be dropped. What a group takes elsewhere (offsets, rows, the permutation) is spent from the same room
    before it is taken.

    A lean one takes no memory but what lies in it: what is still to come may lie elsewhere until then.
    """

    def __init__(self, capacity: int, is_lean: bool = False) -> None:
        self.capacity = self.reserved = capacity
        self.is_lean = is_lean
        self._memory = reserve(capacity, is_lean)
        self._used = self._spent = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        return self._used

    @property
    def left(self) -> int:
        return self.capacity - self._used - self._spent

    def claim(self, size: int) -> int:
        """The offset of ``size`` fresh bytes."""
        with self._lock:
            self._check(size)
            start, self._used = self._used, self._used + size
            return start

    def spend(self, size: int) -> None:
        """Account for this many bytes that are about to be taken elsewhere."""
        with self._lock:
            self._check(size)
            self._spent += size

    def _check(self, size: int) -> None:
        if size > self.left:
            held = self._used + self._spent
            raise MemoryError(f"the buffer of {self.capacity} bytes holds {held}; {size} more do not fit")

    def view(self, start: int, size: int) -> memoryview:
        return self._memory[start : start + size]

    @property
    def memory(self) -> mmap.mmap:
        """The memory of the arena: a slice of it is bytes directly, without a view in between."""
        return cast(mmap.mmap, self._memory.obj)

    def array(self, start: int, size: int) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self._memory, np.uint8, size, start)

    def give_back(self) -> None:
        """Clear the arena, and return its pages to the system until they are used again."""
        self._used, self._spent, self.capacity = 0, 0, self.reserved
        if hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED)

    def clear(self, most: int | None = None) -> None:
        """Start over, with the whole arena, or with at most this many bytes of it."""
        if self.is_lean:
            self.give_back()
        self._used = self._spent = 0
        self.capacity = self.reserved if most is None else min(most, self.reserved)
