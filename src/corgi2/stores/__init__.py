"""Where bytes live: a folder of this machine, or an object store.

A store is opened at a root (``s3://bucket/train``) and speaks of paths below it. It promises:

- ``publish`` is atomic: a reader sees the whole object or none of it, whatever is killed whenever;
- what is read is what was listed, or a `ChangedError` names it;
- every request is counted in ``requests``;
- what is temporary is retried with back-off; what is permanent fails at once, in one line, as a `StoreError`;
- it can be pickled, and it works in a child process, forked or spawned, before or after its first use.

A new store is a class with the methods of `store.Store`, and its scheme in `opening` and `url`.
"""

from corgi2.stores.opening import open_store
from corgi2.stores.store import (
    PART_BYTES,
    Entry,
    File,
    Options,
    Requests,
    Store,
    StoredShard,
    read_path,
    reads_of,
    upload_bytes,
    whole_bytes,
)
from corgi2.stores.url import Url, parse_url

__all__ = [
    "PART_BYTES",
    "Entry",
    "File",
    "Options",
    "Requests",
    "Store",
    "StoredShard",
    "Url",
    "open_store",
    "parse_url",
    "read_path",
    "reads_of",
    "upload_bytes",
    "whole_bytes",
]
