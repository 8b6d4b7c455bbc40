"""The groups of one pass, for their makers: the threads of this process, or a task of a cluster.

A group is made on its own: its blocks are read, shuffled and written, then its marker. A group that has its marker is
left alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from corgi2.budget import arena_bytes, crew, decoding_crew, upload_share
from corgi2.dataset import of_index
from corgi2.errors import ChangedError, Corgi2Error, ShardError, SourceError, TooLargeError
from corgi2.host import give_back
from corgi2.offline.aside import Aside
from corgi2.offline.group import Mixture, start_group
from corgi2.offline.journal import Journal, Marker
from corgi2.offline.mixer import Mixer
from corgi2.offline.passes import Pass
from corgi2.offline.plan import Plan
from corgi2.offline.threads import Threads
from corgi2.order import Indices
from corgi2.records import Arena
from corgi2.stores import Requests, Store, counting, read_path

_TWO_PLANS = (
    "two shuffles began there at the same time, on a store that cannot keep them apart. Nothing was deleted that is "
    "not safe elsewhere; corgi2 verify tells what is there"
)


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a group."""

    group: int
    marker: Marker | None
    """None if another run had made it."""
    requests: Requests
    """Requests for markers and plans, sent from elsewhere."""
    moved: Requests = field(default_factory=Requests)
    """For shards, made elsewhere."""
    moved_aside: Requests = field(default_factory=Requests)
    """The same for those that are held out."""


