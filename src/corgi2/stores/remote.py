"""Object stores, through obstore: S3, Google Cloud Storage, Azure, and memory for tests.

One request moves at most `PART_BYTES`. Several requests, for at least `RANGE_BYTES` each, may share a read, because one
connection is often slower than the network; all reads of a process share one limit (`fetching`). Reads are streamed
into the caller's buffer, so that a request in flight holds a few MB besides it. Temporary failures are retried here, so
that each request is counted, and an answer that breaks off is continued from the byte where it broke. Only the parts of
an upload are retried by obstore. Reads ask for what was listed (If-Match), and also check what the answer claims to be,
because some servers ignore the condition.
"""

import itertools
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from corgi2.errors import ChangedError, StoreError
from corgi2.records import Buffer
from corgi2.stores.fetching import Fetchers, fetchers_of
from corgi2.stores.fork import obstore
from corgi2.stores.options import (
    client_settings,
    connections_of,
    make_client,
    may_split,
    names_endpoint,
    retries_of,
)
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
from corgi2.stores.uploads import Body, used_up
from corgi2.stores.url import Url
from corgi2.stores.versions import TIME, entry_of, is_same

T = TypeVar("T")

_PAGES = {"s3": 1000, "gs": 1000, "az": 5000, "memory": 1 << 62}

_STREAM_BYTES = 1_000_000

_ELSEWHERE = "Amazon was asked: for another server, give endpoint=http://HOST:PORT with src_options= or dst_options="


@dataclass(slots=True)
class RemoteStore:
    """The objects below ``root``. Clients are made on first use, once per process, and never pickled."""

    root: Url
    options: Options = field(repr=False)
    requests: Requests = field(default_factory=Requests)
    readers: int = 1
    """Processes that read together, and share the connections; this is the store of one of them."""
    _clients: dict[tuple[int, int], object] = field(default_factory=dict, init=False, repr=False, compare=False)
    _aliases: dict[Entry, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The etags that answers carry, if they differ from those of the listing; empty while not known."""

    def __post_init__(self) -> None:
        self.options = dict(self.options)
        client_settings(self.root, self.options, retries_of(self.options))
        connections_of(self.options)
        may_split(self.options)

    def __reduce__(self) -> tuple[type["RemoteStore"], tuple[Url, Options, Requests, int]]:
        return RemoteStore, (self.root, self.options, Requests(), self.readers)

    def __copy__(self) -> "RemoteStore":
        """The same, with the same clients."""
        other = RemoteStore(self.root, self.options, self.requests, self.readers)
        other._clients, other._aliases = self._clients, self._aliases
        return other

    @property
    def url(self) -> str:
        return str(self.root)

    @property
    def is_local(self) -> bool:
        return False

    @property
    def connections(self) -> int:
        return -(-connections_of(self.options) // self.readers)

    @property
    def ranges(self) -> int:
        return self.connections if may_split(self.options) else 1

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
        return sorted((entry_of(meta["path"][len(prefix) :], meta) for meta in below), key=lambda entry: entry.path)

    def head(self, path: str) -> Entry | None:
        client = self._client()
        try:
            meta = self._ask("looking up", path, lambda: obstore().head(client, self._key(path)), lists=1)
        except StoreError as error:
            if meaning_of(error.__cause__) is Meaning.GONE:
                return None
            raise
        return entry_of(path, meta)

    def readinto(self, entry: Entry, start: int, buffer: memoryview, ranges: int = 1) -> None:
        parts = [(start + first, buffer[first:last]) for first, last in spans_of(len(buffer), ranges)]
        reads = [partial(self._read_part, entry, at, part) for at, part in parts]
        if ranges == 1 or len(parts) < 2:
            for read in reads:
                read()
        else:
            self._here().all_of(reads)

    def _here(self) -> Fetchers:
        """What the readers of this process share."""
        return fetchers_of(self.connections)

    def publish(self, path: str, pieces: Iterable[Buffer], part_bytes: int = PART_BYTES) -> Entry:
        body = Body(pieces)
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

    def _put_parts(self, path: str, begun: deque[bytearray], rest: Body, part_bytes: int) -> Any:
        """Upload in parts; a reader sees nothing before the last request. ``begun`` is used up, and as many parts as it
        held are sent at the same time: they take its room."""
        client = self._client(retries_of(self.options))
        at_once = max(1, whole_bytes(part_bytes) // part_bytes)
        options = {"use_multipart": True, "chunk_size": part_bytes, "max_concurrency": at_once}
        try:
            return obstore().put(client, self._key(path), itertools.chain(used_up(begun), rest), **options)
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
            with self._here().gate:
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
        etag = self._aliases.get(entry, entry.etag if entry.is_listed and not TIME.fullmatch(entry.etag) else "")
        return {"if_match": etag if etag.endswith('"') else f'"{etag}"'} if etag else {}

    def _check_listed(self, entry: Entry, meta: Any) -> None:
        """Check which object the answer is about, in case the server ignored the condition."""
        is_known = not (entry.is_listed and entry.etag) or is_same(entry, meta)
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
            return entry_of(path, meta) if meta and meta["path"] == key else None

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


def _is_within(path: str, key: str | None, levels: int | None) -> bool:
    return levels is None or path.removeprefix(f"{key}/" if key else "").count("/") < levels
