"""For PyTorch: a data set for `DataLoader` that shuffles, shards and resumes by itself. The only module with torch.

Workers are processes that know nothing of each other, nor of the next epoch. What they must know they read from a log
in memory, which has no name and goes with the last process.
"""

import fcntl
import multiprocessing
import os
import struct
import sys
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Mapping
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from corgi2.buffers import Taken
from corgi2.loader import Cursor, Feed, Place

_RECENT = 64
"""Iterations that a late worker may still belong to."""
_ANYBODY = 0
"""No process has this number."""
_SHARDERS = {
    "IterableDatasetShard": "would shard this data set a second time, and each rank would see a part of its part",
    "DataLoaderDispatcher": "would share out rank 0's part of this data set, and the other ranks' would be lost",
}
"""Wrappers, of Accelerate, that give each rank a part of what every rank reads, or rank 0."""


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
        self._log = _Log()
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

    def __len__(self) -> int:
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

    def _begin(self, epoch: int) -> "_Iteration":
        """Tell all others that this worker begins; the first one of an iteration decides its epoch for all."""
        event = self._event(_BEGIN, epoch)
        self._begun = event.process, event.turn + 1
        return self._log.add(event).iteration_of(event)

    def _event(self, kind: int, epoch: int) -> "_Event":
        """Of this process's next iteration."""
        info, process = get_worker_info(), os.getpid()
        if info is None:
            return _Event(kind, _owner(), epoch, token=uuid.uuid4().int >> 65, process=process)
        turn = self._begun[1] if self._begun[0] == process else 0
        known = -1 if turn else self._sets
        return _Event(kind, _owner(), epoch, 0, _token(), turn, info.id, info.num_workers, process, known)

    def _place(self, iteration: "_Iteration") -> Place:
        """Where it begins."""
        return self._loaded if iteration.resumes and self._loaded is not None else Place(iteration.epoch)

    def set_epoch(self, epoch: int) -> None:
        """The loader's next iteration gives this epoch, from its beginning, or from where a state was loaded in it."""
        self._check_sharding()  # which a wrapper calls on every rank, before the others wait for rank 0
        course = self._log.add(self._event(_SET, epoch))
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
        """The next iteration goes on from there, on any number of ranks and workers."""
        place, self._cursor = self._feed.place_of(state), None
        if get_worker_info() is not None:
            self._own = place  # others have loaded theirs, which may be of other epochs
            return
        self._loaded = place
        self._loads = self._log.add(_Event(_LOAD, _owner(), place.epoch)).loads

    def _check_sharding(self) -> None:
        """Refuse a wrapper that would throw away what this data set has left to other ranks.

        It is on the stack where it asks for an iteration: here, in a forked worker, too, and where one is spawned.
        """
        if self._feed.world_size == 1:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            name = type(frame.f_locals.get("self")).__name__
            if name in _SHARDERS:
                raise RuntimeError(
                    f"{name} {_SHARDERS[name]}; keep the loader out of accelerator.prepare(), or give rank=0, "
                    "world_size=1 to leave sharding to it"
                )
            frame = frame.f_back


class _Event(NamedTuple):
    """What a process tells all others that share its data set."""

    kind: int
    owner: int
    """The process whose loaders these are: the one that starts workers, or reads itself."""
    epoch: int = -1
    """That is set or loaded; of an iteration, a worker's own, by a state that it alone has loaded."""
    mark: int = 0
    """No other event has it."""
    token: int = 0
    turn: int = 0
    """With the token, which iteration it is: see `_token`. A worker that lives on begins one after another."""
    worker: int = 0
    workers: int = 0
    process: int = 0
    known: int = -1
    """How often the epoch was set when the iteration was asked for: what is set later is for a later one. -1: all."""


_SET, _LOAD, _BEGIN = range(3)
_RECORD = struct.Struct("16q")
"""Divides a page, so that no record is in two, and each is written whole or not at all."""


class _Iteration(NamedTuple):
    """One iteration of a loader, and which processes have begun it as which of its workers."""

    key: tuple[int, int]
    epoch: int
    resumes: bool
    """From the state that was loaded for all."""
    claims: tuple[tuple[int, int], ...] = ()

    def is_of(self, event: _Event) -> bool:
        """Another process in the same place is of a later loader, whose seed is the same."""
        return self.key == (event.token, event.turn) and dict(self.claims).get(event.worker) in (None, event.process)

    def with_claim(self, event: _Event) -> "_Iteration":
        return self._replace(claims=(*self.claims, (event.worker, event.process)))


