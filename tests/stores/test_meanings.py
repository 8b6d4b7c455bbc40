"""What a failed request means, provoked on real servers: the class of our error, and how often it was sent."""

import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from corgi2.errors import ChangedError, StoreError
from corgi2.stores.opening import open_store
from corgi2.stores.store import Entry, Store, read_object
from tests.conftest import S3
from tests.fault_proxy import Fault

RETRIES = 2
SERVERS = ["s3", pytest.param("weed", marks=pytest.mark.slow)]
BODY = b"12345"


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3:
    found: S3 = request.getfixturevalue(request.param)
    found.store().publish("a.tar", [BODY])
    return found


def _error(words: str) -> bytes:
    """As S3 answers."""
    code, message = words.split(": ")
    return f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'.encode()


def _read(store: Store) -> bytes:
    """What was listed before anything happened to it."""
    return bytes(read_object(store, Entry("a.tar", len(BODY), "")))


def _list(store: Store) -> object:
    return store.list()


@dataclass(frozen=True, slots=True)
class Broken:
    """A fault of the connection or of the server, and what our error says if it stays."""

    fault: Fault
    says: str


PASSING = {
    "throttled": Broken(Fault("status", 503, body=_error("SlowDown: Please reduce your request rate.")), "SlowDown"),
    "too many requests": Broken(Fault("status", 429, body=_error("TooManyRequests: Slow down")), "429"),
    "request timeout": Broken(Fault("status", 408, body=_error("RequestTimeout: Idle")), "408"),
    "internal error": Broken(Fault("status", 500, body=_error("InternalError: Please try again.")), "InternalError"),
    "bad gateway": Broken(Fault("status", 502, body=b"<html>Bad Gateway</html>"), "502 Bad Gateway"),
    "connection reset": Broken(Fault("reset"), "error"),
    "truncated body": Broken(Fault("truncate"), "error"),
}


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_sent_again_and_named_if_it_stays(name: str, server: S3) -> None:
    server.proxy.seen.clear()
    server.proxy.inject(PASSING[name].fault, times=RETRIES)
    assert _read(server.store(retries=RETRIES)) == BODY
    assert len(server.proxy.seen) == RETRIES + 1
    server.proxy.inject(PASSING[name].fault, times=RETRIES + 1)
    with pytest.raises(StoreError, match=f"{PASSING[name].says}.*, after {RETRIES + 1} attempts$") as caught:
        server.store(retries=RETRIES).readinto(Entry("a.tar", 5, ""), 0, memoryview(bytearray(len(BODY))))
    assert not isinstance(caught.value, ChangedError)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
@pytest.mark.parametrize(("status", "attempts"), [(503, RETRIES + 1), (429, RETRIES + 1), (403, 1), (400, 1)])
def test_a_status_means_the_same_in_all_stores(scheme: str, status: int, attempts: int, s3: S3) -> None:
    account = {"account_name": "account"} if scheme == "az" else {}
    options = {"endpoint": s3.options["endpoint"], "anonymous": True, "retries": RETRIES, **account}
    s3.proxy.inject(Fault("status", status), times=RETRIES + 1)
    with pytest.raises(StoreError, match=f"listing: {status}"):
        open_store(f"{scheme}://{s3.bucket}/train", options).list()
    assert len(s3.proxy.seen) == attempts


def test_a_missing_object_is_none_to_a_lookup_gone_to_a_read_and_no_matter_to_a_deletion(server: S3) -> None:
    store = server.store(retries=RETRIES)
    (entry,) = store.list()
    store.delete("a.tar")
    server.proxy.seen.clear()
    assert store.head("a.tar") is None
    with pytest.raises(ChangedError, match="has disappeared since it was listed"):
        read_object(store, entry)
    assert len(server.proxy.seen) == 2
    store.delete("a.tar")


@pytest.mark.parametrize("ask", [_list, _read])
def test_a_missing_bucket_is_refused_at_once_and_is_no_change_of_an_object(ask: Callable[..., Any], server: S3) -> None:
    server.proxy.seen.clear()
    with pytest.raises(StoreError, match="NoSuchBucket") as caught:
        ask(open_store("s3://no-such-bucket/train", server.options | {"retries": RETRIES}))
    assert not isinstance(caught.value, ChangedError)
    assert len(server.proxy.seen) == 1


def test_an_object_that_was_replaced_has_changed_after_one_look_at_its_listing(server: S3) -> None:
    store = server.store(retries=RETRIES)
    (entry,) = store.list()
    store.publish("a.tar", [BODY[::-1]])
    server.proxy.seen.clear()
    with pytest.raises(ChangedError, match="has changed since it was listed"):
        read_object(store, entry)
    assert len(server.proxy.seen) == 2


