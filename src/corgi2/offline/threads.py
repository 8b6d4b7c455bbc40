"""The threads of a shuffle: they read, hash, gather, write and settle, and end when told to."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from corgi2.budget import Crew
from corgi2.host import processors, release_unused

_LAST_WORDS_SECONDS = 1.0
"""How long threads may take to clean up after an interrupt."""


class Threads:
    """Threads that read, some of which decode at the same time, that hash what was read, and that write; one that
    gathers for a single writer, and one that waits for the shards of a group to arrive."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.readers, self.writers = ThreadPoolExecutor(crew.readers), ThreadPoolExecutor(crew.writers)
        self.hashers = ThreadPoolExecutor(min(crew.readers, processors()))
        self.gatherer, self.settler = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self.stop = threading.Event()
        self._writing: set[Future[Any]] = set()

    def __enter__(self) -> "Threads":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        interrupted = kind is not None and not issubclass(kind, Exception)
        for pool in (self.readers, self.hashers, self.gatherer, self.writers, self.settler):
            pool.shutdown(wait=not interrupted, cancel_futures=True)

    @contextmanager
    def stopping(self) -> Iterator[None]:
        """Any early end stops all threads at their next step. An interrupt waits a moment for them to clean up what
        they were writing, and no longer."""
        try:
            yield
        except BaseException as error:
            self.stop.set()
            wait(self._writing, None if isinstance(error, Exception) else _LAST_WORDS_SECONDS)
            raise

    def map(self, task: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Map by the readers. When this returns, or raises, none of them is still at work on its item: an arena that is
        reused must not be written to by earlier reads."""
        futures = [self.readers.submit(task, item) for item in items]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
        wait(futures)
        for future in futures:
            if not future.cancelled() and (error := future.exception()) is not None:
                raise error
        return [future.result() for future in futures]

    def gathered(self) -> None:
        """Wait until nothing is being gathered any more."""
        with suppress(RuntimeError, CancelledError):  # if all threads have ended, none gathers
            self.gatherer.submit(int).result()

    def write(self, task: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        future = self.writers.submit(task, *arguments)
        self._writing.add(future)
        future.add_done_callback(self._writing.discard)
        return future


_AHEAD = 2

_Item = TypeVar("_Item")


def ahead(pool: ThreadPoolExecutor, items: Iterable[_Item]) -> Iterator[_Item]:
    """Items; the pool makes the next ones while one is used. At the end the pool keeps no memory."""
    source = itertools.chain(items, _released())
    ready = deque(pool.submit(next, source, None) for _ in range(_AHEAD))
    while (item := ready.popleft().result()) is not None:
        ready.append(pool.submit(next, source, None))
        yield item


def _released() -> Iterator[Any]:
    """Yields nothing, but makes the thread that asks return memory that it does not need."""
    release_unused()
    yield from ()


class Latch:
    """Waits until everyone who holds it has let go."""

    def __init__(self) -> None:
        self._held = 0
        self._changed = threading.Condition()

    def hold(self) -> Callable[[], None]:
        """A function that lets go; calling it twice is harmless."""
        with self._changed:
            self._held += 1
        released = threading.Lock()

        def release() -> None:
            if released.acquire(blocking=False):
                with self._changed:
                    self._held -= 1
                    self._changed.notify_all()

        return release

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._held == 0)