class _Course(NamedTuple):
    """Where the loaders of one process are: what follows from the events so far, alike for all who read them."""

    epoch: int = 0
    """Of the next iteration, where none is set."""
    pending: tuple[tuple[int, int], ...] = ()
    """Epochs that were set since, each with its number."""
    sets: int = 0
    loads: int = 0
    loaded: int = -1
    """The epoch of a state that waits for an iteration."""
    changed: bool = True
    """Since the latest iteration began, an epoch was set, or a state loaded."""
    workers: int = 0
    """Processes that read, in the latest iteration."""
    recent: tuple[_Iteration, ...] = ()

    def coming(self, known: int = -1) -> _Iteration:
        """The next iteration, asked for when so many epochs had been set."""
        epochs = [epoch for number, epoch in self.pending if known < 0 or number <= known]
        epoch = epochs[-1] if epochs else self.epoch
        return _Iteration((0, 0), epoch, self.loaded == epoch)

    @property
    def latest(self) -> _Iteration:
        """The iteration that was begun last, or the next where that is another matter."""
        return self.coming() if self.changed else self.recent[-1]

    def after(self, event: _Event) -> "_Course":
        if event.kind == _SET:
            if self._find(event) is not None:
                return self  # by a worker that comes later than others: it is the same iteration's
            sets = self.sets + 1
            return self._replace(sets=sets, pending=(*self.pending, (sets, event.epoch)), changed=True)
        if event.kind == _LOAD:
            return _Course(event.epoch, (), self.sets, self.loads + 1, event.epoch, recent=self.recent)
        if (place := self._find(event)) is None:
            return self._begun(event)
        return self._joined(event, place)

    def iteration_of(self, event: _Event) -> _Iteration:
        """That of an event which is in this course."""
        return next(iteration for iteration in reversed(self.recent) if iteration.is_of(event))

    def _find(self, event: _Event) -> int | None:
        places = range(len(self.recent) - 1, -1, -1)
        return next((place for place in places if self.recent[place].is_of(event)), None)

    def _begun(self, event: _Event) -> "_Course":
        """The first worker that comes takes the next epoch, unless it has loaded a state of its own."""
        new = self.coming(event.known)
        if event.epoch >= 0:
            new = _Iteration((0, 0), event.epoch, False)
        new = new._replace(key=(event.token, event.turn)).with_claim(event)
        pending = tuple((number, epoch) for number, epoch in self.pending if 0 <= event.known < number)
        return self._replace(
            epoch=new.epoch + 1,
            pending=pending,
            loaded=-1,
            changed=bool(pending),
            workers=event.workers,
            recent=(*self.recent, new)[-_RECENT:],
        )

    def _joined(self, event: _Event, place: int) -> "_Course":
        """Others adopt the epoch. One with a state of its own may be further, and so will be what comes after."""
        joined = self.recent[place].with_claim(event)
        is_latest = place == len(self.recent) - 1 and not self.changed
        return self._replace(
            epoch=max(self.epoch, event.epoch + 1) if is_latest else self.epoch,
            recent=(*self.recent[:place], joined, *self.recent[place + 1 :]),
        )


class _Log:
    """What the processes of a rank must know alike, as a log in memory to which each of them appends.

    The kernel puts appended records into one order, the same for all readers, and from that every process works out
    the same. So there is no lock that a worker could be killed with, nor a name that could be left behind.
    """

    def __init__(self) -> None:
        self._open(_unnamed_file(), os.getpid(), _Course())

    def _open(self, file: int, root: int, first: _Course) -> None:
        self._file, self._root, self._first = file, root, first
        self._read: tuple[int, dict[int, _Course]] = (0, {_ANYBODY: first})
        weakref.finalize(self, os.close, file).atexit = False

    def __getstate__(self) -> dict[str, Any]:
        """The log itself for a process that is being started; a copy elsewhere goes on for itself."""
        if get_spawning_popen() is None:
            return {"first": self.course(_owner())}
        return {"first": self._first, "root": self._root, "file": DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "file" in state:
            self._open(state["file"].detach(), state["root"], state["first"])
        else:
            self._open(_unnamed_file(), os.getpid(), state["first"])

    def course(self, owner: int) -> _Course:
        return self._follow(self._read, owner, None)

    def add(self, event: _Event) -> _Course:
        """The course right after this event."""
        read = self._read  # before it is written: another thread may go on
        event = event._replace(mark=uuid.uuid4().int >> 65)
        os.write(self._file, _RECORD.pack(*event, *[0] * (16 - len(event))))
        return self._follow(read, event.owner, event.mark)

    def _follow(self, read: tuple[int, dict[int, _Course]], owner: int, mark: int | None) -> _Course:
        """The course after the event with that mark, or after all."""
        at, courses = read[0], dict(read[1])
        while data := os.pread(self._file, 1 << 20, at):
            for numbers in _RECORD.iter_unpack(data):
                event = _Event(*numbers[: len(_Event._fields)])
                self._apply(event, courses)
                at += _RECORD.size
                if event.mark == mark:
                    self._read = at, courses
                    return courses[owner]
        self._read = at, courses
        return courses.get(owner, courses[_ANYBODY])

    def _apply(self, event: _Event, courses: dict[int, _Course]) -> None:
        """A process that was handed the data set, as a rank is, begins with what was set and loaded before it read."""
        courses[event.owner] = courses.get(event.owner, courses[_ANYBODY]).after(event)
        if event.owner == self._root and event.kind != _BEGIN:
            courses[_ANYBODY] = courses[_ANYBODY].after(event)


def _unnamed_file() -> int:
    """Of which every write goes to the end."""
    if sys.platform == "linux":
        file = os.memfd_create("corgi2")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file


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
    return hash((info.seed - info.id, _pipe()))


def _pipe() -> int:
    """The number of the pipe in which this worker answers; 0 where another thread reads, or torch has changed."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_worker_loop":
        frame = frame.f_back
    reader = getattr(frame.f_locals.get("data_queue") if frame is not None else None, "_reader", None)
    return 0 if reader is None else os.fstat(reader.fileno()).st_ino
