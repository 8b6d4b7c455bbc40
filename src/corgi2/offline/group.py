"""One group: read its blocks side by side, shuffle, write the shards, slice by slice.

Memory: the group, which fits the buffer; a slice for every shard that is being written, where the format can write
slices, else a block; and what a store holds of an upload.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgi2.budget import (
    TOLERANCE,
    arena_bytes,
    buffer_for,
    buffer_to_hold,
    buffer_to_write,
    option,
    way_out,
    written_bytes,
)
from corgi2.errors import ShardError, SourceError, TooLargeError
from corgi2.formats import Format
from corgi2.host import release_unused
from corgi2.offline.journal import Marker, NewShard
from corgi2.offline.passes import Pass
from corgi2.offline.plan import Plan
from corgi2.offline.skipped import Skipped
from corgi2.offline.threads import Latch, Threads, ahead
from corgi2.order import MIXTURES, Indices, draws, keep_apart, permutation
from corgi2.records import Arena, Block, Buffer, Checksum, Digest, Group, Piece, WatchedShard, Writing, end, gather
from corgi2.sizes import format_size
from corgi2.stores import Store, upload_bytes

_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class Mixer:
    """Makes groups of one pass. ``path_of`` names the shards of a group."""

    pass_: Pass
    target: Store
    plan: Plan
    path_of: Callable[[int, int], str]
    arena: Arena
    threads: Threads
    advance: Callable[[int], object]
    room_bytes: int
    """The plan's buffer, or more: for a block alone. Groups are halved by the plan's, so that shards depend on it and
    on nothing that a run was given."""

    def most_of(self, blocks: Indices) -> int:
        """The buffer that some blocks have to fit."""
        return self.room_bytes if len(blocks) == 1 else self.plan.buffer_bytes

    def digest(self, table: pa.Table) -> Digest:
        """By the plan's own key."""
        return self.pass_.source.format.digest(table, self.plan.key)

    def start(self, group: int, blocks: Indices) -> "Mixture":
        """Read the blocks of a group and have it written. Returns as soon as its memory may be used again; the shards
        are on their way to the store then."""
        mixture = Mixture(self, group)
        mixture.mix(blocks, list(range(self.pass_.shards)))
        return mixture


