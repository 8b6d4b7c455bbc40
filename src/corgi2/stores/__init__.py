"""Where bytes live: a folder of this machine, or an object store.

A store is opened at a root (``s3://bucket/train``), and its paths are relative to that. It promises:

- ``publish`` is atomic: a reader sees the whole object or none of it, whatever is killed at any time;
- what is read is what was listed, or a `ChangedError` names the object;
- every request is counted in ``requests``;
- temporary failures are retried with back-off; permanent ones raise a `StoreError` of one line at once;
- it can be pickled, and it works in a child process, forked or spawned, before or after its first use.

A new store is a class with the methods of `store.Store`, its scheme in `url`, and a branch in `opening`; a provider
that obstore knows needs only its scheme, in `url`, `options` and `remote`. `local` and `remote` are the two stores
there are; `retries` is the table of what a failed request means.
"""

from corgi2.stores.direct import read_uncached
from corgi2.stores.opening import open_store
from corgi2.stores.options import check_second, is_secret, secrets_of, without_secrets
from corgi2.stores.store import (
    CONNECTIONS,
    PART_BYTES,
    RANGE_BYTES,
    Entry,
    File,
    Options,
    Requests,
    Store,
    StoredShard,
    counting,
    ranges_for,
    read_path,
    reads_of,
    sharing,
    upload_bytes,
    whole_bytes,
    writes_of,
)
from corgi2.stores.url import Url, parse_url

__all__ = [
    "CONNECTIONS",
    "PART_BYTES",
    "RANGE_BYTES",
    "Entry",
    "File",
    "Options",
    "Requests",
    "Store",
    "StoredShard",
    "Url",
    "check_second",
    "counting",
    "is_secret",
    "open_store",
    "parse_url",
    "ranges_for",
    "read_path",
    "read_uncached",
    "reads_of",
    "secrets_of",
    "sharing",
    "upload_bytes",
    "whole_bytes",
    "without_secrets",
    "writes_of",
]
