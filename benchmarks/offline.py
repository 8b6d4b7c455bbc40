"""How fast a shuffle is, and how much memory it takes, against copies of the same bytes and peers that hold all data.

``python -m benchmarks.offline`` makes 4 GB of tar, twice 1.6 GB of Parquet, and the same rows as Arrow below
``.bench``, which it keeps for the next time, prints a table, and fails if a target is missed. The peers are installed
into an environment of their own there. All programs run in turn, each in a process of its own, from a warm cache into
a new folder that is removed afterwards, and end when the disk has everything. A ratio is the median of the rounds'.
"""

import argparse
import io
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    within,
)

FOLDER = Path(".bench/offline")
TAR_SHARDS, SMALLEST_SAMPLE, LARGEST_SAMPLE = 40, 8_000, 100_000
PARQUET_FILES, GROUP_ROWS = 20, 100_000
CODECS = ("snappy", "zstd")
ARROW_ROWS = 1_000
BUFFER_SHARE = 0.1

COPY, PLAIN, POLARS, RAY = "cp -r and sync", "a plain copy", "Polars in memory", "Ray Data"
PYARROW = "pyarrow, nothing mixed or checked"
PARQUET = "corgi2, the same rows as Parquet"


_IMPORT, _SHUFFLE = "from corgi2 import shuffle", "shuffle(source, target, buffer=options['buffer_bytes'])"

_COPY = """
subprocess.run(["cp", "-r", source, target], check=True)
os.sync()
"""

_PLAIN = """
target.mkdir()
buffer = memoryview(bytearray(max(path.stat().st_size for path in files)))
for path in files:
    with path.open("rb", buffering=0) as old, (target / path.name).open("xb", buffering=0) as new:
        data = buffer[:old.readinto(buffer)]
        while data:
            data = data[os.write(new.fileno(), data):]
        os.fsync(new.fileno())
"""

_PYARROW = """
from concurrent.futures import ThreadPoolExecutor
target.mkdir()
def copy(path):
    old = pyarrow.parquet.ParquetFile(path)
    with pyarrow.parquet.ParquetWriter(target / path.name, old.schema_arrow, compression=options["codec"]) as new:
        for group in range(old.num_row_groups):
            new.write_table(old.read_row_group(group, use_threads=False))
with ThreadPoolExecutor(os.cpu_count()) as pool:
    list(pool.map(copy, files))
os.sync()
"""

_POLARS = """
target.mkdir()
table = polars.read_parquet(files).sample(fraction=1.0, shuffle=True, seed=0)
step = -(-len(table) // len(files))
for number, path in enumerate(files):
    part = table.slice(number * step, step)
    part.write_parquet(target / path.name, compression=options["codec"], row_group_size=options["group_rows"])
os.sync()
"""

_RAY = """
mixed = ray.data.read_parquet([str(path) for path in files]).random_shuffle(seed=0)
mixed.write_parquet(str(target), compression=options["codec"])
os.sync()
"""


def tar_programs() -> list[Program]:
    return [
        Program(OURS, sys.executable, _IMPORT, _SHUFFLE),
        Program(COPY, sys.executable, "", _COPY),
        Program(PLAIN, sys.executable, "", _PLAIN),
    ]


def parquet_programs(peers: str) -> list[Program]:
    return [
        Program(OURS, sys.executable, _IMPORT, _SHUFFLE),
        Program(POLARS, peers, "import polars", _POLARS),
        Program(PYARROW, sys.executable, "import pyarrow.parquet", _PYARROW),
        Program(RAY, peers, RAY_START, _RAY),
    ]


