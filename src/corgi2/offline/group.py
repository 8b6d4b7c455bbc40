"""One group: read its blocks side by side, shuffle, write the shards, slice by slice.

Memory: the group, which fits the buffer; a slice for every shard that is being written, or a block, if the format
cannot write slices; and what a store holds of an upload.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgi2.budget import (
    TOLERANCE,
    arena_bytes,
    buffer_for,
    buffer_to_hold,
    option,
    written_bytes,
)
from corgi2.errors import ShardError, SourceError, TooLargeError
from corgi2.formats import Format
from corgi2.host import release_unused
from corgi2.offline.holdout import held_rows
from corgi2.offline.journal import Marker, NewShard
from corgi2.offline.parts import NONE, Body, Hashing, Part, Tally, drawn_rows, with_more, without
from corgi2.offline.passes import AT_ONCE, Pass, largest_block
from corgi2.offline.plan import Plan
from corgi2.offline.skipped import Skipped
from corgi2.offline.threads import Latch, Threads, ahead
from corgi2.order import MIXTURES, Indices, keep_apart, permutation
from corgi2.records import Arena, Digest, Group, Piece, WatchedShard, end
from corgi2.sizes import format_size
from corgi2.stores import Store, upload_bytes

_ENDLESS = 1 << 62

_Goal: TypeAlias = tuple[Store, str]
"""Where a shard goes: a store, and a path there."""

Written: TypeAlias = tuple[Digest, tuple[NewShard, ...]]
"""What was written, and to which shards."""

_MOST_AT_ONCE, _BYTES_AT_ONCE = 64, 1_000_000
"""The most shards that are published together, each of which is an open file meanwhile, and about the most bytes."""


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
    """The plan's buffer, or more: for a single block. Groups are halved by the plan's buffer, so that shards do not
    depend on the buffer that a run was given."""
    aside: Store | None = None
    """Where held-out records go, if any do."""
    aside_path_of: Callable[[int, int], str] | None = None
    """Names the shards there."""

    def most_of(self, blocks: Indices) -> int:
        """The buffer that some blocks have to fit."""
        return self.room_bytes if len(blocks) == 1 else self.plan.buffer_bytes

    def digest(self, table: pa.Table) -> Digest:
        """The digest of a table, with the plan's own key."""
        return self.pass_.source.format.digest(table, self.plan.key)

    def start(self, group: int, blocks: Indices) -> "Mixture":
        """Read the blocks of a group and start writing it. Returns as soon as its memory may be reused; the shards may
        still be on their way to the store."""
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
    writing: "list[Future[Written]]" = field(default_factory=list)
    holding: "list[Future[Written]]" = field(default_factory=list)
    """The same for what is held out."""
    records: int = 0
    """Records read so far."""

    def finish(self) -> Marker:
        """Wait for the shards; returns what was read and written."""
        given, shards = results_of(self.writing)
        held = results_of(self.holding)
        about = tuple(sorted(self.skipped)), self.mixer.plan.id
        marker = Marker(self.group, self.taken, given, shards, *about, *held)
        if not marker.is_even and not self.mixer.plan.settings.with_replacement:
            raise SourceError(
                f"{self.mixer.target.url}: group {self.group}: read {self.taken}, but wrote {given} and held out "
                f"{marker.held}; the source is untouched, the target is not finished. Please report this"
            )
        return marker

    def mix(self, blocks: Indices, shards: list[int], at: int = 0) -> None:
        """Write blocks as shards; in halves, if they turn out larger than planned."""
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
                self.writing.append(self._written_here(self._goal(shards[0]), self._in_turn(blocks, at)))
            return
        if part is not None:
            self._write(part, shards)

    @property
    def _is_read_whole(self) -> bool:
        """Whether the next pass has to read a shard whole: then a shard that does not fit is written as two."""
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
            for rows in self._held(part):
                body = part.cut(rows, self._held_blocks(part, len(rows)))
                self.holding.append(self._written_here(self._held_goal(), body))
            yield from part.cut(part.order, self.mixer.pass_.blocks)

    def _halves(self, blocks: Indices, error: MemoryError) -> tuple[Indices, Indices]:
        if len(blocks) == 1:
            raise self._too_large(int(blocks[0])) from error
        return blocks[: len(blocks) // 2], blocks[len(blocks) // 2 :]

    def _too_large(self, block: int) -> TooLargeError:
        """The error for a block that does not fit alone, with the buffer that would do: the block is read again, a
        little at a time."""
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
        error.hint = with_more(max(enough, mixer.room_bytes + 1))
        return error

    def _read(self, blocks: Indices, at: int) -> "Part | None":
        """Blocks in memory, and the order in which to write them; None if nothing is left of them."""
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
                return Part(group, drawn_rows(group, drawn, key), hashing)
            held = NONE
            if self.mixer.aside is not None:
                held = held_rows(plan.settings, self.group, at, self.records, group.records)
                self.records += group.records
            return Part(group, without(permutation(group.records, key), held), hashing, held)

    def _read_sound(self, blocks: Indices, most: int) -> "tuple[Group, Indices, Hashing] | None":
        """The blocks of sound shards, and which these are, if damaged ones may be left out. A block that is merely too
        large for this run is not damaged."""
        mixer, pass_ = self.mixer, self.mixer.pass_
        while len(blocks):
            mixer.arena.clear(most)
            hashing = Hashing(mixer.threads.hashers, mixer.digest)
            crew = mixer.threads.crew
            pieces = pass_.index.pieces(pass_.source, blocks.tolist(), min(AT_ONCE, len(blocks)))
            watched = [
                replace(piece, file=WatchedShard(piece.file, mixer.advance, mixer.threads.stop)) for piece in pieces
            ]
            try:
                with hashing:
                    group = pass_.source.format.read(
                        watched, mixer.arena, mixer.threads.map, hashing.see, decoders=crew.decoders
                    )
                    self._check_unchanged(blocks)
                mixer.threads.readers.submit(release_unused)
                return group, blocks, hashing
            except TooLargeError as error:
                error.hint = with_more(max(buffer_to_hold(error.needed), mixer.room_bytes + 1))
                raise
            except ShardError as error:
                if not mixer.plan.settings.skip_bad or pass_.number > 1:  # shards between passes are all our own
                    raise
                self.skipped.append(Skipped.of(error))
                blocks = blocks[[piece.file.name != error.shard for piece in pieces]]
        return None

    def _check_unchanged(self, blocks: Indices) -> None:
        """Check, in place, that what was read is what was listed. A shard that was replaced meanwhile was perhaps read
        in part, and would be deleted for good."""
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
                "group was not made: run the command again"
            )

    def _write(self, part: "Part", shards: list[int]) -> None:
        """Write the shards in threads; return when the group's memory is free."""
        mixer, group = self.mixer, part.group
        cuts = np.arange(1, len(shards)) * len(part.order) // len(shards)
        order = part.order if group.keys is None else self._kept_apart(part.order, group.keys, cuts.tolist())
        free = Latch()
        parts = [(shard, rows) for shard, rows in zip(shards, np.split(order, cuts), strict=True) if len(rows)]
        at_once = self._small_at_once(part, len(shards))
        for start in range(0, len(parts), at_once):
            self.writing.append(self._start_writing(part, parts[start : start + at_once], len(shards), free.hold()))
        for rows in self._held(part):
            blocks = part.cut(rows, self._held_blocks(part, len(rows)))
            self.holding.append(mixer.threads.write(self._publish, self._held_goal(), blocks, free.hold()))
        self.taken += part.hashing.total()
        free.wait()
        for future in (*self.writing, *self.holding):
            if future.done():
                future.result()

    def _start_writing(
        self, part: "Part", parts: "list[tuple[int, Indices]]", shards: int, release: Callable[[], None]
    ) -> "Future[Written]":
        threads = self.mixer.threads
        if len(parts) > 1:
            return threads.write(self._publish_together, part, parts, release)
        ((shard, rows),) = parts
        blocks, is_alone = part.cut(rows, self.mixer.pass_.blocks), shards == 1 and not len(part.held)
        return threads.write(self._publish, self._goal(shard), blocks, release, is_alone)

    def _small_at_once(self, part: "Part", shards: int) -> int:
        """How many shards are gathered, hashed and published together: several, if they are small and lie on a disk,
        where each would cost more than its bytes."""
        if not self.mixer.target.is_local or self.mixer.pass_.blocks > 1:
            return 1
        return max(1, min(_MOST_AT_ONCE, _BYTES_AT_ONCE * shards // max(1, part.group.footprint)))

    def _goal(self, shard: int) -> "_Goal":
        return self.mixer.target, self.mixer.path_of(self.group, shard)

    def _held_goal(self) -> "_Goal":
        """The next shard for held-out records, in the order in which they are written: the same in every run."""
        if self.mixer.aside is None or self.mixer.aside_path_of is None:
            raise ValueError("nothing is held out")
        return self.mixer.aside, self.mixer.aside_path_of(self.group, len(self.holding))

    def _held(self, part: "Part") -> list[Indices]:
        """What is held out of a part, by shards: more of them, if records with equal keys would meet in one."""
        rows, keys = part.held, part.group.keys
        count = min(len(rows), max(1, self.mixer.pass_.held_shards))
        while count:
            cuts = np.arange(1, count) * len(rows) // count
            try:
                return np.split(rows if keys is None else keep_apart(rows, keys, cuts.tolist()), cuts)
            except ValueError:
                count = min(len(rows), 2 * count)
        return []

    def _held_blocks(self, part: "Part", rows: int) -> int:
        if not self.mixer.pass_.source.format.traits.has_ranges:
            return 1
        footprint = part.group.footprint * rows / part.group.records
        return math.ceil(footprint / largest_block(self.mixer.plan.buffer_bytes))

    def _kept_apart(self, order: Indices, keys: npt.NDArray[np.uint64], cuts: list[int]) -> Indices:
        try:
            return keep_apart(order, keys, cuts)
        except ValueError as error:
            raise SourceError(f"{self.mixer.pass_.source.url}: group {self.group}: {error}") from error

    def _gathered_ahead(self, blocks: Iterable[Iterable[pa.Table]]) -> Iterable[Iterable[pa.Table]]:
        """Block by block, if the format writes whole blocks, else slice by slice: a block may be the whole shard."""
        pool = self.mixer.threads.gatherer
        if self.mixer.pass_.source.format.traits.is_decoded:
            return ahead(pool, map(list, blocks))
        return (ahead(pool, slices) for slices in blocks)

    def _written_here(self, goal: "_Goal", body: Iterator[Iterable[pa.Table]]) -> "Future[Written]":
        """Write in this thread, because the body reads, and readers must not wait for each other."""
        done: Future[Written] = Future()
        done.set_result(self._publish(goal, body, lambda: None))
        return done

    @property
    def _most_at_once(self) -> int | None:
        """Bytes of records that may be written together, if a format takes several times as much for them."""
        mixer = self.mixer
        return written_bytes(mixer.room_bytes) if mixer.pass_.source.format.traits.is_decoded else None

    def _publish_together(
        self, part: "Part", parts: "list[tuple[int, Indices]]", release: Callable[[], None]
    ) -> "Written":
        mixer, tally = self.mixer, Tally(self.mixer.digest, self._most_at_once)
        bodies: list[tuple[str, Body]] = []

        def files() -> Iterator[tuple[str, Body]]:
            for (shard, _), tables in zip(parts, part.cut_together([rows for _, rows in parts], tally.of), strict=True):
                body = Body(mixer.pass_.source.format.write([tables], mixer.plan.profile), mixer.threads.stop, _nothing)
                bodies.append((mixer.path_of(self.group, shard), body))
                yield bodies[-1]
            release()

        try:
            entries = mixer.target.publish_together(files())
        except BaseException as error:
            if not isinstance(error, Exception):
                mixer.threads.stop.set()
            raise
        finally:
            release()
        return tally.total, tuple(
            NewShard(path, entry.size, body.checksum.digest(), body.blocks)
            for (path, body), entry in zip(bodies, entries, strict=True)
        )

    def _publish(
        self,
        goal: "_Goal",
        blocks: Iterator[Iterable[pa.Table]],
        release: Callable[[], None],
        is_alone: bool = False,
    ) -> "Written":
        mixer, tally = self.mixer, Tally(self.mixer.digest, self._most_at_once)
        store, path = goal
        tables: Iterable[Iterable[pa.Table]] = map(tally.of, blocks)
        if is_alone:  # no other thread is writing
            tables = self._gathered_ahead(tables)
        writing = mixer.pass_.source.format.write(tables, mixer.plan.profile)
        body = Body(writing, mixer.threads.stop, release)
        try:
            entry = store.publish(path, body, upload_bytes(mixer.plan.buffer_bytes))
        except BaseException as error:
            if not isinstance(error, Exception):
                mixer.threads.stop.set()
                with suppress(BaseException):
                    writing.throw(error)  # then it waits for nothing
            raise
        finally:
            try:
                end(writing)
                if is_alone:  # wait for what a failed upload leaves behind, before the memory is used again
                    mixer.threads.gathered()
            finally:
                release()
        return tally.total, (NewShard(path, entry.size, body.checksum.digest(), body.blocks),)


def _footprint(format: Format, piece: Piece, memory: int) -> int | None:
    """What a block takes in memory once it is read, measured with less; None if a record is larger than that."""
    if format.traits.is_tasted_whole:
        return sum(taste.group.footprint for taste in format.taste(piece))
    try:
        return sum(block.footprint for block in format.scan(piece.file, _ENDLESS, memory).blocks)
    except TooLargeError:
        return None


def results_of(futures: "Iterable[Future[Written]]") -> "Written":
    """What was written, and to which shards."""
    done = [future.result() for future in futures]
    return sum((part for part, _ in done), Digest()), tuple(shard for _, shards in done for shard in shards)


def _nothing() -> None:
    """The memory of a group is free when all shards that are published together are gathered."""
