"""Ranges of shards on a node's disk, so that epochs after the first need no object store.

All processes of a node share one folder, without a server. It promises, whatever is killed whenever:

- what is read is what the store holds: entries are checked by a checksum, and named after the version of their shard;
- every byte is fetched once per node, while there is room: a lock, which dies with its process, says who fetches;
- all entries together, half-written ones included, never take more than ``cache_size``;
- a disk that is full or fails is a warning, and the store is read instead.

`place` checks a folder, `locks` has its locks, `room` keeps its limit, `reading` reads through it, and `contents`
shows it.
"""

from corgi2.caching.contents import CacheContents, cache
from corgi2.caching.reading import Cache, open_cache

__all__ = ["Cache", "CacheContents", "cache", "open_cache"]