@dataclass(slots=True)
class Mixture:
    """A group while it is made."""

    mixer: Mixer
    group: int
    taken: Digest = field(default_factory=Digest)
    skipped: list[Skipped] = field(default_factory=list)
    writing: "list[Future[tuple[Digest, NewShard]]]" = field(default_factory=list)

    def finish(self) -> Marker:
        """Wait for the shards; what was read and written."""
        written = [future.result() for future in self.writing]
        given = sum((part for part, _ in written), Digest())
        if given != self.taken and not self.mixer.plan.settings.with_replacement:
            raise SourceError(
                f"{self.mixer.target.url}: group {self.group}: read {self.taken}, but wrote {given}; the source is "
                "untouched, the target is not finished. Please report this"
            )
        shards = tuple(shard for _, shard in written)
        return Marker(self.group, self.taken, given, shards, tuple(sorted(self.skipped)), self.mixer.plan.id)

    def mix(self, blocks: Indices, shards: list[int], at: int = 0) -> None:
        """Write blocks as shards; in halves, where they turn out larger than planned."""
        try:
            part = self._read(blocks, at)
        except MemoryError as error:
            left, right = self._halves(blocks, error)
            half, middle = len(shards) // 2, at + len(left)
            if half:
                self.mix(left, shards[:half], at)
                self.mix(right, shards[half:], middle)
            elif self._is_read_whole:
                self.mix(left, shards, at)
                self.mix(right, [self.mixer.pass_.shards + middle], middle)
            else:
                self._write_here(shards[0], self._in_turn(blocks, at))
            return
        if part is not None:
            self._write(part, shards)

    @property
    def _is_read_whole(self) -> bool:
        """Whether the next pass has to read a shard at once: one that does not fit is rather written as two."""
        pass_ = self.mixer.pass_
        return not pass_.is_last and not pass_.source.format.traits.has_ranges

    def _in_turn(self, blocks: Indices, at: int) -> Iterator[Iterable[pa.Table]]:
        """The blocks of one shard that is mixed in parts, because all of it does not fit."""
        try:
            part = self._read(blocks, at)
        except MemoryError as error:
            left, right = self._halves(blocks, error)
            yield from self._in_turn(left, at)
            yield from self._in_turn(right, at + len(left))
            return
        if part is not None:
            self.taken += part.hashing.total()
            yield from part.cut(part.order, self.mixer.pass_.blocks)

    def _halves(self, blocks: Indices, error: MemoryError) -> tuple[Indices, Indices]:
        if len(blocks) == 1:
            raise self._too_large(int(blocks[0])) from error
        return blocks[: len(blocks) // 2], blocks[len(blocks) // 2 :]

    def _too_large(self, block: int) -> TooLargeError:
        """A block that does not fit alone, with the buffer that would do: it is read once more, a little at a time."""
        mixer, pass_ = self.mixer, self.mixer.pass_
        (piece,) = pass_.index.pieces(pass_.source, [block])
        mixer.arena.give_back()
        footprint = _footprint(pass_.source.format, piece, mixer.room_bytes)
        problem = f"more in memory than the buffer of {format_size(mixer.room_bytes)} holds"
        if footprint is None:
            error = TooLargeError(piece.file.name, piece.start, f"a record takes {problem}")
            error.hint = f"the same command continues with more, such as {option(2 * mixer.room_bytes)}"
            return error
        sizes = np.array([[piece.length], [max(1, piece.records)], [footprint]])
        enough = buffer_for(sizes[2], pass_.source.format.decoding_bytes(*sizes))
        error = TooLargeError(piece.file.name, piece.start, f"takes {format_size(footprint)}, {problem}")
        error.hint = _with_more(max(enough, mixer.room_bytes + 1))
        return error

    def _read(self, blocks: Indices, at: int) -> "_Part | None":
        """Blocks in memory, and the order in which to write them; None where nothing is left of them."""
        plan = self.mixer.plan
        most = arena_bytes(self.mixer.most_of(blocks))
        sound = self._read_sound(np.unique(blocks) if plan.settings.with_replacement else blocks, most)
        if sound is None:
            return None
        group, read, hashing = sound
        with hashing:
            if group.footprint > TOLERANCE * self.mixer.most_of(blocks):
                raise MemoryError(f"{group.footprint} bytes do not fit the buffer")
            key = (plan.settings.seed, self.mixer.pass_.number, MIXTURES, self.group, at)
            if plan.settings.with_replacement:
                drawn = np.searchsorted(read, blocks[np.isin(blocks, read)])
                return _Part(group, _drawn_rows(group, drawn, key), hashing)
            return _Part(group, permutation(group.records, key), hashing)

    def _read_sound(self, blocks: Indices, most: int) -> "tuple[Group, Indices, _Hashing] | None":
        """The blocks of sound shards, and which these are, where damaged ones may be left out. What is merely too large
        for this run is not damaged."""
        mixer, pass_ = self.mixer, self.mixer.pass_
        while len(blocks):
            mixer.arena.clear(most)
            hashing = _Hashing(mixer.threads.hashers, mixer.digest)
            pieces = pass_.index.pieces(pass_.source, blocks.tolist())
            watched = [
                replace(piece, file=WatchedShard(piece.file, mixer.advance, mixer.threads.stop)) for piece in pieces
            ]
            try:
                with hashing:
                    group = pass_.source.format.read(watched, mixer.arena, mixer.threads.map, hashing.see)
                    self._check_unchanged(blocks)
                mixer.threads.readers.submit(release_unused)
                return group, blocks, hashing
            except TooLargeError as error:
                error.hint = _with_more(max(buffer_to_hold(error.needed), mixer.room_bytes + 1))
                raise
            except ShardError as error:
                if not mixer.plan.settings.skip_bad or pass_.number > 1:  # what lies between passes is all of ours
                    raise
                self.skipped.append(Skipped.of(error))
                blocks = blocks[[piece.file.name != error.shard for piece in pieces]]
        return None

    def _check_unchanged(self, blocks: Indices) -> None:
        """In place, what was read is what was listed. A shard that somebody has replaced meanwhile was perhaps read in
        part, and would be deleted for good."""
        pass_, threads = self.mixer.pass_, self.mixer.threads
        if not (self.mixer.plan.settings.in_place and pass_.number == 1):
            return
        shards = np.unique(pass_.index.column("shard")[blocks]).tolist()
        listed = {pass_.source.entries[shard] for shard in shards}
        changed = listed - set(threads.map(pass_.source.store.head, [entry.path for entry in listed]))
        if changed:  # some stores give other etags when they are asked for one object
            changed -= set(pass_.source.store.list())
        if changed:
            first = min(entry.path for entry in changed)
            raise SourceError(
                f"{pass_.source.url}/{first}: has changed while the shuffle in place was at work, or is gone; its "
                "group was not made: give the command again"
            )

    def _write(self, part: "_Part", shards: list[int]) -> None:
        """Have the shards written by threads; return when the group's memory is free."""
        mixer, group = self.mixer, part.group
        cuts = np.arange(1, len(shards)) * len(part.order) // len(shards)
        order = part.order if group.keys is None else self._kept_apart(part.order, group.keys, cuts.tolist())
        free = Latch()
        for shard, rows in zip(shards, np.split(order, cuts), strict=True):
            if len(rows):
                blocks = part.cut(rows, mixer.pass_.blocks)
                self.writing.append(mixer.threads.write(self._publish, shard, blocks, free.hold(), len(shards) == 1))
        self.taken += part.hashing.total()
        free.wait()
        for future in self.writing:
            if future.done():
                future.result()

    def _kept_apart(self, order: Indices, keys: npt.NDArray[np.uint64], cuts: list[int]) -> Indices:
        try:
            return keep_apart(order, keys, cuts)
        except ValueError as error:
            raise SourceError(f"{self.mixer.pass_.source.url}: group {self.group}: {error}") from error

    def _gathered_ahead(self, blocks: Iterable[Iterable[pa.Table]]) -> Iterable[Iterable[pa.Table]]:
        """By blocks, where the format writes whole ones, else by slices: a block may be all of the shard."""
        pool = self.mixer.threads.gatherer
        if self.mixer.pass_.source.format.traits.is_decoded:
            return ahead(pool, map(list, blocks))
        return (ahead(pool, slices) for slices in blocks)

    def _write_here(self, shard: int, body: Iterator[Iterable[pa.Table]]) -> None:
        """In this thread, because the body reads, and readers must not wait for each other."""
        done: Future[tuple[Digest, NewShard]] = Future()
        done.set_result(self._publish(shard, body, lambda: None))
        self.writing.append(done)

    @property
    def _most_at_once(self) -> int | None:
        """Bytes of the records that may be written together, where a format takes several times as much for them."""
        mixer = self.mixer
        return written_bytes(mixer.room_bytes) if mixer.pass_.source.format.traits.is_decoded else None

    def _publish(
        self,
        shard: int,
        blocks: Iterator[Iterable[pa.Table]],
        release: Callable[[], None],
        is_alone: bool = False,
    ) -> tuple[Digest, NewShard]:
        mixer, tally = self.mixer, _Tally(self.mixer.digest, self._most_at_once)
        path = mixer.path_of(self.group, shard)
        tables: Iterable[Iterable[pa.Table]] = map(tally.of, blocks)
        if is_alone:  # nobody else is writing
            tables = self._gathered_ahead(tables)
        writing = mixer.pass_.source.format.write(tables, mixer.plan.profile)
        body = _Body(writing, mixer.threads.stop, release)
        try:
            entry = mixer.target.publish(path, body, upload_bytes(mixer.plan.buffer_bytes))
        except BaseException as error:
            if not isinstance(error, Exception):
                mixer.threads.stop.set()
                with suppress(BaseException):
                    writing.throw(error)  # which then waits for nobody
            raise
        finally:
            try:
                end(writing)
                mixer.threads.gathered()  # of what a failed upload leaves behind, before the memory is used again
            finally:
                release()
        return tally.total, NewShard(path, entry.size, body.checksum.digest(), body.blocks)


def _footprint(format: Format, piece: Piece, memory: int) -> int | None:
    """What a block takes in memory once it is read, measured with less; None where a record is larger than that."""
    if format.traits.is_tasted_whole:
        return sum(taste.group.footprint for taste in format.taste(piece))
    try:
        return sum(block.footprint for block in format.scan(piece.file, _ENDLESS, memory).blocks)
    except TooLargeError:
        return None


def _with_more(enough: int) -> str:
    return f"the same command continues with more: {way_out(enough)}"


@dataclass(frozen=True, slots=True)
class _Part:
    """Records in memory, and the order in which they will be written."""

    group: Group
    order: Indices
    hashing: "_Hashing"

    def cut(self, rows: Indices, blocks: int) -> Iterator[Iterable[pa.Table]]:
        """Some of the records as blocks of nearly equal counts, none empty."""
        for part in np.array_split(rows, min(blocks, len(rows))):
            yield gather(self.group, part)


def _drawn_rows(group: Group, drawn: Indices, key: Sequence[int]) -> Indices:
    """As many records as the drawn blocks hold, each drawn from all of them; a block drawn twice counts twice."""
    ends = np.cumsum(group.counts)
    rows = np.concatenate([np.arange(ends[block] - group.counts[block], ends[block]) for block in drawn.tolist()])
    chosen: Indices = rows[draws(len(rows), len(rows), key)]
    return chosen


class _Hashing:
    """Digests of what was read, made beside whatever else. If that fails, nothing of it is looked at any more."""

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
class _Tally:
    """The digest of tables as they pass."""

    digest: Callable[[pa.Table], Digest]
    most: int | None
    """Bytes of a table, at the most."""
    total: Digest = field(default_factory=Digest)

    def of(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            if self.most is not None and table.nbytes > self.most:
                size = format_size(table.nbytes)
                raise SourceError(
                    f"a row of up to {size} takes several times that to be written",
                    hint=_with_more(buffer_to_write(table.nbytes)),
                    kind="memory",
                )
            self.total += self.digest(table)
            yield table


class _Body:
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
