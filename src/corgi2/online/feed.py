"""The examples of a data set, epoch after epoch, for one reader of many."""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from corgi2.arguments import suggesting
from corgi2.dataset import narrow, open_catalog, refuse_nulls
from corgi2.online.batches import cut
from corgi2.online.buffers import Readers, Take
from corgi2.online.choices import (
    Affinity,
    BatchFormat,
    Picks,
    Tail,
    auto_buffer,
    check_choice,
    nodes_chosen,
    with_cache,
)
from corgi2.online.passages import Passage, Reader
from corgi2.online.place import Cursor, Place, whole_number
from corgi2.online.portions import Taken
from corgi2.online.ranks import find_world
from corgi2.online.transforming import Raw, Transform, transformed
from corgi2.online.view import View
from corgi2.order import Rules
from corgi2.records import Group, records_alone, taker
from corgi2.sizes import format_size, parse_size, plural
from corgi2.stores import Options

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


class Feed(View):
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
        check_choice("picks", picks, ("even", "random"))
        check_choice("tail", tail, ("drop", "repeat", "keep"))
        check_choice("batch_format", batch_format, ("numpy", "arrow", "samples"))
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
        self.catalog = with_cache(catalog, cache_dir, cache_size)
        self.columns, self.fill = columns and list(columns), fill and {name: repr(fill[name]) for name in fill}
        self.rules = Rules(seed, bool(shuffle), picks, tail, bool(drop_last))
        self.batch_size, self.transform, self.repeat, self.batch_format = batch_size, transform, repeat, batch_format
        self.buffer_blocks, self._affinity = buffer_blocks, nodes_chosen(affinity, cache_dir is not None)
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
        reading = Reader(self, worker, workers, self._taker, self._decodes, readers).passage(cursor.place)
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

    def _raw(self, reading: Passage) -> Iterator[Raw]:
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


def _each(transform: Transform, samples: list[Any]) -> list[Any]:
    return list(map(transform, samples))
