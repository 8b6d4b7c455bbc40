"""How fast the loader is, and how much memory it takes, against the loaders that people use.

``python -m benchmarks.online`` makes data sets of records of 1, 8 and 100 KB as tar and as Parquet below ``.bench``,
which it keeps for the next time, prints a table, and fails if a target is missed. One process each, the same data, the
same buffer (in records, where a peer counts those), the same kind of output; all programs in turn, from a warm cache.
The first batch, and reading one buffer, a matter of 0.1 s each, are timed in turn in one process, 15 times.
"""

import argparse
import io
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.programs import (
    OURS,
    RAY_START,
    Program,
    Result,
    faster,
    install_peers,
    leaner,
    make_once,
    print_table,
    run_rounds,
)

FOLDER = Path(".bench/online")
SHARDS = 100
BUFFER_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Size:
    """Records of one size, how many, in batches of how many, and what is expected against the fastest peer."""

    record_bytes: int
    records: int
    batch: int
    target: float

    @property
    def name(self) -> str:
        return f"{self.record_bytes // 1000} KB"

    @property
    def bytes(self) -> int:
        return self.record_bytes * self.records


SIZES = (Size(1_000, 200_000, 256, 5), Size(8_000, 100_000, 256, 5), Size(100_000, 8_000, 32, 1.5))

_COUNT = """
count = 0
for item in loader:
    count += len(item["data"]) if options["batch"] else 1
assert count == options["records"], count
"""

_OURS = """
import corgi2
loader = corgi2.Loader(source, buffer=options["buffer_bytes"], batch_size=options["batch"])
"""
_TABLES = """
import corgi2
loader = corgi2.Loader(source, buffer=options["buffer_bytes"], batch_size=options["batch"], batch_format="arrow")
"""
_COUNT_TABLES = """
assert sum(map(len, loader)) == options["records"]
"""
_WEBDATASET = """
import warnings
warnings.simplefilter("ignore")
import webdataset
loader = webdataset.WebDataset([str(path) for path in files], shardshuffle=100, empty_check=False)
loader = loader.shuffle(options["buffer_records"])
if options["batch"]:
    loader = loader.batched(options["batch"], collation_fn=lambda rows: {"data": [row["data"] for row in rows]})
"""
_DATASETS = """
import datasets
names = [str(path) for path in files]
loader = datasets.load_dataset("parquet", data_files=names, split="train", streaming=True)
loader = loader.shuffle(seed=0, buffer_size=options["buffer_records"])
if options["batch"]:
    loader = loader.iter(options["batch"])
"""
_RAY = """
data = ray.data.read_parquet([str(path) for path in files], shuffle="files")
loader = data.iter_batches(
    batch_size=options["batch"], local_shuffle_buffer_size=options["buffer_records"], local_shuffle_seed=0
)
"""
_SEQUENTIAL = {
    "tar": "kept = [path.read_bytes() for path in files]",
    "parquet": "import pyarrow.parquet\nkept = [pyarrow.parquet.read_table(path) for path in files]",
}
_OPEN = """
from concurrent.futures import ThreadPoolExecutor
from corgi2.records.arena import Arena
room = loader.room(1)
pieces = loader.catalog.index.pieces(loader.catalog.source, range(room.blocks))
def read_first():
    next(iter(loader))
def read_buffer():
    with ThreadPoolExecutor(room.fetchers) as pool:
        loader.catalog.source.format.read(pieces, Arena(room.capacity), pool.map, decoders=room.decoders)
read_first(), read_buffer()
"""
_TAKE_TURNS = """
for _ in range(15):
    for lap, work in zip(options["laps"], (read_first, read_buffer)):
        started = time.perf_counter()
        work()
        laps.setdefault(lap, []).append(time.perf_counter() - started)
"""
WEBDATASET, DATASETS, RAY = "WebDataset", "HF datasets", "Ray Data"
TABLES, SEQUENTIAL, FIRST, ONE_BUFFER = (
    "corgi2, Arrow",
    "reading the files",
    "corgi2, first batch",
    "reading one buffer",
)


