"""How fast a shuffle is, and how much memory it takes, against copies of the same bytes and peers that hold all data.

``python -m benchmarks.offline`` makes 4 GB of tar and twice 1.6 GB of Parquet below ``.bench``, which it keeps for
the next time, prints a table, and fails if a target is missed. The peers are installed into an environment of their
own there. All programs run in turn, each in a process of its own, from a warm cache into a new folder that is removed
afterwards, and end when the disk has everything. A ratio is the median of the rounds'.
"""

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(".bench/offline")
PEERS = Path(".bench/peers")
REQUIREMENTS = ("polars", "ray[data]", "pyarrow", "aiohttp")  # without the last, Ray Data cannot read a local file
TAR_SHARDS, SMALLEST_SAMPLE, LARGEST_SAMPLE = 40, 8_000, 100_000
PARQUET_FILES, GROUP_ROWS = 20, 100_000
CODECS = ("snappy", "zstd")
BUFFER_SHARE = 0.1
SAMPLE_SECONDS = 0.1

OURS, COPY, PLAIN, POLARS, RAY = "corgi2", "cp -r and sync", "a plain copy", "Polars in memory", "Ray Data"


@dataclass(frozen=True, slots=True)
class Result:
    """Two measured numbers and what their ratio should be."""

    what: str
    ours: str
    theirs: str
    ratio: float
    target: str
    met: bool

    def row(self) -> str:
        met = "yes" if self.met else "**no**"
        return f"| {self.what} | {self.ours} | {self.theirs} | {self.ratio:.2f} | {self.target} | {met} |"


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a program took."""

    seconds: float
    peak_bytes: int


Round = Mapping[str, Run]
"""A run of each program, by name."""


@dataclass(frozen=True, slots=True)
class Program:
    """A small script: ``work`` is timed, ``prepare`` is not. It knows ``source``, ``target`` and ``options``."""

    name: str
    python: str
    prepare: str
    work: str

    @property
    def script(self) -> str:
        return _SCRIPT.format(prepare=self.prepare, work=self.work)


_SCRIPT = """
import json, os, subprocess, sys, time
from pathlib import Path
source, target, result = map(Path, sys.argv[1:4])
options = json.loads(sys.argv[4])
files = sorted(source.iterdir())
{prepare}
began = time.perf_counter()
{work}
seconds = time.perf_counter() - began
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
result.write_text(json.dumps([seconds, int(peak.split()[1]) * 1024]))
"""

_SHUFFLE = "corgi2.shuffle(source, target, buffer=options['buffer_bytes'])"

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

_POLARS = """
target.mkdir()
table = polars.read_parquet(files).sample(fraction=1.0, shuffle=True, seed=0)
step = -(-len(table) // len(files))
for number, path in enumerate(files):
    part = table.slice(number * step, step)
    part.write_parquet(target / path.name, compression=options["codec"], row_group_size=options["group_rows"])
os.sync()
"""

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # listen on 127.0.0.1 only, as on those: the address below does not do it
}

_RAY_START = """
import ray
ray.init(
    num_cpus=os.cpu_count(),
    include_dashboard=False,
    log_to_driver=False,
    _node_ip_address="127.0.0.1",
    _temp_dir=options["scratch"],
)
"""

_RAY = """
mixed = ray.data.read_parquet([str(path) for path in files]).random_shuffle(seed=0)
mixed.write_parquet(str(target), compression=options["codec"])
os.sync()
"""


def tar_programs() -> list[Program]:
    return [
        Program(OURS, sys.executable, "import corgi2", _SHUFFLE),
        Program(COPY, sys.executable, "", _COPY),
        Program(PLAIN, sys.executable, "", _PLAIN),
    ]


def parquet_programs(peers: str) -> list[Program]:
    return [
        Program(OURS, sys.executable, "import corgi2", _SHUFFLE),
        Program(POLARS, peers, "import polars", _POLARS),
        Program(RAY, peers, _RAY_START, _RAY),
    ]


def install_peers(folder: Path = PEERS) -> str:
    """The Python of an environment that holds the peers; made where it is missing."""
    python = folder.absolute() / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, *REQUIREMENTS], check=True)
    return str(python)


def run_rounds(programs: Sequence[Program], source: Path, options: Mapping[str, Any], rounds: int) -> list[Round]:
    """All programs in turn, again and again."""
    return [{program.name: run(program, source, options) for program in programs} for _ in range(rounds)]


def run(program: Program, source: Path, options: Mapping[str, Any]) -> Run:
    """One program, into a new folder on the disk of its source, which is gone afterwards."""
    place = Path(tempfile.mkdtemp(dir=source.parent))
    scratch = Path(tempfile.mkdtemp())  # Ray's sockets need a short path
    os.sync()
    try:
        return _run_in(place, program, source, {**options, "scratch": str(scratch)})
    finally:
        shutil.rmtree(place)
        shutil.rmtree(scratch, ignore_errors=True)
        os.sync()


def _run_in(place: Path, program: Program, source: Path, options: Mapping[str, Any]) -> Run:
    result, log = place / "result.json", place / "log"
    arguments = [source.absolute(), place.absolute() / "out", result.absolute(), json.dumps(options)]
    command = [program.python, "-c", program.script, *map(str, arguments)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | _ENVIRONMENT)
        sampled = _watch(process)
    if process.returncode:
        raise RuntimeError(f"{program.name} failed with {process.returncode}: {log.read_text()[-2000:]}")
    seconds, peak_bytes = json.loads(result.read_text())
    return Run(seconds, max(peak_bytes, sampled))


def _watch(process: "subprocess.Popen[bytes]") -> int:
    """Wait for a process; the most memory that it and all below it were seen to take at once."""
    peak = 0
    while process.poll() is None:
        peak = max(peak, _family_bytes(process.pid))
        time.sleep(SAMPLE_SECONDS)
    return peak


def _family_bytes(pid: int) -> int:
    """Memory of a process and all below it: what is private to each, and what the largest of them shares."""
    statuses = {int(status["Pid"]): status for status in _statuses()}
    family = [status for status in statuses.values() if _is_below(status, pid, statuses)]
    private = sum(_kilobytes(status, "RssAnon") for status in family)
    return 1024 * (private + max((_kilobytes(status, "RssShmem") for status in family), default=0))


def _statuses() -> Iterator[dict[str, str]]:
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = path.read_text().splitlines()
        except OSError:  # it has ended
            continue
        yield {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _is_below(status: Mapping[str, str] | None, pid: int, statuses: Mapping[int, Mapping[str, str]]) -> bool:
    while status is not None and int(status["Pid"]) != pid:
        status = statuses.get(int(status["PPid"]))
    return status is not None


def _kilobytes(status: Mapping[str, str], name: str) -> int:
    return int(status.get(name, "0 kB").split()[0])


def make_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """A folder with data, made unless it is there."""
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        make(partial)
        partial.rename(folder)
    return folder


def make_tar(folder: Path, size: int) -> None:
    """Samples of random bytes and a class, in shards of one size."""
    rng, number = np.random.default_rng(0), 0
    for shard in range(TAR_SHARDS):
        with tarfile.open(folder / f"train-{shard:06}.tar", "w") as archive:
            while archive.offset < size / TAR_SHARDS:
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
    yield faster("tar", measured, COPY, stored, 0.35)
    yield faster("tar", measured, PLAIN, stored, 0.7)
    yield within("tar", measured, buffer_bytes)


def measure_parquet(folder: Path, size: int, codec: str, rounds: int, name: str) -> Iterator[Result]:
    """A shuffle of Parquet files, against peers that hold all of it."""
    shape = SHAPES[name]
    source = make_once(
        folder / f"parquet-{name.replace(' ', '-')}-{codec}-{size // 1_000_000}MB",
        lambda place: make_parquet(place, size, codec, shape),
    )
    stored = sum(path.stat().st_size for path in source.iterdir())
    buffer_bytes = int(BUFFER_SHARE * sum(pq.read_table(path).nbytes for path in source.iterdir()))
    options = {"buffer_bytes": buffer_bytes, "codec": codec, "group_rows": shape.group_rows}
    measured = run_rounds(parquet_programs(install_peers()), source, options, rounds)
    what = f"Parquet, {name}"
    yield faster(what, measured, POLARS, stored, 3)
    yield leaner(what, measured, POLARS, 0.25)
    yield faster(what, measured, RAY, stored, 1)
    yield leaner(what, measured, RAY, None)
    yield within(what, measured, buffer_bytes)


def faster(what: str, rounds: Sequence[Round], peer: str, size: int, least: float) -> Result:
    ratio = statistics.median(each[peer].seconds / each[OURS].seconds for each in rounds)
    ours, theirs = (_rate(size, rounds, name) for name in (OURS, peer))
    return Result(f"{what}: speed against {peer}", ours, theirs, ratio, f">= {least}", ratio >= least)


def leaner(what: str, rounds: Sequence[Round], peer: str, most: float | None) -> Result:
    ratio = statistics.median(each[OURS].peak_bytes / each[peer].peak_bytes for each in rounds)
    ours, theirs = (_megabytes(max(each[name].peak_bytes for each in rounds)) for name in (OURS, peer))
    target, met = ("none", True) if most is None else (f"< {most}", ratio < most)
    return Result(f"{what}: peak memory against {peer}", ours, theirs, ratio, target, met)


def within(what: str, rounds: Sequence[Round], buffer_bytes: int) -> Result:
    limit = 1.15 * buffer_bytes + 200e6
    peak = max(each[OURS].peak_bytes for each in rounds)
    what = f"{what}: peak memory against 1.15 × the buffer of {_megabytes(buffer_bytes)} and 200 MB"
    return Result(what, _megabytes(peak), _megabytes(limit), peak / limit, "<= 1", peak <= limit)


def _rate(size: int, rounds: Sequence[Round], name: str) -> str:
    return f"{size / 1e6 / statistics.median(each[name].seconds for each in rounds):,.0f} MB/s"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the offline shuffle against copies and peers.")
    parser.add_argument("--gigabytes", type=float, default=4, help="of tar shards")
    parser.add_argument("--parquet-gigabytes", type=float, default=1.6, help="of Parquet files, as stored")
    parser.add_argument("--codec", choices=CODECS, default=CODECS[0], help="of the Parquet files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the data is kept")
    parser.add_argument("--only", choices=("tar", *SHAPES), help="one of the data sets")
    return parser.parse_args()


def main() -> int:
    asked = _arguments()
    asked.folder.mkdir(parents=True, exist_ok=True)
    sizes = {"tar": int(asked.gigabytes * 1e9), "parquet": int(asked.parquet_gigabytes * 1e9)}
    measured = {
        "tar": measure_tar(asked.folder, sizes["tar"], asked.rounds),
    } | {name: measure_parquet(asked.folder, sizes["parquet"], asked.codec, asked.rounds, name) for name in SHAPES}
    print("| measured | corgi2 | peer, or limit | ratio | target | met |\n|---|---|---|---|---|---|", flush=True)
    met = True
    for name, results in measured.items():
        for result in results if asked.only in (None, name) else ():
            print(result.row(), flush=True)
            met &= result.met
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
