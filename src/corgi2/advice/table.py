"""What each way of shuffling a data set costs and buys. Pure arithmetic.

A block is what one read of the method fetches. Requests are those for shards: the plan, one marker per group and the
index come on top. Quality is judged by `corgi2.advice.judge`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from corgi2 import theory
from corgi2.advice.command import exact_size, index_command, shuffle_command
from corgi2.advice.judge import Judge, Quality
from corgi2.advice.methods import Kind, Method, Money, Way
from corgi2.advice.ranged import Ranged
from corgi2.advice.situation import Floats, Means, Offline, Shape, Stock
from corgi2.offline import why_useless
from corgi2.sizes import format_size, plural
from corgi2.stores import RANGE_BYTES, reads_of
from corgi2.theory import Blocks

OFFLINE_IN_FLIGHT, ONLINE_IN_FLIGHT = 4, 8
"""Requests in flight to a disk, per node; an object store takes as many as it has connections."""
_SMALLEST_BLOCK = 1_000_000


@dataclass(frozen=True, slots=True)
class _Work:
    """What a way does: requests and bytes, offline and in all epochs, and what it leaves."""

    reads: int
    writes: int
    online: int
    read_bytes: float
    written_bytes: float
    online_bytes: float
    """Seconds of one epoch."""
    extra_bytes: float
    objects: int
    block_bytes: float
    groups: int = 0
    n: int = 0
    scanned_bytes: float = 0
    """Bytes that one node alone reads first, to index them."""


class Table:
    """Makes the methods of one data set."""

    def __init__(
        self,
        shape: Shape,
        means: Means,
        one: Offline,
        two: Offline,
        cuts: Sequence[int] = (),
        ranged: Ranged | None = None,
    ) -> None:
        self.shape, self.means, self.one, self.two, self.cuts = shape, means, one, two, cuts
        self.ranged = ranged
        self.data = shape.theory
        self.stock = self._stock(shape.footprints, shape.footprint, shape.blocks)
        self.judge = Judge(shape, self.tau)
        self.parts = self._reads(shape.block_bytes, self.stock)
        self.left_out: list[str] = []

    @property
    def tau(self) -> float:
        """The memory of SGD that R is stated for: the examples that lie in all online buffers at one time."""
        return max(1.0, min(self._online_bytes / self.shape.bytes, 1.0) * self.shape.records)

    @property
    def _online_bytes(self) -> float:
        """Stored bytes that lie in all online buffers."""
        half = self.means.online_buffer // 2
        left = self.stock.beside.left(half)
        return (left if left > 0 else half) / self.shape.expansion * self.means.nodes

    def _stock(self, footprints: Floats | None, total: float, blocks: int, stored: float | None = None) -> Stock:
        """So many blocks of so many bytes in memory, equally many of each of some parts; as the data lies, or as a
        shuffle writes them in so many bytes."""
        parts = np.array([total]) if footprints is None else footprints
        each = max(1, blocks // len(parts))
        sizes: Floats = parts / each
        largest = self.shape.decoded if stored is None else stored / blocks * float(sizes.max() / sizes.mean())
        return Stock(sizes, each, math.ceil(largest) if self.shape.decoded else 0)

    def _reads(self, size: float, stock: Stock) -> int:
        """Requests that a loader takes for a block of a size, with one reader per node."""
        return self.shape.reads(size, max(1, self.means.window(stock) // self.means.nodes))

    def _in_flight(self, of_a_disk: int) -> int:
        return of_a_disk if self.shape.is_local else self.shape.connections

    def methods(self) -> Iterator[Method]:
        yield from self._references()
        yield from self._pile()
        yield from self._corgi2()

    def _references(self) -> Iterator[Method]:
        """The methods that the theory compares with."""
        shape, data, epochs = self.shape, self.data, self.means.epochs
        window = max(1, self.means.window(self.stock))
        full = self.judge.full(theory.h_full(data), data, window)
        every = theory.requests_random_access(shape.records, epochs)
        fetched = shape.bytes if shape.reads_records else shape.records * shape.block_bytes
        lying = (shape.shards, shape.block_bytes)
        yield self._method(Way(Kind.RANDOM_ACCESS), _Work(0, 0, every.online, 0, 0, fetched, 0, *lying), full)
        writes = shape.shards * self.means.writes(shape.bytes / shape.shards, shape.is_local)
        online = shape.blocks * self.parts * epochs
        once = _Work(shape.records, writes, online, fetched, shape.bytes, shape.bytes, shape.bytes, *lying)
        yield self._method(Way(Kind.SHUFFLE_ONCE), once, full)
        order = self.judge.random(data, 1)._replace(h=data.h, H=data.h)
        yield self._method(Way(Kind.SEQUENTIAL), self._reading(online), order)

    def _reading(self, online: int, block_bytes: float | None = None) -> _Work:
        """Reading the data as it is."""
        shape = self.shape
        return _Work(0, 0, online, 0, 0, shape.bytes, 0, shape.shards, block_bytes or shape.block_bytes)

    @property
    def _coarse(self) -> Blocks:
        """The data in blocks of at most 64 MB, as an index cuts it, if the format allows."""
        data, parts = self.data, reads_of(self.shape.block_bytes) if self.shape.reads_records else 1
        if not 1 < parts <= data.examples:
            return data
        return Blocks(data.count * parts, data.examples / parts, theory.h_of_parts(data, parts))

    def _pile(self) -> Iterator[Method]:
        """CorgiPile reads blocks as the index cuts them."""
        shape, data = self.shape, self._coarse
        if shape.is_cut:
            enough = -(-int(1.1 * shape.footprint / shape.shards) // 1_000_000) * 1_000_000
            self.left_out.append(
                "CorgiPile is left out: shards larger than the offline buffer are cut for it into blocks of "
                f"{format_size(int(shape.block_bytes))}, and a loader reads larger ones; buffer='"
                f"{exact_size(enough)}' or more compares them"
            )
            return
        stock = self._stock(shape.footprints, shape.footprint, data.count)
        window = self._window("CorgiPile", stock)
        if window:
            size = shape.bytes / data.count
            work = self._reading(data.count * self._reads(size, stock) * self.means.epochs, size)
            if shape.needs_index:
                work = self._indexed(work)
            yield self._method(Way(Kind.CORGIPILE), work, self.judge.pile(data, window))
        yield from self._pile_of_parts(data)

    def _indexed(self, work: _Work) -> _Work:
        """After a scan of everything, by one node."""
        return replace(work, reads=self._scan, scanned_bytes=self.shape.bytes)

    @property
    def _scan(self) -> int:
        return self.shape.blocks * reads_of(self.shape.block_bytes)

    def _pile_of_parts(self, data: Blocks) -> Iterator[Method]:
        """CorgiPile on blocks that an index cuts smaller, in every epoch."""
        shape, parts = self.shape, round(self.shape.bytes / data.count / _SMALLEST_BLOCK)
        if not (shape.reads_records and not shape.is_shuffled and parts > 1 and 2 * parts <= data.examples):
            return
        fine = Blocks(data.count * parts, data.examples / parts, theory.h_of_parts(data, parts))
        stock, size = self._stock(None, shape.footprint, fine.count), shape.bytes / fine.count
        window = self.means.window(stock)
        if window:
            work = self._indexed(self._reading(fine.count * self._reads(size, stock) * self.means.epochs, size))
            made = self._method(Way(Kind.CORGIPILE, cut_bytes=_SMALLEST_BLOCK), work, self.judge.random(fine, window))
            yield replace(made, command=index_command(shape.url, self.means, _SMALLEST_BLOCK))

    def _corgi2(self) -> Iterator[Method]:
        shape, groups = self.shape, self.one.last_groups
        usual = shape.out_bytes / self.one.blocks
        for passes, offline in ((1, self.one), (2, self.two)):
            yield from self._mixed(passes, offline, None, offline.blocks)
        yield from self._in_rounds()
        reaches = theory.largest_block(self.means.buffer / shape.expansion, self._online_bytes, shape.bytes)
        for size in sorted({float(f"{usual / 4:.1e}"), float(f"{reaches:.1e}"), *self.cuts}, reverse=True):
            blocks = self._cut(size, groups)
            if _SMALLEST_BLOCK <= size < usual and blocks * 2 <= shape.records:
                yield from self._mixed(1, self.one, int(size), blocks)

    def _in_rounds(self) -> Iterator[Method]:
        """One pass of ranges. Unless there is an index of them, everything is read once more to find where they begin;
        which is assumed here."""
        shape, means, out, data = self.shape, self.means, self.shape.out_bytes, self._coarse
        if shape.knows_ranges:
            yield from self._ranged()
            return
        size, wanted = shape.bytes / data.count, round(shape.bytes / data.count / RANGE_BYTES)
        stock, ranges = self._stock(None, shape.footprint, data.count, out), min(wanted, self.one.groups)
        window = means.window(stock)
        if not (shape.reads_records and window and ranges > 1 and wanted <= data.examples):
            return
        if means.nodes > 1:
            self.left_out.append(
                f"{Kind.CORGI2} with ranges in rounds is left out: one node alone would read everything to find where "
                f"they begin; after {index_command(shape.url, means, RANGE_BYTES // 4)} it is compared, too"
            )
            return
        online = data.count * self._reads(size, stock) * means.epochs
        parts = max(1, round(wanted / ranges))  # there are no more rounds than groups
        reads = data.count * parts * ranges
        work = _Work(
            *(self._scan + reads, self.one.writes, online, shape.bytes, out, out, out),
            *(self.one.shards, size, self.one.groups, reads // self.one.groups, shape.bytes),
        )
        cut = Blocks(data.count * parts, data.examples / parts, theory.h_of_parts(data, parts))
        quality = self.judge.rounds(cut, self.one.groups, ranges, window, data.examples)
        way = Way(Kind.CORGI2, 1, "even", range_bytes=RANGE_BYTES)
        yield self._method(way, work, quality, {"range-size": exact_size(RANGE_BYTES)})

    def _ranged(self) -> Iterator[Method]:
        """The same, as it is planned."""
        shape, found, out = self.shape, self.ranged, self.shape.out_bytes
        if found is None:
            return
        blocks = min(found.blocks, shape.records)
        stock, size = self._stock(None, shape.footprint, blocks, out), out / blocks
        window = self._window(f"{Kind.CORGI2} with ranges in rounds", stock)
        if not window:
            return
        online = blocks * self._reads(size, stock) * self.means.epochs
        work = _Work(
            *(found.reads, found.writes, online, shape.bytes, out, out, out),
            *(found.shards, size, found.groups, found.n),
        )
        way = Way(Kind.CORGI2, 1, "even", range_bytes=RANGE_BYTES)
        yield self._method(way, work, self.judge.ranged(found, window), {"range-size": exact_size(RANGE_BYTES)})

    def _cut(self, size: float, groups: int) -> int:
        """How many blocks of this size, or a little less: equally many in every shard, or shards, if those are read
        whole."""
        each = groups if not self.shape.has_ranges else self.one.shards
        return math.ceil(self.shape.out_bytes / size / each - 1e-9) * each

    def _mixed(self, passes: int, offline: Offline, cut_bytes: int | None, blocks: int) -> Iterator[Method]:
        """Random and even picks, with this many new blocks, each of at least one record."""
        shape, means, out = self.shape, self.means, self.shape.out_bytes
        blocks = min(blocks, shape.records)
        size, shards, writes = out / blocks, offline.shards, offline.writes
        suffix = "" if cut_bytes is None else f", blocks of {format_size(cut_bytes)}"
        stock = self._stock(offline.footprints, shape.footprint, blocks, out)
        window = self._window(f"{Kind.CORGI2}{suffix}", stock) if passes == 1 else means.window(stock)
        if not window or self._is_useless(passes, offline, cut_bytes):
            return
        choices = {} if passes == 1 else {"passes": str(passes)}
        if cut_bytes is not None:
            choices = {"block-size" if shape.has_ranges else "shard-size": exact_size(cut_bytes)}
        if cut_bytes is not None and not shape.has_ranges:
            shards, writes = blocks, blocks * means.writes(size, shape.is_local)
        online = blocks * self._reads(size, stock) * means.epochs
        read = shape.bytes + (passes - 1) * out
        work = _Work(
            offline.reads, writes, online, read, passes * out, out, out, shards, size, offline.groups, offline.n
        )
        for picks in ("random", "even"):
            quality = self.judge.mixed(offline, blocks, window, picks)
            yield self._method(Way(Kind.CORGI2, passes, picks, cut_bytes), work, quality, choices)

    def _is_useless(self, passes: int, offline: Offline, cut_bytes: int | None) -> bool:
        """Whether ``corgi2 shuffle`` would refuse it."""
        shape = self.shape
        wanted = shape.shards if cut_bytes is None or shape.has_ranges else shape.out_bytes / cut_bytes
        problem = next(why_useless(offline.most, shape.blocks, offline.first_groups, wanted), None)
        if problem is not None and cut_bytes is None:
            self.left_out.append(
                f"{Kind.CORGI2} in {plural(passes, 'pass')} is left out: with this buffer, corgi2 shuffle refuses it "
                f"({problem}); give a larger buffer="
            )
        return problem is not None

    def _window(self, name: str, stock: Stock) -> int:
        window = self.means.window(stock)
        if not window:
            largest, least = stock.beside.largest, exact_size(-(-stock.beside.least // 1_000_000) * 1_000_000)
            beside = ", and what decoding takes" if stock.stored else ""
            self.left_out.append(
                f"{name} is left out: a block takes {format_size(largest)} in memory, and an online buffer holds two "
                f"halves of blocks{beside}; online_buffer='{least}' would do"
            )
        return window

    def _method(self, way: Way, work: _Work, quality: Quality, choices: dict[str, str] | None = None) -> Method:
        shape, means = self.shape, self.means
        target = (shape.target or "DST") if choices is not None else None
        command = None if target is None or choices is None else shuffle_command(shape.url, target, means, choices)
        offline = work.read_bytes + work.written_bytes + work.scanned_bytes
        scan = work.scanned_bytes / means.bandwidth / 3600
        moved = work.read_bytes + work.written_bytes
        hours = scan + means.hours(moved, work.reads + work.writes, self._in_flight(OFFLINE_IN_FLIGHT))
        stored = shape.bytes if choices is None else shape.out_bytes
        money = self._money(work, means.nodes * (hours - scan) + scan)
        return Method(
            way=way,
            groups=work.groups,
            n=work.n,
            offline_reads=work.reads,
            offline_writes=work.writes,
            online_requests=work.online,
            offline_bytes=int(offline),
            online_bytes=int(work.online_bytes * means.epochs),
            extra_bytes=int(work.extra_bytes),
            objects=work.objects,
            object_bytes=int(stored / work.objects),
            money=money,
            usd_per_tb=money.total / (shape.bytes / 1e12),
            offline_hours=hours,
            online_hours=means.hours(work.online_bytes * means.epochs, work.online, self._in_flight(ONLINE_IN_FLIGHT)),
            window=quality.window,
            block_bytes=int(work.block_bytes),
            h=quality.h,
            H=quality.H,
            H_full=quality.H_full,
            R=quality.R,
            R_full=quality.R_full,
            is_exact=quality.is_exact,
            target=target,
            command=command,
        )

    def _money(self, work: _Work, hours: float) -> Money:
        """``hours`` of all machines together."""
        means, prices = self.means, self.means.prices
        read = work.read_bytes + work.scanned_bytes + work.online_bytes * means.epochs
        return Money(
            requests=prices.requests(work.reads + work.online, work.writes),
            storage=prices.month(work.extra_bytes),
            traffic=read / 1e9 * means.traffic_price,
            machines=None if means.node_price is None else means.node_price * hours,
        )
