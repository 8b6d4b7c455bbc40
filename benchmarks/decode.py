"""A real decode through the loader, against decoding the same bytes from memory on all cores: what loading adds to it.

``python -m benchmarks.decode`` writes JPEGs of 400 × 300 in tar shards below ``.bench`` and makes batches of 224 × 224
pixels of them with Pillow: in worker processes, as many as there are cores, and in as many threads of one process. The
limit is the same work by as many forked processes that have all bytes in memory and hand nothing over.
"""

import argparse
import io
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.online import FOLDER
from benchmarks.programs import OURS, Program, Result, faster, make_once, print_table, run_rounds

IMAGES, SHARDS, BATCH, TARGET = 4_000, 40, 64, 0.97
THREADS, MEMORY = "corgi2, threads", "decoding from memory on all cores"

_DECODE = """
import io
import numpy, torch
from PIL import Image
torch.set_num_threads(1)
def decode(sample):
    image = Image.open(io.BytesIO(sample["jpg"])).convert("RGB").resize((224, 224))
    return torch.from_numpy(numpy.array(image))
"""
_LOADER = """
from corgi2.torch import CorgiLoader
settings = {"batch_size": options["batch"], "buffer": 100_000_000, "transform": decode, "collate_fn": torch.stack}
"""
_WORKERS = "loader = CorgiLoader(source, num_workers=options['cores'], **settings)"
_THREADS = "loader = CorgiLoader(source, transform_threads=options['cores'], **settings)"
_COUNT = """
spent = time.process_time()
assert sum(map(len, loader)) == options["images"]
laps["parent"] = [time.process_time() - spent]
"""
_MEMORY = """
import tarfile
samples = [{"jpg": tar.extractfile(each).read()} for path in files for tar in [tarfile.open(path)] for each in tar]
def work(number):
    part, step = samples[number :: options["cores"]], options["batch"]
    for start in range(0, len(part), step):
        torch.stack([decode(sample) for sample in part[start : start + step]])
"""
_FORK = """
children = []
for number in range(options["cores"]):
    child = os.fork()
    if not child:
        work(number)
        os._exit(0)
    children.append(child)
assert not any(os.waitpid(child, 0)[1] for child in children)
"""


def make_jpegs(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"images-{shard:03d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for number in range(IMAGES // SHARDS):
                body = _jpeg(rng)
                member = tarfile.TarInfo(f"{shard:03d}{number:05d}.jpg")
                member.size = len(body)
                archive.addfile(member, io.BytesIO(body))


def _jpeg(rng: np.random.Generator) -> bytes:
    """As hard to decode as a photograph: patches of colour, and noise over them."""
    coarse = Image.fromarray(rng.integers(0, 256, (30, 40, 3), np.uint8)).resize((400, 300), Image.Resampling.BICUBIC)
    noise = rng.normal(0, 8, (300, 400, 1))
    pixels = np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=85)
    return file.getvalue()


def measure(folder: Path, rounds: int) -> Iterator[Result]:
    source = make_once(folder / "jpeg", make_jpegs)
    options = {"cores": os.cpu_count(), "batch": BATCH, "images": IMAGES}
    programs = [
        Program(OURS, sys.executable, _DECODE + _LOADER + _WORKERS, _COUNT),
        Program(THREADS, sys.executable, _DECODE + _LOADER + _THREADS, _COUNT),
        Program(MEMORY, sys.executable, _DECODE + _MEMORY, _FORK),
    ]
    measured = run_rounds(programs, source, options, rounds)
    what = f"JPEG, {options['cores']} "
    yield faster(what + "workers", measured, MEMORY, IMAGES, "image", TARGET)
    yield faster(what + "threads", measured, MEMORY, IMAGES, "image", TARGET, THREADS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what loading adds to decoding.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the data is kept")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    return print_table(measure(asked.folder, asked.rounds))


if __name__ == "__main__":
    sys.exit(main())
