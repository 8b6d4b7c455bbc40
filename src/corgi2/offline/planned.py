"""A shuffle as it was planned, ready to run, and what it will do, in words and numbers for people.

A `Plan` is what the output depends on, and is kept in the target; a `Shuffle` is a plan together with the places that
it reads and writes, and with what this run in particular was given and has to clear away first.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from corgi2.budget import promised, promised_a_task
from corgi2.dataset import Index
from corgi2.host import usable_memory
from corgi2.offline.aside import Aside
from corgi2.offline.foresight import Foresight, look_ahead
from corgi2.offline.journal import Journal
from corgi2.offline.passes import Pass
from corgi2.offline.plan import Plan
from corgi2.offline.useless import drawbacks
from corgi2.sizes import format_size, plural
from corgi2.stores import Entry, Store

_SMALL_SHARD_BYTES = 100_000
"""In shards that are smaller, footers and headers are a part that counts, and that no sample shows."""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A planned shuffle: what `plan_shuffle` makes, and `run_shuffle` runs."""

    plan: Plan
    target: Store
    index: Index
    """The index of the source."""
    first: Pass
    is_begun: bool
    """Whether the target already holds the plan."""
    replaced: tuple[Entry, ...] = ()
    """In place: shards that were put back since the plan was made, and that are read as they are now."""
    given_bytes: int = 0
    """The buffer that this run was given, if larger than the plan's."""
    discarded: tuple[str, ...] = ()
    """What an unfinished shuffle has written to the target, to be deleted before this one begins."""
    aside: Store | None = None
    """Where held-out records go."""
    aside_discarded: tuple[Store, tuple[str, ...]] | None = None
    """What an unfinished shuffle has held out, to be deleted as well."""
    is_continued: bool = False
    """Whether it replaces a shuffle that had begun, and was planned again."""

    @property
    def journal(self) -> Journal:
        return Journal(self.target, self.plan.generation)

    @property
    def holdout(self) -> Aside | None:
        """The folder for held-out records, for the current plan."""
        return None if self.aside is None else Aside(self.aside, self.plan, self.target.url)

    @property
    def held_bytes(self) -> int:
        """The approximate stored size of what is held out."""
        drawn = sum(entry.size for entry in self.plan.held)
        return drawn + int(float(self.plan.settings.record_share) * self.plan.growth * self.index.bytes)

    @property
    def room_bytes(self) -> int:
        """Memory for a block that cannot be halved; it does not change the groups, which follow from the plan's
        buffer."""
        return max(self.plan.buffer_bytes, self.given_bytes)

    @property
    def needed_bytes(self) -> int:
        """The most storage that it takes while it runs, besides the source."""
        plan, lengths = self.plan, self.first.index.column("length")
        largest = max(int(lengths[group].sum()) for group in self.first.groups)
        moved = plan.settings.in_place or plan.settings.passes > 1
        in_flight = largest * min(2, len(self.first.groups)) if moved else 0
        copied = 0 if plan.settings.in_place else self.written_bytes
        return int(copied + plan.growth * in_flight)

    @property
    def written_bytes(self) -> float:
        """About: what the new shards take, without those that are held out."""
        return self.index.bytes * self.plan.growth * (1 - float(self.plan.settings.record_share))

    @property
    def dropped(self) -> float:
        """The share of the records that will not be in the output."""
        if not self.plan.settings.with_replacement:
            return 0.0
        drawn = np.bincount(np.concatenate(self.first.groups), minlength=self.index.blocks.num_rows)
        lost = float(np.average(np.exp(-drawn), weights=self.index.column("length")))
        for _ in range(self.plan.settings.passes - 1):  # all copies of a record must be lost
            lost = float(np.exp(np.exp(lost - 1) - 1))
        return lost

    @property
    def promised_bytes(self) -> int:
        """Of memory, in one process."""
        return promised(self.room_bytes, self.index.shards.num_rows, self.index.blocks.num_rows)

    @property
    def foresight(self) -> Foresight:
        """What it will ask of its stores, and leave there."""
        return look_ahead(self.first, self.plan, self.target, self.aside)

    def as_json(self) -> dict[str, Any]:
        """What is planned, in the words of the report."""
        foreseen = self.foresight
        return {
            "blocks": self.index.blocks.num_rows,
            "bytes": self.index.bytes,
            "passes": self.plan.settings.passes,
            "groups": foreseen.groups,
            "n": foreseen.n,
            "rounds": len(set(self.first.rounds)),
            "shards": foreseen.shards,
            "buffer_bytes": self.room_bytes,
            "memory_bytes": self.promised_bytes,
            "reads": foreseen.reads,
            "writes": foreseen.writes,
            "growth": self.plan.growth,
            "needed_bytes": self.needed_bytes,
            "free_bytes": self.target.free_bytes(),
            "dropped": self.dropped,
            "skipped": [asdict(each) for each in self.plan.skipped],
            "target": self.target.url,
            "holdout": self.plan.settings.holdout_to,
            "held_shards": foreseen.held_shards,
            "held_writes": foreseen.held_writes,
            "held_bytes": self.held_bytes,
        }

    def describe(self, is_here: bool = True) -> str:
        """One line with what will happen, and one for each thing to be warned of. ``is_here`` says whether groups take
        memory of this process."""
        settings, free, foreseen = self.plan.settings, self.target.free_bytes(), self.foresight
        memory = self.promised_bytes if is_here else promised_a_task(self.room_bytes)
        parts = [
            f"{plural(self.index.blocks.num_rows, 'block')}, {format_size(self.index.bytes)}",
            f"{plural(settings.passes, 'pass')}, {plural(foreseen.groups, 'group')} of n = {foreseen.n:,}",
            f"{plural(len(set(self.first.rounds)), 'round')} of ranges of about {format_size(settings.range_bytes)}"
            if settings.range_bytes is not None
            else "",
            f"buffer {format_size(self.room_bytes)}, memory up to {format_size(memory)}"
            + ("" if is_here else " for each task"),
            f"about {plural(foreseen.reads, 'read')} and {plural(foreseen.writes, 'write')} of shards",
            f"{plural(foreseen.shards, 'shard')} of {format_size(self.written_bytes / foreseen.shards)}",
            self._describe_growth(self.written_bytes / foreseen.shards),
            f"{format_size(self.needed_bytes)} more storage"
            + (f", {format_size(free)} free" if free is not None else ""),
            f"in place in {self.target.url}" if settings.in_place else f"to {self.target.url}",
            self._describe_holdout(foreseen) if self.aside is not None else "",
        ]
        lines = [
            "; ".join(part for part in parts if part),
            *(f"WARNING: {warning}" for warning in self.warnings(is_here)),
        ]
        return "\n".join(lines + [f"left out: {line}" for line in self.plan.skipped])

    def _describe_growth(self, shard_bytes: float) -> str:
        if not self.first.source.format.traits.packs_by_order:
            return ""
        more = ", and more, because shards are so small" if shard_bytes < _SMALL_SHARD_BYTES else ""
        return f"the output is predicted to take {self.plan.growth:.2f} of the input{more}"

    def _describe_holdout(self, foreseen: Foresight) -> str:
        settings, held = self.plan.settings, self.plan.held
        what = plural(len(held), "shard") if held else f"{settings.holdout or 0:.3%} of the records of every group"
        writes = plural(foreseen.held_writes, "write")
        return f"held out to {settings.holdout_to}: {what}, about {format_size(self.held_bytes)} in {writes}"

    def warnings(self, is_here: bool = True) -> Iterator[str]:
        """What a person should know before it runs, here or on a cluster."""
        if self.plan.settings.with_replacement:
            yield f"drawn with replacement: about {self.dropped:.0%} of the records will be dropped"
        yield from drawbacks(self.plan, self.first)
        if self.room_bytes > self.plan.buffer_bytes:
            planned, more = format_size(self.plan.buffer_bytes), format_size(self.room_bytes)
            yield f"the groups stay those of the plan's buffer of {planned}; {more} are for blocks that do not fit it"
        if is_here and self.promised_bytes > usable_memory():
            most = format_size(usable_memory())
            yield f"that is more than the memory of {most} that this process may use: the run would be refused"
