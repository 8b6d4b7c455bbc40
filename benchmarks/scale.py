"""What a cluster gains, and what its driver costs: ``python -m benchmarks.scale``, a part of ``make bench``.

Two tasks against one, on Ray, from SeaweedFS through a proxy that answers after 30 ms and limits every connection; and
the driver's own work for a million blocks: planning, and what it sends, group by group.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.programs import Result, print_table

SHARDS, SHARD_RECORDS, RECORD_BYTES = 32, 40, 100_000
CONNECTION_BYTES, LATENCY = 4_000_000, 0.03
BLOCKS, N = 1_000_000, 64

_DRIVER = """
import pickle, resource, sys, time
import numpy as np, pyarrow as pa
from dataclasses import replace
from corgi2.formats.registry import format_of
from corgi2.dataset.index_tables import Index, BLOCK_FIELDS, SHARD_FIELDS
from corgi2.offline.plan import Plan
from corgi2.offline.settings import Settings
from corgi2.dataset.source import Source
from corgi2.offline.passes import first_pass
from corgi2.stores.opening import open_store
from corgi2.offline.task import Task

count, n = int(sys.argv[1]), int(sys.argv[2])
shards = pa.table([[f"train-{i:07d}.tar" for i in range(count)], [64_000_000] * count, ["etag"] * count, [""] * count,
                   [b""] * count], schema=SHARD_FIELDS)
zeros, sizes = np.zeros(count, np.int64), np.full(count, 64_000_000)
blocks = pa.table([np.arange(count, dtype=np.int32), zeros, sizes, zeros + 1000, sizes, np.ones(count, bool),
                   [bytes(16)] * count, [[]] * count, [-1] * count], schema=BLOCK_FIELDS)
index = Index(".tar", 64_000_000, shards, blocks)
began = time.perf_counter()
store = open_store("memory://driver")
source = Source(store, tuple(index.entries), format_of(".tar"))
settings = Settings(buffer_bytes=n * 64_000_000)
url, size = store.url, settings.buffer_bytes
plan = Plan(url, url, {}, ".tar", settings, size, 0, "train-", count, "", 1.0, 1.0, "")
work = Task(plan, store, first_pass(source, index, plan))
sent = sum(len(pickle.dumps(work.only(group))) for group in range(len(work.pass_.groups)))
seconds = time.perf_counter() - began
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, len(work.pass_.groups), sent)
"""


def _driver(count: int) -> tuple[float, float]:
    """Seconds and bytes."""
    words = [sys.executable, "-c", _DRIVER, str(count), str(N)]
    seconds, peak, _, _ = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), float(peak)


def driver() -> Iterator[Result]:
    """The cost of a million blocks, and of a quarter of them."""
    quarter, whole = _driver(BLOCKS // 4), _driver(BLOCKS)
    what = f"the driver's own work, {BLOCKS:,} blocks, n = {N}"
    yield _limit(f"{what}: seconds", f"{whole[0]:.1f} s", "60 s", whole[0] / 60)
    yield _limit(f"{what}: memory", f"{whole[1] / 1e6:,.0f} MB", "2,000 MB", whole[1] / 2e9)
    grown = whole[0] / quarter[0]
    yield _limit(f"{what}: seconds, against a quarter of them", f"{whole[0]:.1f} s", f"{quarter[0]:.1f} s", grown, 5)


def _limit(what: str, ours: str, limit: str, ratio: float, most: float = 1) -> Result:
    return Result(what, ours, limit, ratio, f"<= {most:g}", ratio <= most)


@contextmanager
def _served() -> Iterator[Any]:
    """A bucket on SeaweedFS behind the proxy."""
    from tests.conftest import S3, weed_server
    from tests.fault_proxy import Fault, FaultProxy

    with tempfile.TemporaryDirectory() as folder, weed_server(Path(folder)) as port:
        bucket = S3(FaultProxy(port), "bucket", "scale")
        yield bucket, Fault("latency", seconds=LATENCY)
        bucket.proxy.stop()


def tasks() -> Iterator[Result]:
    """Seconds with one task at a time and with two, and the requests that were in flight."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    import ray
    from tests.shards import tar_of

    import corgi2

    with _served() as (bucket, latency):
        store = bucket.store()
        for shard in range(SHARDS):
            body = os.urandom(RECORD_BYTES)
            members = [(f"{shard:04d}-{number:04d}.bin", body) for number in range(SHARD_RECORDS)]
            store.publish(f"raw/train-{shard:04d}.tar", [tar_of(members)])
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
        options: dict[str, Any] = {"buffer": "60MB", "buffer_blocks": 4, "engine": "ray", "workers": (workers := 4)}
        options |= {"src_options": bucket.options, "dst_options": bucket.options}
        corgi2.shuffle(f"{bucket.url}/raw", f"{bucket.url}/warm", tasks=2, **options)  # starts Ray's workers
        bucket.proxy.inject_randomly(latency, 1.0, seed=0)
        bucket.proxy.bytes_a_second = CONNECTION_BYTES
        seconds, flying = {}, {}
        for tasks in (1, 2):
            bucket.proxy.most_at_once = 0
            began = time.perf_counter()
            corgi2.shuffle(f"{bucket.url}/raw", f"{bucket.url}/mixed-{tasks}", tasks=tasks, **options)
            seconds[tasks], flying[tasks] = time.perf_counter() - began, bucket.proxy.most_at_once
        ray.shutdown()
    speed = seconds[1] / seconds[2]
    what = "two tasks against one, 30 ms, each connection limited"
    yield Result(f"{what}: speed", f"{seconds[2]:.1f} s", f"{seconds[1]:.1f} s", speed, ">= 1.7", speed >= 1.7)
    more = flying[2] / flying[1]
    met = workers < flying[2] <= 2 * workers + 2 and flying[1] <= workers + 1
    yield Result(
        f"{what}: requests in flight", str(flying[2]), str(flying[1]), more, f"{2 * workers} to {workers}", met
    )


def main() -> int:
    return print_table(result for part in (driver, tasks) for result in part())


if __name__ == "__main__":
    sys.exit(main())