def make_tar(folder: Path, size: int, shards: int = TAR_SHARDS) -> None:
    """Samples of random bytes and a class, in shards of one size."""
    rng, number = np.random.default_rng(0), 0
    for shard in range(shards):
        with tarfile.open(folder / f"train-{shard:06}.tar", "w") as archive:
            while archive.offset < size / shards:
                length = int(rng.integers(SMALLEST_SAMPLE, LARGEST_SAMPLE))
                for name, data in (("bin", rng.bytes(length)), ("cls", b"%d" % (number % 1000))):
                    member = tarfile.TarInfo(f"{number:08}.{name}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
                number += 1


def make_parquet(folder: Path, size: int, codec: str, shape: "Shape") -> None:
    """Files of several row groups, of about one size."""
    rng = np.random.default_rng(0)
    for number in range(PARQUET_FILES):
        path = folder / f"part-{number:05}.parquet"
        table = shape.make(rng)
        with pq.ParquetWriter(path, table.schema, compression=codec) as writer:
            writer.write_table(table, row_group_size=shape.group_rows)
            while path.stat().st_size < size / PARQUET_FILES:
                writer.write_table(shape.make(rng), row_group_size=shape.group_rows)


def make_arrow(folder: Path, parquet: Path) -> None:
    """The same rows as streams of batches of 1,000 rows, as Hugging Face's datasets writes them."""
    for path in sorted(parquet.iterdir()):
        table = pq.read_table(path)
        with pa.ipc.new_stream(str(folder / f"{path.stem}.arrow"), table.schema) as writer:
            writer.write_table(table, ARROW_ROWS)


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows of one kind."""

    group_rows: int
    make: Callable[[np.random.Generator], pa.Table]


def _images(rng: np.random.Generator) -> pa.Table:
    """A row group: 8 KB that do not compress, and a class."""
    data = pa.array([rng.bytes(8_000) for _ in range(SHAPES["8 KB rows"].group_rows)], pa.binary())
    return pa.table({"image": data, "label": rng.integers(0, 1000, len(data), np.int32)})


def _columns(rng: np.random.Generator) -> pa.Table:
    """A row group: measurements, counts, a word out of a few, and a text that no other row has."""
    words = pa.array([f"category number {number}" for number in range(500)])
    columns: dict[str, Any] = {"id": rng.integers(0, 1 << 62, GROUP_ROWS)}
    columns |= {f"float_{number}": rng.standard_normal(GROUP_ROWS) for number in range(6)}
    columns |= {f"single_{number}": rng.standard_normal(GROUP_ROWS).astype(np.float32) for number in range(4)}
    columns |= {f"count_{number}": rng.integers(0, 1000, GROUP_ROWS, np.int32) for number in range(4)}
    columns["word"] = words.take(pa.array(rng.integers(0, len(words), GROUP_ROWS)))
    columns["text"] = [f"row {number:x}" for number in rng.integers(0, 1 << 62, GROUP_ROWS).tolist()]
    return pa.table(columns)


SHAPES = {"8 KB rows": Shape(2_000, _images), "17 columns": Shape(GROUP_ROWS, _columns)}


def measure_tar(folder: Path, size: int, rounds: int) -> Iterator[Result]:
    """A shuffle of tar shards, against copies, which mix nothing."""
    source = make_once(folder / f"tar-{size // 1_000_000}MB", lambda place: make_tar(place, size))
    stored = sum(len(path.read_bytes()) for path in source.iterdir())
    buffer_bytes = int(BUFFER_SHARE * stored)
    measured = run_rounds(tar_programs(), source, {"buffer_bytes": buffer_bytes}, rounds)
    yield faster("tar", measured, COPY, stored / 1e6, "MB", 0.35)
    yield faster("tar", measured, PLAIN, stored / 1e6, "MB", 0.7)
    yield within("tar", measured, buffer_bytes)


def _parquet_source(folder: Path, size: int, codec: str, name: str) -> Path:
    return make_once(
        folder / f"parquet-{name.replace(' ', '-')}-{codec}-{size // 1_000_000}MB",
        lambda place: make_parquet(place, size, codec, SHAPES[name]),
    )


def measure_arrow(folder: Path, size: int, codec: str, rounds: int, name: str) -> Iterator[Result]:
    """A shuffle of Arrow streams, against one of the same rows as Parquet."""
    parquet = _parquet_source(folder, size, codec, name)
    source = make_once(folder / f"arrow-{parquet.name}", lambda place: make_arrow(place, parquet))
    stored = sum(path.stat().st_size for path in source.iterdir())
    buffer_bytes = int(BUFFER_SHARE * stored)
    programs = [
        Program(OURS, sys.executable, _IMPORT, _SHUFFLE),
        Program(PARQUET, sys.executable, _IMPORT, _SHUFFLE.replace("source", "options['parquet']")),
    ]
    measured = run_rounds(programs, source, {"buffer_bytes": buffer_bytes, "parquet": str(parquet)}, rounds)
    what = f"Arrow, {name}"
    yield faster(what, measured, PARQUET, stored / 1e6, "MB", 1)
    yield within(what, measured, buffer_bytes)


def measure_parquet(folder: Path, size: int, codec: str, rounds: int, name: str) -> Iterator[Result]:
    """A shuffle of Parquet files, against peers that hold all of it."""
    shape, source = SHAPES[name], _parquet_source(folder, size, codec, name)
    stored = sum(path.stat().st_size for path in source.iterdir())
    buffer_bytes = int(BUFFER_SHARE * sum(pq.read_table(path).nbytes for path in source.iterdir()))
    options = {"buffer_bytes": buffer_bytes, "codec": codec, "group_rows": shape.group_rows}
    measured = run_rounds(parquet_programs(install_peers()), source, options, rounds)
    what = f"Parquet, {name}"
    yield faster(what, measured, POLARS, stored / 1e6, "MB", 3)
    yield leaner(what, measured, POLARS, 0.25)
    yield faster(what, measured, PYARROW, stored / 1e6, "MB", None)
    yield faster(what, measured, RAY, stored / 1e6, "MB", 3)
    yield leaner(what, measured, RAY, None)
    yield within(what, measured, buffer_bytes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the offline shuffle against copies and peers.")
    parser.add_argument("--gigabytes", type=float, default=4, help="of tar shards")
    parser.add_argument("--parquet-gigabytes", type=float, default=1.6, help="of Parquet files, as stored")
    parser.add_argument("--codec", choices=CODECS, default=CODECS[0], help="of the Parquet files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the data is kept")
    parser.add_argument(
        "--only", choices=("tar", *SHAPES, *(f"Arrow, {name}" for name in SHAPES)), help="one of the data sets"
    )
    return parser.parse_args()


def main() -> int:
    asked = _arguments()
    asked.folder.mkdir(parents=True, exist_ok=True)
    sizes = {"tar": int(asked.gigabytes * 1e9), "parquet": int(asked.parquet_gigabytes * 1e9)}
    measured = {
        "tar": measure_tar(asked.folder, sizes["tar"], asked.rounds),
    } | {name: measure_parquet(asked.folder, sizes["parquet"], asked.codec, asked.rounds, name) for name in SHAPES}
    measured |= {
        f"Arrow, {name}": measure_arrow(asked.folder, sizes["parquet"], asked.codec, asked.rounds, name)
        for name in SHAPES
    }
    chosen = [results for name, results in measured.items() if asked.only in (None, name)]
    return print_table(result for results in chosen for result in results)


if __name__ == "__main__":
    sys.exit(main())
