"""Which epoch it is, where many processes read one data set and know nothing of each other.

Each of them appends what it does to a log in memory, which has no name and goes with the last process; from the log
every process works out the same.
"""

import fcntl
import os
import struct
import uuid
import weakref
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

from corgi2.online.unnamed import unnamed_file

SET, LOAD, BEGIN = range(3)
_RECORD = struct.Struct("16q")
"""Divides a page, so that no record is in two, and each is written whole or not at all."""
_RECENT = 64
"""Iterations that a late worker may still belong to."""
_ANYBODY = 0
"""No process has this number."""


class Event(NamedTuple):
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
    """With the token, which iteration it is: see `corgi2.torch`. A worker that lives on begins one after another."""
    worker: int = 0
    workers: int = 0
    process: int = 0
    known: int = -1
    """How often the epoch was set when the iteration was asked for: what is set later is for a later one. -1: all."""


class Iteration(NamedTuple):
    """One iteration of a loader, and which processes have begun it as which of its workers."""

    key: tuple[int, int]
    epoch: int
    resumes: bool
    """From the state that was loaded for all."""
    claims: tuple[tuple[int, int], ...] = ()

    def is_of(self, event: Event) -> bool:
        """Another process in the same place is of a later loader, whose seed is the same."""
        return self.key == (event.token, event.turn) and dict(self.claims).get(event.worker) in (None, event.process)

    def with_claim(self, event: Event) -> "Iteration":
        return self._replace(claims=(*self.claims, (event.worker, event.process)))


class Course(NamedTuple):
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
    recent: tuple[Iteration, ...] = ()

    def coming(self, known: int = -1) -> Iteration:
        """The next iteration, asked for when so many epochs had been set."""
        epochs = [epoch for number, epoch in self.pending if known < 0 or number <= known]
        epoch = epochs[-1] if epochs else self.epoch
        return Iteration((0, 0), epoch, self.loaded == epoch)

    @property
    def latest(self) -> Iteration:
        """The iteration that was begun last, or the next where that is another matter."""
        return self.coming() if self.changed else self.recent[-1]

    def after(self, event: Event) -> "Course":
        if event.kind == SET:
            if self._find(event) is not None:
                return self  # by a worker that comes later than others: it is the same iteration's
            sets = self.sets + 1
            return self._replace(sets=sets, pending=(*self.pending, (sets, event.epoch)), changed=True)
        if event.kind == LOAD:
            return Course(event.epoch, (), self.sets, self.loads + 1, event.epoch, recent=self.recent)
        if (place := self._find(event)) is None:
            return self._begun(event)
        return self._joined(event, place)

    def iteration_of(self, event: Event) -> Iteration:
        """That of an event which is in this course."""
        return next(iteration for iteration in reversed(self.recent) if iteration.is_of(event))

    def _find(self, event: Event) -> int | None:
        places = range(len(self.recent) - 1, -1, -1)
        return next((place for place in places if self.recent[place].is_of(event)), None)

    def _begun(self, event: Event) -> "Course":
        """The first worker that comes takes the next epoch, unless it has loaded a state of its own."""
        new = self.coming(event.known)
        if event.epoch >= 0:
            new = Iteration((0, 0), event.epoch, False)
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

    def _joined(self, event: Event, place: int) -> "Course":
        """Others adopt the epoch. One with a state of its own may be further, and so will be what comes after."""
        joined = self.recent[place].with_claim(event)
        is_latest = place == len(self.recent) - 1 and not self.changed
        return self._replace(
            epoch=max(self.epoch, event.epoch + 1) if is_latest else self.epoch,
            recent=(*self.recent[:place], joined, *self.recent[place + 1 :]),
        )


class Log:
    """What the processes of a rank must know alike, as a log in memory to which each of them appends.

    The kernel puts appended records into one order, the same for all readers, and from that every process works out
    the same. So there is no lock that a worker could be killed with, nor a name that could be left behind.
    """

    def __init__(self, owner: Callable[[], int], epoch: int = 0) -> None:
        """``owner`` tells whose loader this process reads for; the first iteration gives ``epoch``."""
        self._owner = owner
        self._open(_appended_file(), os.getpid(), Course(epoch))

    def _open(self, file: int, root: int, first: Course) -> None:
        self._file, self._root, self._first = file, root, first
        self._read: tuple[int, dict[int, Course]] = (0, {_ANYBODY: first})
        weakref.finalize(self, os.close, file).atexit = False

    def __getstate__(self) -> dict[str, Any]:
        """The log itself for a process that is being started; a copy elsewhere goes on for itself."""
        if get_spawning_popen() is None:
            return {"owner": self._owner, "first": self.course(self._owner())}
        return {"owner": self._owner, "first": self._first, "root": self._root, "file": DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._owner = state["owner"]
        if "file" in state:
            self._open(state["file"].detach(), state["root"], state["first"])
        else:
            self._open(_appended_file(), os.getpid(), state["first"])

    def course(self, owner: int) -> Course:
        return self._follow(self._read, owner, None)

    def add(self, event: Event) -> Course:
        """The course right after this event."""
        read = self._read  # before it is written: another thread may go on
        event = event._replace(mark=uuid.uuid4().int >> 65)
        os.write(self._file, _RECORD.pack(*event, *[0] * (16 - len(event))))
        return self._follow(read, event.owner, event.mark)

    def _follow(self, read: tuple[int, dict[int, Course]], owner: int, mark: int | None) -> Course:
        """The course after the event with that mark, or after all."""
        at, courses = read[0], dict(read[1])
        while data := os.pread(self._file, 1 << 20, at):
            for numbers in _RECORD.iter_unpack(data):
                event = Event(*numbers[: len(Event._fields)])
                self._apply(event, courses)
                at += _RECORD.size
                if event.mark == mark:
                    self._read = at, courses
                    return courses[owner]
        self._read = at, courses
        return courses.get(owner, courses[_ANYBODY])

    def _apply(self, event: Event, courses: dict[int, Course]) -> None:
        """A process that was handed the data set, as a rank is, begins with what was set and loaded before it read."""
        courses[event.owner] = courses.get(event.owner, courses[_ANYBODY]).after(event)
        if event.owner == self._root and event.kind != BEGIN:
            courses[_ANYBODY] = courses[_ANYBODY].after(event)


def _appended_file() -> int:
    """Of which every write goes to the end."""
    file = unnamed_file()
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file
