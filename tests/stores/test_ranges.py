"""Reads that several requests share: every byte once, each range large enough, and all or nothing."""

import itertools
import pickle
import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corgi2
from corgi2.errors import StoreError
from corgi2.offline import Settings, plan_shuffle
from corgi2.online import Cursor, Place
from corgi2.stores import Store, open_store, ranges_for, reads_of, sharing
from corgi2.stores import store as values
from tests.conftest import S3
from tests.fault_proxy import Fault
from tests.patching import patch_everywhere
from tests.shards import parquet_of, tar_of

SMALL = 1000
"""The least range, in these tests."""


@pytest.fixture
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_everywhere(monkeypatch, "corgi2.stores", RANGE_BYTES=SMALL)


def _asked(s3: S3) -> list[tuple[int, int]]:
    """The ranges of all requests that had one, in order of place: first and last byte, not included."""
    found = (re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", "")) for headers in s3.proxy.headers)
    return sorted((int(match[1]), int(match[2]) + 1) for match in found if match)


@given(size=st.integers(1, 10**9), ranges=st.integers(1, 64))
def test_no_request_asks_for_less_than_a_range_unless_the_whole_read_is_smaller(size: int, ranges: int) -> None:
    count = reads_of(size, ranges)
    assert count == 1 or size // count >= values.RANGE_BYTES
    assert size <= count * values.PART_BYTES
    assert count <= max(ranges, -(-size // values.PART_BYTES))


@given(connections=st.integers(1, 64), at_once=st.integers(1, 64))
def test_reads_in_flight_use_all_connections_and_few_more(connections: int, at_once: int) -> None:
    ranges = ranges_for(connections, at_once)
    assert at_once * ranges >= connections
    assert ranges == 1 or at_once * (ranges - 1) < connections


@pytest.mark.usefixtures("_small_ranges")
@pytest.mark.parametrize("size", [1, 999, 1000, 1999, 2000, 16_000, 16_001, 50_123])
@pytest.mark.parametrize("ranges", [1, 2, 5, 16])
def test_ranges_cover_a_read_exactly_once(s3: S3, size: int, ranges: int) -> None:
    store, data = s3.store(), uuid.uuid4().bytes * (size // 16 + 20)
    entry = store.publish("a.tar", [data])
    s3.proxy.headers.clear()
    before, buffer = store.requests.reads, bytearray(size)
    store.readinto(entry, 7, memoryview(buffer), ranges)
    assert buffer == data[7 : 7 + size]
    asked = _asked(s3)
    assert len(asked) == store.requests.reads - before == reads_of(size, ranges)
    assert asked[0][0] == 7
    assert asked[-1][1] == 7 + size
    assert all(one[1] == other[0] for one, other in itertools.pairwise(asked))


@pytest.mark.usefixtures("_small_ranges")
@pytest.mark.parametrize(
    "fault", [Fault("status", 503), Fault("reset"), Fault("truncate")], ids=lambda fault: fault.kind
)
def test_ranges_that_fail_for_a_moment_are_asked_again(s3: S3, fault: Fault) -> None:
    store, data = s3.store(), uuid.uuid4().bytes * 1000
    entry = store.publish("a.tar", [data])
    s3.proxy.inject(fault, times=5)
    buffer = bytearray(len(data))
    store.readinto(entry, 0, memoryview(buffer), 16)
    assert buffer == data


@pytest.mark.usefixtures("_small_ranges")
def test_a_range_that_fails_for_good_fails_the_read_and_nothing_writes_to_the_buffer_any_more(s3: S3) -> None:
    store, data = s3.store(retries=0), bytes([1]) * 16_000
    entry = store.publish("a.tar", [data])
    s3.proxy.inject_randomly(Fault("latency", seconds=0.02), 1.0, seed=0)
    s3.proxy.inject(Fault("status", 403))
    buffer = bytearray(len(data))
    with pytest.raises(StoreError, match="a.tar: reading"):
        store.readinto(entry, 0, memoryview(buffer), 4)
    buffer[:] = bytes(len(data))
    time.sleep(0.1)
    assert not any(buffer)


def _publish(store: Store, shards: int) -> None:
    """Of 20 records each."""
    for shard in range(shards):
        body = uuid.uuid4().bytes * 500
        members = [(f"{shard}-{number:03d}.bin", body) for number in range(20)]
        store.publish(f"train-{shard}.tar", [tar_of(members)])


@pytest.mark.usefixtures("_small_ranges")
def test_all_readers_of_a_process_share_a_limit_of_connections(s3: S3) -> None:
    data = uuid.uuid4().bytes * 2000
    entry = s3.store().publish("a.tar", [data])
    s3.proxy.inject_randomly(Fault("latency", seconds=0.02), 1.0, seed=0)
    s3.proxy.most_at_once = 0

    def read(ranges: int) -> bytes:
        buffer = bytearray(len(data))
        s3.store(connections=3).readinto(entry, 0, memoryview(buffer), ranges)
        return bytes(buffer)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, [1, 4] * 6)) == {data}
    assert s3.proxy.most_at_once == 3


@given(connections=st.integers(1, 64), readers=st.integers(1, 100))
def test_processes_that_read_together_have_no_more_connections_than_one_but_each_has_some(
    connections: int, readers: int
) -> None:
    store = sharing(open_store("memory://shared", {"connections": connections}), readers)
    again = pickle.loads(pickle.dumps(store))  # noqa: S301
    assert store.connections == again.connections == store.ranges >= 1
    assert (store.connections - 1) * readers < connections <= store.connections * readers


def test_a_share_of_a_store_counts_its_requests_with_the_whole() -> None:
    whole = open_store("memory://counted")
    whole.publish("a", [b"1"])
    entry, buffer = whole.list()[0], bytearray(1)
    before = whole.requests.reads
    sharing(whole, 4).readinto(entry, 0, memoryview(buffer))
    assert (bytes(buffer), whole.requests.reads) == (b"1", before + 1)


@pytest.mark.parametrize("workers", [1, 2])
def test_between_two_buffers_no_connection_is_idle(workers: int, s3: S3) -> None:
    """While a buffer is on its way, the blocks of the next but one are asked for: its memory is free."""
    _publish(s3.store(), 12)
    options = s3.options | {"connections": 4 * workers}
    corgi2.index(s3.url, src_options=options)
    s3.proxy.inject_randomly(Fault("latency", seconds=0.1), 1.0, seed=0)
    loader = corgi2.Loader(s3.url, buffer_blocks=2, batch_size=20, src_options=options)
    s3.proxy.most_at_once = 0
    reading = loader.read(Cursor(Place(0)), 0, workers)
    assert sum(len(batch["bin"]) for batch in reading) == 240 / workers
    assert s3.proxy.most_at_once == 4, "two buffers of two, with this reader's part of the connections"


def test_of_parquet_many_blocks_are_fetched_while_few_are_decoded(s3: S3) -> None:
    store = s3.store()
    for shard in range(12):
        table = pa.table({"x": [uuid.uuid4().bytes * 20] * 100})
        store.publish(f"train-{shard:02d}.parquet", [parquet_of(table)])
    loader = corgi2.Loader(s3.url, buffer="1MB", batch_size=100, src_options=s3.options)
    assert loader.room(1).decoders < 6 < loader.room(1).blocks
    s3.proxy.inject_randomly(Fault("latency", seconds=0.1), 1.0, seed=0)
    s3.proxy.most_at_once = 0
    assert sum(len(batch["x"]) for batch in loader) == 1200
    assert 8 < s3.proxy.most_at_once <= 16


@pytest.mark.usefixtures("_small_ranges")
def test_a_loader_reads_few_large_blocks_with_all_connections_and_every_byte_once(s3: S3) -> None:
    _publish(s3.store(), 3)
    corgi2.index(s3.url, src_options=s3.options)
    s3.proxy.inject_randomly(Fault("latency", seconds=0.05), 1.0, seed=0)
    s3.proxy.headers.clear()
    s3.proxy.most_at_once = 0
    loader = corgi2.Loader(s3.url, buffer_blocks=1, batch_size=5, src_options=s3.options)
    assert sum(len(batch["bin"]) for batch in loader) == 60
    assert 8 < s3.proxy.most_at_once <= 17, "sixteen connections, and perhaps a lookup"


@pytest.mark.usefixtures("_small_ranges")
def test_where_requests_cost_more_than_time_every_block_is_one_request_and_so_it_is_planned(s3: S3) -> None:
    _publish(s3.store(), 6)
    options = s3.options | {"ranges": "false"}
    corgi2.index(s3.url, src_options=options)
    s3.proxy.seen.clear()
    loader = corgi2.Loader(s3.url, buffer_blocks=2, batch_size=5, src_options=options)
    before = s3.proxy.requests().reads
    assert sum(len(batch["bin"]) for batch in loader) == 120
    assert s3.proxy.requests().reads - before == 6
    job = plan_shuffle(s3.url, "memory://ranges", Settings(buffer_bytes=400_000), options, None)
    assert job.foresight.reads == 6
    with pytest.raises(ValueError, match="storage option ranges must be true or false"):
        open_store(s3.url, s3.options | {"ranges": "some"})


def test_one_connection_is_one_request_at_a_time(s3: S3) -> None:
    store = open_store(s3.url, s3.options | {"connections": 1})
    assert store.connections == store.ranges == 1
    with pytest.raises(ValueError, match="storage option connections must be a whole number"):
        open_store(s3.url, s3.options | {"connections": "many"})