@dataclass(frozen=True, slots=True)
class Task:
    """A pass, and where its groups go."""

    plan: Plan
    target: Store
    pass_: Pass
    given_bytes: int = 0
    """The buffer that the run was given, if larger than the plan's."""
    moved: Requests = field(default_factory=Requests, compare=False)
    """Requests for shards: what was foreseen."""
    moved_aside: Requests = field(default_factory=Requests, compare=False)
    """The same for those that are held out."""
    aside: Aside | None = None
    """Where held-out records go, in the first pass."""

    @property
    def room_bytes(self) -> int:
        """Memory for a block that cannot be halved."""
        return max(self.plan.buffer_bytes, self.given_bytes)

    @property
    def journal(self) -> Journal:
        return Journal(self.target, self.plan.generation)

    def path(self, group: int, shard: int) -> str:
        """Where a shard of a group goes: into the target, or, between two passes, into the journal. New shards are
        numbered across the groups, so that any run of them comes from as many groups as possible."""
        plan, pass_ = self.plan, self.pass_
        if pass_.is_last:
            return f"{plan.prefix}{shard * pass_.count + group:06d}{plan.suffix}"
        return f"{self.journal.pass_folder(pass_.number)}/{group:06d}-{shard:03d}{plan.suffix}"

    def aside_path(self, group: int, shard: int) -> str:
        """Where held-out records of a group go."""
        return f"{self.plan.prefix}{shard * self.pass_.count + group:06d}{self.plan.suffix}"

    def marker(self, group: int) -> Marker | None:
        """The marker, if it is of this plan. If a store ignores conditions on writes, two runs may both have made
        one."""
        marker = self.journal.read_marker(self.pass_.number, group)
        if marker is not None and marker.plan != self.plan.id:
            raise SourceError(f"{self.target.url}: group {group} was made by another plan; {_TWO_PLANS}")
        return marker

    def _check_plan(self) -> None:
        """Check, before anything is deleted, that the stored plan is still this one."""
        path = self.journal.plan_path
        name, found = f"{self.target.url}/{path}", read_path(self.target, path)
        if found is None or Plan.decode(found, name).id != self.plan.id:
            raise SourceError(f"{name}: was replaced by another plan; {_TWO_PLANS}")

    def arena(self) -> Arena:
        return Arena(arena_bytes(self.room_bytes), self._is_lean)

    @property
    def _is_lean(self) -> bool:
        """Whether many blocks are fetched while few are decoded, as object stores need; in all passes alike."""
        is_remote = not (self.pass_.source.store.is_local and self.target.is_local)
        return is_remote and self.pass_.source.format.traits.is_decoded

    def threads(self, workers: int) -> Threads:
        """As many threads as were asked for, or as there is room for."""
        pass_, index, buffer_bytes = self.pass_, self.pass_.index, self.plan.buffer_bytes
        shards = len(pass_.groups) * pass_.shards
        held = upload_share(self.target, buffer_bytes, int(self.plan.growth * index.bytes) // shards)
        found = crew(workers, buffer_bytes, held)
        if pass_.source.format.traits.is_decoded:
            sizes = index.column("footprint"), index.column("length")
            block_bytes = index.footprint // (shards * pass_.blocks)
            found = decoding_crew(found, buffer_bytes, *sizes, block_bytes, self._is_lean)
        return Threads(found)

    def mixer(self, arena: Arena, threads: Threads, advance: Callable[[int], object]) -> Mixer:
        source = replace(self.pass_.source, store=counting(self.pass_.source.store, self.moved))
        pass_, target = replace(self.pass_, source=source), counting(self.target, self.moved)
        aside = None if self.aside is None else counting(self.aside.store, self.moved_aside)
        places = aside, self.aside_path
        return Mixer(pass_, target, self.plan, self.path, arena, threads, advance, self.room_bytes, *places)

    def start(self, mixer: Mixer, group: int, blocks: Indices) -> Mixture | None:
        """None if another run has made the group meanwhile."""
        if self.marker(group) is not None:
            return None
        give_back()
        try:
            return start_group(mixer, group, blocks)
        except Corgi2Error as error:
            if self.pass_.consumes and self.marker(group) is not None:  # and what was being read is deleted
                return None
            if self.pass_.number > 1 and (damage := self._damage_between(error)) is not None:
                raise damage from error
            raise

    def _damage_between(self, error: Corgi2Error) -> ShardError | None:
        """The error of a shard that a pass of this shuffle wrote for the next one: no other program knows about it."""
        if isinstance(error, TooLargeError) or not isinstance(error, ShardError | ChangedError):
            return None
        before, offset = self.pass_.number - 1, error.offset if isinstance(error, ShardError) else 0
        names = (f"{self.target.url}/{entry.path}" for entry in self.pass_.source.entries)
        name = next((name for name in names if error.problem_text.startswith(f"{name}: ")), None)
        return ShardError(name, offset, f"damaged or gone since pass {before} wrote it") if name else None

    def settle(self, mixture: Mixture | None) -> Marker | None:
        """Wait for the shards, and write the marker."""
        if mixture is None:
            return None
        marker = mixture.finish()
        if self.aside is not None:
            self.aside.settle(marker, read_back=self.pass_.consumes)
        if self.pass_.consumes:
            self._check_plan()
        self.journal.write_marker(self.pass_.number, marker, read_back=self.pass_.consumes)
        return marker

    def bytes_of(self, group: int) -> int:
        """Stored bytes of the blocks of a group."""
        return int(self.pass_.index.column("length")[np.unique(self.pass_.groups[group])].sum())

    def only(self, group: int) -> "Task":
        """The same, knowing the blocks of one group and nothing else, and counting its requests alone: little enough to
        be sent."""
        numbers, blocks = np.unique(self.pass_.groups[group], return_inverse=True)
        index = self.pass_.index.select(numbers)
        source = replace(of_index(self.pass_.source, index), others=())
        pass_ = replace(self.pass_, source=source, index=index, groups=[blocks], lineage=[])
        return replace(self, pass_=pass_, moved=Requests(), moved_aside=Requests())

    def make(self, group: int, workers: int) -> Made:
        """Make the one group that this task knows, in a process of its own."""
        places = self.pass_.source.store, self.target, *([self.aside.store] if self.aside else [])
        stores = {id(store): store for store in places}.values()
        before = [replace(store.requests) for store in stores]
        with self.threads(workers) as threads, threads.stopping():
            mixer = self.mixer(self.arena(), threads, _ignore)
            marker = self.settle(self.start(mixer, group, self.pass_.groups[0]))
        requests = Requests()
        for store, earlier in zip(stores, before, strict=True):
            requests.add(store.requests.since(earlier))
        return Made(group, marker, requests, self.moved, self.moved_aside)


def _ignore(_: int) -> None:
    """Nothing here watches the progress."""
