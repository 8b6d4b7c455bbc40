"""How many blocks a buffer holds, kept in bytes."""

import mmap
from typing import NamedTuple

import numpy as np

from corgi2.dataset import Catalog, Index, Source
from corgi2.errors import SourceError
from corgi2.records import SLACK_BYTES
from corgi2.sizes import format_size
from corgi2.stores import sharing

_THREADS = 8

_DOUBT = 1.5
"""If footprints are estimates, a buffer may take this many times as much before that is an error."""

_PADDED, _PADDED_ROWS = 64 / 63, 8
"""Decoded rows have gap rows between them: one in 64, and a few per block."""

_DECODING_SHARE = 8
"""Of a half, for blocks on their way where they are decoded."""


_SLOTS = 3
"""Of a worker, beside those of batches on their way."""


class Room(NamedTuple):
    """How many blocks a buffer holds, the bytes that they may take, and the threads that fill it: how many fetch
    blocks, and how many of these decode at the same time. The readers of a rank share a store's connections."""

    blocks: int
    capacity: int
    fetchers: int
    decoders: int
    readers: int = 1
    is_lean: bool = False
    """Whether blocks lie in memory as they are stored, before they are decoded, in room that is not taken yet."""


def slots_for(room: Room, ahead: int) -> tuple[int, int]:
    """How many slots a worker has to hand over its batches in, and the bytes of each, in whole pages: one for each
    batch that it is ahead, two that are looked at, and one to spare. All of them take at most what one of its two
    buffers takes. Only what batches fill costs memory."""
    slots = ahead + _SLOTS
    return slots, room.capacity // slots // mmap.PAGESIZE * mmap.PAGESIZE


class Beside(NamedTuple):
    """What lies in a half of a buffer beside its blocks: those on their way, where they are decoded."""

    largest: int
    """Block, in memory."""
    stored: int = 0
    """The largest block as stored, where blocks are decoded."""

    @property
    def _unit(self) -> int:
        return self.largest + self.stored if self.stored else 0

    def threads(self, half: int) -> int:
        """That decode at the same time, or fetch where nothing is decoded."""
        return min(_THREADS, max(1, half // (_DECODING_SHARE * self._unit))) if self._unit else _THREADS

    def left(self, half: int) -> int:
        """Bytes for blocks; not above 0 where none fits."""
        return half - self.threads(half) * self._unit - self.stored

    @property
    def least(self) -> int:
        """The smallest buffer of one reader that holds a block."""
        return 2 * (self.largest + self._unit + self.stored)


def room_for(
    catalog: Catalog, buffer_bytes: int, workers: int, buffer_blocks: int | None, option: str = "buffer"
) -> Room:
    """What each of the readers of a rank can hold: two buffers of its share, of the largest blocks. An error names the
    buffer that would do, by the option that the caller was given it with."""
    footprints = np.sort(catalog.index.column("footprint"))[::-1]
    sums = np.cumsum(footprints)
    if buffer_blocks is not None:
        blocks = min(buffer_blocks, len(sums))
        return _room(catalog, blocks, _THREADS, workers)
    half, beside = buffer_bytes // workers // 2, beside_blocks(catalog.source, catalog.index)
    blocks = int(np.searchsorted(sums, beside.left(half), "right"))
    if not blocks:
        readers = "the reader" if workers == 1 else f"each of {workers} readers"
        raise SourceError(
            f"{catalog.source.url}: a block takes up to {format_size(beside.largest)} in memory, and {readers} holds "
            f"two; {option}={format_size(buffer_bytes)!r} is too small: "
            f"{option}='{-(-workers * beside.least // 1_000_000)}MB' would do, or smaller blocks (corgi2 shuffle)"
        )
    return _room(catalog, blocks, beside.threads(half), workers)


def beside_blocks(source: Source, index: Index) -> Beside:
    """Of a data set's blocks."""
    stored = int(index.column("length").max()) if source.format.traits.is_decoded else 0
    return Beside(int(index.column("footprint").max()), stored)


def _room(catalog: Catalog, blocks: int, threads: int, readers: int) -> Room:
    """Room for any choice of this many blocks. Memory that is never written to costs nothing. On a disk, one more block
    may be on its way than is decoded; an object store is given all connections of a reader: what they fetch lies where
    it stays, or, before it is decoded, in the room of its rows."""
    index, store, is_decoded = catalog.index, catalog.source.store, catalog.source.format.traits.is_decoded
    sizes = index.column("footprint").astype(np.float64)
    if is_decoded:
        sizes *= _PADDED * (1 + _PADDED_ROWS / np.maximum(1, index.column("records")))
    exact = bool(index.column("exact").all())
    size = np.sort(sizes)[-blocks:].sum() * (1 if exact else _DOUBT)
    fetchers = max(threads + is_decoded, sharing(store, readers).connections)
    return Room(blocks, int(size) + SLACK_BYTES, fetchers, threads, readers, is_decoded and not store.is_local)
