"""What a piece costs beside its bytes: ``python -m benchmarks.pieces``, a part of ``make bench``.

20,000 tars of 6 KB, through the shuffle, the proof and the loader, against ``cp -r``; 1 GB of tar in ranges of 256 KB;
and ranges of 4 MB against whole blocks, on a disk, and from store to store through a slow link to SeaweedFS. Data sets
are kept below ``.bench/pieces`` for the next time. Programs that share a table row run in turn.
"""

import argparse
import io
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import corgi2
from benchmarks.link import slow_link
from benchmarks.offline import COPY, make_tar, tar_programs
from benchmarks.programs import Program, Result, Round, faster, make_once, print_table, run_rounds
from corgi2.stores.opening import open_store

FOLDER = Path(".bench/pieces")
SHARDS, SAMPLES, SAMPLE_BYTES = 20_000, 2, 1024
GIGABYTE, LINKED_BYTES, SHARD_BYTES = 1_000_000_000, 256_000_000, 16_000_000
SMALL_RANGE, LARGE_RANGE = 256_000, 4_000_000
MOST_MILLISECONDS, LEAST_RATE = 0.4, 0.9
SHUFFLE, VERIFY, LOAD, WHOLE = "shuffle", "verify", "loader", "whole blocks"

_SHUFFLE = "shuffle(source, target, buffer=options['buffer_bytes'])"
_START, _END = "\nspent = time.process_time()", "\nlaps['cpu'] = [time.process_time() - spent]"


def _program(name: str, prepare: str, work: str) -> Program:
    """With the time of its processors, which others on the machine do not change as much."""
    return Program(name, sys.executable, prepare + _START, work + _END)


def tiny_programs() -> list[Program]:
    mixed = f"import corgi2; from corgi2 import shuffle; {_SHUFFLE}"
    make = "loader = corgi2.Loader(source, buffer=options['buffer_bytes'], batch_size=100)"
    load = "given = sum(len(batch['cls']) for batch in loader)\nassert given == options['records'], given"
    return [
        _program(SHUFFLE, "from corgi2 import shuffle", _SHUFFLE),
        _program(VERIFY, mixed, "assert corgi2.verify(source, target).same"),
        _program(LOAD, "import corgi2", f"{make}\n{load}"),
        *(program for program in tar_programs() if program.name == COPY),
    ]


def range_programs() -> list[Program]:
    """The index of ranges lies beside the same shards in a folder of its own, so that whole blocks are read without."""
    names = [f"ranges of {size // 1000} KB" for size in (SMALL_RANGE, LARGE_RANGE)]
    work = "report = shuffle(options['indexed'], target, buffer=options['buffer_bytes'], range_size={size})\n"
    count = "laps['reads'] = [report.reads]"
    return [
        _program(WHOLE, "from corgi2 import shuffle", _SHUFFLE),
        *(
            _program(name, "from corgi2 import shuffle", work.format(size=size) + count)
            for name, size in zip(names, (SMALL_RANGE, LARGE_RANGE), strict=True)
        ),
        *(program for program in tar_programs() if program.name == COPY),
    ]


