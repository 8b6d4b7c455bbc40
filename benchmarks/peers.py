"""The loader against loaders that have a format of their own, in an environment of their own, which takes gigabytes.

``python -m benchmarks.peers`` writes records of 8 KB in each format below ``.bench`` and reads them in random order,
one process each, in turn, from a warm cache: samples a second, and memory. The buffer is ours alone: the others keep
whole shards on the disk, and shuffle within a few of them.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.online import SIZES, Size, make_tar
from benchmarks.programs import OURS, Program, Result, faster, install_peers, leaner, make_once, print_table, run_rounds

FOLDER = Path(".bench/online")
ENVIRONMENT, REQUIREMENTS = Path(".bench/own-peers"), ("mosaicml-streaming", "litdata")
STREAMING, LITDATA = "MosaicML Streaming", "LitData"

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


def measure(folder: Path, size: Size, rounds: int) -> Iterator[Result]:
    python = install_peers(ENVIRONMENT, REQUIREMENTS)
    tar = make_once(folder / f"tar-{size.record_bytes}", lambda place: make_tar(place, size))
    options = {"tar": str(tar), "buffer_bytes": size.bytes // 10, "records": size.records}
    for peer in (STREAMING, LITDATA):
        name = f"{peer.split()[-1].lower()}-{size.record_bytes}"
        source = make_once(folder / name, lambda place, peer=peer: make_with(python, peer, place, size))  # type: ignore[misc]
        programs = [Program(OURS, sys.executable, _OURS, _COUNT), Program(peer, python, _READ[peer], _COUNT)]
        measured = run_rounds(programs, source, options, rounds)
        yield faster(f"{size.name}, samples", measured, peer, size.records, "sample", None)
        yield leaner(f"{size.name}, samples", measured, peer, None)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the loader against loaders with formats of their own.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the data is kept")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    return print_table(measure(asked.folder, SIZES[1], asked.rounds))


if __name__ == "__main__":
    sys.exit(main())
