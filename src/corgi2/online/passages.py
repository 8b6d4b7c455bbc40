"""The records of one reader in one epoch, taken from its buffers, from a place on."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from corgi2.errors import SourceError
from corgi2.online.batches import joined
from corgi2.online.buffers import Filled, Readers, Take, fill
from corgi2.online.place import Place
from corgi2.online.portions import Taken, portions
from corgi2.online.view import View
from corgi2.order import Deal, Indices, Share, World, buffer_order, deal, deal_shards, replay
from corgi2.records import Group
from corgi2.sizes import plural

_log = logging.getLogger("corgi2")

Passage = Iterator[tuple[Taken, Callable[[int], Place]]]
"""Portions, each with a function that tells the place after a number of its examples."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One of the workers of a rank."""

    view: View
    worker: int
    workers: int
    taker: Callable[[Group], Take]
    """Tells how records come out of a buffer."""
    decodes: bool
    """Whether they are decoded."""
    readers: Readers

    def passage(self, place: Place) -> Passage:
        """From a place to the end of its epoch."""
        return self._counted(place) if self.view.catalog.is_counted else self._uncounted(place)

    def _counted(self, place: Place) -> Passage:
        view, world = self.view, self.view.world(self.workers)
        _check_world(place, world)
        shares, role, done = _resumed(place, world, self.worker)
        records = view.catalog.index.column("records")
        rest = replay(view.whole_epoch(records, place.epoch), shares, view.rules, place.epoch)
        view.check_length(rest.total, world, fresh=not shares)
        if self.worker == 0 and view.rank == 0:
            _warn_of_requests(view, world.readers, len(records))
        reader = view.rank * self.workers + role
        parts = deal(rest, world, view.rules).buffers(reader)
        ends = np.cumsum([int(part.counts.sum()) for part in parts])
        first = int(np.searchsorted(ends, done, "right"))
        skip = done - (int(ends[first - 1]) if first else 0)
        for taken in portions(
            self._orders(parts[first:], place.epoch, len(shares), reader, skip), view.batch_size, joined
        ):
            before = done
            done += taken.size

            def places(number: int, before: int = before) -> Place:
                return Place(place.epoch, shares, (role, before + number))

            yield taken, places

    def _uncounted(self, place: Place) -> Passage:
        view, world = self.view, self.view.world(self.workers)
        _check_world(place, world)
        lengths = view.catalog.index.column("length")
        if world.readers > len(lengths):
            raise SourceError(
                f"{view.catalog.source.url}: {plural(len(lengths), 'shard')} for {plural(world.readers, 'reader')}; "
                f"they can share shards once these are indexed: corgi2 index {view.catalog.source.url}"
            )
        reader, (first, skip) = view.rank * self.workers + self.worker, place.buffer or (0, 0)
        rest = view.whole_epoch(lengths, place.epoch)
        parts = deal_shards(rest, world, view.rules.seed).buffers(reader)
        numbers = {id(part): number for number, part in enumerate(parts)}
        for taken in portions(self._orders(parts[first:], place.epoch, 0, reader, skip), view.batch_size, joined):
            if view.rules.drop_last and taken.size < (view.batch_size or 1):
                continue

            buffer, before = numbers[id(taken.filled.part)], taken.done - taken.size

            def places(number: int, buffer: int = buffer, before: int = before) -> Place:
                return Place(place.epoch, buffer=(buffer, before + number))

            yield taken, places

    def _orders(
        self, parts: list[Deal], epoch: int, change: int, reader: int, skip: int
    ) -> Iterator[tuple[Filled, Indices, int]]:
        """Buffers with the order in which each is taken; of the first, some records are done."""
        catalog, rules, room = self.view.catalog, self.view.rules, self.view.room(self.workers)
        for filled in fill(catalog, parts, room, self.taker, self.decodes, self.readers):
            order = buffer_order(filled.records, rules, epoch, change, reader, int(filled.part.buffer[0]))
            yield filled, order, skip
            skip = 0


def _resumed(place: Place, world: World, worker: int) -> tuple[tuple[Share, ...], int, int]:
    """The earlier worlds, which of their readers this worker is, and how many examples that one has yielded."""
    if place.reader is not None:
        return place.shares, *place.reader
    if place.shares and place.shares[-1].world == world:
        last = place.shares[-1]
        role = (worker + last.turns) % world.workers  # whose turn it is comes first
        return place.shares[:-1], role, last.consumed(role)
    return place.shares, worker, 0


def _warn_of_requests(view: View, readers: int, blocks: int) -> None:
    if readers > blocks:
        _log.warning(
            "%s: %d readers share %d blocks by records: up to %d more requests per epoch; smaller blocks "
            "(corgi2 shuffle --shard-size), or fewer workers, would save them",
            view.catalog.source.url,
            readers,
            blocks,
            readers,
        )


def _check_world(place: Place, world: World) -> None:
    if place.world is not None and place.world != world:
        raise SourceError(
            f"the state belongs to one reader of {tuple(place.world)} (ranks, workers, window, batch, ranks per "
            f"node), and cannot resume in {tuple(world)}; to change these, take the state from state_after()"
        )
