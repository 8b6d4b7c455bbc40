"""What a caller of the loader may choose, and what that comes to."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from corgi2.caching import open_cache
from corgi2.dataset import Catalog
from corgi2.host import usable_memory
from corgi2.online.place import whole_number
from corgi2.online.ranks import local_ranks
from corgi2.sizes import parse_size

AUTO_BYTES = 2_000_000_000
"""A rank's buffer unless one is given; less only if memory is short, because all ranks must choose the same."""

_SHARE_OF_MEMORY = 4

Picks = Literal["even", "random"]
Tail = Literal["drop", "repeat", "keep"]
BatchFormat = Literal["numpy", "arrow", "samples"]
Affinity = Literal["auto", "node"] | Sequence[int] | None


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))} (got {value!r})")


def nodes_chosen(affinity: Any, has_cache: bool) -> Literal["node"] | tuple[int, ...] | None:
    if affinity is None or affinity == "node":
        return "node" if affinity else None
    if affinity == "auto":
        return "node" if has_cache else None
    if not isinstance(affinity, Iterable) or isinstance(affinity, str):
        raise ValueError(f"affinity must be 'auto', 'node', None or the ranks of each node (got {affinity!r})")
    return tuple(whole_number("affinity", ranks, 1) for ranks in affinity)


def with_cache(catalog: Catalog, folder: str | os.PathLike[str] | None, size: int | str | None) -> Catalog:
    if folder is None:
        if size is not None:
            raise ValueError(f"cache_size={size!r} is for a cache; give cache_dir=, too")
        return catalog
    limit = None if size is None else parse_size(size)
    return replace(catalog, cache=open_cache(folder, limit, catalog.source.store, catalog.source.entries))


def auto_buffer() -> int:
    """A rank's buffer unless one is given."""
    most = usable_memory() // _SHARE_OF_MEMORY // local_ranks()
    return AUTO_BYTES if most >= AUTO_BYTES else 1 << max(20, most.bit_length() - 1)
