"""How many blocks a buffer holds, kept in bytes."""

from typing import NamedTuple

import numpy as np

from corgi2.dataset import Catalog
from corgi2.errors import SourceError
from corgi2.records import SLACK_BYTES
from corgi2.sizes import format_size

_THREADS = 8

_DOUBT = 1.5
"""Where footprints are estimates, a buffer may take so many times as much before that is an error."""

_PADDED, _PADDED_ROWS = 64 / 63, 8
"""Rows that are decoded lie between some that are none: one in 64, and a few a block."""

_DECODING_SHARE = 8
"""Of a half, for blocks on their way where they are decoded."""


class Room(NamedTuple):
    """How many blocks a buffer holds, the bytes that they may take, and the threads that fill it."""

    blocks: int
    capacity: int
    threads: int


def room_for(catalog: Catalog, buffer_bytes: int, workers: int, buffer_blocks: int | None) -> Room:
    """What each of the readers of a rank can hold: two buffers of its share, of the largest blocks. An error names the
    buffer that would do."""
    footprints = np.sort(catalog.index.column("footprint"))[::-1]
    sums = np.cumsum(footprints)
    unit = int(footprints[0] + catalog.index.column("length").max()) if catalog.source.format.traits.is_decoded else 0
    if buffer_blocks is not None:
        blocks = min(buffer_blocks, len(sums))
        return _room(catalog, blocks, _THREADS)
    half = buffer_bytes // workers // 2
    threads = min(_THREADS, max(1, half // (_DECODING_SHARE * unit))) if unit else _THREADS
    blocks = int(np.searchsorted(sums, half - threads * unit, "right"))
    if not blocks:
        needed = 2 * workers * (int(footprints[0]) + unit)
        raise SourceError(
            f"{catalog.source.url}: a block takes up to {format_size(int(footprints[0]))} in memory, and each of "
            f"{workers} readers holds two; buffer={format_size(buffer_bytes)!r} is too small: "
            f"buffer='{-(-needed // 1_000_000)}MB' would do, or smaller blocks (corgi2 shuffle)"
        )
    return _room(catalog, blocks, threads)


def _room(catalog: Catalog, blocks: int, threads: int) -> Room:
    """For any so many blocks. What nobody writes to takes no memory."""
    index = catalog.index
    sizes = index.column("footprint").astype(np.float64)
    if catalog.source.format.traits.is_decoded:
        sizes *= _PADDED * (1 + _PADDED_ROWS / np.maximum(1, index.column("records")))
    exact = bool(index.column("exact").all())
    size = np.sort(sizes)[-blocks:].sum() * (1 if exact else _DOUBT)
    return Room(blocks, int(size) + SLACK_BYTES, threads)
