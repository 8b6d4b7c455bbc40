"""Ranges of shards on a node's disk, so that epochs after the first need no object store.

All processes of a node share one folder, without a server. It promises, whatever is killed whenever:

- what is read is what the store holds: entries are checked by a checksum, and named after the version of their shard;
- every byte is fetched once per node, as long as there is room: a lock that dies with its process says who fetches;
- all entries together, including half-written ones, never take more than ``cache_size``;
- a disk that is full or fails causes a warning, and the store is read instead.

`reading` reads through the cache and decides what is kept; `room` holds the limit and decides what goes when it is
reached: a new cache policy is a change of these two. `place` checks the folder, `locks` has its locks, `contents` is
``corgi2 cache``. Which node a block comes back to is decided in `corgi2.order`.
"""

from corgi2.caching.contents import CacheContents, cache
from corgi2.caching.reading import Cache, open_cache

__all__ = ["Cache", "CacheContents", "cache", "open_cache"]
