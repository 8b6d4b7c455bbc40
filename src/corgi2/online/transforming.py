"""What a transform makes of each item, in order: in the thread that reads, or in threads beside it."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, NamedTuple

from corgi2.online.buffers import Readers
from corgi2.online.place import At
from corgi2.online.portions import Taken
from corgi2.sizes import plural

_COLUMNS = (
    "with batch_size, transform gets the columns of a batch; for single samples, give CorgiLoader a collate_fn, too"
)

_AHEAD = 2
"""Items on their way for each thread."""


class Raw(NamedTuple):
    """A batch, or a sample, as it was read; the reader's place after it; and what it was taken with."""

    at: At
    item: Any
    taken: Taken
    is_batch: bool

    @property
    def name(self) -> str:
        """Which example it is, or which is the last of its batch."""
        number = self.taken.size if self.is_batch else self.at[1]
        name = self.taken.home(number - 1)
        key = self.item.get("__key__") if isinstance(self.item, dict) else None
        if key:
            name += f", key {(key[-1] if self.is_batch else key)!r}"
        return (
            f"a batch of {plural(self.taken.size, 'example')}, the last of which is {name}" if self.is_batch else name
        )


Transform = Callable[[Any], Any]
Result = Callable[[], Any]


def transformed(
    items: Iterable[Raw], transform: Transform, threads: int, readers: Readers
) -> Iterator[tuple[At, Result]]:
    """Each item's place, and a function that gives, or raises, what became of it. Nothing is ahead without threads."""
    if not threads:
        return ((raw.at, partial(_one, transform, raw)) for raw in items)
    return _in_threads(items, transform, threads, readers)


def _in_threads(
    items: Iterable[Raw], transform: Transform, threads: int, readers: Readers
) -> Iterator[tuple[At, Result]]:
    coming: deque[tuple[At, Future[Any]]] = deque()
    for each in _begun(items, transform, threads, readers):
        coming.append(each)
        if len(coming) > _AHEAD * threads:
            at, future = coming.popleft()
            yield at, future.result
    while coming:
        at, future = coming.popleft()
        yield at, future.result


def _begun(
    items: Iterable[Raw], transform: Transform, threads: int, readers: Readers
) -> Iterator[tuple[At, "Future[Any]"]]:
    """Items on their way. If reading fails, that comes after the items before it."""
    pool, stop, at = readers.pool("transform", threads), readers.stop, None

    def work(raw: Raw) -> Any:
        if stop.is_set():
            raise CancelledError
        return _one(transform, raw)

    try:
        for raw in items:
            at = raw.at
            yield at, pool.submit(work, raw)
    except Exception as error:
        if at is None:
            raise
        failed: Future[Any] = Future()
        failed.set_exception(error)
        yield at, failed


def _one(transform: Transform, raw: Raw) -> Any:
    """An error names the example, and stays what it is."""
    try:
        return transform(raw.item)
    except Exception as error:
        error.add_note(f"in the transform of {raw.name}")
        if raw.is_batch and isinstance(raw.item, dict):
            error.add_note(_COLUMNS)
        raise
