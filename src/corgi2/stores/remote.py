"""Object stores, through obstore: S3, Google Cloud Storage, Azure, and memory for tests.

One request moves at most `PART_BYTES`. Reads are streamed into the caller's buffer, so that a request in flight
holds a few MB beside it. Whatever fails for a moment is asked again here, so that each request is counted, and an
answer that breaks off is continued from the byte where it broke. Only the parts of an upload are retried by obstore.
Reads ask for what was listed (If-Match), and look at what the answer says that it is, because some servers do not care.
"""

import itertools
import os
import random
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, TypeVar

from corgi2.errors import ChangedError, StoreError
from corgi2.records import Buffer
from corgi2.stores.fork import obstore
from corgi2.stores.options import client_settings, make_client, retries_of
from corgi2.stores.retries import is_temporary, one_line
from corgi2.stores.store import CHANGED, GONE, PART_BYTES, Entry, Options, Requests, Store, read_path, whole_bytes
from corgi2.stores.url import Url

T = TypeVar("T")

_PAGES = {"s3": 1000, "gs": 1000, "az": 5000, "memory": 1 << 62}

_STREAM_BYTES = 1_000_000

_PARTS_IN_FLIGHT = 1
"""Of one upload: who wants more at a time, writes several objects."""


@dataclass(slots=True)
class RemoteStore:
    """The objects below ``root``. Clients are made on first use, once a process, and never pickled."""

    root: Url
    options: Options = field(repr=False)
    requests: Requests = field(default_factory=Requests)
    _clients: dict[tuple[int, int], object] = field(default_factory=dict, init=False, repr=False, compare=False)
    _aliases: dict[Entry, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The etags that answers have, where they are not those of the listing; empty while they are not known."""

    def __post_init__(self) -> None:
        self.options = dict(self.options)
        client_settings(self.root, self.options, retries_of(self.options))

    def __reduce__(self) -> tuple[type["RemoteStore"], tuple[Url, Options]]:
        return RemoteStore, (self.root, self.options)

    @property
    def url(self) -> str:
        return str(self.root)

    @property
    def is_local(self) -> bool:
        return False

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
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        return _entry(path, meta)

    def readinto(self, entry: Entry, start: int, buffer: memoryview) -> None:
        for at in range(0, len(buffer), PART_BYTES):
            self._read_part(entry, start + at, buffer[at : at + PART_BYTES])

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

    def create(self, path: str, data: bytes) -> bool:
        client, attempts = self._client(), 0

        def put() -> None:
            nonlocal attempts
            attempts += 1
            obstore().put(client, self._key(path), data, mode="create", use_multipart=False)

        try:
            self._ask("writing", path, put, writes=1)
        except StoreError as error:
            if isinstance(error.__cause__, obstore().exceptions.AlreadyExistsError):
                return attempts > 1 and self._holds(path, data)
            raise
        return True

    def delete(self, path: str) -> None:
        client = self._client()
        try:
            self._ask("deleting", path, lambda: obstore().delete(client, self._key(path)), deletes=1)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return
            if "DeleteObjects response" in str(error) and self.head(path) is None:
                return  # some servers do it, and answer with what no client understands
            raise

    def free_bytes(self) -> None:
        return None

    def check_writable(self) -> None:
        """Only writing tells."""

    def keeps_versions(self, path: str) -> bool:
        client = self._client()
        meta = self._ask("looking up", path, lambda: obstore().head(client, self._key(path)), lists=1)
        return meta.get("version") not in (None, "null")

    def holds(self, other: Store, levels: int | None = None) -> bool:  # noqa: ARG002 - there are no links
        return f"{other.url}/".startswith(f"{self.url}/")

    def sweep(self, folder: str = "") -> None:
        """Uploads in parts that were broken off are no objects; the bucket's own rules remove them."""

    def _put_parts(self, path: str, begun: "deque[bytearray]", rest: "_Body", part_bytes: int) -> Any:
        """In parts, of which a reader sees nothing before the last request. What was begun is used up."""
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
        """Whether an object is what an attempt wrote whose answer was lost."""
        found = read_path(self, path)
        return found is not None and bytes(found) == data

    def _read_part(self, entry: Entry, start: int, buffer: memoryview) -> None:
        """One request for the whole part, and one more for the rest each time that an answer breaks off."""
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
            if isinstance(error.__cause__, FileNotFoundError) and "NoSuchBucket" not in str(error):
                raise ChangedError(f"{self.url}/{entry.path}: {GONE}") from error
            if not isinstance(error.__cause__, obstore().exceptions.PreconditionError) or not same.pop("if_match", ""):
                raise
            self._give_alias(entry, "")  # if it is listed as before, the server does not know its own etags
            self._ask("reading", entry.path, read, reads=1)
        if done < len(buffer):
            raise ChangedError(
                f"{self.url}/{entry.path}: ends at byte {start + done}, expected {start + len(buffer)}: "
                "it changed after it was listed; run the command again"
            )

    def _condition(self, entry: Entry) -> dict[str, str]:
        """By which a server refuses to answer with anything but what was listed."""
        etag = self._aliases.get(entry, entry.etag if entry.is_listed and not _TIME.fullmatch(entry.etag) else "")
        return {"if_match": etag if etag.endswith('"') else f'"{etag}"'} if etag else {}

    def _check_listed(self, entry: Entry, meta: Any) -> None:
        """Whatever the server made of the condition, the answer says what it is an answer with."""
        is_known = not (entry.is_listed and entry.etag) or _is_same(entry, meta)
        etag = meta["e_tag"] or ""
        if is_known or (etag and self._aliases.get(entry) == etag):
            return
        self._give_alias(entry, etag)

    def _give_alias(self, entry: Entry, etag: str) -> None:
        """To an object that goes by another etag than was listed, if it still is listed as it was."""
        if self._listed(entry.path) != entry:
            raise ChangedError(f"{self.url}/{entry.path}: {CHANGED}")
        self._aliases[entry] = etag

    def _listed(self, path: str) -> Entry | None:
        """One object, as a listing shows it: some servers say otherwise when they are asked for it alone."""
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
        """This process' client that retries so often by itself."""
        key = os.getpid(), retries
        if key not in self._clients:
            self._clients[key] = make_client(self.root, self.options, retries)
        return self._clients[key]

    def _ask(self, verb: str, path: str, call: Callable[[], T], **requests: int) -> T:
        """Call obstore, again if it failed for a moment; count each request."""
        for attempt in itertools.count():
            self.requests.count(**requests)
            try:
                return call()
            except (OSError, obstore().exceptions.BaseError) as error:
                if attempt >= retries_of(self.options) or not is_temporary(error):
                    raise self._failed(verb, path, error, attempt + 1) from error
            time.sleep(min(0.1 * 2**attempt, 10.0) * random.uniform(0.5, 1))  # noqa: S311
        raise AssertionError

    def _failed(self, verb: str, path: str, error: Exception, attempts: int = 1) -> StoreError:
        often = f", after {attempts} attempts" if attempts > 1 else ""
        return StoreError(f"{self.url}/{path}".rstrip("/") + f": {verb}: {one_line(error)}{often}")


def _used_up(pieces: "deque[bytearray]") -> Iterator[bytearray]:
    """Nobody holds on to what was given."""
    while pieces:
        yield pieces.popleft()


class _Body:
    """The pieces of an object, counted as they pass, and the error of whoever makes them."""

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = iter(pieces)
        self._asked: Future[memoryview | None] | None = None
        self.size = 0
        self.error: Exception | None = None

    def begin(self, part_bytes: int) -> deque[bytearray]:
        """All pieces, or as many as tell that it goes in parts; in chunks that can be let go one by one."""
        chunks = deque([bytearray()])
        while self.size <= whole_bytes(part_bytes) and (view := self._next()) is not None:
            if len(chunks[-1]) + len(view) > part_bytes:
                chunks.append(bytearray())
            chunks[-1] += view
        return chunks

    def __iter__(self) -> Iterator[bytes]:
        """The rest, made in a thread of its own: obstore asks from within its runtime, where reading is forbidden. The
        thread ends when this is dropped, which obstore does in any thread: nobody waits there."""
        thread = ThreadPoolExecutor(1)
        while True:
            self._asked = thread.submit(self._next)
            if (view := self._asked.result()) is None:
                return
            yield bytes(view)  # which obstore may hold for longer than the piece is there

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
"""What stands for an etag where a server has none."""


def _is_same(entry: Entry, meta: Any) -> bool:
    """Whether an answer is what was listed. Of times it may give whole seconds."""
    now = _entry(entry.path, meta).etag
    if _TIME.fullmatch(entry.etag) and _TIME.fullmatch(now):
        return now in (entry.etag, _TIME.sub(r"\1.000000\2", entry.etag))
    return now.strip('"') == entry.etag.strip('"')
