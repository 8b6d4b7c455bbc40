"""What an answer of an object store says about an object, and whether that is what was listed."""

import re
from typing import Any

from corgi2.stores.store import Entry


def entry_of(path: str, meta: Any) -> Entry:
    return Entry(path, meta["size"], meta["e_tag"] or f"{meta['last_modified']:%Y%m%dT%H%M%S.%f}-{meta['size']:x}")


TIME = re.compile(r"(\d{8}T\d{6})\.\d{6}(-[0-9a-f]+)")
"""A substitute for an etag, for servers that have none."""


def is_same(entry: Entry, meta: Any) -> bool:
    """Whether an answer is what was listed. Its time may be in whole seconds."""
    now = entry_of(entry.path, meta).etag
    if TIME.fullmatch(entry.etag) and TIME.fullmatch(now):
        return now in (entry.etag, TIME.sub(r"\1.000000\2", entry.etag))
    return now.strip('"') == entry.etag.strip('"')
