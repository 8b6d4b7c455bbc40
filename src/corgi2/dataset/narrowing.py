"""A data set of which only some columns are read, and nulls that no array can hold, found before anything is read.

Both are told by the footers of the shards, which are read once, and kept in the user's cache.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from corgi2.budget import reading_bytes
from corgi2.dataset.blocks import Catalog, alone
from corgi2.dataset.estimate import forecast
from corgi2.dataset.index_file import cache_store, load_index, save_index
from corgi2.dataset.index_tables import Index, select, with_column
from corgi2.dataset.scan import index_source
from corgi2.dataset.sealing import seal, unseal
from corgi2.dataset.source import Source
from corgi2.errors import SourceError
from corgi2.formats import Columnar
from corgi2.stores import read_path

_NULLS = "nulls"
_THREADS = 16
"""That read footers."""


def narrow(
    catalog: Catalog, columns: Sequence[str] | None, fill: Mapping[str, Any] | None, buffer_bytes: int | None = None
) -> Catalog:
    """The same blocks, with what some of their columns take."""
    if columns is None and not fill:
        return catalog
    if isinstance(columns, str) or (columns is not None and not columns):
        raise ValueError(f"columns must be a list of names (got {columns!r})")
    source, format = catalog.source, catalog.source.format
    if not isinstance(format, Columnar):
        raise ValueError(
            f"{source.url}: columns=[…] and fill={{…}} are for Parquet, and this is {format.name}; choose and fill in "
            "a transform"
        )
    wanting = format.wanting(source.shard(0), columns, fill or {})
    narrowed = replace(catalog, source=replace(source, format=wanting))
    return narrowed if wanting.columns is None else _with_sizes(narrowed, wanting.columns, buffer_bytes)


def _with_sizes(catalog: Catalog, columns: Sequence[str], buffer_bytes: int | None) -> Catalog:
    index, found = catalog.index, _scanned(catalog.source, columns, buffer_bytes)
    same = index.blocks.num_rows == found.blocks.num_rows
    if not same or not all((index.column(name) == found.column(name)).all() for name in ("shard", "start", "records")):
        raise SourceError(f"{catalog.source.url}: has other blocks than its index says; run corgi2 index again")
    blocks = index.blocks
    for name in ("length", "footprint", "exact"):
        blocks = with_column(blocks, name, found.blocks.column(name))
    return replace(catalog, index=replace(index, blocks=blocks))


def _scanned(source: Source, columns: Sequence[str], buffer_bytes: int | None) -> Index:
    """The index of these columns: from the user's cache, or by a scan of the footers."""
    cache = cache_store(source, "\0".join(columns))
    with alone(cache) as can_keep:
        try:
            known = load_index(cache)
        except SourceError:
            known = None  # damaged, or of another version
        index = None if known is None else select(known, source)
        if index is None:
            scan = index_source(source, buffer_bytes=buffer_bytes)
            index = forecast(source, scan, None, reading_bytes(buffer_bytes)).index
            if can_keep:
                save_index(cache, index)
    return index


def refuse_nulls(catalog: Catalog) -> None:
    """Refuse columns that would be arrays but for nulls, unless they are filled in, or left out. Where footers have no
    statistics, they are found when they are read."""
    format, schemas = catalog.source.format, catalog.index.shards.column("schema")
    if not isinstance(format, Columnar) or not len(schemas) or not format.has_strict(str(schemas[0])):
        return
    problem = format.problem_of(_unfit(catalog.source, format))
    if problem is not None:
        raise SourceError(f"{catalog.source.url}: {problem}")


def _unfit(source: Source, format: Columnar) -> dict[str, str]:
    """Columns with nulls, and their types, whether or not they are wanted."""
    state = hashlib.sha256()
    for entry in source.entries:
        state.update(f"{entry.path}\0{entry.size}\0{entry.etag}\0".encode())
    mark, cache = state.hexdigest(), cache_store(source)
    with alone(cache) as can_keep:
        kept = read_path(cache, _NULLS) if can_keep else None
        try:
            known = {} if kept is None else json.loads(bytes(unseal(kept, _NULLS, "")))
        except SourceError:
            known = {}
        if known.get("shards") != mark:
            with ThreadPoolExecutor(min(_THREADS, len(source.entries))) as pool:
                found = pool.map(lambda number: format.unfit(source.shard(number)), range(len(source.entries)))
                known = {"shards": mark, "columns": {name: kind for each in found for name, kind in each.items()}}
            if can_keep:
                cache.publish(_NULLS, [seal(json.dumps(known).encode())])
    return dict(known["columns"])