def make_tiny(folder: Path, count: int) -> None:
    """Tars of two samples each: 6 KB with all headers."""
    rng = np.random.default_rng(0)
    for shard in range(count):
        body = io.BytesIO()
        with tarfile.open(fileobj=body, mode="w") as archive:
            for number in range(SAMPLES):
                for name, data in (("bin", rng.bytes(SAMPLE_BYTES)), ("cls", b"%d" % (number % 10))):
                    member = tarfile.TarInfo(f"{shard:06}{number}.{name}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
            end = archive.offset
        (folder / f"train-{shard:06}.tar").write_bytes(body.getvalue()[: end + 1024])


def _tars(folder: Path, size: int) -> Path:
    make = partial(make_tar, size=size, shards=max(2, size // SHARD_BYTES))
    return make_once(folder / f"tar-{size // 1_000_000}MB", make)


def make_indexed(source: Path, folder: Path) -> None:
    """The same shards, and where small ranges of them begin."""
    for path in source.iterdir():
        (folder / path.name).hardlink_to(path)
    corgi2.index(folder, block_size=SMALL_RANGE // 4)


def _per_piece(what: str, rounds: Sequence[Round], name: str, pieces: int) -> Result:
    """Milliseconds of a piece, all that is done for it, and how many times the copy's that is."""
    ours, copy, cpu = (
        1000 * statistics.median(values) / pieces
        for values in (
            [each[name].seconds for each in rounds],
            [each[COPY].seconds for each in rounds],
            [each[name].lap("cpu").seconds for each in rounds],
        )
    )
    ratio = statistics.median(each[name].seconds / each[COPY].seconds for each in rounds)
    figure, peer = f"{ours:.2f} ms, {cpu:.2f} ms of processors", f"{copy:.2f} ms, {COPY}"
    met = ours <= MOST_MILLISECONDS
    return Result(f"{what}: {name}, a piece", figure, peer, ratio, f"<= {MOST_MILLISECONDS} ms", met)


def measure_tiny(folder: Path, count: int, rounds: int) -> Iterator[Result]:
    """Many tiny shards."""
    source = make_once(folder / f"tiny-{count}", lambda place: make_tiny(place, count))
    options = {"buffer_bytes": 60_000_000, "records": count * SAMPLES}
    measured = run_rounds(tiny_programs(), source, options, rounds)
    for name in (SHUFFLE, VERIFY, LOAD):
        yield _per_piece(f"{count:,} tars of 6 KB", measured, name, count)


def measure_ranges(folder: Path, size: int, rounds: int) -> Iterator[Result]:
    """The same tars whole, in ranges, and in small ones."""
    source = _tars(folder, size)
    indexed = make_once(folder / f"{source.name}-indexed", lambda place: make_indexed(source, place))
    stored = sum(path.stat().st_size for path in source.iterdir())
    options = {"buffer_bytes": max(60_000_000, stored // 10), "indexed": str(indexed.absolute())}
    programs = range_programs()
    measured, (small, large) = run_rounds(programs, source, options, rounds), (each.name for each in programs[1:3])
    what = f"{stored / 1e6:,.0f} MB of tar"
    yield _per_piece(what, measured, small, int(measured[0][small].lap("reads").seconds))
    yield faster(f"{what}, {large}", measured, WHOLE, stored / 1e6, "MB", LEAST_RATE, large)


def measure_link(folder: Path, size: int, rounds: int) -> Iterator[Result]:
    """From store to store, every connection slow: the same tars whole and in ranges."""
    from tests.conftest import S3, weed_server
    from tests.fault_proxy import FaultProxy

    source = _tars(folder, size)
    stored = sum(path.stat().st_size for path in source.iterdir())
    with tempfile.TemporaryDirectory() as place, weed_server(Path(place)) as port, slow_link(port) as far:
        server = S3(FaultProxy(port), "bucket", "pieces")
        near, slow = (server.options | {"endpoint": f"http://127.0.0.1:{at}", "timeout": 60} for at in (port, far))
        for kind in ("whole", "indexed"):
            store = open_store(f"{server.url}/{kind}", near)
            for path in sorted(source.iterdir()):
                store.publish(path.name, [path.read_bytes()])
        corgi2.index(f"{server.url}/indexed", block_size=LARGE_RANGE // 4, src_options=near)
        shared: dict[str, Any] = {"src_options": slow, "dst_options": slow, "buffer": max(60_000_000, stored // 10)}
        times: list[tuple[float, float]] = []
        for number in range(rounds):
            began = time.perf_counter()
            corgi2.shuffle(f"{server.url}/whole", f"{server.url}/a{number}", **shared)
            middle = time.perf_counter()
            corgi2.shuffle(f"{server.url}/indexed", f"{server.url}/b{number}", range_size=LARGE_RANGE, **shared)
            times.append((middle - began, time.perf_counter() - middle))
        server.proxy.stop()
    ratio = statistics.median(whole / ranges for whole, ranges in times)
    whole, ranges = (f"{stored / 1e6 / statistics.median(values):,.0f} MB/s" for values in zip(*times, strict=True))
    what = f"{stored / 1e6:,.0f} MB of tar, ranges of 4000 KB, through a slow link: speed against {WHOLE}"
    yield Result(what, ranges, whole, ratio, f">= {LEAST_RATE}", ratio >= LEAST_RATE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=SHARDS, help="tiny ones")
    parser.add_argument("--megabytes", type=int, default=GIGABYTE // 1_000_000, help="that are read in ranges")
    parser.add_argument("--linked-megabytes", type=int, default=LINKED_BYTES // 1_000_000, help="through the link")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the data is kept")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    parts = (
        measure_tiny(asked.folder, asked.shards, asked.rounds),
        measure_ranges(asked.folder, asked.megabytes * 1_000_000, asked.rounds),
        measure_link(asked.folder, asked.linked_megabytes * 1_000_000, asked.rounds),
    )
    return print_table(result for part in parts for result in part)


if __name__ == "__main__":
    sys.exit(main())
