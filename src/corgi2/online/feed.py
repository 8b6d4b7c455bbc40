"""The examples of a data set, epoch after epoch, for one reader of many."""

import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from corgi2.arguments import suggesting
from corgi2.caching import open_cache
from corgi2.dataset import Catalog, narrow, open_catalog, refuse_nulls
from corgi2.errors import SourceError
from corgi2.host import usable_memory
from corgi2.online.batches import cut, joined
from corgi2.online.buffers import Filled, Readers, Take, fill
from corgi2.online.place import Cursor, Place, whole_number
from corgi2.online.portions import Taken, portions
from corgi2.online.ranks import find_world, local_ranks, ranks_per_node
from corgi2.online.room import Room, room_for
from corgi2.online.state import place_after, place_of, state_of
from corgi2.online.transforming import Raw, Transform, transformed
from corgi2.order import (
    Deal,
    Indices,
    Rest,
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
from corgi2.sizes import are, format_size, parse_size, plural
from corgi2.stores import Options

_log = logging.getLogger("corgi2")

AUTO_BYTES = 2_000_000_000
"""A rank's buffer unless one is given; less only if memory is short, because all ranks must choose the same."""

_SHARE_OF_MEMORY = 4

_SETTINGS = {
    "batch_format",
    "batch_size",
    "buffer_blocks",
    "buffer_bytes",
    "catalog",
    "columns",
    "fill",
    "repeat",
    "rules",
    "transform",
    "transform_threads",
    "_affinity",
    "_given_world",
}

Picks = Literal["even", "random"]
Tail = Literal["drop", "repeat", "keep"]
BatchFormat = Literal["numpy", "arrow", "samples"]
Affinity = Literal["auto", "node"] | Sequence[int] | None


class Items(Iterator[Any]):
    """The items of an iteration. `close` ends its threads and waits for them; so does reaching the end. An iteration
    that is abandoned earlier only tells them to stop."""

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
    """A data set as one rank sees it: the base of `Loader` and of every trainer's adapter.

    The arguments are defined here, once, and the adapters inherit them; an adapter prepares what else it keeps in
    `_prepare`.
    """

    @suggesting
    def __init__(
        self,
        src: str | os.PathLike[str],
        *,
        buffer: int | str = "auto",
        buffer_blocks: int | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        transform: Transform | None = None,
        transform_threads: int = 0,
        picks: Picks = "even",
        tail: Tail = "drop",
        drop_last: bool = False,
        shuffle: bool = True,
        repeat: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        batch_format: BatchFormat = "numpy",
        src_options: Options | None = None,
        epoch: int = 0,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        affinity: Affinity = "auto",
        columns: Sequence[str] | None = None,
        fill: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            src: A folder, a glob or a brace range, on this machine or in an object store; shuffled by corgi2 or not.
            buffer: Memory for this rank's data, for all of its readers together: ``"2GB"``, or a number of bytes.
            buffer_blocks: Instead of ``buffer``: how many blocks each reader's buffer holds.
            batch_size: Examples per batch. Without it, single samples come out.
            seed: Together with the epoch, the ranks, the workers and the buffer, it determines the order.
            transform: Called with each sample, or each batch, in the process that reads it.
            transform_threads: How many threads call it, at the same time and in any order; what it returns comes out in
                order all the same. 0: the thread that reads.
            picks: ``"even"`` spreads each window over the groups of the offline pass; ``"random"`` is the paper's way.
            tail: ``"drop"`` leaves out fewer than ``world_size`` examples per epoch, and ``"repeat"`` repeats as few,
                so that all ranks have equally many; ``"keep"`` yields every example once.
            drop_last: Leave out the last batch if it is short.
            shuffle: False yields the stored order.
            repeat: Epochs follow each other without end.
            rank: Which rank this is; if not given, ``torch.distributed`` or the launcher's variables tell.
            world_size: How many ranks share an epoch; found in the same way. Give both, or neither.
            batch_format: ``"numpy"`` for arrays, which `corgi2.torch` turns into tensors, ``"arrow"`` for tables, or
                ``"samples"`` for a list of samples, each of which ``transform`` gets.
            src_options: Options for the store (docs/stores.md).
            epoch: The epoch of the first iteration.
            cache_dir: A folder on a disk of this node, where what was read is kept for later epochs; all ranks and
                workers of a node share it.
            cache_size: The most that the folder may take, for all data sets in it: ``"500GB"``. If not given, what the
                disk has.
            affinity: ``"node"`` lets blocks come back to the same nodes in every epoch, as a cache needs; the
                launcher's variables tell how many ranks each node has, or give their numbers: ``[8, 8, 4]``. ``None``
                deals all blocks to all ranks. ``"auto"`` is ``"node"`` with a cache.
            columns: Of Parquet, the columns to read; the others cost neither memory nor requests.
            fill: Of Parquet, what stands for missing values, by column: ``{"label": -1}``.
        """
        _check("picks", picks, ("even", "random"))
        _check("tail", tail, ("drop", "repeat", "keep"))
        _check("batch_format", batch_format, ("numpy", "arrow", "samples"))
        seed, rank, world_size = (
            whole_number(*pair, 0) for pair in (("seed", seed), ("rank", rank), ("world_size", world_size))
        )
        batch_size, buffer_blocks = (
            whole_number("batch_size", batch_size, 1),
            whole_number("buffer_blocks", buffer_blocks, 1),
        )
        self.buffer_bytes = auto_buffer() if buffer == "auto" else parse_size(buffer)
        catalog = narrow(
            open_catalog(src, src_options, not repeat, self.buffer_bytes), columns, fill, self.buffer_bytes
        )
        if batch_size is not None and batch_format == "numpy":
            refuse_nulls(catalog)
        self.catalog = _with_cache(catalog, cache_dir, cache_size)
        self.columns, self.fill = columns and list(columns), fill and {name: repr(fill[name]) for name in fill}
        self.rules = Rules(seed, bool(shuffle), picks, tail, bool(drop_last))
        self.batch_size, self.transform, self.repeat, self.batch_format = batch_size, transform, repeat, batch_format
        self.buffer_blocks, self._affinity = buffer_blocks, _affinity(affinity, cache_dir is not None)
        self.transform_threads = whole_number("transform_threads", transform_threads, 0)
        self._given_world = (rank, world_size)
        find_world(rank, world_size)
        self.room(1)
        self._prepare(whole_number("epoch", epoch, 0))

    def settings(self) -> dict[str, Any]:
        """What it reads, and how."""
        return {name: value for name, value in vars(self).items() if name in _SETTINGS}

    def _prepare(self, epoch: int) -> None:
        """Prepare what an adapter keeps, before its first iteration, which yields this epoch."""

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
        if (transform := self._of_each) is not None:
            for at, result in transformed(self._raw(reading), transform, self.transform_threads, readers):
                cursor.at = at
                yield result()
            return
        for taken, places in reading:  # as below, without a value for each sample
            if self.batch_size is not None:
                cursor.at = places, taken.size
                yield self._batch(taken)
                continue
            for number, sample in enumerate(taken.shared, 1):
                cursor.at = places, number
                yield sample

    def _raw(self, reading: Iterator[tuple[Taken, Callable[[int], Place]]]) -> Iterator[Raw]:
        for taken, places in reading:
            if self.batch_size is not None:
                yield Raw((places, taken.size), self._batch(taken), taken, True)
                continue
            for number, sample in enumerate(taken.shared, 1):
                yield Raw((places, number), sample, taken, False)

    @property
    def _decodes(self) -> bool:
        return self.batch_size is None or self.batch_format != "arrow"

    def _taker(self, group: Group) -> Take:
        """How records come out of a buffer: as a table, as columns, or as samples."""
        if not self._decodes:
            return taker(records_alone(group))
        decoder = self.catalog.source.format.decoder(group, self.catalog.source.url)
        if self.batch_size is None:
            return decoder.samples
        return decoder.columns if self.batch_format == "numpy" else lambda records: list(decoder.samples(records))

    def _batch(self, taken: Taken) -> Any:
        return cut(taken, self.catalog.source.format.traits.has_columns)

    @property
    def _of_each(self) -> Transform | None:
        """What is called with each item: the transform, which gets the samples of a list one by one."""
        if self.transform is None or not self._gives_lists:
            return self.transform
        return partial(_each, self.transform)

    @property
    def _gives_lists(self) -> bool:
        return self.batch_size is not None and self.batch_format == "samples"

    def _counted(
        self, cursor: Cursor, worker: int, workers: int, readers: Readers
    ) -> Iterator[tuple[Taken, Callable[[int], Place]]]:
        world, place = self.world(workers), cursor.place
        self._check_world(place, world)
        shares, role, done = self._resumed(place, world, worker)
        records = self.catalog.index.column("records")
        rest = replay(self.whole_epoch(records, place.epoch), shares, self.rules, place.epoch)
        self.check_length(rest.total, world, fresh=not shares)
        if worker == 0 and self.rank == 0 and world.readers > len(records):
            _log.warning(
                "%s: %d readers share %d blocks by records: up to %d more requests per epoch; smaller blocks "
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
        for taken in portions(orders, self.batch_size, joined):
            before = done
            done += taken.size

            def places(number: int, before: int = before) -> Place:
                return Place(place.epoch, shares, (role, before + number))

            yield taken, places

    def _resumed(self, place: Place, world: World, worker: int) -> tuple[tuple[Share, ...], int, int]:
        """The earlier worlds, which of their readers this worker is, and how many examples that one has yielded."""
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
                f"{self.catalog.source.url}: {plural(len(lengths), 'shard')} for {plural(world.readers, 'reader')}; "
                f"they can share shards once these are indexed: corgi2 index {self.catalog.source.url}"
            )
        reader, (first, skip) = self.rank * workers + worker, place.buffer or (0, 0)
        rest = self.whole_epoch(lengths, place.epoch)
        parts = deal_shards(rest, world, self.rules.seed).buffers(reader)
        orders = self._orders(parts[first:], place.epoch, 0, reader, skip, self.room(workers), readers)
        numbers = {id(part): number for number, part in enumerate(parts)}
        for taken in portions(orders, self.batch_size, joined):
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
                f"the state belongs to one reader of {tuple(place.world)} (ranks, workers, window, batch, ranks per "
                f"node), and cannot resume in {tuple(world)}; to change these, take the state from state_after()"
            )

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


def _each(transform: Transform, samples: list[Any]) -> list[Any]:
    return list(map(transform, samples))


def _check(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))} (got {value!r})")


def _affinity(affinity: Any, has_cache: bool) -> Literal["node"] | tuple[int, ...] | None:
    if affinity is None or affinity == "node":
        return "node" if affinity else None
    if affinity == "auto":
        return "node" if has_cache else None
    if not isinstance(affinity, Iterable) or isinstance(affinity, str):
        raise ValueError(f"affinity must be 'auto', 'node', None or the ranks of each node (got {affinity!r})")
    return tuple(whole_number("affinity", ranks, 1) for ranks in affinity)


def _with_cache(catalog: Catalog, folder: str | os.PathLike[str] | None, size: int | str | None) -> Catalog:
    if folder is None:
        if size is not None:
            raise ValueError(f"cache_size={size!r} is for a cache; give cache_dir=, too")
        return catalog
    limit = None if size is None else parse_size(size)
    return replace(catalog, cache=open_cache(folder, limit, catalog.source.store, catalog.source.entries))


def auto_buffer() -> int:
    """A rank's buffer unless one is given."""
    most = usable_memory() // _SHARE_OF_MEMORY // local_ranks()
    return AUTO_BYTES if most >= AUTO_BYTES else 1 << max(20, most.bit_length() - 1)