def make_tar(folder: Path, size: Size) -> None:
    for shard, rows in enumerate(_rows(size)):
        with tarfile.open(folder / f"train-{shard:06}.tar", "w") as archive:
            for number, row in enumerate(rows):
                for part, data in (("data", row), ("cls", b"%d" % (shard % 10))):
                    member = tarfile.TarInfo(f"{shard:04}-{number:06}.{part}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))


def make_parquet(folder: Path, size: Size) -> None:
    for shard, rows in enumerate(_rows(size)):
        labels = pa.array([shard % 10] * len(rows), pa.int64())
        table = pa.table({"data": pa.array(rows, pa.binary()), "cls": labels})
        pq.write_table(table, folder / f"train-{shard:06}.parquet", row_group_size=len(rows))


def _rows(size: Size) -> Iterator[list[bytes]]:
    rng = np.random.default_rng(0)
    for _ in range(SHARDS):
        yield [rng.bytes(size.record_bytes) for _ in range(size.records // SHARDS)]


def measure(folder: Path, kind: str, size: Size, batch: int | None, rounds: int, peers: str) -> Iterator[Result]:
    """One data set, read as samples or in batches."""
    make = {"tar": make_tar, "parquet": make_parquet}[kind]
    source = make_once(folder / f"{kind}-{size.record_bytes}", lambda place: make(place, size))
    for path in source.iterdir():  # into the cache
        path.read_bytes()
    buffer_bytes = int(BUFFER_SHARE * size.bytes)
    options = {
        "buffer_bytes": max(buffer_bytes, 60_000_000),
        "buffer_records": max(buffer_bytes, 60_000_000) // size.record_bytes,
        "records": size.records,
        "batch": batch,
    }
    python = sys.executable
    programs = [Program(OURS, python, _OURS, _COUNT)]
    if kind == "tar":
        programs.append(Program(WEBDATASET, python, _WEBDATASET, _COUNT))
    else:
        programs.append(Program(DATASETS, python, _DATASETS, _COUNT))
        if batch:
            programs.append(Program(RAY, peers, RAY_START + _RAY, _COUNT))
    if batch:
        programs.append(Program(TABLES, python, _TABLES, _COUNT_TABLES))
        programs.append(Program(SEQUENTIAL, python, "", _SEQUENTIAL[kind]))
    measured = run_rounds(programs, source, options, rounds)
    laps = (FIRST, ONE_BUFFER)
    opening = Program(FIRST, python, _OURS + _OPEN, _TAKE_TURNS)
    wide = options | {"buffer_bytes": size.bytes, "laps": laps}
    turns = run_rounds([opening], source, wide, rounds) if batch else []
    opened = [{lap: turn[FIRST].lap(lap) for lap in laps} for turn in turns]
    what = f"{kind}, {size.name}, {'batches' if batch else 'samples'}"
    for program in programs[1:]:
        if program.name in (WEBDATASET, DATASETS, RAY):
            yield faster(what, measured, program.name, size.records, "sample", size.target)
            yield leaner(what, measured, program.name, None)
    if batch:
        yield faster(what, measured, SEQUENTIAL, size.bytes / 1e6, "MB", 0.5)
        yield faster(f"{what} as Arrow tables", measured, SEQUENTIAL, size.bytes / 1e6, "MB", 0.5, ours=TABLES)
        yield faster(f"{what}, a buffer of all", opened, ONE_BUFFER, 1, "buffer", round(1 / 1.2, 2), ours=FIRST)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the loader against the loaders that people use.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the data is kept")
    parser.add_argument("--only", choices=("tar", "parquet"), help="one of the formats")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    peers = install_peers() if asked.only != "tar" else ""
    return print_table(
        result
        for kind in ("tar", "parquet")
        if asked.only in (None, kind)
        for size in SIZES
        for batch in (None, size.batch)
        for result in measure(asked.folder, kind, size, batch, asked.rounds, peers)
    )


if __name__ == "__main__":
    sys.exit(main())
