"""Object stores, through obstore: S3, Google Cloud Storage, Azure, and memory for tests.

One request moves at most `PART_BYTES`. Several requests, for at least `RANGE_BYTES` each, may share a read, because one
connection is often slower than the network. Reads are streamed into the caller's buffer, so that a request in flight
holds a few MB besides it. Temporary failures are retried here, so that each request is counted, and an answer that
breaks off is continued from the byte where it broke. Only the parts of an upload are retried by obstore. Reads ask for
what was listed (If-Match), and also check what the answer claims to be, because some servers ignore the condition.
"""

import itertools
import os
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, TypeVar

from corgi2.errors import ChangedError, StoreError
from corgi2.records import Buffer
from corgi2.stores.fork import obstore
from corgi2.stores.options import client_settings, connections_of, make_client, names_endpoint, retries_of
from corgi2.stores.retries import Meaning, meaning_of, one_line
from corgi2.stores.store import (
    CHANGED,
    GONE,
    PART_BYTES,
    Entry,
    Options,
    Requests,
    Store,
    read_path,
    spans_of,
    whole_bytes,
)
from corgi2.stores.url import Url

T = TypeVar("T")

_PAGES = {"s3": 1000, "gs": 1000, "az": 5000, "memory": 1 << 62}

_STREAM_BYTES = 1_000_000

_PARTS_IN_FLIGHT = 1
"""Requests of one upload at a time; for more, write several objects at once."""


_ELSEWHERE = "Amazon was asked: for another server, give endpoint=http://HOST:PORT with src_options= or dst_options="


