"""Reads that several requests share: every byte once, each range large enough, and all or nothing."""

import itertools
import re
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corgi2
from corgi2.errors import StoreError
from corgi2.stores import open_store, ranges_for, reads_of
from corgi2.stores import store as values
from tests.conftest import S3
from tests.fault_proxy import Fault
from tests.patching import patch_everywhere
from tests.shards import tar_of

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


@pytest.mark.usefixtures("_small_ranges")
def test_a_loader_reads_few_large_blocks_with_all_connections_and_every_byte_once(s3: S3) -> None:
    store = s3.store()
    for shard in range(3):
        body = uuid.uuid4().bytes * 500
        members = [(f"{shard}-{number:03d}.bin", body) for number in range(20)]
        store.publish(f"train-{shard}.tar", [tar_of(members)])
    corgi2.index(s3.url, src_options=s3.options)
    s3.proxy.inject_randomly(Fault("latency", seconds=0.05), 1.0, seed=0)
    s3.proxy.headers.clear()
    s3.proxy.most_at_once = 0
    loader = corgi2.Loader(s3.url, buffer_blocks=1, batch_size=5, src_options=s3.options)
    assert sum(len(batch["bin"]) for batch in loader) == 60
    assert 8 < s3.proxy.most_at_once <= 17, "sixteen connections, and perhaps a lookup"


def test_one_connection_leaves_every_block_to_one_request(s3: S3) -> None:
    store = open_store(s3.url, s3.options | {"connections": 1})
    assert store.connections == 1
    assert ranges_for(store.connections, 1) == 1
    with pytest.raises(ValueError, match="storage option connections must be a whole number"):
        open_store(s3.url, s3.options | {"connections": "many"})
