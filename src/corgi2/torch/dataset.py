"""A data set for any `DataLoader`, which shuffles, shards and resumes by itself.

Workers are processes that know nothing about each other, nor about the next epoch: they agree on it through
`corgi2.online.epochs`.
"""

import multiprocessing
import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from corgi2.extras import needing
from corgi2.online import (
    BEGIN,
    LOAD,
    SET,
    SHARDERS,
    Cursor,
    Event,
    Feed,
    Iteration,
    Log,
    Place,
    Taken,
    answering_pipe,
    is_batched_again,
    sharder,
)
from corgi2.torch.tensors import as_tensors, which_worker

with needing("torch", "corgi2.torch"):
    from torch.utils.data import IterableDataset, get_worker_info


class CorgiDataset(Feed, IterableDataset):  # type: ignore[type-arg]
    """A data set in shards, in an order nearly as good as a full shuffle, in batches or as samples.

    ``DataLoader(CorgiDataset(src, batch_size=256), batch_size=None, num_workers=4)`` yields batches, the fast path;
    without ``batch_size``, single samples come out, and the DataLoader batches them.
    """

    def _prepare(self, epoch: int) -> None:
        self._log = Log(_owner, epoch)
        self._loaded: Place | None = None
        self._own: Place | None = None
        self._loads = 0
        self._sets = 0
        self._begun = (0, 0)
        self._cursor: Cursor | None = None

    def __getstate__(self) -> dict[str, Any]:
        self._check_sharding()
        self.settle()
        return self.__dict__ | {"_cursor": None}

    def __repr__(self) -> str:
        return f"<CorgiDataset: {super().__repr__()[1:-1]}>"

    def __len__(self) -> int:
        """Batches, or samples, in an epoch of this rank."""
        return self.items()

    def __iter__(self) -> Iterator[Any]:
        """This worker's part of one epoch. Every iteration of the loader is the next epoch, for all workers alike."""
        self._check_sharding()
        if self.batch_size is not None and is_batched_again(self):
            return map(_refuse_batches, [self.batch_size])
        if self._log.course(_owner()).loads != self._loads:
            return map(_refuse, [None])  # when the first batch is asked for: an error here would only end the worker
        own, self._own = self._own, None
        iteration = self._begin(-1 if own is None else own.epoch)
        self._cursor = Cursor(self._place(iteration) if own is None else own)
        return self.read(self._cursor, *which_worker())

    def _begin(self, epoch: int) -> Iteration:
        """Tell all others that this worker begins; the first one of an iteration decides its epoch for all."""
        event = self._event(BEGIN, epoch)
        self._begun = event.process, event.turn + 1
        return self._log.add(event).iteration_of(event)

    def _event(self, kind: int, epoch: int) -> Event:
        """An event of this process's next iteration."""
        info, process = get_worker_info(), os.getpid()
        if info is None:
            return Event(kind, _owner(), epoch, token=uuid.uuid4().int >> 65, process=process)
        turn = self._begun[1] if self._begun[0] == process else 0
        known = -1 if turn else self._sets
        return Event(kind, _owner(), epoch, 0, _token(), turn, info.id, info.num_workers, process, known)

    def _place(self, iteration: Iteration) -> Place:
        """Where the iteration begins."""
        return self._loaded if iteration.resumes and self._loaded is not None else Place(iteration.epoch)

    def set_epoch(self, epoch: int) -> None:
        """The loader's next iteration yields this epoch, from its beginning, or from a loaded state that lies in it."""
        self._check_sharding()  # a wrapper calls set_epoch on every rank, before the others wait for rank 0
        course = self._log.add(self._event(SET, epoch))
        self._sets = course.sets if get_worker_info() is None else -1  # workers set it one after another

    def state_dict(self) -> dict[str, Any]:
        """Where this reader is: exact without workers, and in each worker of a StatefulDataLoader."""
        course = self._log.course(_owner())
        if get_worker_info() is None and course.workers:
            raise RuntimeError(
                f"{course.workers} workers read, and this process does not know how far they are; take "
                "state_after(batches=..., num_workers=...), or use torchdata's StatefulDataLoader"
            )
        place = self._cursor.place if self._cursor is not None else self._own or self._place(course.coming())
        state = self.state(place, which_worker()[1])
        return state if get_worker_info() is None else state | {"workers": which_worker()[1]}

    def state_after(self, batches: int, num_workers: int, batch_size: int | None = None) -> dict[str, Any]:
        """The state after a plain DataLoader has yielded this many batches since its iteration began.

        ``batch_size`` is the DataLoader's own, if it batches samples; this data set cannot know it.
        """
        workers = max(1, num_workers)
        start = self._place(self._log.course(_owner()).latest)
        turn = self.batch_size or batch_size
        if not turn:
            raise ValueError(
                "the DataLoader batches the samples, and its batch size is not known here; give it: "
                "state_after(batches, num_workers, batch_size=...), or 1 if it does not batch them"
            )
        return self.state(self.place_after(start, batches, turn, workers), workers)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration resumes there, on any number of ranks and workers."""
        place, self._cursor = self.place_of(state), None
        if get_worker_info() is not None:
            _check_workers(state.get("workers"), which_worker()[1])
            self._own = place  # other workers have loaded theirs, perhaps of other epochs
            return
        self._loaded = place
        self._loads = self._log.add(Event(LOAD, _owner(), place.epoch)).loads

    def _batch(self, taken: Taken) -> Any:
        return as_tensors(super()._batch(taken))

    def _check_sharding(self) -> None:
        """Refuse a wrapper that would discard what this data set has left to other ranks."""
        name = sharder() if self.world_size > 1 else None
        if name is not None:
            raise RuntimeError(
                f"{name} {SHARDERS[name]}; give a CorgiLoader to accelerator.prepare(), or use corgi2.hf.CorgiTrainer; "
                "or, slower, give rank=0, world_size=1 to this data set to leave sharding to it"
            )


def _check_workers(then: int | None, now: int) -> None:
    """A StatefulDataLoader hands each worker its own state, and would only assert that there are as many."""
    if then not in (None, now):
        raise ValueError(
            f"the state of this StatefulDataLoader is of num_workers={then}, and there are {now}; give as many, or use "
            "CorgiLoader, whose states go on with any number of workers"
        )


def _refuse(_: None) -> None:
    raise RuntimeError("a state was loaded after the workers had started; make a new DataLoader")


def _refuse_batches(size: int) -> None:
    raise ValueError(
        f"CorgiDataset(batch_size={size}) yields batches, and the DataLoader would batch them again; write "
        "DataLoader(ds, batch_size=None), or leave out batch_size in CorgiDataset, which is slower"
    )


def _owner() -> int:
    """The process whose loader reads: the parent of a worker, or this one."""
    parent = multiprocessing.parent_process()
    return os.getpid() if get_worker_info() is None or parent is None or parent.pid is None else parent.pid


def _token() -> int:
    """What all workers of one loader's iterator share, and no other's: their seed, and the pipe in which they answer.

    The seed alone would do if no program set torch's seed before every epoch.
    """
    info = get_worker_info()
    assert info is not None  # noqa: S101
    return hash((info.seed - info.id, answering_pipe()))
