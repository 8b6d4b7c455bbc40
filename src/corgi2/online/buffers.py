"""Buffers of blocks, read ahead by threads, and their records in any order, in portions of any size.

Memory: two arenas, one of which is filled while the other is consumed; a slice of a few MB; and what decoding takes.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import thread as pools
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from corgi2.dataset import Catalog
from corgi2.errors import ShardError, SourceError
from corgi2.online.room import Room
from corgi2.order import Deal, Indices
from corgi2.records import Arena, Group, WatchedShard

Take = Callable[[Indices], Any]
"""Gives some records of a group: as a table, as columns, or as samples."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A buffer in memory."""

    part: Deal
    records: int
    row_bytes: int
    take: Take
    """Gives its records, in any order."""
    read_on: Callable[[], None] = lambda: None
    """To be called when the first of them are out: the next buffer is read from then on, if it is not already."""


class Readers:
    """The threads that fill the buffers of one iteration. `close` waits for them. Whoever is merely dropped tells them
    to stop, and no more: the garbage collector drops things in any thread, in one of these, too, and under any lock.
    What they still write to is theirs until they are done."""

    def __init__(self) -> None:
        self.stop = _Stop()
        self._pools: tuple[ThreadPoolExecutor, ...] = ()
        self._known, self._leaving = list[threading.Thread](), _leaving  # modules lose their names in the end

    def start(self, threads: int) -> tuple[ThreadPoolExecutor, ThreadPoolExecutor]:
        """One that fills buffer after buffer, and those that read for it."""
        if not self._pools:
            _see_off()
            note = partial(_note, self._known)
            self._pools = tuple(
                ThreadPoolExecutor(count, f"corgi2-{name}", note) for count, name in ((1, "ahead"), (threads, "read"))
            )
        ahead, pool = self._pools
        return ahead, pool

    def __del__(self) -> None:
        """Takes no lock. Pools that nobody holds any more end their threads themselves."""
        self.stop.set()
        self._leaving.extend(self._known)

    def close(self) -> None:
        self.stop.set()
        if not sys.is_finalizing():  # which has ended all threads
            for pool in self._pools:
                pool.shutdown(cancel_futures=True)
            self._known.clear()


_leaving: list[threading.Thread] = []
"""Those that were told to stop, and that nobody has waited for."""

_FAREWELL_SECONDS = 10.0


def _note(known: list[threading.Thread]) -> None:
    known.append(threading.current_thread())


def _see_off() -> None:
    """Wait a while for those that were told to stop, before others take as much memory as they hold."""
    deadline = time.monotonic() + _FAREWELL_SECONDS
    while _leaving:
        with suppress(IndexError):  # somebody else sees it off
            thread = _leaving.pop()
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def fill(
    catalog: Catalog,
    parts: Sequence[Deal],
    room: Room,
    taker: Callable[[Group], Take],
    decoding: bool,
    readers: Readers,
) -> Iterator[Filled]:
    """Buffers, one after another; while one is used, the next is read. Whoever asks for the next has done with it. The
    first comes alone, so that nothing delays what is waited for. ``taker`` tells how records are given out, and
    ``decoding`` whether that is decoded."""
    arenas = Arena(room.capacity), Arena(room.capacity)
    coming: dict[int, Future[Filled]] = {}
    (ahead, pool), stop = readers.start(room.threads), readers.stop

    def fill_one(part: Deal, arena: Arena) -> Filled:
        group = _read(catalog, part, arena, pool, stop, decoding)
        return _filled(catalog, part, group, taker(group))

    def start(number: int) -> None:
        if number < len(parts) and number not in coming:
            coming[number] = ahead.submit(fill_one, parts[number], arenas[number % 2])

    for number in range(len(parts)):
        start(number)
        filled = coming[number].result()
        del coming[number]
        if number:
            start(number + 1)
        yield replace(filled, read_on=partial(start, number + 1))
        del filled


def _read(
    catalog: Catalog, part: Deal, arena: Arena, pool: ThreadPoolExecutor, stop: threading.Event, decoding: bool
) -> Group:
    arena.clear()
    pieces = catalog.index.pieces(catalog.source, part.block.tolist())
    watched = [replace(piece, file=WatchedShard(piece.file, _ignore, stop)) for piece in pieces]
    try:
        group = catalog.source.format.read(watched, arena, pool.map, decoding=decoding)
    except MemoryError as error:
        raise SourceError(f"{catalog.source.url}: {error}; give a larger buffer, or run corgi2 index once") from error
    for piece, found in zip(pieces, group.counts, strict=True):
        if catalog.is_counted and found != piece.records:
            raise ShardError(piece.file.name, piece.start, f"{found} records where {piece.records} were indexed")
    return group


def _filled(catalog: Catalog, part: Deal, group: Group, take: Take) -> Filled:
    footprint = catalog.index.column("footprint")[part.block].sum()
    row_bytes = max(1, int(footprint) // max(1, group.records))
    if not catalog.is_counted or (part.counts == group.counts).all():
        return Filled(part, group.records, row_bytes, take)
    starts = np.cumsum(group.counts) - group.counts
    chosen = np.concatenate(
        [
            begin + part.rest.rows_of(block, first, last)
            for begin, block, first, last in zip(starts, *map(list, (part.block, part.first, part.last)), strict=True)
        ]
    )
    return Filled(part, len(chosen), row_bytes, lambda records: take(chosen[records]))


class _Stop(threading.Event):
    """Is set, too, once the process is about to end: it waits for all threads of pools. Setting it takes no lock, and
    nobody waits for it."""

    _is_told = False

    def set(self) -> None:
        self._is_told = True

    def is_set(self) -> bool:
        return self._is_told or bool(getattr(pools, "_shutdown", False))


def _ignore(_: int) -> None:
    """Nobody watches how far a buffer is."""
