"""The batches of one iteration of a `CorgiLoader`, as they are given out and counted."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from corgi2.extras import needing
from corgi2.online import Journey, Stage
from corgi2.torch.devices import moved

with needing("torch", "corgi2.torch"):
    import torch


class Batches(Iterator[Any]):
    """Nothing is read, and no worker started, before the first batch is asked for: until then, an epoch may be set and
    a state loaded."""

    def __init__(
        self,
        journey: Journey,
        start: Callable[[Stage], Iterator[Any]],
        tell: Callable[[Stage], None],
        device: Callable[[], torch.device | None],
        shares_workers: bool,
    ) -> None:
        """``start`` begins to read an iteration, ``tell`` is told how far it is, and ``device`` says where batches go.
        ``shares_workers``: those of a later iteration are the same processes."""
        self._journey, self._start, self._tell, self._find_device = journey, start, tell, device
        self._shares_workers = shares_workers
        self._stage: Stage | None = None
        self._source: Iterator[Any] = iter(())
        self._device: torch.device | None = None
        self._ahead = deque[Any]()

    def __next__(self) -> Any:
        stage = self._stage or self._begin()
        if stage.given == stage.total:
            self._end(stage)
            raise StopIteration
        batch = self._ahead.popleft() if self._ahead else self._fetch()
        if self._device is not None and stage.given + 1 < stage.total:
            self._ahead.append(self._fetch())  # on its way to the device while this one is used
        stage.given += 1
        self._tell(stage)
        return batch

    def _begin(self) -> Stage:
        stage = self._stage = self._journey.begin()
        self._device = self._find_device()
        if stage.total:
            self._source = self._start(stage)
        self._tell(stage)
        return stage

    def _fetch(self) -> Any:
        if self._shares_workers and self._journey.latest not in (self._stage, None):
            raise RuntimeError(
                "a later iteration has taken over the persistent workers of this loader; make a loader for each"
            )
        batch = next(self._source)
        return batch if self._device is None else moved(batch, self._device)

    def _end(self, stage: Stage) -> None:
        if not stage.is_over:
            next(self._source, None)  # ends the workers
        stage.is_over = True
        self._tell(stage)
