"""The loader against loaders that have a format of their own, in an environment of their own, which takes gigabytes.

``python -m benchmarks.peers`` writes records of 1, 8 and 100 KB in each format below ``.bench`` and reads them in
random order with 0, 1 and 2 workers, one program after another, from a warm cache: batches as in `benchmarks.workers`.
Of 8 KB, also samples in one process, and memory. The buffer is ours alone: the others keep whole shards on the disk,
and shuffle within a few of them.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.online import SIZES, Size, make_tar
from benchmarks.programs import OURS, Program, Result, faster, install_peers, leaner, make_once, print_table, run_rounds
from benchmarks.workers import BATCHES, COLLATED, COLLATES, COLUMNS, COUNT, TARGET, WORKERS, compared, options_for
from corgi2.sizes import plural

FOLDER = Path(".bench/online")
ENVIRONMENT, REQUIREMENTS = Path(".bench/own-peers"), ("mosaicml-streaming", "litdata")
STREAMING, LITDATA = "MosaicML Streaming", "LitData"
ALONE_TARGET = 1.2
"""Without workers."""

_ROWS = """
import sys
import numpy
folder, size, records = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
"""
_WRITE = {
    STREAMING: _ROWS
    + """
from streaming import MDSWriter
rng = numpy.random.default_rng(0)
with MDSWriter(out=folder, columns={"data": "bytes", "cls": "int"}, size_limit=size * records // 100) as writer:
    for number in range(records):
        writer.write({"data": rng.bytes(size), "cls": number % 10})
""",
    LITDATA: _ROWS
    + """
import litdata
def row(number):
    return {"data": numpy.random.default_rng(number).bytes(size), "cls": number % 10}
if __name__ == "__main__":
    litdata.optimize(row, list(range(records)), folder, chunk_bytes=size * records // 100, num_workers=1)
""",
}
_READ = {
    STREAMING: """
from streaming import StreamingDataset
from streaming.base.util import clean_stale_shared_memory
clean_stale_shared_memory()
loader = StreamingDataset(local=str(source), shuffle=True, batch_size=256)
""",
    LITDATA: """
from litdata import StreamingDataset
loader = StreamingDataset(str(source), shuffle=True)
""",
}
_THROUGH_WORKERS = {
    STREAMING: COLUMNS
    + """
from streaming import StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader
clean_stale_shared_memory()
data = StreamingDataset(local=str(source), shuffle=True, batch_size=options["batch"])
loader = DataLoader(data, options["batch"], num_workers=options["workers"], collate_fn=columns)
""",
    LITDATA: COLUMNS
    + """
from litdata import StreamingDataLoader, StreamingDataset
data = StreamingDataset(str(source), shuffle=True)
loader = StreamingDataLoader(
    data, batch_size=options["batch"], num_workers=options["workers"], collate_fn=columns, drop_last=False
)
""",
}
_OURS = """
import corgi2
loader = corgi2.Loader(options["tar"], buffer=options["buffer_bytes"])
"""
_COUNT = """
assert sum(1 for _ in loader) == options["records"]
"""


def make_with(python: str, peer: str, folder: Path, size: Size) -> None:
    script = folder.with_name("write.py")
    script.write_text(_WRITE[peer])
    subprocess.run(
        [python, str(script), str(folder), str(size.record_bytes), str(size.records)], check=True, capture_output=True
    )
    script.unlink()


def measure_samples(python: str, folder: Path, size: Size, peer: str, rounds: int) -> Iterator[Result]:
    """One process each, sample by sample."""
    options = {"tar": str(_tar(folder, size)), "buffer_bytes": size.bytes // 10, "records": size.records}
    programs = [Program(OURS, sys.executable, _OURS, _COUNT), Program(peer, python, _READ[peer], _COUNT)]
    measured = run_rounds(programs, _made(python, folder, size, peer), options, rounds)
    yield faster(f"{size.name}, samples", measured, peer, size.records, "sample", None)
    yield leaner(f"{size.name}, samples", measured, peer, None)


def measure_workers(python: str, folder: Path, size: Size, peer: str, workers: int, rounds: int) -> Iterator[Result]:
    options = options_for(size, workers, _tar(folder, size))
    programs = [
        Program(OURS, sys.executable, BATCHES, COUNT),
        Program(COLLATED, sys.executable, COLLATES, COUNT),
        Program(peer, python, _THROUGH_WORKERS[peer], COUNT),
    ]
    measured = run_rounds(programs, _made(python, folder, size, peer), options, rounds)
    what = f"{size.name}, {plural(workers, 'worker')}"
    yield from compared(what, measured, peer, size, TARGET if workers else ALONE_TARGET)


def _tar(folder: Path, size: Size) -> Path:
    return make_once(folder / f"tar-{size.record_bytes}", lambda place: make_tar(place, size))


def _made(python: str, folder: Path, size: Size, peer: str) -> Path:
    name = f"{peer.split()[-1].lower()}-{size.record_bytes}"
    return make_once(folder / name, lambda place: make_with(python, peer, place, size))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the loader against loaders with formats of their own.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the data is kept")
    parser.add_argument("--python", help="of an environment that has the peers; made if not given")
    parser.add_argument("--peer", choices=(STREAMING, LITDATA), help="one of them")
    parser.add_argument("--size", choices=[size.name for size in SIZES], help="records of one size")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    python = asked.python or install_peers(ENVIRONMENT, REQUIREMENTS)
    return print_table(_results(python, asked))


def _results(python: str, asked: argparse.Namespace) -> Iterator[Result]:
    for peer in (STREAMING, LITDATA):
        for size in SIZES:
            if asked.peer in (None, peer) and asked.size in (None, size.name):
                for workers in WORKERS:
                    yield from measure_workers(python, asked.folder, size, peer, workers, asked.rounds)
                if size is SIZES[1]:
                    yield from measure_samples(python, asked.folder, size, peer, asked.rounds)


if __name__ == "__main__":
    sys.exit(main())