def test_an_object_that_somebody_has_created_is_not_created_again(server: S3) -> None:
    store = server.store(retries=RETRIES)
    assert store.create("claim", b"first")
    server.proxy.seen.clear()
    assert not store.create("claim", b"second")
    assert len(server.proxy.seen) == 1


@contextmanager
def _checking_keys(port: int) -> Iterator[None]:
    """moto lets everybody in unless it is told otherwise."""
    _let_in(port, b"0")
    try:
        yield
    finally:
        _let_in(port, b"inf")


def _let_in(port: int, requests: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/moto-api/reset-auth", requests)
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize("ask", [_list, _read])
def test_keys_that_a_server_does_not_know_are_refused_at_once(ask: Callable[..., Any], s3: S3, moto_port: int) -> None:
    s3.store().publish("a.tar", [BODY])
    s3.proxy.seen.clear()
    with _checking_keys(moto_port), pytest.raises(StoreError, match="403 Forbidden InvalidAccessKeyId") as caught:
        ask(s3.store(retries=RETRIES))
    assert not isinstance(caught.value, ChangedError)
    assert len(s3.proxy.seen) == 1


@pytest.mark.slow
def test_a_wrong_secret_is_refused_at_once(juice: S3) -> None:
    juice.proxy.seen.clear()
    with pytest.raises(StoreError, match="403 Forbidden SignatureDoesNotMatch"):
        juice.store(secret_access_key="another", retries=RETRIES).list()  # noqa: S106
    assert len(juice.proxy.seen) == 1


AZURE, GOOGLE = (
    "ContainerNotFound: The specified container does not exist.",
    "NoSuchBucket: The specified bucket is gone.",
)


@pytest.mark.parametrize(("scheme", "answer"), [("az", AZURE), ("gs", GOOGLE)])
@pytest.mark.parametrize("ask", [_list, _read])
def test_a_missing_bucket_of_other_stores_is_refused_at_once(
    scheme: str, answer: str, ask: Callable[..., Any], s3: S3
) -> None:
    account = {"account_name": "account"} if scheme == "az" else {}
    options = {"endpoint": s3.options["endpoint"], "anonymous": True, "retries": RETRIES, **account}
    s3.proxy.inject(Fault("status", 404, body=_error(answer)), times=RETRIES + 1)
    with pytest.raises(StoreError, match=answer.split(":")[0]) as caught:
        ask(open_store(f"{scheme}://{s3.bucket}/train", options))
    assert not isinstance(caught.value, ChangedError)
    assert len(s3.proxy.seen) == 1


@pytest.mark.parametrize("option", ["access_key_id", "session_token", "region"])
@pytest.mark.parametrize("value", ["key\n", "ké"])
@pytest.mark.parametrize("is_given", [True, False])
def test_a_key_that_no_header_can_hold_is_a_bad_argument(
    option: str, value: str, is_given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """obstore panics at it."""
    known = {"endpoint": "http://127.0.0.1:9", "access_key_id": "key", "secret_access_key": "secret"}
    if is_given:
        known[option] = value
    else:
        known.pop(option, None)
        monkeypatch.setenv(f"AWS_{option.upper()}", value)
    with pytest.raises(ValueError, match=f"(?i){option} holds a line break") as caught:
        open_store("s3://bucket/train", known).list()
    assert value not in str(caught.value)


def test_a_request_that_an_option_forbids_is_not_tried_again(s3: S3) -> None:
    store = s3.store(retries=RETRIES, client_options={"allow_http": False})
    with pytest.raises(StoreError, match="listing: .*builder error$"):
        store.list()
    assert not s3.proxy.seen


BAD_ENDPOINTS = [
    "http://",
    "http:///x",
    "http://[bad",
    "http://a b",
    "127.0.0.1:9000",
    "ftp://x",
    "http://127.0.0.1:65536",
]


@pytest.mark.parametrize("endpoint", BAD_ENDPOINTS)
def test_an_endpoint_that_no_request_can_be_sent_to_is_a_bad_argument(endpoint: str) -> None:
    with pytest.raises(ValueError, match="endpoint must be a URL such as http://127.0.0.1:9000"):
        open_store("s3://bucket/train", {"endpoint": endpoint})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["weed", "juice"])
def test_a_deletion_is_done_whatever_a_server_answers_that_did_it(name: str, request: pytest.FixtureRequest) -> None:
    store = request.getfixturevalue(name).store(retries=RETRIES)
    store.publish("b.tar", [BODY])
    store.delete("b.tar")
    assert store.head("b.tar") is None
