"""The loader and the offline pass against the network: raw requests for the same objects by the same client.

``python -m benchmarks.network`` puts 1 GB on SeaweedFS on this machine, as tars of 8 and of 64 MB and as Parquet. It
reads them directly, and through a link that answers after 30 ms and gives each connection 20 MB/s. The limit is what
obstore alone reaches with as many connections: ranges of about 8 MB of the same objects, thrown away as they come; and,
for the offline pass, a copy of the objects. Loader and limit take turns; what counts is the median of their ratios. An
epoch is a later one of the same loader, whose workers have started; the first batch is that of a new loader, with new
connections, and so is its limit: the first buffer. Where the machine is too busy for the link, ``--link-rate 4MB``
gives a slower one, and ``--share 0.5`` fewer objects.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import corgi2
from benchmarks.link import CONNECTION_BYTES, slow_link
from benchmarks.programs import Result, print_table
from corgi2.sizes import format_size, parse_size, plural
from corgi2.stores import open_store
from corgi2.stores.fork import obstore
from corgi2.stores.options import make_client
from corgi2.stores.url import parse_url

CONNECTIONS, RAW_BYTES = 16, 8_000_000
RECORD_BYTES, BATCH = 100_000, 16
BUFFER = "320MB"
LOADER, COPY, FIRST = 0.9, 0.8, 1.2
WORKERS = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class Kind:
    """Objects of one format and size, and how many."""

    suffix: str
    records: int
    """Of each object."""
    objects: int

    @property
    def name(self) -> str:
        return f"{self.suffix[1:]}, {format_size(self.records * RECORD_BYTES)} blocks"

    @property
    def folder(self) -> str:
        return f"{self.suffix[1:]}-{self.records}"

    def shard(self, number: int) -> bytes:
        from tests.shards import parquet_of, tar_of

        rng = np.random.default_rng(number)
        rows = [rng.bytes(RECORD_BYTES) for _ in range(self.records)]
        if self.suffix == ".tar":
            return tar_of((f"{number:04d}-{row:04d}.bin", data) for row, data in enumerate(rows))
        table = pa.table({"bin": pa.array(rows, pa.binary())})
        return parquet_of(table, row_group_size=self.records, compression="none", use_dictionary=False)


KINDS = (Kind(".tar", 80, 128), Kind(".tar", 640, 16), Kind(".parquet", 80, 128))


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket, behind a link or not."""

    name: str
    url: str
    options: dict[str, Any]

    def at(self, folder: str) -> str:
        return f"{self.url}/{folder}"

    def client(self) -> Any:
        """A new one, whose connections are all still to be made."""
        return make_client(parse_url(self.url), self.options, 0)


