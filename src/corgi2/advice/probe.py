"""How fast a store answers, and how that was found out.

A folder that was just written lies in the page cache, which says nothing about a training run that reads more than fits
there: a disk is read past the cache. If a file system does not allow that, and the data would come from memory, figures
of a usual disk are used instead.
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from corgi2.dataset import Source
from corgi2.stores import StoredShard, read_uncached

_PROBES, _PROBE_BYTES, _STREAMS, _STREAM_BYTES = 8, 1_000, 4, 16_000_000

_LEAST_BYTES = 4_000_000
"""With less, a stream only measures how long it takes to begin."""

DISK_BANDWIDTH, DISK_LATENCY = 250_000_000.0, 0.001
"""For a disk that cannot be measured: a usual cloud volume, such as gp3, or a disk behind a network. Local NVMe is
several times as fast, a spinning disk has a tenth of the requests."""


class Probed(NamedTuple):
    """Bytes per second of several reads at a time, and the seconds until one small read is answered."""

    bandwidth: float
    latency: float
    how: str


Read = Callable[[StoredShard, int, int], bool]
"""Reads some bytes of a shard; returns False if they would have come from memory."""


def probe(source: Source) -> Probed:
    """A few small reads, one after another, then a few large ones side by side."""
    read = read_uncached if source.store.is_local else _read
    picks = np.linspace(0, len(source.entries) - 1, _PROBES).astype(int).tolist()
    waits = []
    for number in picks:
        shard = source.shard(number)
        size = min(_PROBE_BYTES, shard.size)
        began = time.perf_counter()
        if not read(shard, (shard.size - size) // 2, size):
            return Probed(DISK_BANDWIDTH, DISK_LATENCY, "the data is in memory: figures of a usual disk are assumed")
        waits.append(time.perf_counter() - began)

    def stream(number: int) -> int:
        shard = source.shard(number)
        size = min(_STREAM_BYTES, shard.size)
        read(shard, 0, size)
        return size

    began = time.perf_counter()
    with ThreadPoolExecutor(_STREAMS) as pool:
        total = sum(pool.map(stream, picks[:: _PROBES // _STREAMS]))
    bandwidth, how = max(1.0, total / (time.perf_counter() - began)), "measured"
    if source.store.is_local:
        how = "measured past the page cache"
    if total < _LEAST_BYTES:
        bandwidth, how = DISK_BANDWIDTH, f"latency {how}; too little data for bandwidth: a usual disk's"
    return Probed(bandwidth, statistics.median(waits), how)


def _read(shard: StoredShard, start: int, size: int) -> bool:
    shard.readinto(start, memoryview(bytearray(size)))
    return True
