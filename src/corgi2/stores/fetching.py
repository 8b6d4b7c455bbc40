"""Requests that read, and are in flight: one limit for all readers of a process, and threads that share a read.

Two loaders of one process, or the buffers of one that are filled at the same time, wait for each other here, rather
than open more connections than the store's options allow.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fetchers:
    """What the readers of one process share."""

    pool: ThreadPoolExecutor
    gate: threading.Semaphore
    """Held by each request in flight."""
    naming: threading.Lock
    """Held while the etag of an object is looked up, so that the requests that share a read look it up once."""

    def all_of(self, reads: Iterable[Callable[[], None]]) -> None:
        """Do all; when this returns, or raises, none of them writes to its buffer any more."""
        futures = [self.pool.submit(read) for read in reads]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
        wait(futures)
        for future in futures:
            if not future.cancelled():
                future.result()


_shared: dict[tuple[int, int], Fetchers] = {}
"""By process and limit: threads and locks do not survive a fork."""


def fetchers_of(connections: int) -> Fetchers:
    """Those of this process, for stores with so many connections."""
    key = os.getpid(), connections
    found = _shared.get(key)
    return found or _shared.setdefault(key, _fetchers(connections))


def _fetchers(connections: int) -> Fetchers:
    pool = ThreadPoolExecutor(connections, "corgi2-fetch")
    return Fetchers(pool, threading.Semaphore(connections), threading.Lock())
