"""The blocks that a loader reads: known from an index or from footers, counted on first use, or taken from the listing.

Hundreds of readers would scan a remote data set hundreds of times, so the error asks to index it once.
"""

import fcntl
import hashlib
import logging
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from corgi2.budget import reading_bytes
from corgi2.caching import Cache
from corgi2.dataset.estimate import forecast
from corgi2.dataset.index_file import cache_store, current_index, load_index, missing_shards, open_index, save_index
from corgi2.dataset.index_tables import Index
from corgi2.dataset.scan import Survey, sketch_source, survey_source
from corgi2.dataset.source import Source, find_source
from corgi2.errors import DamageError, SourceError
from corgi2.order import Indices
from corgi2.records import numpy_of
from corgi2.stores import Options, Store

_log = logging.getLogger("corgi2")


def survey_of(source: Source, buffer_bytes: int | None = None) -> tuple[Survey, bool]:
    """The blocks of a source: from its index where that is up to date, else by a scan, within this much memory; and
    whether an index said so. Of an index that is stale, what still holds is not read again. Shards that a shuffle wrote
    there and that are gone count as damage."""
    known = load_index(source.store)
    missing, index = missing_shards(source, known), current_index(source, known)
    if index is not None:
        return Survey(index, missing), not missing
    survey = survey_source(source, known=known, buffer_bytes=buffer_bytes)
    return replace(survey, damage=(*missing, *survey.damage)), False


def index_of(source: Source, buffer_bytes: int | None = None) -> Index:
    """The same, but every shard must be sound."""
    survey, _ = survey_of(source, buffer_bytes)
    if survey.damage:
        raise DamageError(survey.damage)
    return survey.index


@dataclass(frozen=True, slots=True)
class Catalog:
    """A data set's blocks; ``lineage`` if corgi2 shuffled it: one row per block, the coarsest level first."""

    source: Source
    index: Index
    lineage: Indices | None
    rounds: Indices | None = None
    """The round of each block, if ranges were mixed in rounds."""
    cache: Cache | None = None
    """Where its ranges are kept on this node, if anywhere."""

    @property
    def is_counted(self) -> bool:
        return self.index.is_counted

    @property
    def fingerprint(self) -> str:
        """The same for the same shards, wherever they lie."""
        state = hashlib.sha256()
        for path, size in zip(*(self.index.shards.column(name).to_pylist() for name in ("path", "size")), strict=True):
            state.update(f"{path}\0{size}\0".encode())
        for name in ("shard", "start", "records"):
            state.update(np.ascontiguousarray(self.index.column(name), "<i8").tobytes())
        return state.hexdigest()[:16]


def open_catalog(
    uri: str | os.PathLike[str], options: Options | None, needs_counts: bool, buffer_bytes: int | None = None
) -> Catalog:
    """The blocks at a URI. If the records must be counted, a local folder is scanned once, with progress, within this
    much memory."""
    source = find_source(uri, options)
    index = open_index(source) or _counted(source, uri, needs_counts, buffer_bytes)
    source = replace(source, entries=tuple(index.entries))
    return catalog_of(source, index)


def catalog_of(source: Source, index: Index) -> Catalog:
    """What an index says of the blocks of a source."""
    rounds = index.column("round").astype(np.int64)
    return Catalog(source, index, lineage_of(index), rounds if len(rounds) and rounds.min() >= 0 else None)


def _counted(source: Source, uri: str | os.PathLike[str], needs_counts: bool, buffer_bytes: int | None) -> Index:
    if not source.store.is_local and not source.format.traits.has_cheap_scan:
        if needs_counts:
            raise SourceError(
                f"{source.url}: has no index, and an epoch of counted records needs one; run once: corgi2 index "
                f"{shlex.quote(os.fspath(uri))}  (or give repeat=True, for endless epochs without a count)"
            )
        return forecast(source, sketch_source(source), None, reading_bytes(buffer_bytes)).index
    cache = cache_store(source)
    with alone(cache) as can_keep:
        index = open_index(source)  # another process may have been faster
        if index is None:
            index = forecast(source, index_of(source, buffer_bytes), None, reading_bytes(buffer_bytes)).index
            if can_keep:
                save_index(cache, index)
    return index


@contextmanager
def alone(cache: Store) -> Iterator[bool]:
    """One process of this machine at a time: the others wait for its result. Yields whether that can be kept."""
    folder = Path(cache.url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        _log.warning("the index cannot be kept in %s (%s): it is made again each time", folder, error.strerror)
        yield False
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield True


def lineage_of(index: Index) -> Indices | None:
    """One row per block, if all blocks have a lineage of the same depth."""
    column = index.blocks.column("lineage").combine_chunks()
    depth = numpy_of(column.value_lengths())
    if not len(depth) or depth.min() == 0 or depth.min() != depth.max():
        return None
    return numpy_of(column.flatten()).astype(np.int64).reshape(len(depth), -1)
