"""Batches cross from a worker process to its parent in memory that both have mapped, and that is used again and again.

The parent makes a `Ring` of slots for each worker before it starts, and keeps it. The worker `pack`s batches, and what
goes through the pipe is a slot's number and a layout; the parent `unpack`s them. A slot is taken by the worker, and
freed by the parent once nothing lies over it any more: neither the arrays, tensors and tables of the batch, nor what
was made of them without a copy. Copies to pinned memory or to a device need no care: torch copies from memory that is
not pinned before it returns. If no slot is free, or a batch does not fit, it goes as torch sends it: nothing waits.

    ring   | 1 0 1 0 … one byte per slot: taken or free | slot 0 | slot 1 | …
"""

import mmap
import os
import uuid
import weakref
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

from corgi2.online.layouts import Bytes, Foreign, FullError, Layout, Room, stow
from corgi2.online.unnamed import unnamed_file

_PAGE = mmap.PAGESIZE

_rings: "weakref.WeakValueDictionary[int, Ring]" = weakref.WeakValueDictionary()
"""Those that this process has made, by their marks."""


class Ring:
    """Slots that one worker fills, and the process that made them empties. Memory that is never filled costs nothing:
    the ring takes `bytes` at most."""

    def __init__(self, slots: int, slot_bytes: int, foreign: Foreign | None = None) -> None:
        """``foreign`` says how arrays of another library than NumPy are handed over."""
        self.slots, self.slot_bytes = min(slots, _PAGE), -(-slot_bytes // _PAGE) * _PAGE
        self.foreign, self.mark = foreign, uuid.uuid4().int >> 65
        file = unnamed_file()
        os.ftruncate(file, _PAGE + self.bytes)
        self._map(file)
        _rings[self.mark] = self

    def _map(self, file: int) -> None:
        self._file, self.memory = file, mmap.mmap(file, _PAGE + self.bytes)
        weakref.finalize(self, os.close, file).atexit = False

    @property
    def bytes(self) -> int:
        """That all slots take when they are full."""
        return self.slots * self.slot_bytes

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is None:
            raise TypeError("a ring of slots goes to the worker that is being started, and nowhere else")
        return self.__dict__ | {"memory": None, "_file": DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map(state["_file"].detach())

    def pack(self, batch: Any) -> Any:
        """In the worker: the batch in a slot, as `Packed`; or as it is."""
        slot = self.memory.find(b"\0", 0, self.slots)
        if slot < 0:
            return batch
        room = Room(self.memory, self.start_of(slot), self.slot_bytes, self.foreign)
        try:
            layout = stow(batch, room)
        except FullError:
            return batch
        if not room.used:
            return batch
        self.memory[slot] = 1
        return Packed(Lease(self, slot), layout)

    def start_of(self, slot: int) -> int:
        return _PAGE + slot * self.slot_bytes


class Lease:
    """A slot that is in use, until this object is gone. The ring itself may be gone before."""

    is_sent = False

    def __init__(self, ring: Ring, slot: int) -> None:
        self.memory, self.foreign, self.start = ring.memory, ring.foreign, ring.start_of(slot)
        self._mark, self._slot, self._process = ring.mark, slot, os.getpid()

    def view(self, at: int, size: int) -> Bytes:
        """Of the slot, which it keeps: NumPy holds on to what offers memory, through all views of views."""
        return np.asarray(_Part(self, at, size))

    def send(self) -> tuple[int, int]:
        """What the other side needs to know. From now on the slot is its own."""
        self.is_sent = True
        return self._mark, self._slot

    def __del__(self, getpid: Any = os.getpid) -> None:
        """Takes no lock. A process that was forked from the one that holds the slot has no say."""
        if not self.is_sent and self._process == getpid():
            self.memory[self._slot] = 0


class _Part:
    def __init__(self, lease: Lease, at: int, size: int) -> None:
        whole = np.frombuffer(lease.memory, np.uint8, size, lease.start + at)
        self._lease, self.__array_interface__ = lease, whole.__array_interface__


class Packed:
    """A batch in a slot, on its way. One that is never sent, or never unpacked, frees its slot like any other."""

    __slots__ = ("_layout", "_lease")

    def __init__(self, lease: Lease | None, layout: Layout) -> None:
        self._lease, self._layout = lease, layout

    def __reduce__(self) -> tuple[Any, ...]:
        if self._lease is None:
            raise TypeError("a packed batch is sent once")
        return _receive, (*self._lease.send(), self._layout)

    def unpack(self) -> Any:
        if self._lease is None:
            raise RuntimeError("a packed batch came to another process than the one that its worker reads for")
        return self._layout.load(self._lease)


def _receive(mark: int, slot: int, layout: Layout) -> Packed:
    ring = _rings.get(mark)
    return Packed(None if ring is None else Lease(ring, slot), layout)


def unpack(batch: Any) -> Any:
    """In the parent: a batch as it was before it was packed, or was not."""
    return batch.unpack() if isinstance(batch, Packed) else batch
