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
from corgi2.records import Arena, Group, Piece, WatchedShard
from corgi2.sizes import plural
from corgi2.stores import sharing

Take = Callable[[Indices], Any]
"""Returns some records of a group: as a table, as columns, or as samples."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A buffer in memory."""

    part: Deal
    records: int
    row_bytes: int
    take: Take
    """Returns its records, in any order."""
    home: Callable[[int], str] = str
    """Names one of them, by the shard that it came from."""
    read_on: Callable[[], None] = lambda: None
    """To be called when the first of them are out: from then on the next buffer is read, if it is not already."""


class Readers:
    """The threads that fill the buffers of one iteration. `close` waits for them. Merely dropping this object only
    tells them to stop: the garbage collector drops objects in any thread, even in one of these, and under any lock. The
    memory that they still write to is theirs until they are done."""

    def __init__(self) -> None:
        self.stop = _Stop()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._known, self._leaving = list[threading.Thread](), _leaving  # at exit, modules lose their names

    def start(self, threads: int) -> tuple[ThreadPoolExecutor, ThreadPoolExecutor]:
        """Threads that each fill a buffer, and those that read for them."""
        return self.pool("ahead", 2), self.pool("read", threads)

    def pool(self, name: str, threads: int) -> ThreadPoolExecutor:
        """The threads of that name; begun when they are first asked for."""
        if not self._pools:
            _see_off()
        if name not in self._pools:
            self._pools[name] = ThreadPoolExecutor(threads, f"corgi2-{name}", partial(_note, self._known))
        return self._pools[name]

    def __del__(self) -> None:
        """Takes no lock. Pools that nothing refers to any more end their threads themselves."""
        self.stop.set()
        self._leaving.extend(self._known)

    def close(self) -> None:
        self.stop.set()
        if not sys.is_finalizing():  # at exit, all threads have ended
            for pool in self._pools.values():
                pool.shutdown(cancel_futures=True)
            self._known.clear()


_leaving: list[threading.Thread] = []
"""Threads that were told to stop, but not waited for yet."""

_FAREWELL_SECONDS = 10.0


def _note(known: list[threading.Thread]) -> None:
    known.append(threading.current_thread())


def _see_off() -> None:
    """Wait a while for threads that were told to stop, before others take as much memory as they hold."""
    deadline = time.monotonic() + _FAREWELL_SECONDS
    while _leaving:
        with suppress(IndexError):  # another thread waits for it
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
    """Buffers, one after another; while one is used, the next is read. Asking for the next means being done with the
    current one, so that its memory takes the one after the next, whose reads wait behind those of the next: no
    connection is idle between two buffers. The first comes alone, so that nothing delays it. ``taker`` tells how
    records come out, and ``decoding`` whether they are decoded."""
    arenas = Arena(room.capacity, room.is_lean), Arena(room.capacity, room.is_lean)
    source = catalog.source
    catalog = replace(catalog, source=replace(source, store=sharing(source.store, room.readers)))
    coming: dict[int, Future[Filled]] = {}
    (ahead, pool), stop = readers.start(room.fetchers), readers.stop

    def fill_one(part: Deal, arena: Arena) -> Filled:
        group = _read(catalog, part, arena, pool, room, stop, decoding, part is parts[0] or part is parts[-1])
        return _filled(catalog, part, group, taker(group))

    def start(number: int) -> None:
        if number < len(parts) and number not in coming:
            coming[number] = ahead.submit(fill_one, parts[number], arenas[number % 2])

    for number in range(len(parts)):
        start(number)
        if number:
            start(number + 1)
        filled = coming.pop(number).result()
        yield replace(filled, read_on=partial(start, number + 1))
        del filled


def _read(
    catalog: Catalog,
    part: Deal,
    arena: Arena,
    pool: ThreadPoolExecutor,
    room: Room,
    stop: threading.Event,
    decoding: bool,
    is_alone: bool,
) -> Group:
    arena.clear()
    pieces = _pieces(catalog, part, room.fetchers, is_alone)
    if (cache := catalog.cache) is not None:
        pieces = [replace(piece, file=cache.shard(piece.file, stop)) for piece in pieces]
    watched = [replace(piece, file=WatchedShard(piece.file, _ignore, stop)) for piece in pieces]
    try:
        group = catalog.source.format.read(watched, arena, pool.map, decoding=decoding, decoders=room.decoders)
    except MemoryError as error:
        raise SourceError(f"{catalog.source.url}: {error}; give a larger buffer, or run corgi2 index once") from error
    for piece, found in zip(pieces, group.counts, strict=True):
        if catalog.is_counted and found != piece.records:
            raise ShardError(
                piece.file.name, piece.start, f"{plural(found, 'record')} where {piece.records} were indexed"
            )
    return group


def _pieces(catalog: Catalog, part: Deal, at_once: int, is_alone: bool) -> list[Piece]:
    """The blocks of a buffer. Where no other buffer is on its way beside it, the last few share all connections."""
    blocks = part.block.tolist()
    rest = len(blocks) % at_once if is_alone or len(blocks) < at_once else 0
    first, last = blocks[: len(blocks) - rest], blocks[len(blocks) - rest :]
    pieces = catalog.index.pieces(catalog.source, first, at_once)
    return pieces + catalog.index.pieces(catalog.source, last, rest)


def _filled(catalog: Catalog, part: Deal, group: Group, take: Take) -> Filled:
    footprint = catalog.index.column("footprint")[part.block].sum()
    row_bytes = max(1, int(footprint) // max(1, group.records))
    home = partial(_home, catalog, part, group.counts)
    if not catalog.is_counted or (part.counts == group.counts).all():
        return Filled(part, group.records, row_bytes, take, home)
    starts = np.cumsum(group.counts) - group.counts
    chosen = np.concatenate(
        [
            begin + part.rest.rows_of(block, first, last)
            for begin, block, first, last in zip(starts, *map(list, (part.block, part.first, part.last)), strict=True)
        ]
    )
    return Filled(part, len(chosen), row_bytes, lambda records: take(chosen[records]), lambda n: home(chosen[n]))


def _home(catalog: Catalog, part: Deal, counts: Sequence[int], record: int) -> str:
    ends = np.cumsum(counts)
    number = int(np.searchsorted(ends, record, "right"))
    (piece,) = catalog.index.pieces(catalog.source, [int(part.block[number])])
    row = int(record - ends[number] + counts[number])
    return f"{piece.file.name}: record {row} of the block at byte {piece.start}"


class _Stop(threading.Event):
    """Also counts as set once the process is about to end, which waits for all threads of pools. Setting it takes no
    lock, and nothing waits for it."""

    _is_told = False

    def set(self) -> None:
        self._is_told = True

    def is_set(self) -> bool:
        return self._is_told or bool(getattr(pools, "_shutdown", False))


def _ignore(_: int) -> None:
    """Used if nothing watches how far a buffer is."""
