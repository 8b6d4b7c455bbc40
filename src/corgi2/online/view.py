"""A data set as one rank sees it: how it is shared, how long an epoch is, and where a reader of it is."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from corgi2.dataset import Catalog
from corgi2.errors import SourceError
from corgi2.online.place import Place
from corgi2.online.ranks import find_world, ranks_per_node
from corgi2.online.room import Room, room_for
from corgi2.online.state import place_after, place_of, state_of
from corgi2.order import Indices, Rest, Rules, World, epoch_rest, window_of
from corgi2.sizes import are, plural


class View:
    """What ranks and workers have to agree on, worked out of what the caller gave."""

    catalog: Catalog
    rules: Rules
    batch_size: int | None
    columns: Sequence[str] | None
    fill: Mapping[str, str] | None
    buffer_bytes: int
    buffer_blocks: int | None
    repeat: bool
    _affinity: Literal["node"] | tuple[int, ...] | None
    _given_world: tuple[int | None, int | None]

    @property
    def rank(self) -> int:
        return find_world(*self._given_world)[0]

    @property
    def world_size(self) -> int:
        return find_world(*self._given_world)[1]

    def settle(self) -> None:
        """Keep the rank, if it is known by now: a newly started process does not know it."""
        world = find_world(*self._given_world)
        if world[1] > 1:
            self._affinity = self.nodes or None
            self._given_world = world

    def room(self, workers: int) -> Room:
        return room_for(self.catalog, self.buffer_bytes, workers, self.buffer_blocks)

    def world(self, workers: int) -> World:
        ranks, blocks = self.world_size, self.catalog.index.blocks.num_rows
        lineage = self.catalog.lineage if self.rules.picks == "even" and self.rules.shuffle else None
        window = window_of(self.room(workers).blocks, ranks * workers, lineage, blocks, self.catalog.rounds)
        return World(ranks, workers, window, self.batch_size or 1, self.nodes)

    @property
    def nodes(self) -> tuple[int, ...]:
        """How many ranks each node has, if blocks come back to the same nodes."""
        if self._affinity is None or not self.rules.shuffle:
            return ()
        ranks = self.world_size
        nodes = ranks_per_node(ranks) if self._affinity == "node" else self._affinity
        if nodes and sum(nodes) != ranks:
            raise ValueError(f"affinity={list(nodes)}: these are {plural(sum(nodes), 'rank')}, and there are {ranks}")
        return nodes if len(nodes) > 1 else ()

    def whole_epoch(self, counts: Indices, epoch: int) -> Rest:
        """A whole epoch of blocks with these counts of records."""
        return epoch_rest(counts, self.catalog.lineage, self.rules, epoch, self.catalog.rounds)

    def items(self) -> int:
        """Batches, or samples, of this rank in a whole epoch."""
        if self.repeat:
            raise TypeError("with repeat=True an epoch has no end, and so no length")
        world = self.world(1)
        quota = self.rules.quota(self.catalog.index.records, world, self.rank)
        return -(-quota // world.item)

    def check_length(self, total: int, world: World, fresh: bool) -> None:
        """Refuse an epoch that has no item for a rank."""
        if fresh and not self.rules.quota(total, world, 0):
            raise SourceError(
                f"{self.catalog.source.url}: {plural(total, 'record')} {are(total)} too few for "
                f"{plural(world.ranks, 'rank')} and items of {world.item}; give tail='repeat' or "
                "tail='keep', and no drop_last"
            )

    @property
    def recorded(self) -> dict[str, Any]:
        """The rules that a state must share, as it records them."""
        chosen = {"columns": self.columns, "fill": self.fill}
        return asdict(self.rules) | {name: value for name, value in chosen.items() if value}

    def state(self, place: Place, workers: int) -> dict[str, Any]:
        """A place as JSON holds it."""
        return state_of(place, self.world(workers), self.catalog, self.recorded)

    def place_of(self, state: Mapping[str, Any]) -> Place:
        """The place that a state names; one of other data, or of another order, is refused."""
        return place_of(state, self.catalog, self.recorded)

    def place_after(self, start: Place, turns: int, turn: int, workers: int) -> Place:
        """Where all ranks are after this many turns of their workers, of this many examples each."""
        if self.repeat:
            raise SourceError(
                "with repeat=True only readers know their places: take states from num_workers=0 or StatefulDataLoader"
            )
        return place_after(start, self.world(workers), turns, turn)
