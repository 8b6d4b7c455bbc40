"""The examples of a data set, epoch after epoch, for one reader of many."""

import json
import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from corgi2.dataset import open_catalog
from corgi2.errors import SourceError
from corgi2.host import usable_memory
from corgi2.online.buffers import Filled, Readers, Take, fill
from corgi2.online.place import Cursor, Place, whole_number
from corgi2.online.portions import Taken, portions
from corgi2.online.ranks import find_world, local_ranks
from corgi2.online.room import Room, room_for
from corgi2.order import (
    Deal,
    Indices,
    Rules,
    Share,
    World,
    buffer_order,
    deal,
    deal_shards,
    epoch_rest,
    replay,
    window_of,
)
from corgi2.records import Group, records_alone, taker
from corgi2.sizes import format_size, parse_size, plural
from corgi2.stores import Options

_log = logging.getLogger("corgi2")

AUTO_BYTES = 2_000_000_000
"""A rank's buffer unless one is given; less only where memory is short, because all ranks must choose alike."""

_SHARE_OF_MEMORY = 4

_VERSION = 1

_FIELDS = {"data", "rules", "epoch", "shares"}

Transform = Callable[[Any], Any]
Picks = Literal["even", "random"]
Tail = Literal["drop", "repeat", "keep"]
BatchFormat = Literal["numpy", "arrow"]


class Items(Iterator[Any]):
    """What an iteration gives. `close` ends its threads, and waits for them; so does its end. One that is left before,
    or forgotten, only tells them to stop."""

    def __init__(self, begin: Callable[[Readers], Generator[Any, None, None]]) -> None:
        self._readers = Readers()
        self._items = begin(self._readers)

    def __next__(self) -> Any:
        try:
            return next(self._items)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._readers.stop.set()
        self._items.close()
        self._readers.close()


