"""Files whose names only number them (``train-00000-of-01024``): shards if they hold what such shards hold.

One small read tells for all files that are numbered together, or two, if the first of them is damaged.
"""

import re
from collections.abc import Sequence

from corgi2.formats import format_of, is_only_numbered, suffix_of
from corgi2.stores import Entry, Store, StoredShard

_NUMBER = re.compile(r"\d+-of-")


def recognised(store: Store, entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """Those that are shards, and the paths of those that are not."""
    kinds: dict[str, list[Entry]] = {}
    for entry in entries:
        if is_only_numbered(entry.path):
            kinds.setdefault(_NUMBER.sub("", entry.path), []).append(entry)
    other = {entry.path for kind in kinds.values() if not _holds_records(store, kind) for entry in kind}
    return [entry for entry in entries if entry.path not in other], sorted(other)


def _holds_records(store: Store, entries: Sequence[Entry]) -> bool:
    format = format_of(suffix_of(entries[0].path) or "")
    return any(format.shows_record(StoredShard(store, entry, 1)) for entry in (entries[0], entries[-1]))
