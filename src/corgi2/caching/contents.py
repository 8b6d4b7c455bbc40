"""``corgi2 cache``: what a cache holds, and emptying it."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corgi2.caching.locks import try_lock, unlock
from corgi2.caching.place import is_cache
from corgi2.caching.room import ABOUT, PART, Room, data_sets, entries_of, entry_bytes
from corgi2.errors import StoreError
from corgi2.sizes import format_size, plural


@dataclass(frozen=True, slots=True)
class CachedData:
    """What a cache holds of one data set."""

    url: str
    entries: int
    bytes: int
    in_use: bool


@dataclass(frozen=True, slots=True)
class CacheContents:
    """What a cache holds, after it was emptied, if that was asked for."""

    folder: str
    data: tuple[CachedData, ...]
    unfinished: int
    """Entries that are being fetched, or were when their process was killed."""
    removed_bytes: int | None = None

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.data)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"bytes": self.bytes}

    def as_text(self) -> str:
        lines = [f"{self.folder}: {format_size(self.bytes)} in {plural(len(self.data), 'data set')}"]
        for each in self.data:
            use = ", in use" if each.in_use else ""
            lines.append(f"  {format_size(each.bytes)} in {plural(each.entries, 'range')} of {each.url}{use}")
        if self.unfinished:
            lines.append(f"  {plural(self.unfinished, 'range')} unfinished")
        if self.removed_bytes is not None:
            lines.append(f"removed {format_size(self.removed_bytes)}")
            if self.bytes:
                lines.append("what is in use stays; end the processes that train from it, and clear again")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<CacheContents: {self.as_text().splitlines()[0]}>"


def cache(path: str | os.PathLike[str], *, clear: bool = False) -> CacheContents:
    """What lies in a loader's cache.

    Args:
        path: The ``cache_dir`` of a loader.
        clear: Remove all that no running process uses.
    """
    folder = Path(path)
    if not is_cache(folder):
        raise StoreError(f"{folder}: is not a cache of corgi2; give the cache_dir= of a loader")
    removed = Room(folder, None).clear()[0] if clear else None
    found = [(path, entries_of(path)) for path in sorted(data_sets(folder))]
    data = tuple(_described(path, entries) for path, entries in found if entries or _is_used(path))
    unfinished = sum(entry.name.endswith(PART) for _, entries in found for entry in entries)
    return CacheContents(str(folder), data, unfinished, removed)


def _described(path: Path, entries: list[Path]) -> CachedData:
    try:
        url = str(json.loads((path / ABOUT).read_text())["url"])
    except (OSError, ValueError, KeyError, TypeError):
        url = "a data set that is not known"
    return CachedData(url, len(entries), sum(map(entry_bytes, entries)), _is_used(path))


def _is_used(data_set: Path) -> bool:
    if not (data_set / ABOUT).exists():
        return False
    fd = try_lock(data_set / ABOUT)
    if fd is not None:
        unlock(fd)
    return fd is None
