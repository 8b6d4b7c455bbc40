"""The loader through torch's workers, against the loaders that people use: batches per second, and the parent's work.

``python -m benchmarks.workers`` reads the data sets of `benchmarks.online` with 0, 1 and 2 workers, one program after
another, from a warm cache. The same records come out as batches of lists of bytes. Beside each rate stands the CPU time
that the parent, which trains, spends per batch.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.online import BUFFER_SHARE, DATASETS, FOLDER, SIZES, WEBDATASET, Size, make_parquet, make_tar
from benchmarks.programs import OURS, Program, Result, Round, faster, make_once, print_table, run_rounds
from corgi2.sizes import plural

PIPE, PARENT = "corgi2, by the pipe", "parent"
WORKERS, TARGET = (0, 1, 2), 1.5

_COUNT = """
count = number = 0
spent = time.process_time()
for item in loader:
    count += len(opened(item)["data"])
    number += 1
laps["parent"] = [(time.process_time() - spent) / number]
assert count == options["records"], count
"""
_PIPE = """
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from corgi2.torch import CorgiDataset
def opened(batch):
    return batch
data = CorgiDataset(source, buffer=options["buffer_bytes"], batch_size=options["batch"])
loader = DataLoader(data, None, num_workers=options["workers"], collate_fn=opened)
"""
_OURS = (
    _PIPE
    + """
from corgi2.online import Ring, unpack
class Packing(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(data) if info is None else map(rings[info.id].pack, data)
rings = [Ring(5, 2 * options["batch"] * options["record_bytes"]) for _ in range(options["workers"])]
loader = DataLoader(Packing(), None, num_workers=options["workers"], collate_fn=opened)
opened = unpack
"""
)
_WEBDATASET = """
import warnings
warnings.simplefilter("ignore")
import webdataset
def opened(batch):
    return batch
def columns(rows):
    return {"data": [row["data"] for row in rows], "cls": [row["cls"] for row in rows]}
data = webdataset.WebDataset([str(path) for path in files], shardshuffle=100, empty_check=False)
data = data.shuffle(options["buffer_records"]).batched(options["batch"], collation_fn=columns)
loader = webdataset.WebLoader(data, batch_size=None, num_workers=options["workers"], collate_fn=opened)
"""
_DATASETS = """
import datasets
from torch.utils.data import DataLoader
def opened(batch):
    return batch
def columns(rows):
    return {"data": [row["data"] for row in rows], "cls": [row["cls"] for row in rows]}
data = datasets.load_dataset("parquet", data_files=[str(path) for path in files], split="train", streaming=True)
data = data.shuffle(seed=0, buffer_size=options["buffer_records"])
loader = DataLoader(data, options["batch"], num_workers=options["workers"], collate_fn=columns)
"""
_PEERS = {"tar": (WEBDATASET, _WEBDATASET, make_tar), "parquet": (DATASETS, _DATASETS, make_parquet)}


def measure(folder: Path, kind: str, size: Size, workers: int, rounds: int) -> Iterator[Result]:
    peer, script, make = _PEERS[kind]
    source = make_once(folder / f"{kind}-{size.record_bytes}", lambda place: make(place, size))
    for path in source.iterdir():  # into the cache
        path.read_bytes()
    buffer_bytes = max(int(BUFFER_SHARE * size.bytes), 60_000_000)
    options = {
        "buffer_bytes": buffer_bytes * max(1, workers),
        "buffer_records": buffer_bytes // size.record_bytes,
        "record_bytes": size.record_bytes,
        "records": size.records,
        "batch": size.batch,
        "workers": workers,
    }
    scripts = {OURS: _OURS, PIPE: _PIPE, peer: script}
    programs = [Program(name, sys.executable, prepare, _COUNT) for name, prepare in scripts.items()]
    measured = run_rounds(programs, source, options, rounds)
    what = f"{kind}, {size.name}, batches, {plural(workers, 'worker')}"
    for other, target in ((peer, TARGET), (PIPE, None)):
        yield faster(what, measured, other, size.records, "sample", target)
        yield _parents_work(what, measured, other)


def _parents_work(what: str, rounds: Sequence[Round], peer: str) -> Result:
    """CPU time of the process that trains, per batch; to know."""
    mine, theirs = (statistics.median(each[name].lap(PARENT).seconds for each in rounds) for name in (OURS, peer))
    what = f"{what}: the parent's CPU per batch against {peer}"
    return Result(what, f"{1000 * mine:.2f} ms", f"{1000 * theirs:.2f} ms", mine / theirs, "none", True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the loader through torch's workers.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the data is kept")
    parser.add_argument("--only", choices=tuple(_PEERS), help="one of the formats")
    parser.add_argument("--size", choices=[size.name for size in SIZES], help="records of one size")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    return print_table(
        result
        for kind in _PEERS
        if asked.only in (None, kind)
        for size in SIZES
        if asked.size in (None, size.name)
        for workers in WORKERS
        for result in measure(asked.folder, kind, size, workers, asked.rounds)
    )


if __name__ == "__main__":
    sys.exit(main())
