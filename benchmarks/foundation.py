"""How fast reading, splitting, gathering and indexing are, against what else reads the same bytes in the same run.

``python -m benchmarks.foundation`` makes about 2 GB of data in a folder of its own, prints a table, removes the data
and fails if a target is missed. Both sides of a ratio run in turn, from a warm cache, and the ratio of their total
times counts. Memory: about 1.5 GB.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import webdataset as wds

from corgi2.dataset.index_file import load_index, save_index
from corgi2.dataset.index_tables import Index, blocks_table, make_index
from corgi2.dataset.scan import index_source
from corgi2.dataset.source import find_source
from corgi2.order import Indices
from corgi2.records.arena import Arena
from corgi2.records.group import SLICE_BYTES, Group, gather
from corgi2.records.shard import BLOCK_BYTES, Piece
from corgi2.records.spans import framed_table
from corgi2.stores.opening import open_store

ROUNDS, LEAST_ROUNDS, ENOUGH_SECONDS = 40, 5, 12
TAR_SAMPLES = 20_000
GATHER_BYTES = 512_000_000
INDEX_BLOCKS = 1_000_000
INDEX_SHARDS = 10_000
FILES, ROW_GROUPS = 4, 4

Task = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Result:
    """A measured number and what it should be."""

    what: str
    figure: str
    target: str
    met: bool

    def row(self) -> str:
        return f"| {self.what} | {self.figure} | {self.target} | {'yes' if self.met else '**no**'} |"


@dataclass(frozen=True, slots=True)
class Pair:
    """Means of alternating runs, in seconds: what else the machine does then weighs on both alike."""

    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    def figure(self, value: float) -> str:
        return f"{value:.2f} ({self.ours * 1000:.0f} ms against {self.theirs * 1000:.0f} ms)"


def measure(ours: Task, theirs: Task) -> Pair:
    """Both in turn, after one run each to warm the cache and touch the memory."""
    ours(), theirs()
    times = [(_seconds(ours), _seconds(theirs)) for _ in range(LEAST_ROUNDS)]
    while len(times) < ROUNDS and sum(map(sum, times)) < ENOUGH_SECONDS:
        times.append((_seconds(ours), _seconds(theirs)))
    mine, others = zip(*times, strict=True)
    return Pair(statistics.fmean(mine), statistics.fmean(others))


def _seconds(task: Task) -> float:
    began = time.perf_counter()
    task()
    return time.perf_counter() - began


def at_least(what: str, pair: Pair, target: float | None) -> Result:
    speed = 1 / pair.ratio
    return Result(what, pair.figure(speed), f">= {target}" if target else "none", target is None or speed >= target)


def measure_tar(folder: Path) -> Iterator[Result]:
    """Scan, and read and split, a tar of 8 KB samples, against WebDataset's iteration without decoding."""
    path = _write_tar(folder)
    source = find_source(path)
    shard = source.shard(0)
    blocks = source.format.scan(shard, BLOCK_BYTES).blocks
    pieces, arena = (
        [Piece(shard, block.start, block.length) for block in blocks],
        Arena(sum(b.footprint for b in blocks)),
    )

    def read() -> None:
        arena.clear()
        source.format.read(pieces, arena)

    def iterate() -> None:
        for _ in wds.WebDataset(str(path), shardshuffle=False, empty_check=False):
            pass

    scan = measure(lambda: source.format.scan(shard, BLOCK_BYTES), iterate)
    yield at_least("scan a tar of 8 KB samples: speed against webdataset", scan, 5)
    yield at_least("read and split it: speed against webdataset", measure(read, iterate), 5)


def _write_tar(folder: Path) -> Path:
    path, rng = folder / "samples.tar", np.random.default_rng(0)
    with wds.TarWriter(str(path)) as writer:
        for number in range(TAR_SAMPLES):
            writer.write({"__key__": f"{number:08}", "bin": rng.bytes(8_000), "cls": number % 1000})
    return path


def measure_gather() -> Iterator[Result]:
    """A gather in random order, against a copy of the same bytes."""
    data = Arena(GATHER_BYTES).array(0, GATHER_BYTES)
    data[:] = np.frombuffer(np.random.default_rng(0).bytes(GATHER_BYTES), np.uint8)
    target = data.copy()
    for size, wanted in ((1_000, None), (8_000, 0.5), (100_000, 0.5)):
        group = Group(framed_table(np.arange(0, GATHER_BYTES + 1, size, dtype=np.int64), data))
        order = np.random.default_rng(1).permutation(group.records)
        pair = measure(partial(_gather_all, group, order), lambda: np.copyto(target, data))
        yield at_least(f"gather records of {size:,} bytes: speed against memcpy", pair, wanted)
    group = Group(framed_table(np.arange(0, GATHER_BYTES + 1, 8_000, dtype=np.int64), data))
    order = np.random.default_rng(1).permutation(group.records)
    for megabytes in (1, 16, 64):
        pair = measure(partial(_gather_all, group, order, megabytes * 1_000_000), lambda: np.copyto(target, data))
        yield at_least(f"the same of 8,000 bytes, in slices of {megabytes} MB instead of 4", pair, None)


