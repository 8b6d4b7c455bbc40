"""A planned shuffle as data: what it will do, for people, and how its plan is kept in its target."""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from corgi2.budget import promised
from corgi2.dataset import Index, decode_index, encode_index
from corgi2.errors import SourceError
from corgi2.host import usable_memory
from corgi2.offline.journal import Journal
from corgi2.offline.passes import Pass
from corgi2.offline.plan import Plan
from corgi2.sizes import format_size, plural
from corgi2.stores import Entry, Store, read_path, reads_of

START_ANEW = "restart=True discards what was written and begins anew"


@dataclass(frozen=True, slots=True)
class Job:
    """A planned shuffle."""

    plan: Plan
    target: Store
    index: Index
    """Of the source."""
    first: Pass
    is_begun: bool
    """Whether the target holds the plan already."""
    replaced: tuple[Entry, ...] = ()
    """In place: shards that somebody has put back since the plan was made, and that are read as they are now."""
    given_bytes: int = 0
    """The buffer that this run was given, where that is more than the plan's."""
    discarded: tuple[str, ...] = ()
    """What an unfinished shuffle has written to the target, to be deleted before this one begins."""

    @property
    def journal(self) -> Journal:
        return Journal(self.target, self.plan.generation)

    @property
    def room_bytes(self) -> int:
        """Memory for a block that cannot be halved; groups are those of the plan's buffer, whatever this is."""
        return max(self.plan.buffer_bytes, self.given_bytes)

    @property
    def needed_bytes(self) -> int:
        """Storage that it takes at the most while it runs, beside the source."""
        plan, lengths = self.plan, self.index.column("length")
        largest = max(int(lengths[group].sum()) for group in self.first.groups)
        moved = plan.settings.in_place or plan.settings.passes > 1
        in_flight = largest * min(2, len(self.first.groups)) if moved else 0
        copied = 0 if plan.settings.in_place else self.index.bytes
        return int(plan.growth * (copied + in_flight))

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
    def reads(self) -> int:
        """About: of blocks, in requests of an object store. What lies between two passes is read as it was written."""
        between = 0 if self.first.is_last else len(self.first.groups) * self.first.shards
        first = sum(map(reads_of, self.index.column("length").tolist()))
        return first + between * (self.plan.settings.passes - 1)

    @property
    def writes(self) -> int:
        """About: of shards, those between passes included."""
        pass_ = self.first
        made = len(pass_.groups) * pass_.shards
        return made if pass_.is_last else made * (self.plan.settings.passes - 1) + self.plan.shards

    def as_json(self) -> dict[str, Any]:
        """What is planned, in the words of the report."""
        return {
            "blocks": self.index.blocks.num_rows,
            "bytes": self.index.bytes,
            "passes": self.plan.settings.passes,
            "groups": len(self.first.groups),
            "n": self.first.n,
            "buffer_bytes": self.room_bytes,
            "memory_bytes": self.promised_bytes,
            "reads": self.reads,
            "writes": self.writes,
            "growth": self.plan.growth,
            "needed_bytes": self.needed_bytes,
            "free_bytes": self.target.free_bytes(),
            "dropped": self.dropped,
            "skipped": [asdict(each) for each in self.plan.skipped],
            "target": self.target.url,
        }

    def describe(self) -> str:
        """One line with what will happen, and one for each thing to be warned of."""
        pass_, settings, growth = self.first, self.plan.settings, self.plan.growth
        free = self.target.free_bytes()
        parts = [
            f"{plural(self.index.blocks.num_rows, 'block')}, {format_size(self.index.bytes)}",
            f"{plural(settings.passes, 'pass')}, {plural(len(pass_.groups), 'group')} of n = {pass_.n:,}",
            f"buffer {format_size(self.room_bytes)}, memory up to {format_size(self.promised_bytes)}",
            f"about {plural(self.reads, 'read')} and {plural(self.writes, 'write')}",
            f"the output is predicted to take {growth:.2f} of the input"
            if pass_.source.format.traits.packs_by_order
            else "",
            f"{format_size(self.needed_bytes)} more storage"
            + (f", {format_size(free)} free" if free is not None else ""),
            f"in place in {self.target.url}" if settings.in_place else f"to {self.target.url}",
        ]
        lines = ["; ".join(part for part in parts if part), *(f"WARNING: {warning}" for warning in self.warnings())]
        return "\n".join(lines + [f"left out: {line}" for line in self.plan.skipped])

    def warnings(self) -> Iterator[str]:
        """What a person should know before it runs."""
        if self.plan.settings.with_replacement:
            yield f"drawn with replacement: about {self.dropped:.0%} of the records will be dropped"
        if self.first.n == 1 and self.index.blocks.num_rows > 1 and self.plan.settings.passes == 1:
            yield "n = 1: every block is shuffled in itself, and nothing is mixed between them; give a larger buffer"
        if self.room_bytes > self.plan.buffer_bytes:
            planned, more = format_size(self.plan.buffer_bytes), format_size(self.room_bytes)
            yield f"the groups stay those of the plan's buffer of {planned}; {more} are for blocks that do not fit it"
        if self.promised_bytes > usable_memory():
            yield f"that is more than the memory of {format_size(usable_memory())} that this process may use"


_SETTLE_SECONDS = 1.0
"""Where a store ignores conditions on writes: so long after the first, nobody's plan replaces another's."""


def load_plan(journal: Journal) -> tuple[Plan, Index] | None:
    """What an earlier run has planned."""
    if (
        journal.store.head(journal.plan_path) is None
    ):  # where a server ignores conditions, the later it is read the better
        return None
    plan, url = read_plan(journal), journal.store.url
    path = journal.source_path(plan.blocks_sha256)
    data = read_path(journal.store, path) or bytearray()
    if hashlib.sha256(data).hexdigest() != plan.blocks_sha256:
        raise SourceError(f"{url}/{path}: is not what the plan was made for", hint=START_ANEW)
    return plan, decode_index(data, f"{url}/{path}")


def read_plan(journal: Journal) -> Plan:
    name, data = f"{journal.store.url}/{journal.plan_path}", read_path(journal.store, journal.plan_path)
    if data is None:
        raise SourceError(f"{name}: has just been deleted; give the command again")
    return Plan.decode(data, name)


def commit_plan(job: Job) -> Job:
    """Whoever creates the plan first has made it; everybody else must have made the same, and takes its key."""
    journal = job.journal
    if job.replaced:
        journal.write_replaced(job.replaced)
    if job.is_begun:
        held_plan = read_plan(journal)  # replaced, perhaps, where a store lets several begin at once
        return replace(job, plan=held_plan) if held_plan.equals(job.plan) else job
    source_path = journal.source_path(job.plan.blocks_sha256)
    journal.store.publish(source_path, [encode_index(job.index)])
    data = job.plan.encode()
    if journal.store.create(journal.plan_path, data) and journal.store.create(journal.plan_path, data):
        time.sleep(_SETTLE_SECONDS)  # it took both: the last one of all who begin now will count, for each of them
    held = load_plan(journal)
    if held is None or not held[0].equals(job.plan):
        if held is not None and held[0].blocks_sha256 != job.plan.blocks_sha256:
            journal.store.delete(source_path)
        raise SourceError(
            f"{job.target.url}: another shuffle has just begun there; give the same command as it, or wait for its end"
        )
    return replace(job, plan=held[0])
