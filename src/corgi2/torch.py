"""For PyTorch: a data set for `DataLoader` that shuffles, shards and resumes by itself. The only module with torch.

Workers are processes that know nothing of each other, nor of the next epoch: they agree on it by
`corgi2.online.epochs`.
"""

import multiprocessing
import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from corgi2.arguments import suggesting
from corgi2.online import (
    BEGIN,
    LOAD,
    SET,
    SHARDERS,
    BatchFormat,
    Cursor,
    Event,
    Feed,
    Iteration,
    Log,
    Picks,
    Place,
    Tail,
    Taken,
    Transform,
    answering_pipe,
    sharder,
)
from corgi2.stores import Options


class CorgiDataset(IterableDataset):  # type: ignore[type-arg]
    """A data set in shards, in an order nearly as good as a full shuffle's, in batches or as samples.

    ``DataLoader(CorgiDataset(src, batch_size=256), batch_size=None, num_workers=4)`` gives batches, the fast path;
    without ``batch_size`` samples come out, and the DataLoader batches them.

    Args:
        src: A folder, a glob or a brace range, on this machine or in an object store; shuffled by corgi2 or not.
        buffer: Memory for this rank's data, for all of its readers together: ``"2GB"``, or bytes.
        buffer_blocks: Instead of ``buffer``: how many blocks each reader's buffer holds.
        batch_size: Examples per batch. Without it, single samples come out.
        seed: With the epoch, the ranks, the workers and the buffer it decides the order.
        transform: Called with each sample, or each batch, in the worker.
        picks: ``"even"`` spreads each window over the groups of the offline pass; ``"random"`` is the paper's.
        tail: ``"drop"`` leaves out fewer than ``world_size`` examples per epoch, ``"repeat"`` fills up with as few, so
            that all ranks have equally many; ``"keep"`` gives every example once.
        drop_last: Leave out the one short batch.
        shuffle: False gives the stored order.
        repeat: Epochs without end.
        rank: Found by itself, from ``torch.distributed`` or the launcher's variables; so is ``world_size``.
        world_size: How many ranks share an epoch.
        batch_format: ``"numpy"`` (as tensors, here) or ``"arrow"`` for tables.
        src_options: Options for the store (docs/stores.md).
    """

    @suggesting
    def __init__(
        self,
        src: str | os.PathLike[str],
        *,
        buffer: int | str = "auto",
        buffer_blocks: int | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        transform: Transform | None = None,
        picks: Picks = "even",
        tail: Tail = "drop",
        drop_last: bool = False,
        shuffle: bool = True,
        repeat: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        batch_format: BatchFormat = "numpy",
        src_options: Options | None = None,
    ) -> None:
        super().__init__()
        self._feed = _TensorFeed(
            src,
            buffer=buffer,
            buffer_blocks=buffer_blocks,
            batch_size=batch_size,
            seed=seed,
            transform=transform,
            picks=picks,
            tail=tail,
            drop_last=drop_last,
            shuffle=shuffle,
            repeat=repeat,
            rank=rank,
            world_size=world_size,
            batch_format=batch_format,
            src_options=src_options,
        )
        self._log = Log(_owner)
        self._loaded: Place | None = None
        self._own: Place | None = None
        self._loads = 0
        self._sets = 0
        self._begun = (0, 0)
        self._cursor: Cursor | None = None

    def __getstate__(self) -> dict[str, Any]:
        self._check_sharding()
        self._feed.settle()
        return self.__dict__ | {"_cursor": None}

    def __repr__(self) -> str:
        return f"<CorgiDataset: {self._feed!r}>".replace(": <", ": ").removesuffix(">")

    def __len__(self) -> int:
        """Batches, or samples, in an epoch of this rank."""
        return self._feed.items()

    def __iter__(self) -> Iterator[Any]:
        """One epoch, of this worker. Every iteration of the loader is the next one, for all workers alike."""
        self._check_sharding()
        if self._log.course(_owner()).loads != self._loads:
            return map(_refuse, [None])  # when the first batch is asked for: an error here would only end the worker
        own, self._own = self._own, None
        iteration = self._begin(-1 if own is None else own.epoch)
        self._cursor = Cursor(self._place(iteration) if own is None else own)
        return self._feed.read(self._cursor, *_worker())

    def _begin(self, epoch: int) -> Iteration:
        """Tell all others that this worker begins; the first one of an iteration decides its epoch for all."""
        event = self._event(BEGIN, epoch)
        self._begun = event.process, event.turn + 1
        return self._log.add(event).iteration_of(event)

    def _event(self, kind: int, epoch: int) -> Event:
        """Of this process's next iteration."""
        info, process = get_worker_info(), os.getpid()
        if info is None:
            return Event(kind, _owner(), epoch, token=uuid.uuid4().int >> 65, process=process)
        turn = self._begun[1] if self._begun[0] == process else 0
        known = -1 if turn else self._sets
        return Event(kind, _owner(), epoch, 0, _token(), turn, info.id, info.num_workers, process, known)

    def _place(self, iteration: Iteration) -> Place:
        """Where it begins."""
        return self._loaded if iteration.resumes and self._loaded is not None else Place(iteration.epoch)

    def set_epoch(self, epoch: int) -> None:
        """The loader's next iteration gives this epoch, from its beginning, or from where a state was loaded in it."""
        self._check_sharding()  # which a wrapper calls on every rank, before the others wait for rank 0
        course = self._log.add(self._event(SET, epoch))
        self._sets = course.sets if get_worker_info() is None else -1  # workers set it one after another

    def state_dict(self) -> dict[str, Any]:
        """Where this reader is: exact without workers, and in each worker of a StatefulDataLoader."""
        course = self._log.course(_owner())
        if get_worker_info() is None and course.workers:
            raise RuntimeError(
                f"{course.workers} workers read, and this process does not know how far; take "
                "state_after(batches=..., num_workers=...), or use torchdata's StatefulDataLoader"
            )
        place = self._cursor.place if self._cursor is not None else self._own or self._place(course.coming())
        return self._feed.state(place, _worker()[1])

    def state_after(self, batches: int, num_workers: int, batch_size: int | None = None) -> dict[str, Any]:
        """The state when a plain DataLoader has given so many batches since its iteration began.

        ``batch_size`` is the DataLoader's own, where it batches samples; this data set cannot know it.
        """
        workers = max(1, num_workers)
        start = self._place(self._log.course(_owner()).latest)
        turn = self._feed.batch_size or batch_size
        if not turn:
            raise ValueError(
                "the DataLoader batches the samples, and its batch size is not known here; give it: "
                "state_after(batches, num_workers, batch_size=...), 1 where it does not batch them"
            )
        return self._feed.state(self._feed.place_after(start, batches, turn, workers), workers)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration resumes there, on any number of ranks and workers."""
        place, self._cursor = self._feed.place_of(state), None
        if get_worker_info() is not None:
            self._own = place  # others have loaded theirs, which may be of other epochs
            return
        self._loaded = place
        self._loads = self._log.add(Event(LOAD, _owner(), place.epoch)).loads

    def _check_sharding(self) -> None:
        """Refuse a wrapper that would throw away what this data set has left to other ranks."""
        name = sharder() if self._feed.world_size > 1 else None
        if name is not None:
            raise RuntimeError(
                f"{name} {SHARDERS[name]}; keep the loader out of accelerator.prepare(), or give rank=0, world_size=1 "
                "to leave sharding to it"
            )


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


def _owner() -> int:
    """The process whose loader reads: the parent of a worker, or this one."""
    parent = multiprocessing.parent_process()
    return os.getpid() if get_worker_info() is None or parent is None or parent.pid is None else parent.pid


def _token() -> int:
    """What all workers of one loader's iterator share, and no other's: their seed, and the pipe in which they answer.

    The seed alone would do, if no program set torch's before every epoch.
    """
    info = get_worker_info()
    assert info is not None  # noqa: S101
    return hash((info.seed - info.id, answering_pipe()))
