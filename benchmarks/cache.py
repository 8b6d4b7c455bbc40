"""A node's disk as a cache: how many reads it answers, and how fast the second epoch is.

``python -m benchmarks.cache`` counts, by the real loader, the reads that caches of several sizes answer in later
epochs, beside what one would answer that replaced the least recently used block. Then it reads 400 MB in 8 MB tars
through a cache from SeaweedFS, first and second epoch, in turn with the same shards from a local folder.
"""

import io
import statistics
import sys
import tarfile
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import corgi2
from benchmarks.programs import Result, print_table
from corgi2.order import Rules, epoch_rest
from corgi2.stores import open_store

BLOCKS, EPOCHS = 200, 6
SHARES = (0.25, 0.5, 0.75, 1.0)
SHARDS, RECORD_BYTES, RECORDS, ROUNDS = 50, 100_000, 80, 5


def kept(folder: Path, share: float) -> float:
    """The part of the reads of later epochs that a cache of this part of the data answers."""
    source, cache = folder / "lines", folder / f"cache-{share}"
    if not source.exists():
        source.mkdir()
        for shard in range(BLOCKS):
            lines = "".join(f'{{"n": "{shard * 10 + row:06d}"}}\n' for row in range(10))
            (source / f"data-{shard:04d}.jsonl").write_text(lines)
    size = sum(path.stat().st_size + 16 for path in source.iterdir())
    loader = corgi2.Loader(source, buffer="1MB", batch_size=100, cache_dir=cache, cache_size=int(share * size))
    for _ in loader:
        pass
    reads = loader.catalog.source.store.requests
    before = reads.reads
    for _ in range(EPOCHS):
        for _ in loader:
            pass
    return 1 - (reads.reads - before) / (BLOCKS * EPOCHS)


def replaced(share: float) -> float:
    """The same of a cache that replaces the least recently used block, in the loader's own orders."""
    cache, hits, room = OrderedDict[int, None](), 0, int(share * BLOCKS)
    for epoch in range(EPOCHS + 1):
        for block in epoch_rest(np.full(BLOCKS, 10), None, Rules(), epoch).blocks.tolist():
            if block in cache:
                hits += epoch > 0
                cache.move_to_end(block)
                continue
            if len(cache) >= room:
                cache.popitem(last=False)
            cache[block] = None
    return hits / (BLOCKS * EPOCHS)


def hit_rates(folder: Path) -> None:
    print("| the cache holds | of the reads, it answers | if it replaced the least recently used |\n|---|---|---|")
    for share in SHARES:
        print(f"| {share:.0%} | {kept(folder, share):.0%} | {replaced(share):.0%} |")
    print()


def _write(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"train-{shard:04d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for row in range(RECORDS):
                member = tarfile.TarInfo(f"{shard:04d}{row:04d}.bin")
                member.size = RECORD_BYTES
                archive.addfile(member, io.BytesIO(rng.bytes(RECORD_BYTES)))


def _seconds(loader: corgi2.Loader) -> float:
    began = time.perf_counter()
    count = sum(len(batch["bin"]) for batch in loader)
    assert count == SHARDS * RECORDS
    return time.perf_counter() - began


def epochs(folder: Path) -> Iterator[Result]:
    from tests.conftest import S3, weed_server
    from tests.fault_proxy import FaultProxy

    source = folder / "tars"
    _write(source)
    corgi2.index(source)
    (folder / "weed").mkdir()
    with weed_server(folder / "weed") as port:
        server = S3(FaultProxy(port), "bucket", "train")
        options = server.options | {"endpoint": f"http://127.0.0.1:{port}"}
        store = open_store(server.url, options)
        for path in sorted(source.glob("*.tar")):
            store.publish(path.name, [path.read_bytes()])
        corgi2.index(server.url, src_options=options)
        times: dict[str, list[float]] = {"first": [], "second": [], "local": [], "store": []}
        for number in range(ROUNDS):
            settings: dict[str, Any] = {"buffer": "200MB", "batch_size": 16}
            cached = corgi2.Loader(server.url, src_options=options, cache_dir=folder / f"c{number}", **settings)
            times["first"].append(_seconds(cached))
            requests = cached.catalog.source.store.requests.reads
            times["second"].append(_seconds(cached))
            assert cached.catalog.source.store.requests.reads == requests
            times["local"].append(_seconds(corgi2.Loader(source, **settings)))
            times["store"].append(_seconds(corgi2.Loader(server.url, src_options=options, **settings)))
            del cached
            corgi2.cache(folder / f"c{number}", clear=True)
        server.proxy.stop()
    size = SHARDS * RECORDS * RECORD_BYTES / 1e6
    for what, ours, theirs, target in (
        ("second epoch, all in the cache: speed against a local folder", "second", "local", 0.9),
        ("first epoch, into the cache: speed against the store without one", "first", "store", None),
    ):
        ratio = statistics.median(b / a for a, b in zip(times[ours], times[theirs], strict=True))
        rate, peer = (f"{size / statistics.median(times[name]):,.0f} MB/s" for name in (ours, theirs))
        met = target is None or ratio >= target
        yield Result(what, rate, peer, ratio, "none" if target is None else f">= {target}", met)


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        hit_rates(Path(place))
        return print_table(epochs(Path(place)))


if __name__ == "__main__":
    sys.exit(main())
