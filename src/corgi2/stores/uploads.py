"""The body of an upload: pieces, as someone makes them, which obstore takes from a thread of its own."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

from corgi2.records import Buffer
from corgi2.stores.store import whole_bytes


def used_up(pieces: "deque[bytearray]") -> Iterator[bytearray]:
    """Yield the pieces without keeping references to them."""
    while pieces:
        yield pieces.popleft()


class Body:
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