@contextmanager
def served(kinds: tuple[Kind, ...], link_rate: int = CONNECTION_BYTES) -> Iterator[list[Place]]:
    """A server with all objects, and their indexes, directly and behind the link."""
    from tests.conftest import S3, weed_server
    from tests.fault_proxy import FaultProxy

    with ExitStack() as stack:
        port = stack.enter_context(weed_server(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        server = S3(FaultProxy(port), "bucket", "network")
        server.proxy.stop()
        behind = stack.enter_context(slow_link(port, link_rate))
        places = [
            Place(name, server.url, server.options | {"endpoint": f"http://127.0.0.1:{at}", "timeout": 60})
            for name, at in (("direct", port), (f"30 ms, {link_rate // 10**6} MB/s a connection", behind))
        ]
        for kind in kinds:
            store = open_store(places[0].at(kind.folder), places[0].options)
            for number in range(kind.objects):
                store.publish(f"train-{number:04d}{kind.suffix}", [kind.shard(number)])
            corgi2.index(store.url, src_options=places[0].options)
        yield places


class Raw:
    """obstore alone, on the objects of one kind."""

    def __init__(self, place: Place, kind: Kind) -> None:
        self._place, self._client = place, place.client()
        self._prefix = parse_url(place.at(kind.folder)).path
        found = open_store(place.at(kind.folder), place.options).list(levels=1)
        self._objects = [(f"{self._prefix}/{entry.path}", entry.size) for entry in found]

    def _ranges(self, count: int | None) -> list[tuple[str, int, int]]:
        return [
            (key, start, end)
            for key, size in self._objects[:count]
            for start, end in pairwise(np.linspace(0, size, 1 + round(size / RAW_BYTES), dtype=int).tolist())
        ]

    def get(self, count: int | None = None, client: Any = None) -> None:
        """All objects, or so many of them, thrown away as they come."""
        client = client or self._client

        def one(wanted: tuple[str, int, int]) -> int:
            key, start, end = wanted
            return len(obstore().get_range(client, key, start=start, end=end))

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            ranges = self._ranges(count)
            assert sum(pool.map(one, ranges)) == sum(end - start for _, start, end in ranges)

    def get_first(self, count: int) -> None:
        self.get(count, self._place.client())

    def copy(self, target: str) -> None:
        """All objects to another folder."""

        def one(wanted: tuple[str, int]) -> None:
            key, _ = wanted
            goal = key.replace(self._prefix, parse_url(target).path, 1)
            data = obstore().get(self._client, key).bytes()
            obstore().put(self._client, goal, data, use_multipart=False)

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(one, self._objects))


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def alternately(ours: Callable[[], object], raw: Callable[[], object], rounds: int) -> list[tuple[float, float]]:
    return [(seconds(ours), seconds(raw)) for _ in range(rounds)]


def rate(what: str, pairs: list[tuple[float, float]], size: int, least: float) -> Result:
    ratio = statistics.median(raw / mine for mine, raw in pairs)
    ours, theirs = (f"{size / 1e6 / statistics.median(times):,.0f} MB/s" for times in zip(*pairs, strict=True))
    return Result(what, ours, theirs, ratio, f">= {least}", ratio >= least)


def wait(what: str, pairs: list[tuple[float, float]], most: float) -> Result:
    ratio = statistics.median(mine / raw for mine, raw in pairs)
    ours, theirs = (f"{statistics.median(times):.2f} s" for times in zip(*pairs, strict=True))
    return Result(what, ours, theirs, ratio, f"<= {most}", ratio <= most)


def loading(place: Place, kind: Kind, rounds: int, workers: int) -> Result:
    from corgi2.torch import CorgiLoader

    loader = CorgiLoader(
        place.at(kind.folder),
        buffer=BUFFER,
        batch_size=BATCH,
        num_workers=workers,
        persistent_workers=workers > 0,
        src_options=place.options,
    )

    def epoch() -> None:
        assert sum(len(batch["bin"]) for batch in loader) == kind.records * kind.objects

    epoch()
    raw, size = Raw(place, kind), kind.records * kind.objects * RECORD_BYTES
    what = f"{kind.name}, {place.name}: loader, {plural(workers, 'worker')}, against raw requests"
    return rate(what, alternately(epoch, raw.get, rounds), size, LOADER)


def first_batch(place: Place, kind: Kind, rounds: int) -> Result:
    raw = Raw(place, kind)

    def loader() -> corgi2.Loader:
        return corgi2.Loader(place.at(kind.folder), buffer=BUFFER, batch_size=BATCH, src_options=place.options)

    blocks, pairs = loader().room(1).blocks, []
    for _ in range(rounds):
        new = loader()
        mine = seconds(partial(_take_one, new))
        pairs.append((mine, seconds(lambda: raw.get_first(blocks))))
    return wait(f"{kind.name}, {place.name}: first batch against a raw first buffer", pairs, FIRST)


def _take_one(loader: corgi2.Loader) -> None:
    next(iter(loader))


def shuffling(place: Place, kind: Kind, rounds: int, buffer: str) -> Result:
    raw, (out, copied), store = Raw(place, kind), ("out", "copied"), open_store(place.url, place.options)
    options: dict[str, Any] = {"src_options": place.options, "dst_options": place.options}

    def clear() -> None:
        for folder in (out, copied):
            for entry in store.list(folder):
                store.delete(entry.path)

    pairs = []
    for _ in range(rounds):
        mine = seconds(lambda: corgi2.shuffle(place.at(kind.folder), place.at(out), buffer=buffer, **options))
        pairs.append((mine, seconds(lambda: raw.copy(place.at(copied)))))
        clear()
    size = kind.records * kind.objects * RECORD_BYTES
    return rate(f"{kind.name}, {place.name}: offline pass, buffer {buffer}, against a raw copy", pairs, size, COPY)


def measure(asked: argparse.Namespace) -> Iterator[Result]:
    chosen = (kind for kind in KINDS if asked.only in (None, kind.folder))
    kinds = tuple(replace(kind, objects=max(1, round(asked.share * kind.objects))) for kind in chosen)
    with served(kinds, parse_size(asked.link_rate)) as places:
        for place in (place for place in places if asked.link in (None, place.name.partition(" ")[0])):
            for kind in kinds:
                if "loader" in asked.parts:
                    yield from (loading(place, kind, asked.rounds, workers) for workers in asked.workers)
                if "first" in asked.parts:
                    yield first_batch(place, kind, asked.rounds)
                if "offline" in asked.parts:
                    yield shuffling(place, kind, asked.rounds, asked.offline_buffer)


PARTS = ("loader", "first", "offline")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure against raw requests to an object store.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[kind.folder for kind in KINDS], help="one kind of objects")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--workers", nargs="+", type=int, default=WORKERS)
    parser.add_argument("--share", type=float, default=1.0, help="of the objects, to measure in less time")
    parser.add_argument("--offline-buffer", default="256MB")
    parser.add_argument("--link", choices=("direct", "30"), help="directly, or behind 30 ms, alone")
    parser.add_argument("--link-rate", default=str(CONNECTION_BYTES), help="of a connection behind the link, a second")
    return print_table(measure(parser.parse_args(words)))


if __name__ == "__main__":
    sys.exit(main())
