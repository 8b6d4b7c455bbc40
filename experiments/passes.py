"""What mixing costs beside training: time and processor of one pass, of two, and of one that reads ranges in rounds.

``python -m experiments.passes --data FOLDER``

The image shards of Figure 4, on a disk, with the buffers that they are trained with. The methods take turns, so that
what else the machine does is spread over all of them; the median is shown. Nobody keeps an index: reading ranges in
rounds finds first where they begin, which is in its time.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from experiments import images
from experiments.data import DEFAULT, SHARDS
from experiments.examples import Images
from experiments.images import EVEN, PROTOCOLS, ROUNDS, TWICE
from experiments.results import parser, publish
from experiments.training import Arm, Stopwatch, mix, stored

SHAPES = {"cifar10": (50, 10), "tiny-imagenet": (100, 10)}
METHODS = (EVEN, TWICE, ROUNDS)
REPEATS = 5


def time_pass(images: Images, arm: Arm, seed: int, source: Path) -> dict[str, Any]:
    """One offline shuffle, thrown away."""
    folder, watch = Path(tempfile.mkdtemp(dir=SHARDS)), Stopwatch()
    try:
        watch.start()
        report = mix(images, arm, seed, source, folder / "mixed")
        watch.stop()
    finally:
        shutil.rmtree(folder)
    counts = {"reads": report.reads, "writes": report.writes}
    return {"seconds": watch.seconds, "cpu_seconds": watch.cpu, **counts}


def compare(name: str, protocol: images.Protocol, data: Path, repeats: int) -> list[dict[str, Any]]:
    """A row a method; the first time all are slower, and does not count."""
    b, n = SHAPES[name]
    pixels = protocol.images.load(data)
    source, arms = stored(pixels, protocol.images.name, b), [Arm(method, b, n) for method in METHODS]
    found = [[time_pass(pixels, arm, seed, source) for arm in arms] for seed in range(repeats + 1)][1:]
    rows = []
    for arm, some in zip(arms, zip(*found, strict=True), strict=True):
        times = {key: float(np.median([one[key] for one in some])) for key in ("seconds", "cpu_seconds")}
        rows.append({"data": name, "arm": arm.name, **times, "reads": some[0]["reads"], "writes": some[0]["writes"]})
    return rows


def main(arguments: list[str] | None = None) -> None:
    asks = parser(__doc__)
    asks.add_argument("--data", type=Path, default=DEFAULT, help="the folder with the data sets")
    asks.add_argument("--repeats", type=int, default=REPEATS)
    asked = asks.parse_args(arguments)
    rows = [row for name in SHAPES for row in compare(name, PROTOCOLS[name], asked.data, asked.repeats)]
    command = f"python -m experiments.passes --repeats {asked.repeats}"
    publish("passes", command, {"repeats": asked.repeats, "rows": rows}, folder=asked.out)
    for row in rows:
        print(f"{row['data']}, {row['arm']}: {row['seconds']:.1f} s, {row['cpu_seconds']:.1f} CPU s", flush=True)


if __name__ == "__main__":
    main()
