"""How fast records are shuffled and loaded as TFRecord, against the same as tar: ``python -m benchmarks.formats``.

Makes them below ``.bench``, raw bytes and Examples, which it keeps for the next time; prints a table, and fails if a
target is missed. All programs run in turn, each in a process of its own, from a warm cache. ``--checksums`` prints how
fast checksums of records of several sizes are, in seconds of one processor.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.corpus import example_of
from benchmarks.online import SHARDS, SIZES, Size, _rows, make_tar
from benchmarks.programs import Program, Result, faster, make_once, print_table, run_rounds
from corgi2.formats.tfrecord.crc32c import Bytes, crc32c, crc32c_of_lanes, masked_crc32c
from corgi2.order import Indices

FOLDER = Path(".bench/formats")
TARGET = 0.7
TAR, RAW, EXAMPLES = "tar", "TFRecord", "TFRecord, Examples"
_FOLDERS = {TAR: "tar", RAW: "raw", EXAMPLES: "examples"}

_SHUFFLE = "shuffle(source / {folder!r}, target, buffer=options['buffer_bytes'])"
_LOAD = """
batches = corgi2.Loader(source / {folder!r}, buffer=options["buffer_bytes"], batch_size=options["batch"])
count = sum(len(next(iter(batch.values()))) for batch in batches)
assert count == options["records"], count
"""


def make(folder: Path, size: Size) -> None:
    """The same records in every format."""
    for name in _FOLDERS.values():
        (folder / name).mkdir()
    make_tar(folder / "tar", size)
    for shard, rows in enumerate(_rows(size)):
        examples = [example_of({"data": row, "cls": shard % 10}) for row in rows]
        for name, bodies in (("raw", rows), ("examples", examples)):
            (folder / name / f"train-{shard:06}.tfrecord").write_bytes(frames_of(bodies))


def frames_of(bodies: list[bytes]) -> bytes:
    """The bytes of a shard: as `corpus.framed`, with checksums by the faster of the two implementations."""
    lengths = np.array([len(body) for body in bodies], "<u8")
    joined = np.frombuffer(b"".join(bodies), np.uint8)
    stops = np.cumsum(lengths.astype(np.int64))
    places = np.arange(0, 8 * len(bodies), 8)
    heads = masked_crc32c(lengths.view(np.uint8), places, places + 8)
    feet = masked_crc32c(joined, stops - lengths.astype(np.int64), stops)
    parts = zip(lengths, heads, bodies, feet, strict=True)
    return b"".join(length.tobytes() + head.tobytes() + body + foot.tobytes() for length, head, body, foot in parts)


def measure(folder: Path, size: Size, rounds: int) -> Iterator[Result]:
    source = make_once(folder / f"{size.record_bytes}-{size.records}", lambda place: make(place, size))
    options = {"buffer_bytes": max(size.bytes // 10, 60_000_000), "records": size.records, "batch": size.batch}
    for what, unit, amount, prepare, work in (
        ("shuffle", "MB", size.bytes / 1e6, "from corgi2 import shuffle", _SHUFFLE),
        ("loader", "samples", size.records, "import corgi2", _LOAD),
    ):
        programs = [
            Program(name, sys.executable, prepare, work.format(folder=place)) for name, place in _FOLDERS.items()
        ]
        measured = run_rounds(programs, source, options, rounds)
        for name in (RAW, EXAMPLES):
            yield faster(f"{name}, {size.name}, {what}", measured, TAR, amount, unit, TARGET, name)


def print_checksums() -> None:
    """In processor time, which others on the machine disturb least."""
    data = np.random.default_rng(0).integers(0, 256, 1 << 22, np.uint8)
    print("| bytes of a record | NumPy alone | as installed |\n|---|---|---|")
    for size in (100, 1_000, 8_000, 100_000):
        start = np.arange(12, len(data) - size - 4, size + 16)
        taken = [min(_seconds(way, data, start, size) for _ in range(9)) for way in (crc32c_of_lanes, crc32c)]
        rates = (f"{len(start) * size / seconds / 1e6:,.0f} MB/s" for seconds in taken)
        print(f"| {size:,} | {' | '.join(rates)} |")


def _seconds(way: Callable[[Bytes, Indices, Indices], object], data: Bytes, start: Indices, size: int) -> float:
    began = time.thread_time()
    way(data, start, start + size)
    return time.thread_time() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=800, help="of each format and size of records")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", nargs="*", type=int, default=[1, 8, 100], help="of records, in KB")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the data is kept")
    parser.add_argument("--checksums", action="store_true", help="only these")
    asked = parser.parse_args()
    if asked.checksums:
        print_checksums()
        return 0
    sizes = [size for size in SIZES if size.record_bytes // 1000 in asked.sizes]
    counts = [asked.megabytes * 1_000_000 // size.record_bytes // SHARDS * SHARDS for size in sizes]
    shapes = [replace(size, records=count) for size, count in zip(sizes, counts, strict=True)]
    return print_table(result for size in shapes for result in measure(asked.folder, size, asked.rounds))


if __name__ == "__main__":
    sys.exit(main())
