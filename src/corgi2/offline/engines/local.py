"""Groups made by threads of this process, one after another, in one arena.

While the shards of a group are on their way to the store, the next group is read.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from corgi2.offline.group import Mixture
from corgi2.offline.task import Made, Task
from corgi2.records import Arena
from corgi2.stores import Requests


@dataclass(slots=True)
class LocalEngine:
    """Runs with ``workers`` reads and writes in flight."""

    workers: int
    _arena: Arena | None = field(default=None, init=False)
    """Made for the first pass, and reused."""

    @property
    def is_here(self) -> bool:
        return True

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._arena = None

    def make(
        self,
        task: Task,
        groups: Sequence[int],
        advance: Callable[[int], object],
        settle: Callable[[Made], object],
    ) -> None:
        arena = self._arena = self._arena or task.arena()

        def finish(group: int, mixture: Mixture | None) -> None:
            settle(Made(group, task.settle(mixture), Requests()))

        with task.threads(self.workers) as threads, threads.stopping():
            mixer = task.mixer(arena, threads, advance)
            before: Future[None] | None = None
            for group in groups:
                mixture = task.start(mixer, group, task.pass_.groups[group])
                if before is not None:
                    before.result()
                before = threads.settler.submit(finish, group, mixture)
            if before is not None:
                before.result()
