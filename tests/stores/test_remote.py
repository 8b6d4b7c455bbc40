"""Object stores: counted requests, retries, atomic objects, one-line errors. The S3 is moto, behind a fault proxy."""

import itertools
import os
import pickle
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2 import stores
from corgi2.errors import ChangedError, StoreError
from corgi2.stores import remote, versions
from corgi2.stores.opening import open_store
from corgi2.stores.store import PART_BYTES, Entry, Requests, Store, read_object
from tests.conftest import S3, SECRET
from tests.fault_proxy import Fault
from tests.patching import patch_everywhere

MINIMAL_PART_BYTES = 5 << 20
"""S3 takes no smaller parts, but for the last one."""

QUICK = [Fault("status", 429), Fault("status", 500), Fault("status", 503), Fault("reset"), Fault("truncate")]
SLOW = [Fault("hang", seconds=3), Fault("stall", seconds=3)]

OPERATIONS: dict[str, Callable[[Store], object]] = {
    "list": lambda store: store.list(),
    "head": lambda store: store.head("a.tar"),
    "read": lambda store: store.readinto(Entry("a.tar", 5, ""), 0, memoryview(bytearray(5))),
    "publish": lambda store: store.publish("b.tar", [b"12", b"345"]),
    "create": lambda store: store.create(uuid.uuid4().hex, b"12345"),
    "delete": lambda store: store.delete("b.tar"),
}


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4().hex}/train")
    s3: S3 = request.getfixturevalue("s3")
    return s3.store()


def _read(store: Store, path: str) -> bytes:
    entry = store.head(path)
    assert entry is not None
    return bytes(read_object(store, entry))


def test_what_was_published_is_listed_and_read_back(store: Store) -> None:
    entries = [store.publish(path, [b"12", bytearray(b"3"), memoryview(b"45")]) for path in ("a.tar", "b/c.tar")]
    assert store.list() == entries == [store.head("a.tar"), store.head("b/c.tar")]
    assert store.list("b") == entries[1:]
    assert _read(store, "a.tar") == b"12345"
    assert store.publish("a.tar", []).size == 0
    assert _read(store, "a.tar") == b""


def test_a_store_sees_only_what_is_below_its_folder(s3: S3) -> None:
    for key in ("/train/a.tar", "/train-old/b.tar", "/c.tar", "/train/sub/d.tar"):
        s3.raw("PUT", key, b"1")
    assert [entry.path for entry in s3.store().list()] == ["a.tar", "sub/d.tar"]
    whole = open_store(f"s3://{s3.bucket}", s3.options)
    assert [entry.path for entry in whole.list()] == ["c.tar", "train-old/b.tar", "train/a.tar", "train/sub/d.tar"]


@pytest.mark.parametrize("scheme", ["memory", "file"])
@given(pieces=st.lists(st.binary(max_size=300), max_size=8), data=st.data())
def test_any_range_of_what_was_published_is_read_back(
    scheme: str, tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], data: st.DataObject
) -> None:
    store = open_store("memory://ranges/x" if scheme == "memory" else str(tmp_path_factory.getbasetemp() / "ranges"))
    views, whole = [memoryview(bytearray(piece)) for piece in pieces], b"".join(pieces)
    entry = store.publish("a/b.tar", views)
    assert entry.size == len(whole)
    start = data.draw(st.integers(0, len(whole)))
    buffer = bytearray(data.draw(st.integers(0, len(whole) - start)))
    store.readinto(entry, start, memoryview(buffer))
    assert buffer == whole[start : start + len(buffer)]


@pytest.mark.parametrize("name", ["a b.tar", "a+b%.tar", "%41.tar", "ü#?&=.tar", "train-{0..9}.tar", "day=1/a.tar"])
def test_odd_names_are_kept(s3: S3, name: str) -> None:
    store = s3.store()
    entry = store.publish(name, [b"123"])
    assert store.list() == [entry] == [store.head(name)]
    assert _read(store, name) == b"123"
    store.delete(name)
    assert store.list() == []


def test_only_one_of_many_creates(store: Store) -> None:
    at_a_time = 1 if store.url.startswith("s3:") else 4  # moto looks first and writes then; test_servers.py has others
    with ThreadPoolExecutor(at_a_time) as pool:
        won = list(pool.map(lambda n: store.create("claim", b"%d" % n), range(12)))
    assert won.count(True) == 1
    assert _read(store, "claim") == b"%d" % won.index(True)