@dataclass(slots=True)
class RemoteStore:
    """The objects below ``root``. Clients are made on first use, once per process, and never pickled."""

    root: Url
    options: Options = field(repr=False)
    requests: Requests = field(default_factory=Requests)
    _clients: dict[tuple[int, int], object] = field(default_factory=dict, init=False, repr=False, compare=False)
    _aliases: dict[Entry, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The etags that answers carry, if they differ from those of the listing; empty while not known."""
    _fetchers: dict[int, "_Fetchers"] = field(default_factory=dict, init=False, repr=False, compare=False)
    """One for each process: threads and locks do not survive a fork."""

    def __post_init__(self) -> None:
        self.options = dict(self.options)
        client_settings(self.root, self.options, retries_of(self.options))
        connections_of(self.options)

    def __reduce__(self) -> tuple[type["RemoteStore"], tuple[Url, Options]]:
        return RemoteStore, (self.root, self.options)

    @property
    def url(self) -> str:
        return str(self.root)

    @property
    def is_local(self) -> bool:
        return False

    @property
    def connections(self) -> int:
        return connections_of(self.options)

    def list(self, folder: str = "", levels: int | None = None) -> list[Entry]:
        client, prefix = self._client(), self._key("")
        key = self._key(folder).rstrip("/") or None

        def ask() -> list[Any]:
            if levels == 1:
                return [*obstore().list_with_delimiter(client, prefix=key)["objects"]]
            return [meta for chunk in obstore().list(client, prefix=key) for meta in chunk]

        found = self._ask("listing", folder, ask, lists=1)
        self.requests.count(lists=max(0, -(-len(found) // _PAGES[self.root.scheme]) - 1))
        below = (meta for meta in found if meta["path"].startswith(prefix) and _is_within(meta["path"], key, levels))
        return sorted((_entry(meta["path"][len(prefix) :], meta) for meta in below), key=lambda entry: entry.path)

    def head(self, path: str) -> Entry | None:
        client = self._client()
        try:
            meta = self._ask("looking up", path, lambda: obstore().head(client, self._key(path)), lists=1)
        except StoreError as error:
            if meaning_of(error.__cause__) is Meaning.GONE:
                return None
            raise
        return _entry(path, meta)

    def readinto(self, entry: Entry, start: int, buffer: memoryview, ranges: int = 1) -> None:
        parts = [(start + first, buffer[first:last]) for first, last in spans_of(len(buffer), ranges)]
        if ranges == 1 or len(parts) < 2:
            for at, part in parts:
                self._read_part(entry, at, part)
        else:
            pool = self._here().pool
            _all_of([pool.submit(self._read_part, entry, at, part) for at, part in parts])

    def _here(self) -> "_Fetchers":
        """The threads of this process."""
        found = self._fetchers.get(os.getpid())
        return found or self._fetchers.setdefault(os.getpid(), _Fetchers.of(self.connections))

    def publish(self, path: str, pieces: Iterable[Buffer], part_bytes: int = PART_BYTES) -> Entry:
        body = _Body(pieces)
        begun = body.begin(part_bytes)
        if body.size > whole_bytes(part_bytes):
            result = self._put_parts(path, begun, body, part_bytes)
        else:
            client, key = self._client(), self._key(path)
            result = self._ask(
                "writing", path, lambda: obstore().put(client, key, iter(begun), use_multipart=False), writes=1
            )
        return Entry(path, body.size, result["e_tag"] or "")

    def publish_together(self, files: Iterable[tuple[str, Iterable[Buffer]]]) -> Sequence[Entry]:
        return [self.publish(path, pieces) for path, pieces in files]

    def create(self, path: str, data: bytes) -> bool:
        client, attempts = self._client(), 0

        def put() -> None:
            nonlocal attempts
            attempts += 1
            obstore().put(client, self._key(path), data, mode="create", use_multipart=False)

        try:
            self._ask("writing", path, put, writes=1)
        except StoreError as error:
            if meaning_of(error.__cause__) is Meaning.EXISTS:
                return attempts > 1 and self._holds(path, data)
            raise
        return True

    def delete(self, path: str) -> None:
        client = self._client()
        try:
            self._ask("deleting", path, lambda: obstore().delete(client, self._key(path)), deletes=1)
        except StoreError as error:
            meaning = meaning_of(error.__cause__)
            if meaning is Meaning.GONE or (meaning is Meaning.UNREADABLE and self.head(path) is None):
                return
            raise

    def free_bytes(self) -> None:
        return None

    def check_writable(self) -> None:
        """Nothing to check: only writing tells."""

    def keeps_versions(self, path: str) -> bool:
        client = self._client()
        meta = self._ask("looking up", path, lambda: obstore().head(client, self._key(path)), lists=1)
        return meta.get("version") not in (None, "null")

    def holds(self, other: Store, levels: int | None = None) -> bool:  # noqa: ARG002 - there are no links
        return f"{other.url}/".startswith(f"{self.url}/")

    def sweep(self, folder: str = "") -> None:
        """Nothing to do: unfinished uploads in parts are not objects, and the bucket's own rules remove them."""

    def _put_parts(self, path: str, begun: "deque[bytearray]", rest: "_Body", part_bytes: int) -> Any:
        """Upload in parts; a reader sees nothing before the last request. ``begun`` is used up."""
        client = self._client(retries_of(self.options))
        options = {"use_multipart": True, "chunk_size": part_bytes, "max_concurrency": _PARTS_IN_FLIGHT}
        try:
            return obstore().put(client, self._key(path), itertools.chain(_used_up(begun), rest), **options)
        except (OSError, obstore().exceptions.BaseError) as error:
            if rest.error is not None:
                raise rest.error from None
            raise self._failed("writing", path, error) from error
        finally:
            rest.settle()
            self.requests.count(writes=-(-rest.size // part_bytes) + 2)

    def _holds(self, path: str, data: bytes) -> bool:
        """Whether an object is what an attempt wrote, if the answer to that attempt was lost."""
        found = read_path(self, path)
        return found is not None and bytes(found) == data

    def _read_part(self, entry: Entry, start: int, buffer: memoryview) -> None:
        """One request for the whole part, and one more for the rest each time an answer breaks off."""
        client, key, done = self._client(), self._key(entry.path), 0
        same = self._condition(entry)

        def read() -> None:
            nonlocal done
            answer = obstore().get(client, key, options={"range": (start + done, start + len(buffer)), **same})
            self._check_listed(entry, answer.meta)
            if answer.meta["e_tag"]:
                same["if_match"] = answer.meta["e_tag"]
            for chunk in answer.stream(min_chunk_size=_STREAM_BYTES):
                size = len(chunk)
                buffer[done : done + size] = memoryview(chunk)
                done += size

        try:
            self._ask("reading", entry.path, read, reads=1)
        except StoreError as error:
            meaning = meaning_of(error.__cause__)
            if meaning is Meaning.GONE:
                raise ChangedError(f"{self.url}/{entry.path}: {GONE}") from error
            if meaning is not Meaning.CHANGED or not same.pop("if_match", ""):
                raise
            self._give_alias(entry, "")  # if it is listed as before, the server does not know its own etags
            self._ask("reading", entry.path, read, reads=1)
        if done < len(buffer):
            raise ChangedError(
                f"{self.url}/{entry.path}: ends at byte {start + done}, expected {start + len(buffer)}: "
                "it changed after it was listed; run the command again"
            )

    def _condition(self, entry: Entry) -> dict[str, str]:
        """The condition that lets a server answer only with what was listed."""
        etag = self._aliases.get(entry, entry.etag if entry.is_listed and not _TIME.fullmatch(entry.etag) else "")
        return {"if_match": etag if etag.endswith('"') else f'"{etag}"'} if etag else {}

    def _check_listed(self, entry: Entry, meta: Any) -> None:
        """Check which object the answer is about, in case the server ignored the condition."""
        is_known = not (entry.is_listed and entry.etag) or _is_same(entry, meta)
        etag = meta["e_tag"] or ""
        if is_known or (etag and self._aliases.get(entry) == etag):
            return
        self._give_alias(entry, etag)

    def _give_alias(self, entry: Entry, etag: str) -> None:
        """Remember the etag of an object that differs from the listed one, if the object is still listed as before."""
        with self._here().naming:
            if self._aliases.get(entry) == etag:
                return
            if self._listed(entry.path) != entry:
                raise ChangedError(f"{self.url}/{entry.path}: {CHANGED}")
            self._aliases[entry] = etag

    def _listed(self, path: str) -> Entry | None:
        """One object, as a listing shows it: some servers answer differently when asked for it alone."""
        client, key = self._client(), self._key(path)

        def ask() -> Entry | None:
            pages = obstore().list(client, prefix=key.rpartition("/")[0] or None, offset=key[:-1], chunk_size=1)
            found = (meta for page in pages for meta in page)
            meta = next((meta for meta in found if meta["path"] >= key), None)
            return _entry(path, meta) if meta and meta["path"] == key else None

        return self._ask("looking up", path, ask, lists=1)

    def _key(self, path: str) -> str:
        return f"{self.root.path}/{path}" if self.root.path else path

    def _client(self, retries: int = 0) -> object:
        """This process's client that retries this often by itself."""
        key = os.getpid(), retries
        if key not in self._clients:
            self._clients[key] = make_client(self.root, self.options, retries)
        return self._clients[key]

    def _ask(self, verb: str, path: str, call: Callable[[], T], **requests: int) -> T:
        """Call obstore, again after a temporary failure; count each request."""
        for attempt in itertools.count():
            self.requests.count(**requests)
            try:
                return call()
            except (OSError, obstore().exceptions.BaseError) as error:
                if attempt >= retries_of(self.options) or meaning_of(error) is not Meaning.RETRY:
                    raise self._failed(verb, path, error, attempt + 1) from error
            time.sleep(min(0.1 * 2**attempt, 10.0) * random.uniform(0.5, 1))  # noqa: S311
        raise AssertionError

    def _failed(self, verb: str, path: str, error: Exception, attempts: int = 1) -> StoreError:
        often = f", after {attempts} attempts" if attempts > 1 else ""
        problem = f"{self.url}/{path}".rstrip("/") + f": {verb}: {one_line(error)}{often}"
        is_elsewhere = meaning_of(error) in (Meaning.RETRY, Meaning.REFUSED)
        could_be = self.root.scheme == "s3" and is_elsewhere and not names_endpoint(self.options)
        return StoreError(problem, hint=_ELSEWHERE if could_be else None)


@dataclass(frozen=True, slots=True)
class _Fetchers:
    """The threads that fetch the ranges of one process."""

    pool: ThreadPoolExecutor
    naming: threading.Lock
    """Held while the etag of an object is looked up, so that the requests that share a read look it up once."""

    @staticmethod
    def of(connections: int) -> "_Fetchers":
        return _Fetchers(ThreadPoolExecutor(connections, "corgi2-fetch"), threading.Lock())


def _all_of(reads: "list[Future[None]]") -> None:
    """Wait for all; when this returns, or raises, none of them writes to its buffer any more."""
    wait(reads, return_when=FIRST_EXCEPTION)
    for read in reads:
        read.cancel()
    wait(reads)
    for read in reads:
        if not read.cancelled():
            read.result()


def _used_up(pieces: "deque[bytearray]") -> Iterator[bytearray]:
    """Yield the pieces without keeping references to them."""
    while pieces:
        yield pieces.popleft()


class _Body:
    """The pieces of an object, counted as they pass, and the error of their producer."""

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = iter(pieces)
        self._asked: Future[memoryview | None] | None = None
        self.size = 0
        self.error: Exception | None = None

    def begin(self, part_bytes: int) -> deque[bytearray]:
        """All pieces, or as many as show that it needs parts; in chunks that can be released one by one."""
        chunks = deque([bytearray()])
        while self.size <= whole_bytes(part_bytes) and (view := self._next()) is not None:
            if len(chunks[-1]) + len(view) > part_bytes:
                chunks.append(bytearray())
            chunks[-1] += view
        return chunks

    def __iter__(self) -> Iterator[bytes]:
        """The rest, made in a thread of its own: obstore asks from within its runtime, where reading is forbidden. The
        thread ends when the iterator is dropped, which obstore does in any thread: nothing waits there."""
        thread = ThreadPoolExecutor(1)
        while True:
            self._asked = thread.submit(self._next)
            if (view := self._asked.result()) is None:
                return
            yield bytes(view)  # obstore may hold it for longer than the piece exists

    def settle(self) -> None:
        """Wait until no piece is being made any more."""
        if self._asked is not None:
            wait([self._asked])

    def _next(self) -> memoryview | None:
        try:
            piece = next(self._pieces, None)
        except Exception as error:
            self.error = error
            raise
        if piece is None:
            return None
        view = memoryview(piece).cast("B")
        self.size += len(view)
        return view


def _is_within(path: str, key: str | None, levels: int | None) -> bool:
    return levels is None or path.removeprefix(f"{key}/" if key else "").count("/") < levels


def _entry(path: str, meta: Any) -> Entry:
    return Entry(path, meta["size"], meta["e_tag"] or f"{meta['last_modified']:%Y%m%dT%H%M%S.%f}-{meta['size']:x}")


_TIME = re.compile(r"(\d{8}T\d{6})\.\d{6}(-[0-9a-f]+)")
"""A substitute for an etag, for servers that have none."""


def _is_same(entry: Entry, meta: Any) -> bool:
    """Whether an answer is what was listed. Its time may be in whole seconds."""
    now = _entry(entry.path, meta).etag
    if _TIME.fullmatch(entry.etag) and _TIME.fullmatch(now):
        return now in (entry.etag, _TIME.sub(r"\1.000000\2", entry.etag))
    return now.strip('"') == entry.etag.strip('"')
