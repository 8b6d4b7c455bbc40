"""The index as a file: next to the data in ``.corgi2/``, or in the user's cache."""

import hashlib
import json
import os
import shlex
from pathlib import Path

import pyarrow as pa

from corgi2.dataset.folder import CORGI_FOLDER, INDEX_PATH, runs
from corgi2.dataset.index_tables import BLOCK_FIELDS, SHARD_FIELDS, Index, select
from corgi2.dataset.sealing import seal, unseal
from corgi2.dataset.source import Source
from corgi2.errors import MissingShardError, SourceError
from corgi2.stores import Store, open_store, read_path


def save_index(store: Store, index: Index) -> None:
    store.publish(INDEX_PATH, [encode_index(index)])
    store.sweep(CORGI_FOLDER)


def load_index(store: Store) -> Index | None:
    """The index that lies in a store, or None."""
    data = read_path(store, INDEX_PATH)
    return None if data is None else decode_index(data, f"{store.url}/{INDEX_PATH}")


def cache_store(source: Source, part: str = "") -> Store:
    """Where the index of a source lies if not next to the data: the user's cache, by the source's address; and that of
    a part of its columns."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    key = hashlib.sha256(f"{source.url}\0{part}".encode() if part else source.url.encode()).hexdigest()[:32]
    return open_store(str(Path(home, "corgi2", key)))


def open_index(source: Source) -> Index | None:
    """The index of exactly this source: beside the data, or in the cache; None where there is none, or it is stale. A
    shuffled folder that has lost a shard is refused: the rest is not the data set that was shuffled."""
    index = load_index(source.store)
    missing = missing_shards(source, index)
    if missing:
        raise missing[0]
    return current_index(source, index)


def missing_shards(source: Source, index: Index | None) -> tuple[MissingShardError, ...]:
    """Shards of a finished shuffle that the index beside them names, and that are gone."""
    gone = [] if index is None else gone_from(source, index)
    if not gone or not any(runs(entry.path for entry in source.store.list(CORGI_FOLDER, levels=2)).values()):
        return ()
    others = f" ({len(gone)} of {index.shards.num_rows} shards are)" if index is not None and len(gone) > 1 else ""
    problem = f"is gone{others}, and the index of the shuffle there names it"
    errors = tuple(MissingShardError(f"{source.url}/{path}", 0, problem) for path in gone)
    for error in errors:
        error.hint = f"restore it, or run corgi2 index {shlex.quote(source.url)} to accept what is there"
    return errors


def gone_from(source: Source, index: Index) -> list[str]:
    """Shards that an index names and the folder no longer has; none where only some of them were asked for."""
    there = {entry.path for entry in source.entries}
    paths: list[str] = index.shards.column("path").to_pylist() if source.patterns is None else []
    return [path for path in paths if path not in there]


def current_index(source: Source, beside: Index | None) -> Index | None:
    """What the index beside the data says of exactly these shards, or else the one in the cache."""
    found = None if beside is None else select(beside, source)
    if found is not None:
        return found
    cached = _cached(source)
    return None if cached is None else select(cached, source)


def _cached(source: Source) -> Index | None:
    """The index in the user's cache; None if it cannot be read or has another version: only this user needs it."""
    try:
        return load_index(cache_store(source))
    except SourceError:
        return None


_WAY_OUT = "delete it, and run corgi2 index to make a new one"


def encode_index(index: Index) -> bytes:
    """Two Arrow streams, one after the other, the first with a header in its metadata."""
    header = {"suffix": index.suffix, "block_bytes": index.block_bytes}
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for table in (index.shards.replace_schema_metadata({"corgi2": json.dumps(header)}), index.blocks):
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
    return seal(sink.getvalue())


def decode_index(data: bytearray, name: str) -> Index:
    try:
        reader = pa.BufferReader(unseal(data, name, _WAY_OUT, _WAY_OUT))
        shards = pa.ipc.open_stream(reader).read_all()
        header = json.loads(shards.schema.metadata[b"corgi2"])
        blocks = pa.ipc.open_stream(reader).read_all()
        shards = shards.replace_schema_metadata(None)
        if shards.schema != SHARD_FIELDS or blocks.schema != BLOCK_FIELDS:
            raise ValueError("other columns than expected")
        return Index(header["suffix"], header["block_bytes"], shards, blocks)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{name}: the index is damaged ({error}); {_WAY_OUT}") from error
