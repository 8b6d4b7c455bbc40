"""What all groups of a pass have in common while they are made: where they come from and go, memory and threads."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from corgi2.budget import written_bytes
from corgi2.offline.passes import Pass
from corgi2.offline.plan import Plan
from corgi2.offline.threads import Threads
from corgi2.order import Indices
from corgi2.records import Arena, Digest
from corgi2.stores import Store


@dataclass(frozen=True, slots=True)
class Mixer:
    """All that it takes to make the groups of one pass. ``path_of`` names the shards of a group."""

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

    @property
    def most_written(self) -> int | None:
        """Bytes of records that may be written together, if a format takes several times as much for them."""
        return written_bytes(self.room_bytes) if self.pass_.source.format.traits.is_decoded else None
