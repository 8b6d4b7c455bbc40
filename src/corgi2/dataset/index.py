"""The blocks of a data set: where each lies, how many records it holds, what it takes in memory.

An index is two tables of columns, so that a million blocks load in a fraction of a second. It lies in ``.corgi2/``
beside the data, or in the user's cache. A shard whose size or etag has changed is scanned again, the others are not.
"""

import hashlib
import json
import os
import re
import statistics
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgi2.budget import readers_of, reading_bytes
from corgi2.dataset.seal import seal, unseal
from corgi2.dataset.source import CORGI_FOLDER, INDEX_PATH, Source
from corgi2.errors import DamageError, ShardError, SourceError, TooLargeError
from corgi2.formats import Format
from corgi2.progress import progress
from corgi2.records.arrays import number_array, numpy_of, value_table
from corgi2.records.shard import BLOCK_BYTES, Block, Piece, Scan, ShardFile, WatchedShard, checksum_of
from corgi2.stores import Entry, Store, open_store, read_path

SCAN_THREADS = 4

_SHARDS = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("etag", pa.string()),
        ("schema", pa.string()),
        ("checksum", pa.binary()),
    ]
)
_BLOCKS = pa.schema(
    [
        ("shard", pa.int32()),
        ("start", pa.int64()),
        ("length", pa.int64()),
        ("records", pa.int64()),
        ("footprint", pa.int64()),
        ("exact", pa.bool_()),
        ("checksum", pa.binary()),
        ("lineage", pa.list_(pa.int32())),
    ]
)


@dataclass(frozen=True, slots=True)
class Index:
    """Shards in the order of their paths, and their blocks in the order of shard and start.

    ``lineage`` holds, for blocks that corgi2 wrote, a number for every pass: in the last one the block's group, in an
    earlier one the set of groups that its records come from (blocks with equal numbers come from the same set).
    """

    suffix: str
    block_bytes: int
    shards: pa.Table
    blocks: pa.Table

    def column(self, name: str) -> npt.NDArray[np.int64]:
        return numpy_of(self.blocks.column(name))

    @property
    def records(self) -> int:
        return int(self.column("records").sum())

    @property
    def is_counted(self) -> bool:
        """Whether the records are known; a sketch from a listing does not know them."""
        return bool((self.column("records") > 0).all())

    @property
    def footprint(self) -> int:
        return int(self.column("footprint").sum())

    @property
    def entries(self) -> list[Entry]:
        columns = (self.shards.column(name).to_pylist() for name in ("path", "size", "etag"))
        return [Entry(*row) for row in zip(*columns, strict=True)]

    @property
    def bytes(self) -> int:
        return int(numpy_of(self.shards.column("size")).sum())

    def pieces(self, source: Source, numbers: Iterable[int]) -> list[Piece]:
        """Blocks by number, ready to be read. The source must be the one that was indexed."""
        names = ("shard", "start", "length", "records", "footprint")
        shard, start, length, records, footprint = (self.column(name) for name in names)
        checksum = self.blocks.column("checksum")
        return [
            Piece(
                source.shard(int(shard[n])),
                int(start[n]),
                int(length[n]),
                checksum[int(n)].as_py(),
                int(records[n]),
                int(footprint[n]),
            )
            for n in numbers
        ]

    def select(self, numbers: npt.NDArray[np.int64]) -> "Index":
        """Some blocks, in the given order, and their shards, renumbered."""
        kept, shard = np.unique(self.column("shard")[numbers], return_inverse=True)
        blocks = self.blocks.take(number_array(numbers)).set_column(
            0, _BLOCKS.field("shard"), number_array(shard.astype(np.int32))
        )
        return Index(self.suffix, self.block_bytes, self.shards.take(number_array(kept)), blocks)


@dataclass(frozen=True, slots=True)
class Survey:
    """What a scan found: the index of all sound shards, and what is wrong with the others."""

    index: Index
    damage: tuple[ShardError, ...]


def index_source(
    source: Source, block_bytes: int = BLOCK_BYTES, known: Index | None = None, buffer_bytes: int | None = None
) -> Index:
    """Index a source; a damaged shard is an error. Shards that ``known`` holds unchanged are not read again, and those
    that were copied since keep their lineage."""
    survey = survey_source(source, block_bytes, known, buffer_bytes)
    if survey.damage:
        raise DamageError(survey.damage)
    return survey.index