def test_a_missing_object_is_none_or_one_line(store: Store) -> None:
    assert store.head("a.tar") is None
    assert store.list() == []
    store.delete("a.tar")
    with pytest.raises(StoreError, match=r"train/a\.tar: has disappeared since it was listed; restore it"):
        store.readinto(Entry("a.tar", 5, ""), 0, memoryview(bytearray(5)))


def test_an_object_that_shrank_is_an_error_that_names_the_byte(store: Store) -> None:
    entry = store.publish("a.tar", [b"12345"])
    with pytest.raises(StoreError, match=r"a\.tar: ends at byte 5, expected 8"):
        store.readinto(entry, 3, memoryview(bytearray(5)))


def test_requests_are_counted_as_the_server_sees_them(s3: S3) -> None:
    store = s3.store()
    store.publish("a.tar", [b"12345"])
    for operation in OPERATIONS.values():
        operation(store)
    assert store.requests == s3.proxy.requests()
    assert (store.requests.writes, store.requests.reads, store.requests.lists, store.requests.deletes) == (3, 1, 2, 1)


@pytest.mark.slow
def test_a_listing_of_several_pages_counts_each(s3: S3) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: s3.raw("PUT", f"/train/{n:06d}.tar", b"1"), range(1001)))
    store = s3.store()
    assert len(store.list()) == 1001
    assert store.requests == s3.proxy.requests()
    assert store.requests.lists == 2


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request moves as little as the store lets it."""
    patch_everywhere(monkeypatch, "corgi2.stores", PART_BYTES=MINIMAL_PART_BYTES)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("parts", [0.5, 1, 1.5, 2, 2.3])
def test_an_object_goes_in_as_few_parts_as_hold_it(s3: S3, parts: float) -> None:
    store, data = s3.store(), bytes(range(256)) * int(MINIMAL_PART_BYTES * parts / 256)
    entry = store.publish("a.tar", [data[:100], b"", data[100:]], MINIMAL_PART_BYTES)
    assert entry == store.head("a.tar") == Entry("a.tar", len(data), entry.etag)
    assert read_object(store, entry) == data
    needed = -(-len(data) // MINIMAL_PART_BYTES)
    assert (s3.proxy.count("PUT"), s3.proxy.count("GET")) == (needed, needed)
    assert store.requests == s3.proxy.requests()


@pytest.mark.parametrize("pieces", [4, 5])
def test_smaller_parts_are_for_objects_of_more_than_four_of_them(s3: S3, pieces: int) -> None:
    store, made = s3.store(), [bytes([number]) * MINIMAL_PART_BYTES for number in range(pieces)]
    s3.proxy.inject(Fault("status", 503))
    entry = store.publish("a.tar", made, MINIMAL_PART_BYTES)
    assert (s3.proxy.count("PUT"), s3.proxy.count("POST")) == ((2, 0) if pieces == 4 else (5, 3))
    assert read_object(store, entry) == b"".join(made)


def test_as_many_parts_are_sent_at_once_as_an_object_that_is_sent_whole_may_have(s3: S3) -> None:
    s3.proxy.inject_randomly(Fault("latency", seconds=0.2), 1.0, seed=0)
    s3.proxy.most_at_once = 0
    s3.store().publish("a.tar", [bytes(MINIMAL_PART_BYTES)] * 7, MINIMAL_PART_BYTES)
    assert s3.proxy.most_at_once == 4


def test_parts_follow_the_buffer() -> None:
    sizes = [stores.upload_bytes(buffer) for buffer in (10**6, 10**9, 4 * 10**9, 64 * 10**9)]
    assert sizes == [8_000_000, 10**9 // 64, 4 * 10**9 // 64, PART_BYTES]
    assert [stores.whole_bytes(size) for size in sizes] == [32_000_000, 4 * (10**9 // 64), PART_BYTES, PART_BYTES]


@pytest.mark.slow
def test_a_part_is_64_megabytes(s3: S3) -> None:
    store = s3.store(timeout=60)
    whole = store.publish("a.tar", [bytes(PART_BYTES)])
    assert (s3.proxy.count("PUT"), s3.proxy.count("POST")) == (1, 0)
    read_object(store, whole)
    assert s3.proxy.count("GET") == 1
    larger = store.publish("b.tar", [bytes(10_000_000)] * 7)
    assert (s3.proxy.count("PUT"), s3.proxy.count("POST")) == (3, 2)
    assert len(read_object(store, larger)) == 70_000_000
    assert s3.proxy.count("GET") == 3
    assert store.requests.writes == 5


@pytest.mark.parametrize(
    ("operation", "fault"),
    [*itertools.product(OPERATIONS, QUICK), *itertools.product(("list", "read", "publish"), SLOW)],
    ids=str,
)
def test_what_is_temporary_is_asked_again(s3: S3, fault: Fault, operation: str) -> None:
    store = s3.store(timeout=1)
    store.publish("a.tar", [b"12345"])
    s3.proxy.inject(fault)
    OPERATIONS[operation](store)
    assert _read(store, "a.tar") == b"12345"
    if operation == "publish":
        assert _read(store, "b.tar") == b"12345"


def test_every_attempt_is_counted(s3: S3) -> None:
    store = s3.store()
    store.publish("a.tar", [b"12345"])
    for operation in OPERATIONS.values():
        s3.proxy.inject(Fault("status", 503), times=2)
        operation(store)
    assert store.requests == s3.proxy.requests()


@pytest.mark.parametrize("kind", ["reset", "truncate"])
def test_a_broken_answer_is_continued_where_it_broke(s3: S3, kind: str) -> None:
    data = bytes(range(256)) * 40_000
    store = s3.store()
    entry = store.publish("a.tar", [data])
    s3.proxy.inject(Fault("truncate" if kind == "truncate" else "reset"), times=3)
    assert read_object(store, entry) == data
    assert store.requests.reads == s3.proxy.count("GET") == 4


def test_a_broken_answer_is_not_continued_with_another_version(s3: S3) -> None:
    store = s3.store()
    entry = store.publish("a.tar", [b"a" * 8_000_000])
    s3.proxy.inject(Fault("truncate"))
    s3.proxy.inject(Fault("latency", seconds=3))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_object, store, entry)
        while s3.proxy.count("GET") < 2:
            time.sleep(0.01)
        s3.store().publish("a.tar", [b"b" * 8_000_000])
        with pytest.raises(StoreError, match=r"a\.tar: has changed since it was listed"):
            reading.result()


def test_a_read_asks_for_what_was_listed_in_one_request(s3: S3) -> None:
    store = s3.store()
    store.publish("a.tar", [b"12345"])
    (entry,) = store.list()
    s3.proxy.seen.clear()
    s3.proxy.headers.clear()
    assert read_object(store, entry) == b"12345"
    assert [method for method, _ in s3.proxy.seen] == ["GET"]
    assert s3.proxy.headers[0]["if-match"] == entry.etag


@pytest.mark.parametrize("ignores", [False, True], ids=["refuses", "ignores conditions"])
@pytest.mark.parametrize("server", ["s3", pytest.param("weed", marks=pytest.mark.slow)])
def test_an_object_that_was_replaced_or_deleted_since_it_was_listed_is_named_at_once(
    server: str, ignores: bool, request: pytest.FixtureRequest
) -> None:
    s3: S3 = request.getfixturevalue(server)
    s3.proxy.drops = {"if-match"} if ignores else set()
    store = s3.store()
    for path in ("a.tar", "a.tar.tar", "b.tar"):
        store.publish(path, [b"12345"])
    entry, _, gone = store.list()
    store.publish("a.tar", [b"54321"])
    store.delete("b.tar")
    s3.proxy.seen.clear()
    with pytest.raises(ChangedError, match=r"a\.tar: has changed since it was listed; .* run the command again$"):
        read_object(store, entry)
    assert s3.proxy.requests() == Requests(lists=1, reads=1)
    with pytest.raises(ChangedError, match=r"b\.tar: has disappeared since it was listed; .* run the command again$"):
        read_object(store, gone)
    assert s3.proxy.requests() == Requests(lists=1, reads=2)
    assert read_object(store, store.list()[0]) == b"54321"


@pytest.mark.parametrize("ignores", [False, True], ids=["refuses", "ignores conditions"])
def test_a_server_that_lists_other_etags_than_it_answers_with_is_believed_as_long_as_its_listing_stays(
    ignores: bool, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.proxy.drops = {"if-match"} if ignores else set()
    real, store = versions.entry_of, s3.store()

    def listed(path: str, meta: Any) -> Entry:
        return real(path, {**meta, "e_tag": f'"{meta["e_tag"].strip(chr(34))[::-1]}"'})

    store.publish("a.tar", [b"12345"])
    with monkeypatch.context() as patch:
        patch.setattr(remote, "entry_of", listed)
        patch.setattr(remote, "is_same", lambda entry, meta: meta["e_tag"] == entry.etag)
        (entry,) = store.list()
        assert [read_object(store, entry) for _ in range(2)] == [b"12345"] * 2
        s3.proxy.seen.clear()
        assert read_object(store, entry) == b"12345"
        assert s3.proxy.requests() == Requests(reads=1)
        store.publish("a.tar", [b"54321"])
        with pytest.raises(ChangedError, match=r"a\.tar: has changed since it was listed"):
            read_object(store, entry)


def test_an_etag_that_is_listed_without_its_quotes_is_the_same(s3: S3) -> None:
    store = s3.store()
    entry = store.publish("a.tar", [b"12345"])
    s3.proxy.seen.clear()
    assert read_object(store, replace(entry, etag=entry.etag.strip('"'))) == b"12345"
    assert s3.proxy.requests() == Requests(reads=1)


def test_random_faults_do_not_change_what_is_written_and_read(s3: S3) -> None:
    store = s3.store(retries=12)
    s3.proxy.inject_randomly(Fault("status", 503), 0.25, seed=1)
    for number in range(10):
        store.publish(f"{number}.tar", [b"%d" % number])
    s3.proxy.inject_randomly(Fault("truncate"), 0.25, seed=2)
    assert [_read(store, f"{number}.tar") for number in range(10)] == [b"%d" % number for number in range(10)]


def test_a_lost_answer_to_a_create_is_still_ours(s3: S3) -> None:
    s3.proxy.inject(Fault("status", 503, after=True))
    assert s3.store().create("claim", b"mine")
    assert not s3.store().create("claim", b"mine")


def test_retries_end_and_say_so(s3: S3) -> None:
    store = s3.store(retries=2)
    s3.proxy.inject(Fault("status", 503), times=9)
    with pytest.raises(StoreError, match=r"503 Service Unavailable.*after 3 attempts$"):
        store.list()
    assert store.requests.lists == 3


def test_a_request_that_stalls_times_out(s3: S3) -> None:
    store, begun = s3.store(timeout=1, retries=0), time.monotonic()
    s3.proxy.inject(Fault("stall", seconds=30))
    with pytest.raises(StoreError, match="timed out"):
        store.list()
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("status", [400, 401, 403, 404, 412])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_permanent_fails_at_once_in_one_line(s3: S3, operation: str, status: int) -> None:
    store = s3.store()
    s3.proxy.inject(Fault("status", status), times=9)
    try:
        OPERATIONS[operation](store)
    except StoreError as error:
        assert str(status) in str(error) or (isinstance(error, ChangedError) and status == 404)
        assert not set("\n<>") & set(str(error))
    else:
        assert (operation, status) in [("head", 404), ("delete", 404), ("create", 412)]
    assert len(s3.proxy.seen) == 1


@pytest.mark.parametrize("operation", ["list", "read", "publish", "create"])
def test_a_bucket_that_is_not_there_fails_at_once(s3: S3, operation: str) -> None:
    store = open_store("s3://no-such-bucket/train", s3.options)
    with pytest.raises(StoreError, match="404 Not Found NoSuchBucket: The specified bucket does not exist$"):
        OPERATIONS[operation](store)
    assert len(s3.proxy.seen) == 1


def test_where_amazon_was_asked_the_option_for_another_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1", "retries": 0}
    closed = {"client_options": {"proxy_url": "http://127.0.0.1:1"}}
    for endpoint in ({}, {"endpoint": "http://127.0.0.1:1"}):
        with pytest.raises(StoreError, match="listing") as caught:
            open_store("s3://bucket/x", {**keys, **closed, **endpoint}).list()
        assert ("give endpoint=http" in str(caught.value)) == (not endpoint)


def test_a_server_that_is_not_there_is_one_line(s3: S3) -> None:
    s3.proxy.stop()
    with pytest.raises(StoreError, match="error sending request, after 2 attempts") as caught:
        s3.store(retries=1).list()
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("mine", [OSError("mine"), StoreError("mine"), KeyError("mine")])
@pytest.mark.parametrize("parts", [1, 3])
def test_errors_of_whoever_makes_the_pieces_come_out_as_they_are(s3: S3, mine: Exception, parts: int) -> None:
    def pieces() -> Iterator[bytes]:
        yield bytes(MINIMAL_PART_BYTES * parts - 1)
        raise mine

    with pytest.raises(type(mine), match="mine") as caught:
        s3.store().publish("a.tar", pieces(), MINIMAL_PART_BYTES)
    assert caught.value is mine
    assert s3.store().list() == []
    assert "<UploadId>" not in s3.raw("GET", "?uploads")


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("status", [403, 503])
def test_an_upload_of_which_a_part_fails_leaves_nothing(s3: S3, status: int) -> None:
    s3.proxy.inject(Fault("status", status, method="PUT"), times=9)
    with pytest.raises(StoreError, match=f"a.tar: writing: {status}") as caught:
        s3.store(retries=1).publish("a.tar", [bytes(MINIMAL_PART_BYTES)] * 3, MINIMAL_PART_BYTES)
    assert not set("\n<>") & set(str(caught.value))
    assert s3.store().list() == []
    assert "<UploadId>" not in s3.raw("GET", "?uploads")


@pytest.mark.usefixtures("small_parts")
def test_parts_of_an_upload_are_retried(s3: S3) -> None:
    s3.proxy.inject(Fault("status", 503), times=3)
    pieces = [b"a" * MINIMAL_PART_BYTES, b"b" * MINIMAL_PART_BYTES]
    entry = s3.store().publish("a.tar", pieces, MINIMAL_PART_BYTES)
    assert entry == s3.store().head("a.tar")
    assert s3.proxy.count("PUT") + s3.proxy.count("POST") == 2 + 2 + 3


@pytest.mark.usefixtures("small_parts")
def test_half_an_upload_is_never_seen(s3: S3) -> None:
    seen: list[list[Entry]] = []

    def pieces() -> Iterator[bytes]:
        for _ in range(4):
            yield bytes(MINIMAL_PART_BYTES)
            seen.append(s3.store().list())

    entry = s3.store().publish("a.tar", pieces(), MINIMAL_PART_BYTES)
    assert seen == [[]] * 4
    assert s3.store().list() == [entry]


def test_secrets_are_shown_nowhere(s3: S3) -> None:
    store = s3.store()
    s3.proxy.inject(Fault("status", 403, body=b"<Error><Code>No</Code><Message>no</Message></Error>"))
    with pytest.raises(StoreError) as caught:
        store.list()
    shown = [repr(store), str(store), store.url, *traceback.format_exception(caught.value)]
    assert not [text for text in shown if SECRET in text or "Signature" in text]
    assert SECRET not in repr(pickle.loads(pickle.dumps(store)))  # noqa: S301


@pytest.mark.parametrize("option", ["secret_key", "retries", "anonymous", "timeout"])
def test_an_option_that_is_wrong_is_named(s3: S3, option: str) -> None:
    with pytest.raises((StoreError, ValueError), match=option) as caught:
        s3.store(**{option: "often"}).list()
    assert "\n" not in str(caught.value)
    assert not s3.proxy.seen


@pytest.mark.parametrize("anonymous", ["true", True, "1"])
def test_anonymous_requests_are_not_signed(s3: S3, anonymous: object) -> None:
    s3.raw("PUT", "/train/a.tar", b"1")
    options = {key: s3.options[key] for key in ("endpoint", "region")}
    store = open_store(s3.url, {**options, "anonymous": anonymous})
    assert [entry.path for entry in store.list()] == ["a.tar"]
    assert not [headers for headers in s3.proxy.headers if "authorization" in headers]


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_other_stores_take_an_endpoint_too(s3: S3, scheme: str) -> None:
    account = {"account_name": "account"} if scheme == "az" else {}
    options = {"endpoint": s3.options["endpoint"], "anonymous": True, **account}
    s3.proxy.inject(Fault("status", 403))
    with pytest.raises(StoreError, match=f"^{scheme}://{s3.bucket}/train: listing: 403 Forbidden"):
        open_store(f"{scheme}://{s3.bucket}/train", options).list()
    assert len(s3.proxy.seen) == 1


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("s3://b/x", {"regoin": "x"}, "no storage option 'regoin'; the nearest is 'region'"),
        ("s3://b/x", {"region": "x", "retires": "8"}, "no storage option 'retires'; the nearest is 'retries'"),
        ("gs://b/x", {"endpont": "http://x"}, "no storage option 'endpont'; the nearest is 'endpoint'"),
        ("az://b/x", {"acount_name": "x"}, "no storage option 'acount_name'; the nearest is 'account_name'"),
        ("memory://b", {"region": "x"}, "no storage option 'region'"),
        ("s3://b/x", {"retries": "abc"}, "retries must be a whole number"),
        ("s3://b/x", {"timeout": "soon"}, "timeout must be a whole number"),
        ("s3://b/x", {"anonymous": "perhaps"}, "anonymous must be true or false"),
        ("s3://b/x", {"virtual_hosted_style_request": "x"}, "virtual_hosted_style_request cannot be 'x'"),
        ("s3://b/x", {"client_options": {"nope": "1"}}, "client_options: Invalid key: nope"),
    ],
)
def test_an_option_that_no_store_knows_is_a_bad_argument_and_names_the_nearest(
    url: str, options: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        open_store(url, options).list()