class Feed:
    """A data set as one rank sees it."""

    def __init__(
        self,
        src: str | os.PathLike[str],
        *,
        buffer: int | str = "auto",
        buffer_blocks: int | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        transform: Transform | None = None,
        picks: Picks = "even",
        tail: Tail = "drop",
        drop_last: bool = False,
        shuffle: bool = True,
        repeat: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        batch_format: BatchFormat = "numpy",
        src_options: Options | None = None,
    ) -> None:
        _check("picks", picks, ("even", "random"))
        _check("tail", tail, ("drop", "repeat", "keep"))
        _check("batch_format", batch_format, ("numpy", "arrow"))
        seed, rank, world_size = (
            whole_number(*pair, 0) for pair in (("seed", seed), ("rank", rank), ("world_size", world_size))
        )
        batch_size, buffer_blocks = (
            whole_number("batch_size", batch_size, 1),
            whole_number("buffer_blocks", buffer_blocks, 1),
        )
        self.buffer_bytes = _auto_buffer() if buffer == "auto" else parse_size(buffer)
        self.catalog = open_catalog(src, src_options, not repeat, self.buffer_bytes)
        self.rules = Rules(seed, bool(shuffle), picks, tail, bool(drop_last))
        self.batch_size, self.transform, self.repeat, self.batch_format = batch_size, transform, repeat, batch_format
        self.buffer_blocks = buffer_blocks
        self._given_world = (rank, world_size)
        find_world(rank, world_size)
        self.room(1)

    def __repr__(self) -> str:
        index, what = self.catalog.index, "batches" if self.batch_size else "samples"
        size = f" of {self.batch_size}" if self.batch_size else ""
        records = plural(index.records, "record") if self.catalog.is_counted else "records"
        return (
            f"<{what}{size} of {self.catalog.source.url}: {records} in {plural(index.blocks.num_rows, 'block')}, "
            f"buffer {format_size(self.buffer_bytes)}, rank {self.rank} of {self.world_size}>"
        )

    @property
    def rank(self) -> int:
        return find_world(*self._given_world)[0]

    @property
    def world_size(self) -> int:
        return find_world(*self._given_world)[1]

    def settle(self) -> None:
        """Keep the rank, if it is known by now: a process that is started afresh does not know it."""
        world = find_world(*self._given_world)
        if world[1] > 1:
            self._given_world = world

    def room(self, workers: int) -> Room:
        return room_for(self.catalog, self.buffer_bytes, workers, self.buffer_blocks)

    def world(self, workers: int) -> World:
        ranks, blocks = self.world_size, self.catalog.index.blocks.num_rows
        lineage = self.catalog.lineage if self.rules.picks == "even" and self.rules.shuffle else None
        window = window_of(self.room(workers).blocks, ranks * workers, lineage, blocks)
        return World(ranks, workers, window, self.batch_size or 1)

    def items(self) -> int:
        """Batches, or samples, of this rank in a whole epoch."""
        if self.repeat:
            raise TypeError("with repeat=True an epoch has no end, and no length")
        world = self.world(1)
        quota = self.rules.quota(self.catalog.index.records, world, self.rank)
        return -(-quota // world.item)

    def read(self, cursor: Cursor, worker: int, workers: int) -> Items:
        """Items from a place on, by one of a rank's workers; the cursor tells where it is after each of them."""
        return Items(partial(self._epochs, cursor, worker, workers))

    def _epochs(self, cursor: Cursor, worker: int, workers: int, readers: Readers) -> Generator[Any, None, None]:
        while True:
            yield from self._epoch(cursor, worker, workers, readers)
            if not self.repeat:
                return
            cursor.at = Cursor(Place(cursor.place.epoch + 1)).at

    def _epoch(self, cursor: Cursor, worker: int, workers: int, readers: Readers) -> Iterator[Any]:
        reading = (self._counted if self.catalog.is_counted else self._uncounted)(cursor, worker, workers, readers)
        for taken, places in reading:
            if self.batch_size is not None:
                cursor.at = places, taken.size
                yield self._transformed(self._batch(taken))
                continue
            for number, sample in enumerate(taken.shared, 1):
                cursor.at = places, number
                yield self._transformed(sample)

    @property
    def _decodes(self) -> bool:
        return self.batch_size is None or self.batch_format != "arrow"

    def _taker(self, group: Group) -> Take:
        """How records come out of a buffer: as a table, as columns, or as samples."""
        if not self._decodes:
            return taker(records_alone(group))
        decoder = self.catalog.source.format.decoder(group, self.catalog.source.url)
        return decoder.samples if self.batch_size is None else decoder.columns

    def _batch(self, taken: Taken) -> Any:
        if isinstance(taken.shared, pa.Table):
            return taken.shared.slice(taken.start, taken.size)
        part = slice(taken.start, taken.start + taken.size)
        batch = {name: values[part] for name, values in taken.shared.items()}
        if self.catalog.source.format.traits.has_columns:
            return batch
        # what none of its records has is not there, whatever those have that were taken with them
        return {name: values for name, values in batch.items() if any(value is not None for value in values)}

    def _transformed(self, item: Any) -> Any:
        return item if self.transform is None else self.transform(item)

    def _counted(
        self, cursor: Cursor, worker: int, workers: int, readers: Readers
    ) -> Iterator[tuple[Taken, Callable[[int], Place]]]:
        world, place = self.world(workers), cursor.place
        self._check_world(place, world)
        shares, role, done = self._resumed(place, world, worker)
        records = self.catalog.index.column("records")
        rest = replay(
            epoch_rest(records, self.catalog.lineage, self.rules, place.epoch), shares, self.rules, place.epoch
        )
        self._check_length(rest.total, world, fresh=not shares)
        if worker == 0 and self.rank == 0 and world.readers > len(records):
            _log.warning(
                "%s: %d readers share %d blocks by records: up to %d more requests an epoch; smaller blocks "
                "(corgi2 shuffle --shard-size), or fewer workers, would save them",
                self.catalog.source.url,
                world.readers,
                len(records),
                world.readers,
            )
        reader = self.rank * workers + role
        parts = deal(rest, world, self.rules).buffers(reader)
        ends = np.cumsum([int(part.counts.sum()) for part in parts])
        first = int(np.searchsorted(ends, done, "right"))
        skip = done - (int(ends[first - 1]) if first else 0)
        orders = self._orders(parts[first:], place.epoch, len(shares), reader, skip, self.room(workers), readers)
        for taken in portions(orders, self.batch_size, _joined):
            before = done
            done += taken.size

            def places(number: int, before: int = before) -> Place:
                return Place(place.epoch, shares, (role, before + number))

            yield taken, places

    def _resumed(self, place: Place, world: World, worker: int) -> tuple[tuple[Share, ...], int, int]:
        """The worlds before this one, whose reader this worker is, and how many examples that one has given."""
        if place.reader is not None:
            return place.shares, *place.reader
        if place.shares and place.shares[-1].world == world:
            last = place.shares[-1]
            role = (worker + last.turns) % world.workers  # whose turn it is comes first
            return place.shares[:-1], role, last.consumed(role)
        return place.shares, worker, 0

    def _uncounted(
        self, cursor: Cursor, worker: int, workers: int, readers: Readers
    ) -> Iterator[tuple[Taken, Callable[[int], Place]]]:
        world, place, lengths = self.world(workers), cursor.place, self.catalog.index.column("length")
        self._check_world(place, world)
        if world.readers > len(lengths):
            raise SourceError(
                f"{self.catalog.source.url}: {len(lengths)} shards for {world.readers} readers; they can share shards "
                f"once these are indexed: corgi2 index {self.catalog.source.url}"
            )
        reader, (first, skip) = self.rank * workers + worker, place.buffer or (0, 0)
        rest = epoch_rest(lengths, self.catalog.lineage, self.rules, place.epoch)
        parts = deal_shards(rest, world).buffers(reader)
        orders = self._orders(parts[first:], place.epoch, 0, reader, skip, self.room(workers), readers)
        numbers = {id(part): number for number, part in enumerate(parts)}
        for taken in portions(orders, self.batch_size, _joined):
            if self.rules.drop_last and taken.size < (self.batch_size or 1):
                continue

            buffer, before = numbers[id(taken.filled.part)], taken.done - taken.size

            def places(number: int, buffer: int = buffer, before: int = before) -> Place:
                return Place(place.epoch, buffer=(buffer, before + number))

            yield taken, places

    def _orders(
        self, parts: list[Deal], epoch: int, change: int, reader: int, skip: int, room: Room, readers: Readers
    ) -> Iterator[tuple[Filled, Indices, int]]:
        for filled in fill(self.catalog, parts, room, self._taker, self._decodes, readers):
            order = buffer_order(filled.records, self.rules, epoch, change, reader, int(filled.part.buffer[0]))
            yield filled, order, skip
            skip = 0

    def _check_world(self, place: Place, world: World) -> None:
        if place.world is not None and place.world != world:
            raise SourceError(
                f"the state is one reader's own, of {tuple(place.world)} (ranks, workers, window, batch), and cannot "
                f"go on in {tuple(world)}; to change these, take the state from state_after()"
            )

    def _check_length(self, total: int, world: World, fresh: bool) -> None:
        if fresh and not self.rules.quota(total, world, 0):
            raise SourceError(
                f"{self.catalog.source.url}: {total} records are too few for {world.ranks} ranks and items of "
                f"{world.item}; give tail='repeat' or tail='keep', and no drop_last"
            )

    def state(self, place: Place, workers: int) -> dict[str, Any]:
        """A place as JSON holds it."""
        shares, world = place.shares, self.world(workers)
        state: dict[str, Any] = {"corgi2": _VERSION, "data": self.catalog.fingerprint, "rules": asdict(self.rules)}
        if place.reader is not None and workers == 1:
            shares = (*shares, Share(world, -(-place.reader[1] // world.item), world.item))
        elif place.reader is not None or place.buffer is not None:
            state |= {"world": list(world), "reader": place.reader, "buffer": place.buffer}
        return state | {"epoch": place.epoch, "shares": [[*share.world, share.turns, share.turn] for share in shares]}

    def place_of(self, state: Mapping[str, Any]) -> Place:
        """The place that a state names; one of other data, or of another order, is refused."""
        state = json.loads(json.dumps(state))  # tuples and lists are one
        if not isinstance(state, dict) or state.get("corgi2") != _VERSION or not state.keys() >= _FIELDS:
            raise SourceError(f"this is no state of a corgi2 loader of version {_VERSION}")
        if state["data"] != self.catalog.fingerprint:
            raise SourceError(
                f"{self.catalog.source.url}: the state is of other data, or was taken before these were indexed"
            )
        for name, value in asdict(self.rules).items():
            if state["rules"].get(name) != value:
                raise SourceError(
                    f"the state is of an epoch with {name}={state['rules'].get(name)!r}, not {value!r}; give the "
                    "same, or begin with the next epoch"
                )
        shares = tuple(Share(World(*numbers[:4]), *numbers[4:]) for numbers in state["shares"])
        reader, buffer, world = (state.get(name) for name in ("reader", "buffer", "world"))
        return Place(
            state["epoch"],
            shares,
            (reader[0], reader[1]) if reader else None,
            (buffer[0], buffer[1]) if buffer else None,
            World(*world) if world else None,
        )

    def place_after(self, start: Place, turns: int, turn: int, workers: int) -> Place:
        """Where all ranks are after so many turns of their workers, of so many examples each."""
        if self.repeat:
            raise SourceError(
                "with repeat=True only readers know their places: take states from num_workers=0 or StatefulDataLoader"
            )
        if start.reader is not None or start.buffer is not None:
            raise SourceError("the loader resumes from one worker's own state; take its states from StatefulDataLoader")
        world, shares = self.world(workers), start.shares
        if not shares or shares[-1].world != world:
            return replace(start, shares=(*shares, Share(world, turns, turn)))
        last = shares[-1]
        if last.turn != turn and workers == 1:
            last, turns, turn = last._replace(turns=last.turns * last.turn, turn=1), turns * turn, 1
        if last.turn != turn:
            raise SourceError(f"this epoch began with batches of {last.turn}; go on with those")
        return replace(start, shares=(*shares[:-1], last._replace(turns=last.turns + turns)))


def _check(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is one of {', '.join(map(repr, allowed))} (got {value!r})")


def _joined(parts: list[Any]) -> Any:
    """Tables as one, or columns."""
    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts).combine_chunks()
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _joined_column([_column(part, name) for part in parts]) for name in names}


def _column(part: dict[str, Any], name: str) -> Any:
    return part[name] if name in part else [None] * len(next(iter(part.values())))


def _joined_column(columns: list[Any]) -> Any:
    if all(isinstance(column, np.ndarray) for column in columns):
        return np.concatenate(columns)
    return [value for column in columns for value in (column.tolist() if isinstance(column, np.ndarray) else column)]


def _auto_buffer() -> int:
    most = usable_memory() // _SHARE_OF_MEMORY // local_ranks()
    return AUTO_BYTES if most >= AUTO_BYTES else 1 << max(20, most.bit_length() - 1)