def survey_source(
    source: Source, block_bytes: int = BLOCK_BYTES, known: Index | None = None, buffer_bytes: int | None = None
) -> Survey:
    """Scan all shards in parallel, with progress, and go on behind damaged ones. What takes more memory than a thread's
    share is scanned again, alone."""
    if known is not None and known.block_bytes == block_bytes and matches(known, source):
        return Survey(known, ())
    held = _held(source, block_bytes, known)
    scans: list[Scanned] = [held.get(entry) for entry in source.entries]
    before = {(entry.path, entry.size): scan for entry, scan in held.items()}
    todo = [number for number, scan in enumerate(scans) if scan is None]
    total = sum(source.entries[number].size for number in todo)
    stop, memory = threading.Event(), reading_bytes(buffer_bytes)
    threads = readers_of(memory, SCAN_THREADS)
    with progress("scanning", total) as bar, ThreadPoolExecutor(threads) as pool:

        def scan_one(number: int, memory: int = memory // threads) -> Scan | ShardError:
            shard, entry = WatchedShard(source.shard(number), bar.advance, stop), source.entries[number]
            try:
                return _scan(source.format, shard, block_bytes, before.get((entry.path, entry.size)), memory)
            except ShardError as error:
                return error
            finally:
                bar.advance(shard.size - shard.read)

        try:
            for number, result in zip(todo, pool.map(scan_one, todo), strict=True):
                scans[number] = result
            for number in [number for number in todo if isinstance(scans[number], TooLargeError)]:
                scans[number] = scan_one(number, memory)
        except BaseException:
            stop.set()
            raise
    return _survey(source, block_bytes, _refuse_other_schemas(source, scans))


Scanned = Scan | ShardError | None


def _survey(source: Source, block_bytes: int, scans: Sequence[Scanned]) -> Survey:
    sound = [number for number, scan in enumerate(scans) if isinstance(scan, Scan)]
    entries = [source.entries[number] for number in sound]
    good = [scan for scan in scans if isinstance(scan, Scan)]
    index = make_index(source.format.suffix, block_bytes, list(zip(entries, good, strict=True)))
    return Survey(index, tuple(scan for scan in scans if isinstance(scan, ShardError)))


def make_index(suffix: str, block_bytes: int, scans: Sequence[tuple[Entry, Scan]]) -> Index:
    """The index of scanned shards."""
    shards = value_table(
        [
            [entry.path for entry, _ in scans],
            [entry.size for entry, _ in scans],
            [entry.etag for entry, _ in scans],
            [scan.schema for _, scan in scans],
            [scan.checksum for _, scan in scans],
        ],
        _SHARDS,
    )
    blocks = [(place, block) for place, (_, scan) in enumerate(scans) for block in scan.blocks]
    lineage = [numbers for _, scan in scans for numbers in scan.lineage or ((),) * len(scan.blocks)]
    return Index(suffix, block_bytes, shards, blocks_table(blocks, lineage))


def blocks_table(blocks: Sequence[tuple[int, Block]], lineage: Sequence[Sequence[int]] | None = None) -> pa.Table:
    """Blocks, each with the number of its shard."""
    columns = [
        [shard for shard, _ in blocks],
        *([getattr(block, name) for _, block in blocks] for name in _BLOCKS.names[1:-1]),
        lineage if lineage is not None else [[]] * len(blocks),
    ]
    return value_table(columns, _BLOCKS)


def sketch_source(source: Source) -> Index:
    """Every shard as one block, from the listing alone: records are not counted, footprints may be estimates."""
    scans = [(entry, Scan((source.format.sketch(entry.size),))) for entry in source.entries]
    return make_index(source.format.suffix, BLOCK_BYTES, scans)


def whole_shards(index: Index) -> Index:
    """The same shards, each as one block."""
    first = np.searchsorted(index.column("shard"), np.arange(index.shards.num_rows))
    sums = {name: np.add.reduceat(index.column(name), first) for name in ("records", "footprint")}
    exact = np.logical_and.reduceat(index.column("exact"), first)
    scans = [
        (entry, Scan((Block(0, entry.size, records, footprint, sure),), schema))
        for entry, records, footprint, sure, schema in zip(
            index.entries,
            sums["records"].tolist(),
            sums["footprint"].tolist(),
            exact.tolist(),
            index.shards.column("schema").to_pylist(),
            strict=True,
        )
    ]
    return make_index(index.suffix, index.block_bytes, scans)


def _refuse_other_schemas(source: Source, scans: Sequence[Scanned]) -> list[Scanned]:
    """All shards must have the schema that most have."""
    schemas = [scan.schema for scan in scans if isinstance(scan, Scan)]
    if len(set(schemas)) < 2:
        return list(scans)
    common = statistics.mode(schemas)
    example = next(n for n, scan in enumerate(scans) if isinstance(scan, Scan) and scan.schema == common)
    return [
        ShardError(
            source.shard(number).name,
            source.entries[number].size,
            f"another schema than {source.entries[example].path}: {schema_difference(scan.schema, common)}; "
            "convert it, or leave it out",
        )
        if isinstance(scan, Scan) and scan.schema != common
        else scan
        for number, scan in enumerate(scans)
    ]


def schema_difference(schema: str, common: str) -> str:
    """What one schema lacks, what it has beyond another, what is of another type in it, and what stands elsewhere; the
    first few of these."""
    ours, theirs = _columns(schema), _columns(common)
    shared = [place for place in ours if place in theirs]
    found = [
        *(f"'{place[0]}: {kind}' is missing" for place, kind in theirs.items() if place not in ours),
        *(f"'{place[0]}: {kind}' is extra" for place, kind in ours.items() if place not in theirs),
        *(f"'{p[0]}: {ours[p]}' against '{p[0]}: {theirs[p]}'" for p in shared if ours[p] != theirs[p]),
        *_other_order(shared, [place for place in theirs if place in ours]),
    ]
    more = len(found) - _SHOWN
    return ", ".join(found[:_SHOWN]) + (f", and {more} more" if more > 0 else "")


def _other_order(ours: list[tuple[str, int]], theirs: list[tuple[str, int]]) -> Iterator[str]:
    moved = next(((a[0], b[0]) for a, b in zip(ours, theirs, strict=True) if a != b), None)
    if moved:
        yield f"columns in another order: '{moved[0]}' stands before '{moved[1]}'"


_SHOWN = 4
"""Differences between two schemas."""
_LINE = re.compile(r'((?:"(?:[^"\\]|\\.)*"|[^":])*): (.*)')
"""A name, in which a colon stands in quotes only, and a type."""


def _columns(schema: str) -> dict[tuple[str, int], str]:
    """The type of each column, by its name, and its number among those of the same name."""
    columns, seen = dict[tuple[str, int], str](), Counter[str]()
    for line in schema.splitlines():
        name, kind = match.groups() if (match := _LINE.fullmatch(line)) else (line, "")
        columns[name, seen[name]] = kind
        seen[name] += 1
    return columns


def _held(source: Source, block_bytes: int, known: Index | None) -> dict[Entry, Scan]:
    """What an earlier index says of these shards, as they were then."""
    if known is None or known.suffix != source.format.suffix or known.block_bytes != block_bytes:
        return {}
    wanted = {entry.path for entry in source.entries}
    first = np.searchsorted(known.column("shard"), np.arange(known.shards.num_rows + 1)).tolist()
    whole = zip(*(known.shards.column(name).to_pylist() for name in ("schema", "checksum")), strict=True)
    held = {}
    for entry, (start, stop), (schema, checksum) in zip(known.entries, pairwise(first), whole, strict=True):
        if entry.path in wanted:
            rows = known.blocks.slice(start, stop - start).to_pylist()
            blocks = tuple(Block(*(row[name] for name in _BLOCKS.names[1:-1])) for row in rows)
            lineage = tuple(tuple(row["lineage"]) for row in rows)
            held[entry] = Scan(blocks, schema, checksum, lineage)
    return held


def _scan(format: Format, shard: ShardFile, block_bytes: int, before: Scan | None, memory: int) -> Scan:
    """A copy of a shard has another time, or etag, than the index says. If it has the same bytes, or the same blocks
    where a scan reads no more than the end of a shard, then these have the lineage that they had."""
    if before is not None and before.checksum and not format.has_footer and checksum_of(shard) == before.checksum:
        return before
    scan = format.scan(shard, block_bytes, memory)
    if before is not None and format.has_footer and _cuts(before) == _cuts(scan):
        return replace(scan, lineage=before.lineage)
    return scan


def _cuts(scan: Scan) -> list[tuple[int, int, int]]:
    return [(block.start, block.length, block.records) for block in scan.blocks]


def matches(index: Index, source: Source) -> bool:
    """Whether an index describes exactly these shards, unchanged."""
    return index.entries == list(source.entries)


def of_index(source: Source, index: Index) -> Source:
    """The source with the shards of an index alone, and what the listing knows of them beyond it."""
    listed = {entry: entry for entry in source.entries}
    return replace(source, entries=tuple(listed.get(entry, entry) for entry in index.entries))


def select(index: Index, source: Source) -> Index | None:
    """The part of an index that describes these shards, or None if one is missing or has changed."""
    if index.suffix != source.format.suffix:
        return None
    place = {entry: number for number, entry in enumerate(index.entries)}
    wanted = [place.get(entry, -1) for entry in source.entries]
    return None if -1 in wanted else _part(index, np.array(wanted, np.int64))


def merge(known: Index | None, new: Index) -> Index:
    """The new index, and what an older one of the same kind knows of other shards in the folder."""
    if known is None or (known.suffix, known.block_bytes) != (new.suffix, new.block_bytes):
        return new
    other = without(known, set(new.shards.column("path").to_pylist()))
    moved = new.column("shard") + other.shards.num_rows
    shard = number_array(np.concatenate([other.column("shard"), moved]).astype(np.int32))
    shards = pa.concat_tables([other.shards, new.shards])
    blocks = pa.concat_tables([other.blocks, new.blocks]).set_column(0, _BLOCKS.field("shard"), shard)
    both = Index(new.suffix, new.block_bytes, shards, blocks)
    return _part(both, np.argsort(np.array(shards.column("path").to_pylist(), object), kind="stable"))


def without(index: Index, paths: set[str]) -> Index:
    """The index less some shards."""
    kept = [number for number, path in enumerate(index.shards.column("path").to_pylist()) if path not in paths]
    return _part(index, np.array(kept, np.int64))


def with_entries(index: Index, entries: Sequence[Entry]) -> Index:
    """The index of the same shards as they are listed now."""
    fields = pa.schema([_SHARDS.field("size"), _SHARDS.field("etag")])
    now = value_table([[entry.size for entry in entries], [entry.etag for entry in entries]], fields)
    shards = with_column(index.shards, "size", now.column("size"))
    return replace(index, shards=with_column(shards, "etag", now.column("etag")))


def with_replaced(index: Index, entries: Sequence[Entry]) -> Index:
    """The index of whole shards, of which some were replaced by others; how many records these hold is not known."""
    changed = np.array([old != new for old, new in zip(index.entries, entries, strict=True)])[index.column("shard")]
    sizes = np.array([entry.size for entry in entries], np.int64)[index.column("shard")]
    lengths, records = np.where(changed, sizes, index.column("length")), np.where(changed, 0, index.column("records"))
    blocks = with_column(index.blocks, "length", number_array(lengths))
    blocks = with_column(blocks, "records", number_array(records))
    return replace(with_entries(index, entries), blocks=blocks)


def with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The same table, with other values in one of its columns."""
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), values)


def _part(index: Index, shards: npt.NDArray[np.int64]) -> Index:
    """Some shards of an index, in the given order, with their blocks."""
    number = np.full(index.shards.num_rows, -1, np.int64)
    number[shards] = np.arange(len(shards))
    new = number[index.column("shard")]
    rows = np.argsort(new, kind="stable")[(new < 0).sum() :]
    blocks = index.blocks.take(number_array(rows)).set_column(
        0, _BLOCKS.field("shard"), number_array(new[rows].astype(np.int32))
    )
    return Index(index.suffix, index.block_bytes, index.shards.take(number_array(shards)), blocks)


def save_index(store: Store, index: Index) -> None:
    store.publish(INDEX_PATH, [encode_index(index)])
    store.sweep(CORGI_FOLDER)


def load_index(store: Store) -> Index | None:
    """The index that lies in a store, or None."""
    data = read_path(store, INDEX_PATH)
    return None if data is None else decode_index(data, f"{store.url}/{INDEX_PATH}")


def cache_store(source: Source) -> Store:
    """Where the index of a source lies if not beside the data: the user's cache, by the source's address."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    key = hashlib.sha256(source.url.encode()).hexdigest()[:32]
    return open_store(str(Path(home, "corgi2", key)))


def open_index(source: Source) -> Index | None:
    """The index of exactly this source: beside the data, or in the cache; None where there is none, or it is stale."""
    for store in (source.store, cache_store(source)):
        index = load_index(store)
        found = select(index, source) if index is not None else None
        if found is not None:
            return found
    return None


_WAY_OUT = "delete it, and run corgi2 index to make it anew"


def encode_index(index: Index) -> bytes:
    """Two Arrow streams, one behind the other, the first with a header in its metadata."""
    header = {"suffix": index.suffix, "block_bytes": index.block_bytes}
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for table in (index.shards.replace_schema_metadata({"corgi2": json.dumps(header)}), index.blocks):
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
    return seal(sink.getvalue())


def decode_index(data: bytearray, name: str) -> Index:
    try:
        reader = pa.BufferReader(unseal(data, name, _WAY_OUT))
        shards = pa.ipc.open_stream(reader).read_all()
        header = json.loads(shards.schema.metadata[b"corgi2"])
        blocks = pa.ipc.open_stream(reader).read_all()
        shards = shards.replace_schema_metadata(None)
        if shards.schema != _SHARDS or blocks.schema != _BLOCKS:
            raise ValueError("other columns than expected")
        return Index(header["suffix"], header["block_bytes"], shards, blocks)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{name}: the index is damaged ({error}); {_WAY_OUT}") from error
