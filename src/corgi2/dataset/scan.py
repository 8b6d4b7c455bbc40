"""Finding the blocks of a data set by reading it, several shards at a time. Shards that an earlier index knows are not
read again."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np

from corgi2.budget import readers_of, reading_bytes
from corgi2.dataset.index_tables import BLOCK_VALUES, NO_ROUND, Index, make_index, matches
from corgi2.dataset.schemas import Scanned, refuse_other_schemas
from corgi2.dataset.source import Source
from corgi2.errors import DamageError, ShardError, TooLargeError
from corgi2.formats import Format
from corgi2.progress import progress
from corgi2.records import BLOCK_BYTES, Block, Scan, ShardFile, WatchedShard, checksum_of, runs
from corgi2.stores import Entry

SCAN_THREADS = 4


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
    """Scan all shards in parallel, with progress, and continue after damaged ones. A shard that takes more memory than
    a thread's share is scanned again, alone."""
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

        def scan_run(numbers: list[int]) -> list[Scan | ShardError]:
            """Small shards at once, unless a copy is expected, or one of them is damaged."""
            entries = [source.entries[number] for number in numbers]
            if before.keys().isdisjoint((entry.path, entry.size) for entry in entries):
                shards = [WatchedShard(source.shard(number), _ignore, stop) for number in numbers]
                found = source.format.scan_together(shards, block_bytes, memory // threads)
                if found is not None:
                    bar.advance(sum(entry.size for entry in entries))
                    return [*found]
            return [scan_one(number) for number in numbers]

        parts = [todo[part] for part in runs([source.entries[number].size for number in todo])]
        try:
            results = chain.from_iterable(pool.map(scan_run, parts))
            for number, result in zip(todo, results, strict=True):
                scans[number] = result
            for number in [number for number in todo if isinstance(scans[number], TooLargeError)]:
                scans[number] = scan_one(number, memory)
        except BaseException:
            stop.set()
            raise
    return _survey(source, block_bytes, refuse_other_schemas(source, scans))


def _ignore(_: int) -> None:
    """Shards that are scanned together are counted together."""


def _survey(source: Source, block_bytes: int, scans: Sequence[Scanned]) -> Survey:
    sound = [number for number, scan in enumerate(scans) if isinstance(scan, Scan)]
    entries = [source.entries[number] for number in sound]
    good = [scan for scan in scans if isinstance(scan, Scan)]
    index = make_index(source.format.suffix, block_bytes, list(zip(entries, good, strict=True)))
    return Survey(index, tuple(scan for scan in scans if isinstance(scan, ShardError)))


def sketch_source(source: Source) -> Index:
    """Every shard as one block, from the listing alone: records are not counted, footprints may be estimates."""
    scans = [(entry, Scan((source.format.sketch(entry.size),))) for entry in source.entries]
    return make_index(source.format.suffix, BLOCK_BYTES, scans)


def _held(source: Source, block_bytes: int, known: Index | None) -> dict[Entry, Scan]:
    """What an earlier index says about these shards, if they are unchanged."""
    if known is None or known.suffix != source.format.suffix or known.block_bytes != block_bytes:
        return {}
    wanted = {entry.path for entry in source.entries}
    first = np.searchsorted(known.column("shard"), np.arange(known.shards.num_rows + 1)).tolist()
    whole = zip(*(known.shards.column(name).to_pylist() for name in ("schema", "checksum")), strict=True)
    held = {}
    for entry, (start, stop), (schema, checksum) in zip(known.entries, pairwise(first), whole, strict=True):
        if entry.path in wanted:
            rows = known.blocks.slice(start, stop - start).to_pylist()
            blocks = tuple(Block(*(row[name] for name in BLOCK_VALUES)) for row in rows)
            lineage = tuple(tuple(row["lineage"]) for row in rows)
            held[entry] = Scan(blocks, schema, checksum, lineage, rows[0]["round"] if rows else NO_ROUND)
    return held


def _scan(format: Format, shard: ShardFile, block_bytes: int, before: Scan | None, memory: int) -> Scan:
    """A copy of a shard has another time, or etag, than the index says. If it has the same bytes, or the same blocks if
    a scan is cheap, then these keep their lineage."""
    if (
        before is not None
        and before.checksum
        and not format.traits.has_cheap_scan
        and checksum_of(shard) == before.checksum
    ):
        return before
    scan = format.scan(shard, block_bytes, memory)
    if before is not None and format.traits.has_cheap_scan and _cuts(before) == _cuts(scan):
        return replace(scan, lineage=before.lineage, round=before.round)
    if (
        before is not None
        and before.checksum
        and format.traits.has_cheap_scan
        and format.traits.cuts_blocks
        and checksum_of(shard) == before.checksum
    ):
        return before
    return scan


def _cuts(scan: Scan) -> list[tuple[int, int, int]]:
    return [(block.start, block.length, block.records) for block in scan.blocks]
