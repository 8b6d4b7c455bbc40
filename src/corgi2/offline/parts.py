"""What a group is made of while it is made: records in memory and their order, digests on the way, bytes of a shard."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from corgi2.budget import buffer_to_write, way_out
from corgi2.errors import SourceError
from corgi2.order import Indices
from corgi2.records import Block, Buffer, Checksum, Digest, Group, Writing, gather
from corgi2.sizes import format_size

NONE = np.empty(0, np.int64)
_STEP = 1 << 18


def with_more(enough: int) -> str:
    return f"the same command continues with more: {way_out(enough)}"


@dataclass(frozen=True, slots=True)
class Part:
    """Records in memory, and the order in which they will be written."""

    group: Group
    order: Indices
    hashing: "Hashing"
    held: Indices = field(default_factory=lambda: NONE)
    """Records that are held out, in random order; none of them is in ``order``."""

    def cut(self, rows: Indices, blocks: int) -> Iterator[Iterable[pa.Table]]:
        """Some of the records as blocks of nearly equal counts, none empty."""
        for part in np.array_split(rows, min(blocks, len(rows))) if len(rows) else ():
            yield gather(self.group, part)

    def cut_together(self, several: list[Indices], seen: "Seen") -> Iterator[Iterable[pa.Table]]:
        """The records of several shards, each as one block: gathered and seen at once, if they fit a slice."""
        rows = np.concatenate(several)
        table = next(iter(gather(self.group, rows)))
        if len(table) < len(rows):
            yield from (seen(gather(self.group, each)) for each in several)
            return
        (table,) = seen([table])
        at = 0
        for each in several:
            yield [table.slice(at, len(each))]
            at += len(each)


Seen: TypeAlias = Callable[[Iterable[pa.Table]], Iterator[pa.Table]]
"""Passes tables on, and looks at each."""


def without(order: Indices, held: Indices) -> Indices:
    """An order without some of its records, in the same memory."""
    if not len(held):
        return order
    stays, end = np.ones(len(order), bool), 0
    stays[held] = False
    for start in range(0, len(order), _STEP):
        some = order[start : start + _STEP]
        some = some[stays[some]]
        order[end : end + len(some)] = some
        end += len(some)
    return order[:end]


def rows_of_blocks(group: Group, drawn: Indices) -> Indices:
    """The records of the drawn blocks; those of a block drawn twice, twice."""
    ends = np.cumsum(group.counts)
    return np.concatenate([np.arange(ends[block] - group.counts[block], ends[block]) for block in drawn.tolist()])


class Hashing:
    """Digests of what was read, made in parallel to other work. If that work fails, they are not looked at any more."""

    def __init__(self, pool: ThreadPoolExecutor, digest: Callable[[pa.Table], Digest]) -> None:
        self._pool, self._digest = pool, digest
        self._parts: list[Future[Digest]] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            wait([part for part in self._parts if not part.cancel()])

    def see(self, table: pa.Table) -> None:
        self._parts.append(self._pool.submit(self._digest, table))

    def total(self) -> Digest:
        return sum((part.result() for part in self._parts), Digest())


@dataclass(slots=True)
class Tally:
    """The digest of tables as they pass."""

    digest: Callable[[pa.Table], Digest]
    most: int | None
    """The most bytes of a table."""
    total: Digest = field(default_factory=Digest)

    def of(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            if self.most is not None and table.nbytes > self.most:
                size = format_size(table.nbytes)
                raise SourceError(
                    f"a row of up to {size} takes several times that to be written",
                    hint=with_more(buffer_to_write(table.nbytes)),
                    kind="memory",
                )
            self.total += self.digest(table)
            yield table


class Body:
    """The bytes of a shard; once they have passed, its blocks and its checksum."""

    def __init__(self, writing: Writing, stop: threading.Event, release: Callable[[], None]) -> None:
        self._writing, self._stop, self._release = writing, stop, release
        self.blocks: tuple[Block, ...] = ()
        self.checksum = Checksum()

    def __iter__(self) -> Iterator[Buffer]:
        self.blocks = yield from self._pieces()
        self._release()

    def _pieces(self) -> Any:
        while True:
            if self._stop.is_set():
                raise InterruptedError("the shuffle was stopped")
            try:
                piece = next(self._writing)
            except StopIteration as end:
                return end.value
            self.checksum.update(piece)
            yield piece
