"""How fast a store answers."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from corgi2.dataset import Source

_PROBES, _PROBE_BYTES, _STREAMS, _STREAM_BYTES = 8, 1_000, 4, 16_000_000


def probe(source: Source) -> tuple[float, float]:
    """Bytes a second of several reads at a time, and the seconds until one small read is answered."""
    picks = np.linspace(0, len(source.entries) - 1, _PROBES).astype(int).tolist()
    waits = []
    for number in picks:
        shard = source.shard(number)
        size = min(_PROBE_BYTES, shard.size)
        began = time.perf_counter()
        shard.readinto((shard.size - size) // 2, memoryview(bytearray(size)))
        waits.append(time.perf_counter() - began)

    def stream(number: int) -> int:
        shard = source.shard(number)
        size = min(_STREAM_BYTES, shard.size)
        shard.readinto(0, memoryview(bytearray(size)))
        return size

    began = time.perf_counter()
    with ThreadPoolExecutor(_STREAMS) as pool:
        total = sum(pool.map(stream, picks[:: _PROBES // _STREAMS]))
    return max(1.0, total / (time.perf_counter() - began)), statistics.median(waits)
