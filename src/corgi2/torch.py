"""For PyTorch: a data set for `DataLoader` that shuffles, shards and resumes by itself. The only module with torch.

Workers are processes that know nothing of each other, nor of the next epoch. What they must know they read from a few
integers in shared memory, which has no name and goes with the last process.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from corgi2.buffers import Taken
from corgi2.loader import Cursor, Feed, Place

_SLOTS = 1024
"""Workers that a rank may have."""
_SHARDERS = ("IterableDatasetShard",)
"""Wrappers that give each rank a part of what all ranks read."""


class CorgiDataset(IterableDataset):  # type: ignore[type-arg]
    """A data set in shards, in an order nearly as good as a full shuffle's, in batches or as samples.

    ``DataLoader(CorgiDataset(uri, batch_size=256), batch_size=None, num_workers=4)`` gives batches, the fast path;
    without ``batch_size`` samples come out, and the DataLoader batches them.

    Args:
        uri: a folder, a glob or a brace range, local or in an object store; shuffled by corgi2 or not.
        buffer: memory for this rank's data, all its workers together: "2GB", or bytes.
        buffer_blocks: instead, how many blocks each reader's buffer holds.
        batch_size: examples a batch. Numbers come as tensors, all else as lists.
        seed: with the epoch, the ranks, the workers and the buffer it decides the order.
        transform: called with each sample, or each batch, in the worker.
        picks: "even" spreads each window over the groups of the offline pass; "random" is the paper's.
        tail: "drop" leaves out fewer than world_size examples an epoch, "repeat" fills up with as few, so that all
            ranks have equally many; "keep" gives every example once.
        drop_last: leave out the one short batch.
        shuffle: False gives the stored order.
        repeat: epochs without end.
        rank, world_size: found by themselves, from torch.distributed or the launcher's variables.
        batch_format: "numpy" (as tensors, here) or "arrow" for tables.
        storage_options: for the object store.
    """

    def __init__(self, uri: str | os.PathLike[str], **settings: Any) -> None:
        super().__init__()
        self._feed = _TensorFeed(uri, **settings)
        self._counters = _Counters()
        self._loaded: Place | None = None
        self._loads = 0
        self._cursor: Cursor | None = None

    def __getstate__(self) -> dict[str, Any]:
        self._feed.settle()
        return self.__dict__ | {"_cursor": None}

    def __len__(self) -> int:
        return self._feed.items()

    def __iter__(self) -> Iterator[Any]:
        """One epoch, of this worker. Every iteration of the loader is the next one, for all workers alike."""
        self._check_sharding()
        worker, workers = _worker()
        if self._counters.loads != self._loads:
            return map(_refuse, [None])  # when the first batch is asked for: an error here would only end the worker
        self._cursor = Cursor(self._coming(worker))
        self._counters.begin(worker, workers if get_worker_info() is not None else 0)
        return self._feed.read(self._cursor, worker, workers)

    def _coming(self, worker: int) -> Place:
        """Where this worker's next iteration begins."""
        epoch, loaded = self._counters.epoch(worker), self._loaded
        return loaded if loaded and loaded.epoch == epoch and self._counters.is_first(worker) else Place(epoch)

    def set_epoch(self, epoch: int) -> None:
        """The loader's next iteration gives this epoch, from its beginning, or from where a state was loaded in it."""
        self._counters.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where this reader is: exact without workers, and in each worker of a StatefulDataLoader."""
        worker, workers = _worker()
        if get_worker_info() is None and self._counters.workers:
            raise RuntimeError(
                f"{self._counters.workers} workers read, and this process does not know how far; take "
                "state_after(batches=..., num_workers=...), or use torchdata's StatefulDataLoader"
            )
        return self._feed.state(self._cursor.place if self._cursor is not None else self._coming(worker), workers)

    def state_after(self, batches: int, num_workers: int, batch_size: int | None = None) -> dict[str, Any]:
        """The state when a plain DataLoader has given so many batches since its iteration began.

        ``batch_size`` is the DataLoader's own, where it batches samples.
        """
        workers = max(1, num_workers)
        epoch, loaded = self._counters.latest, self._loaded
        start = loaded if loaded and loaded.epoch == epoch and self._counters.is_first(0, begun=1) else Place(epoch)
        turn = self._feed.batch_size or batch_size or 1
        return self._feed.state(self._feed.place_after(start, batches, turn, workers), workers)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on from there, on any number of ranks and workers."""
        self._loaded, self._cursor = self._feed.place_of(state), None
        worker = None if get_worker_info() is None else _worker()[0]
        self._counters.load(self._loaded.epoch, worker)
        self._loads = self._counters.loads

    def _check_sharding(self) -> None:
        """Refuse a wrapper that would throw away what this data set has left to other ranks."""
        if self._feed.world_size == 1:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            name = type(frame.f_locals.get("self")).__name__
            if name in _SHARDERS:
                raise RuntimeError(
                    f"{name} would shard this data set a second time, and each rank would see a part of its part; keep "
                    "the loader out of accelerator.prepare(), or give rank=0, world_size=1 to leave sharding to it"
                )
            frame = frame.f_back


class _Counters:
    """What all processes of a rank must know alike: the epoch that was set, how many iterations each worker has begun
    since, and since a state was loaded."""

    def __init__(self) -> None:
        self._memory = torch.zeros(3 + 2 * _SLOTS, dtype=torch.int64)
        self._memory.share_memory_()  # type: ignore[no-untyped-call]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._memory.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def _numbers(self) -> Any:
        return self._memory.numpy()

    @property
    def workers(self) -> int:
        """Processes that read beside this one, in the latest iteration."""
        return int(self._numbers[1])

    @property
    def loads(self) -> int:
        return int(self._numbers[2])

    @property
    def _since_set(self) -> Any:
        return self._numbers[3 : 3 + _SLOTS]

    @property
    def _since_load(self) -> Any:
        return self._numbers[3 + _SLOTS :]

    def epoch(self, worker: int) -> int:
        """Of a worker's next iteration."""
        return int(self._numbers[0] + self._since_set[worker])

    @property
    def latest(self) -> int:
        """The epoch of the latest iteration, or of the first."""
        return self.epoch(0) - int(self._since_set[0] > 0)

    def is_first(self, worker: int, begun: int = 0) -> bool:
        return bool(self._since_load[worker] <= begun)

    def begin(self, worker: int, workers: int) -> None:
        self._numbers[1] = workers
        for since in (self._since_set, self._since_load):
            since[worker] += 1
            if worker == 0:  # and for those that do not read this time
                since[max(1, workers) :] += 1

    def set_epoch(self, epoch: int) -> None:
        self._numbers[0] = epoch
        self._since_set[:] = 0

    def load(self, epoch: int, worker: int | None) -> None:
        """By one worker, for itself, or, without one, for all."""
        own = slice(None) if worker is None else slice(worker, worker + 1)
        self._numbers[0] = epoch
        self._since_set[own] = 0
        self._since_load[own] = 0
        if worker is None:
            self._numbers[1] = 0
            self._numbers[2] += 1


class _TensorFeed(Feed):
    """Batches with tensors."""

    def _batch(self, taken: Taken) -> Any:
        batch = super()._batch(taken)
        return {name: _tensor(value) for name, value in batch.items()} if isinstance(batch, dict) else batch


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" else value


def _refuse(_: None) -> None:
    raise RuntimeError("a state was loaded after the workers had started; make a new DataLoader")


def _worker() -> tuple[int, int]:
    """Which of how many workers this process is."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
