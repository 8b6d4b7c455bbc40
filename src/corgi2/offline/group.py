"""One group: its blocks are read, shuffled, and written as shards; in halves, where they turn out larger than planned.

Memory: the group, which fits the buffer; a slice for every shard that is being written, or a block, if the format
cannot write slices; and what a store holds of an upload.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgi2.budget import TOLERANCE, arena_bytes
from corgi2.errors import SourceError
from corgi2.offline.holdout import held_rows
from corgi2.offline.journal import Marker
from corgi2.offline.mixer import Mixer
from corgi2.offline.parts import NONE, Part, rows_of_blocks, without
from corgi2.offline.passes import largest_block
from corgi2.offline.publishing import Goal, Written, publish, publish_together, results_of
from corgi2.offline.reading import read_sound, too_large
from corgi2.offline.skipped import Skipped
from corgi2.offline.threads import Latch
from corgi2.order import Drawing, Indices, keep_apart
from corgi2.records import Digest

_MOST_AT_ONCE, _BYTES_AT_ONCE = 64, 1_000_000
"""The most shards that are published together, each of which is an open file meanwhile, and about the most bytes."""


def start_group(mixer: Mixer, group: int, blocks: Indices) -> "Mixture":
    """Read the blocks of a group and start writing it. Returns as soon as its memory may be reused; the shards may
    still be on their way to the store."""
    mixture = Mixture(mixer, group)
    mixture.mix(blocks, list(range(mixer.pass_.shards)))
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
            raise too_large(self.mixer, int(blocks[0])) from error
        return blocks[: len(blocks) // 2], blocks[len(blocks) // 2 :]

    def _read(self, blocks: Indices, at: int) -> Part | None:
        """Blocks in memory, and the order in which to write them; None if nothing is left of them."""
        plan = self.mixer.plan
        most = arena_bytes(self.mixer.most_of(blocks))
        once = np.unique(blocks) if plan.settings.with_replacement else blocks
        sound = read_sound(self.mixer, once, most, self.skipped)
        if sound is None:
            return None
        group, read, hashing = sound
        with hashing:
            if group.footprint > TOLERANCE * self.mixer.most_of(blocks):
                raise MemoryError(f"{group.footprint} bytes do not fit the buffer")
            drawing = Drawing(plan.settings.seed, self.mixer.pass_.number, plan.settings.with_replacement)
            if plan.settings.with_replacement:
                drawn = np.searchsorted(read, blocks[np.isin(blocks, read)])
                rows = rows_of_blocks(group, drawn)
                return Part(group, rows[drawing.rows(len(rows), self.group, at)], hashing)
            held = NONE
            if self.mixer.aside is not None:
                held = held_rows(plan.settings, self.group, at, self.records, group.records)
                self.records += group.records
            return Part(group, without(drawing.rows(group.records, self.group, at), held), hashing, held)

    def _write(self, part: Part, shards: list[int]) -> None:
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
            self.holding.append(mixer.threads.write(publish, mixer, self._held_goal(), blocks, free.hold()))
        self.taken += part.hashing.total()
        free.wait()
        for future in (*self.writing, *self.holding):
            if future.done():
                future.result()

    def _start_writing(
        self, part: Part, parts: "list[tuple[int, Indices]]", shards: int, release: Callable[[], None]
    ) -> Future[Written]:
        mixer, threads = self.mixer, self.mixer.threads
        if len(parts) > 1:
            shards_of = [(mixer.path_of(self.group, shard), rows) for shard, rows in parts]
            return threads.write(publish_together, mixer, part, shards_of, release)
        ((shard, rows),) = parts
        blocks, is_alone = part.cut(rows, self.mixer.pass_.blocks), shards == 1 and not len(part.held)
        return threads.write(publish, mixer, self._goal(shard), blocks, release, is_alone)

    def _small_at_once(self, part: Part, shards: int) -> int:
        """How many shards are gathered, hashed and published together: several, if they are small and lie on a disk,
        where each would cost more than its bytes."""
        if not self.mixer.target.is_local or self.mixer.pass_.blocks > 1:
            return 1
        return max(1, min(_MOST_AT_ONCE, _BYTES_AT_ONCE * shards // max(1, part.group.footprint)))

    def _goal(self, shard: int) -> Goal:
        return self.mixer.target, self.mixer.path_of(self.group, shard)

    def _held_goal(self) -> Goal:
        """The next shard for held-out records, in the order in which they are written: the same in every run."""
        if self.mixer.aside is None or self.mixer.aside_path_of is None:
            raise ValueError("nothing is held out")
        return self.mixer.aside, self.mixer.aside_path_of(self.group, len(self.holding))

    def _held(self, part: Part) -> list[Indices]:
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

    def _held_blocks(self, part: Part, rows: int) -> int:
        if not self.mixer.pass_.source.format.traits.has_ranges:
            return 1
        footprint = part.group.footprint * rows / part.group.records
        return math.ceil(footprint / largest_block(self.mixer.plan.buffer_bytes))

    def _kept_apart(self, order: Indices, keys: npt.NDArray[np.uint64], cuts: list[int]) -> Indices:
        try:
            return keep_apart(order, keys, cuts)
        except ValueError as error:
            raise SourceError(f"{self.mixer.pass_.source.url}: group {self.group}: {error}") from error

    def _written_here(self, goal: Goal, body: Iterator[Iterable[pa.Table]]) -> Future[Written]:
        """Write in this thread, because the body reads, and readers must not wait for each other."""
        done: Future[Written] = Future()
        done.set_result(publish(self.mixer, goal, body, lambda: None))
        return done
