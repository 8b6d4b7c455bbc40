"""The loader through torch's workers, against the loaders that people use: batches per second, and the parent's work.

``python -m benchmarks.workers`` reads the data sets of `benchmarks.online` with 0, 1 and 2 workers, one program after
another, from a warm cache. The same records come out as batches of lists of bytes: columns, and what a function makes
of a list of samples. Beside each rate stands the CPU time that the parent, which trains, spends per batch.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.online import BUFFER_SHARE, DATASETS, FOLDER, SIZES, WEBDATASET, Size, make_parquet, make_tar
from benchmarks.programs import OURS, Program, Result, Round, faster, make_once, print_table, run_rounds
from corgi2.sizes import plural

COLLATED, PIPE, PARENT = "corgi2, samples collated", "CorgiDataset by the pipe", "parent"
WORKERS, TARGET, COLLATED_TARGET = (0, 1, 2), 1.5, 1.0

COUNT = """
count = number = 0
spent = time.process_time()
for batch in loader:
    count += len(batch["data"])
    number += 1
laps["parent"] = [(time.process_time() - spent) / number]
assert count == options["records"], count
"""
COLUMNS = """
def columns(rows):
    return {"data": [row["data"] for row in rows], "cls": [row["cls"] for row in rows]}
"""
_LOADER = """
from corgi2.torch import CorgiLoader
settings = {"batch_size": options["batch"], "buffer": options["buffer_bytes"], "num_workers": options["workers"]}
"""
BATCHES = _LOADER + "loader = CorgiLoader(options['corgi2'], **settings)"
COLLATES = _LOADER + COLUMNS + "loader = CorgiLoader(options['corgi2'], collate_fn=columns, **settings)"
_PIPE = """
from torch.utils.data import DataLoader
from corgi2.torch import CorgiDataset
data = CorgiDataset(source, buffer=options["buffer_bytes"], batch_size=options["batch"])
loader = DataLoader(data, None, num_workers=options["workers"], collate_fn=lambda batch: batch)
"""
_WEBDATASET = """
import warnings
warnings.simplefilter("ignore")
import webdataset
data = webdataset.WebDataset([str(path) for path in files], shardshuffle=100, empty_check=False)
data = data.shuffle(options["buffer_records"]).batched(options["batch"], collation_fn=columns)
loader = webdataset.WebLoader(data, batch_size=None, num_workers=options["workers"], collate_fn=lambda batch: batch)
"""
_DATASETS = """
import datasets
from torch.utils.data import DataLoader
data = datasets.load_dataset("parquet", data_files=[str(path) for path in files], split="train", streaming=True)
data = data.shuffle(seed=0, buffer_size=options["buffer_records"])
loader = DataLoader(data, options["batch"], num_workers=options["workers"], collate_fn=columns)
"""
_PEERS = {
    "tar": (WEBDATASET, COLUMNS + _WEBDATASET, make_tar),
    "parquet": (DATASETS, COLUMNS + _DATASETS, make_parquet),
}


def measure(folder: Path, kind: str, size: Size, workers: int, rounds: int) -> Iterator[Result]:
    peer, script, make = _PEERS[kind]
    source = make_once(folder / f"{kind}-{size.record_bytes}", lambda place: make(place, size))
    for path in source.iterdir():  # into the cache
        path.read_bytes()
    scripts = {OURS: BATCHES, COLLATED: COLLATES, peer: script} | ({PIPE: _PIPE} if workers else {})
    programs = [Program(name, sys.executable, prepare, COUNT) for name, prepare in scripts.items()]
    measured = run_rounds(programs, source, options_for(size, workers, source), rounds)
    what = f"{kind}, {size.name}, {plural(workers, 'worker')}"
    yield from compared(what, measured, peer, size, TARGET)
    if workers:
        yield faster(f"{what}, batches", measured, PIPE, size.records, "sample", None)


def options_for(size: Size, workers: int, ours: Path) -> dict[str, Any]:
    """Of all programs that read records of this size."""
    buffer_bytes = max(int(BUFFER_SHARE * size.bytes), 60_000_000)
    return {
        "corgi2": str(ours.absolute()),
        "buffer_bytes": buffer_bytes * max(1, workers),
        "buffer_records": buffer_bytes // size.record_bytes,
        "records": size.records,
        "batch": size.batch,
        "workers": workers,
    }


def compared(what: str, rounds: Sequence[Round], peer: str, size: Size, target: float) -> Iterator[Result]:
    """Batches, samples that the user collates, and what the parent does for each."""
    for ours, kind, least in ((OURS, "batches", target), (COLLATED, "samples collated", COLLATED_TARGET)):
        yield faster(f"{what}, {kind}", rounds, peer, size.records, "sample", least, ours)
        yield _parents_work(f"{what}, {kind}", rounds, peer, ours)


def _parents_work(what: str, rounds: Sequence[Round], peer: str, ours: str) -> Result:
    """CPU time of the process that trains, per batch; to know."""
    mine, theirs = (statistics.median(each[name].lap(PARENT).seconds for each in rounds) for name in (ours, peer))
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
