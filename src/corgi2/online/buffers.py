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
from typing import Any, NamedTuple

import numpy as np

from corgi2.dataset.blocks import Catalog
from corgi2.errors import ShardError, SourceError
from corgi2.order.deal import Deal
from corgi2.order.draws import Indices
from corgi2.records.block import SLACK_BYTES, SLICE_BYTES, Arena, Group
from corgi2.records.shard import WatchedShard
from corgi2.sizes import format_size

_THREADS = 8
_DOUBT = 1.5
"""Where footprints are estimates, a buffer may take so many times as much before that is an error."""
_PADDED, _PADDED_ROWS = 64 / 63, 8
"""Rows that are decoded lie between some that are none: one in 64, and a few a block."""
_DECODING_SHARE = 8
"""Of a half, for blocks on their way where they are decoded."""


Take = Callable[[Indices], Any]
"""Gives some records of a group: as a table, as columns, or as samples."""


class Room(NamedTuple):
    """How many blocks a buffer holds, the bytes that they may take, and the threads that fill it."""

    blocks: int
    capacity: int
    threads: int


def room_for(catalog: Catalog, buffer_bytes: int, workers: int, buffer_blocks: int | None) -> Room:
    """What each of the readers of a rank can hold: two buffers of its share, of the largest blocks. An error names the
    buffer that would do."""
    footprints = np.sort(catalog.index.column("footprint"))[::-1]
    sums = np.cumsum(footprints)
    unit = int(footprints[0] + catalog.index.column("length").max()) if catalog.source.format.writes_blocks else 0
    if buffer_blocks is not None:
        blocks = min(buffer_blocks, len(sums))
        return _room(catalog, blocks, _THREADS)
    half = buffer_bytes // workers // 2
    threads = min(_THREADS, max(1, half // (_DECODING_SHARE * unit))) if unit else _THREADS
    blocks = int(np.searchsorted(sums, half - threads * unit, "right"))
    if not blocks:
        needed = 2 * workers * (int(footprints[0]) + unit)
        raise SourceError(
            f"{catalog.source.url}: a block takes up to {format_size(int(footprints[0]))} in memory, and each of "
            f"{workers} readers holds two; buffer={format_size(buffer_bytes)!r} is too small: "
            f"buffer='{-(-needed // 1_000_000)}MB' would do, or smaller blocks (corgi2 shuffle)"
        )
    return _room(catalog, blocks, threads)


def _room(catalog: Catalog, blocks: int, threads: int) -> Room:
    """For any so many blocks. What nobody writes to takes no memory."""
    index = catalog.index
    sizes = index.column("footprint").astype(np.float64)
    if catalog.source.format.writes_blocks:
        sizes *= _PADDED * (1 + _PADDED_ROWS / np.maximum(1, index.column("records")))
    exact = bool(index.column("exact").all())
    size = np.sort(sizes)[-blocks:].sum() * (1 if exact else _DOUBT)
    return Room(blocks, int(size) + SLACK_BYTES, threads)


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


class Taken(NamedTuple):
    """Some records: ``size`` from ``start`` on of what several share, because taking many at once is cheaper. And the
    buffer that the last of them came from, with how many of it are done then."""

    shared: Any
    start: int
    size: int
    filled: Filled
    done: int


def portions(
    buffers: Iterator[tuple[Filled, Indices, int]], size: int | None, join: Callable[[list[Any]], Any]
) -> Iterator[Taken]:
    """The records of buffers in the orders given with them, each from a place on: in portions of ``size``, of which the
    last may be short; or, without a size, of a few MB. ``join`` makes one of several that come from several buffers."""
    carried: list[Any] = []
    missing = 0
    last: tuple[Filled, int] | None = None
    for filled, order, begin in buffers:
        at, count = begin, len(order)
        each = size or _rows_of_a_slice(filled)
        if missing and at < count:
            step = min(missing, count - at)
            carried.append(filled.take(order[at : at + step]))
            at, missing = at + step, missing - step
            if not missing:
                yield Taken(join(carried), 0, each, filled, at)
                carried = []
        slab = each * max(1, _rows_of_a_slice(filled) // each)
        whole = at + ((count - at) // each * each if size else count - at)
        while at < whole:
            is_first = last is None and at == begin  # which somebody waits for
            some = order[at : min(whole, at + (each if is_first else slab))]
            shared = filled.take(some)
            for start in range(0, len(some), each):
                stop = min(len(some), start + each)
                yield Taken(shared, start, stop - start, filled, at + stop)
                filled.read_on()
            at += len(some)
        if at < count:
            carried.append(filled.take(order[at:]))
            missing = each - (count - at)
        last = (filled, count)
    if carried and last is not None:
        yield Taken(join(carried), 0, each - missing, *last)


def _rows_of_a_slice(filled: Filled) -> int:
    return max(1, SLICE_BYTES // filled.row_bytes)