def _gather_all(group: Group, order: Indices, slice_bytes: int = SLICE_BYTES) -> None:
    for _ in gather(group, order, slice_bytes):
        pass


def measure_parquet(folder: Path) -> Iterator[Result]:
    """All row groups, by the index, with two threads, against Arrow's own reading of the same files."""
    makers: dict[str, Callable[[int], pa.Table]] = {
        "8 KB binary rows": _binary_rows,
        "20 numeric columns": _numeric_rows,
        "dictionary strings and integers": _worded_rows,
    }
    for name, make in makers.items():
        with tempfile.TemporaryDirectory(dir=folder) as place, ThreadPoolExecutor(2) as pool:
            pair = _measure_files(Path(place), make, pool)
        what = f"read Parquet blocks, {name}: time against read_table"
        yield Result(what, pair.figure(pair.ratio), "<= 1.1", pair.ratio <= 1.1)


def _measure_files(folder: Path, make: Callable[[int], pa.Table], pool: ThreadPoolExecutor) -> Pair:
    paths = [folder / f"part-{number}.parquet" for number in range(FILES)]
    for number, path in enumerate(paths):
        table = make(number)
        pq.write_table(table, path, row_group_size=-(-table.num_rows // ROW_GROUPS))
    source = find_source(folder)
    index = index_source(source)
    pieces = index.pieces(source, range(index.blocks.num_rows))
    arena = Arena(3 * index.footprint)  # footprints of texts are estimates

    def ours() -> object:
        arena.clear()
        return source.format.read(pieces, arena, pool.map)

    return measure(ours, lambda: pq.read_table(paths))


def _binary_rows(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"image": [rng.bytes(8_000) for _ in range(8_000)], "label": rng.integers(0, 1000, 8_000)})


def _numeric_rows(seed: int) -> pa.Table:
    rng, rows = np.random.default_rng(seed), 500_000
    floats = {f"float_{number}": rng.standard_normal(rows) for number in range(10)}
    return pa.table(floats | {f"int_{number}": rng.integers(0, 1 << 40, rows) for number in range(10)})


def _worded_rows(seed: int) -> pa.Table:
    rng, rows = np.random.default_rng(seed), 1_500_000
    words = pa.array([f"category number {number}" for number in range(500)])
    columns: dict[str, Any] = {f"word_{number}": words.take(rng.integers(0, 500, rows)) for number in range(2)}
    return pa.table(columns | {f"int_{number}": rng.integers(0, 1000, rows) for number in range(2)})


def measure_index(folder: Path) -> Iterator[Result]:
    """The time to load an index of a million blocks: a target of its own, against nothing."""
    store = open_store(str(folder / "index"))
    save_index(store, _large_index())
    seconds = statistics.median(_seconds(lambda: load_index(store)) for _ in range(LEAST_ROUNDS))
    yield Result(f"load an index of {INDEX_BLOCKS:,} blocks", f"{seconds:.2f} s", "< 1 s", seconds < 1)


def _large_index() -> Index:
    rng, count = np.random.default_rng(0), INDEX_BLOCKS
    shard = np.arange(count, dtype=np.int32) // (count // INDEX_SHARDS)
    lengths = rng.integers(60_000_000, 64_000_000, count)
    records = rng.integers(5_000, 9_000, count)
    checksums = [rng.bytes(16) for _ in range(count)]
    lineage = pa.array([[]], pa.list_(pa.int32())).take(pa.array(np.zeros(count, np.int64)))
    columns = [shard, np.cumsum(lengths), lengths, records, lengths + 24 * records, np.ones(count, bool), checksums]
    blocks = pa.table([*columns, lineage], schema=blocks_table([]).schema)
    paths = [f"train/shard-{number:06}.tar" for number in range(INDEX_SHARDS)]
    sizes, empty = np.full(INDEX_SHARDS, 6_400_000_000), [""] * INDEX_SHARDS
    etags, checksums = [f"{path} etag" for path in paths], checksums[:INDEX_SHARDS]
    shards = pa.table([paths, sizes, etags, empty, checksums], schema=make_index(".tar", 1, []).shards.schema)
    return Index(".tar", BLOCK_BYTES, shards, blocks)


def main() -> int:
    print("| measured | figure | target | met |\n|---|---|---|---|", flush=True)
    met = True
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for measured in (measure_tar(folder), measure_gather(), measure_parquet(folder), measure_index(folder)):
            for result in measured:
                print(result.row(), flush=True)
                met &= result.met
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
