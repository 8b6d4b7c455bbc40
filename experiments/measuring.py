"""h_D of real data as it comes, after one offline pass and after two, and as predicted.

``python -m experiments.measuring --data FOLDER`` prints the table of docs/measuring.md.

All blocks are measured. The buffer is a tenth of the blocks. What is measured after a pass is the mean over seeds, with
its standard error.
"""

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

import corgi2
from corgi2 import theory
from corgi2.quality.measuring import measure
from corgi2.theory import Blocks
from experiments.data import DEFAULT, SETS, DataSet

ALL = 10**9
PASSES = (1, 2)


def row(data: DataSet, folder: Path, seeds: int) -> str:
    """One line of the table."""
    shards = data.shards(folder)
    before = measure(shards, [data.label], sample=ALL)
    blocks = Blocks(before.blocks, before.block_records, before.h_D)
    n = round(blocks.count / 10)
    cells = [data.name, data.what, f"{blocks.count}", f"{blocks.examples:,.0f}", f"{before.h_D:,.1f}", f"{n}"]
    for passes, predicted in zip(PASSES, (theory.h_after_pass, theory.h_butterfly), strict=True):
        after = [_after(shards, data.label, n, passes, seed) for seed in range(seeds)]
        error = statistics.stdev(after) / seeds**0.5
        cells += [f"{predicted(blocks, n):.2f}", f"{statistics.mean(after):.2f} ± {error:.2f}"]
    return f"| {' | '.join(cells)} |"


def _after(shards: Path, label: str, n: int, passes: int, seed: int) -> float:
    place = Path(tempfile.mkdtemp(dir=shards.parent))
    try:
        corgi2.shuffle(shards, place / "out", buffer="4GB", buffer_blocks=n, passes=passes, seed=seed)
        return measure(place / "out", [label], sample=ALL).h_D
    finally:
        shutil.rmtree(place)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT, help="the folder with the data sets")
    parser.add_argument("--seeds", type=int, default=10)
    asked = parser.parse_args(arguments)
    print("| data | what | N | b | h_D | n | one pass, predicted | measured | two passes, predicted | measured |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for data in SETS:
        print(row(data, asked.data, asked.seeds), flush=True)


if __name__ == "__main__":
    main()
