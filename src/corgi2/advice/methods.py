"""What each way of shuffling a data set costs and buys. Pure arithmetic.

A block is what one read of the method fetches. Requests are of data: the plan, a marker a group and the index come on
top. Quality is H, the coefficient of Theorem 2's leading term (`theory`): its ratio to a full shuffle's is that of the
leading terms.
"""

import math
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from corgi2 import theory
from corgi2.advice.prices import Prices
from corgi2.offline import GroupSizes
from corgi2.sizes import format_size, plural
from corgi2.stores import PART_BYTES, reads_of, upload_bytes, whole_bytes
from corgi2.theory import Blocks

OFFLINE_IN_FLIGHT, ONLINE_IN_FLIGHT = 4, 8
"""Requests at a time on a node, by default."""
_SMALLEST_BLOCK = 1_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A data set, as far as costs and quality depend on it."""

    records: int
    bytes: int
    shards: int
    blocks: int
    footprint: int
    """Bytes in memory."""
    h_D: float | None = None  # noqa: N815 - the paper's name
    h_D_high: float | None = None  # noqa: N815
    """The upper end of its interval, where it was measured on some blocks only."""
    ragged: float = 0.0
    """As in `theory.Blocks`."""
    growth: float = 1.0
    is_local: bool = False
    reads_records: bool = True
    """Whether one record can be read alone."""
    is_shuffled: bool = False
    url: str = "SRC"
    """As it was typed."""
    is_folder: bool = False
    """Whether another folder can lie beside it."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("records", "bytes", "shards", "blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"a data set has at least one of its {name} (got {getattr(self, name)})")
        if self.records < self.blocks:
            raise ValueError(f"{self.records:,} records in {plural(self.blocks, 'block')}: every block holds a record")
        if self.h_D is not None and not 0 <= self.h_D <= self.block_records:
            raise ValueError(
                f"h_D lies between 0 and b = {self.block_records:,.4g}, the records of a block (got {self.h_D:,.4g})"
            )

    @property
    def block_records(self) -> float:
        return self.records / self.blocks

    @property
    def block_bytes(self) -> float:
        return self.bytes / self.blocks

    @property
    def expansion(self) -> float:
        """Bytes in memory for one that is stored."""
        return self.footprint / self.bytes

    @property
    def theory(self) -> Blocks:
        """Where h_D is not known, the worst is assumed."""
        h = self.block_records if self.h_D is None else self.h_D
        return Blocks(self.blocks, self.block_records, h, self.ragged)


@dataclass(frozen=True, slots=True)
class Offline:
    """A pass as the shuffle would plan it: from so many blocks, in groups, to so many shards and blocks."""

    groups: int
    shards: int
    blocks: int
    reads: int
    between: int = 0
    """Shards between two passes."""


@dataclass(frozen=True, slots=True)
class Means:
    """What there is to shuffle and train with."""

    buffer: int
    """Of the offline pass, on a node."""
    online_buffer: int
    """Of the loader, on a node: a half is consumed while the other is filled."""
    epochs: int
    nodes: int
    prices: Prices
    bandwidth: float
    """Bytes a second, of a node."""
    latency: float
    """Seconds until an answer begins."""

    def __post_init__(self) -> None:
        for name in ("buffer", "online_buffer", "epochs", "nodes", "bandwidth"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name.replace('_', ' ')} is above 0 (got {value:g})")
        if not 0 <= self.latency < math.inf:
            raise ValueError(f"latency is a number of milliseconds, not negative (got {1000 * self.latency:g})")

    def window(self, block_bytes: float, blocks: float) -> int:
        """Blocks of a size, in memory, that lie in the buffers of all nodes at one time; of so many that there are."""
        return min(int(self.online_buffer / 2 / block_bytes + 1e-9) * self.nodes, max(1, int(blocks)))

    def hours(self, size: float, requests: float, in_flight: int) -> float:
        return max(size / self.bandwidth, requests * self.latency / in_flight) / self.nodes / 3600


class Kind(StrEnum):
    """What a method is, whatever its settings."""

    RANDOM_ACCESS = "random access"
    SHUFFLE_ONCE = "shuffle once"
    SEQUENTIAL = "sequential"
    CORGIPILE = "CorgiPile"
    CORGI2 = "Corgi²"

    @property
    def is_reference(self) -> bool:
        """Whether it is there to be compared with, and corgi2 does not run it."""
        return self in (Kind.RANDOM_ACCESS, Kind.SHUFFLE_ONCE, Kind.SEQUENTIAL)


@dataclass(frozen=True, slots=True)
class Way:
    """A method, with its settings."""

    kind: Kind
    passes: int = 0
    picks: str = "random"
    cut_bytes: int | None = None
    """Of new blocks, where they are cut smaller than the old ones."""

    @property
    def name(self) -> str:
        if self.kind is not Kind.CORGI2:
            return str(self.kind)
        cut = "" if self.cut_bytes is None else f", blocks of {format_size(self.cut_bytes)}"
        return f"{self.kind}{cut}, {plural(self.passes, 'pass')}, {self.picks} picks"


@dataclass(frozen=True, slots=True)
class Method:
    """One way, and what it costs and buys."""

    way: Way
    offline_requests: int
    online_requests: int
    offline_bytes: int
    online_bytes: int
    extra_bytes: int
    cost_usd: float
    offline_hours: float
    online_hours: float
    """Of all epochs, if reading is all there is to do."""
    window: int
    """Blocks in all buffers at one time."""
    block_bytes: int
    h: float
    H: float
    H_full: float
    """Of a full shuffle, through the same window."""
    target: str | None
    """Where an offline pass writes to."""
    command: str | None
    """What to run first."""

    @property
    def name(self) -> str:
        return self.way.name

    @property
    def relative(self) -> float:
        """H over that of a full shuffle: also the ratio of Theorem 2's leading terms."""
        return self.H / self.H_full if self.H_full > 0 else 1.0

    def as_json(self) -> dict[str, Any]:
        values = asdict(self)
        return {"name": self.name, **values.pop("way"), **values, "relative": self.relative}


class Table:
    """Makes the methods of one data set."""

    def __init__(self, shape: Shape, means: Means, one: Offline, two: Offline) -> None:
        self.shape, self.means, self.one, self.two = shape, means, one, two
        self.data = shape.theory
        self.n = max(1, min(shape.blocks, round(shape.blocks / one.groups)))
        self.parts = reads_of(shape.block_bytes)
        self.left_out: list[str] = []

    def methods(self) -> Iterator[Method]:
        yield from self._references()
        yield from self._pile()
        yield from self._corgi2()

    def _references(self) -> Iterator[Method]:
        """What the theory compares with."""
        shape, data, epochs = self.shape, self.data, self.means.epochs
        window = max(1, self.means.window(shape.block_bytes * shape.expansion, shape.blocks))
        full = theory.window_full(data, window)
        every = theory.requests_random_access(shape.records, epochs)
        fetched = shape.bytes if shape.reads_records else int(shape.records * shape.block_bytes)
        quality = (theory.h_full(data), full, full)
        yield self._method(
            Way(Kind.RANDOM_ACCESS), (0, 0, every.online), (0, fetched), 0, window, shape.block_bytes, quality
        )
        once = theory.requests_shuffle_once(
            shape.records, shape.shards * self._puts(shape.bytes / shape.shards), epochs
        )
        sizes = (fetched + shape.bytes, shape.bytes)
        reads = (shape.records, once.offline - shape.records, shape.blocks * self.parts * epochs)
        yield self._method(Way(Kind.SHUFFLE_ONCE), reads, sizes, shape.bytes, window, shape.block_bytes, quality)
        reads = (0, 0, shape.blocks * self.parts * epochs)
        order = (data.h, data.h, theory.window_full(data, 1))
        yield self._method(Way(Kind.SEQUENTIAL), reads, (0, shape.bytes), 0, 1, shape.block_bytes, order)

    def _pile(self) -> Iterator[Method]:
        """CorgiPile reads blocks as the index cuts them."""
        shape, parts = self.shape, self.parts if self.shape.reads_records else 1
        data = self.data
        if 1 < parts <= data.examples:
            data = Blocks(data.count * parts, data.examples / parts, theory.h_of_parts(data, parts))
        window = self._window("CorgiPile", shape.bytes / data.count, data.count)
        if window:
            quality = (data.h, theory.window_random(data, window), theory.window_full(data, window))
            reads = (0, 0, shape.blocks * self.parts * self.means.epochs)
            yield self._method(
                Way(Kind.CORGIPILE), reads, (0, shape.bytes), 0, window, shape.bytes / data.count, quality
            )

    def _corgi2(self) -> Iterator[Method]:
        shape, groups = self.shape, self.one.groups
        usual = shape.bytes * shape.growth / self.one.blocks
        yield from self._mixed(None, usual, self.one.blocks, self.one.shards)
        reaches = theory.largest_block(self.means.buffer / shape.expansion, self._online_bytes(), shape.bytes)
        smaller = {usual / 4, reaches} if reaches >= _SMALLEST_BLOCK else {usual / 4}
        for size in sorted(smaller, reverse=True):
            size = float(f"{size:.1e}") if size < usual else size
            blocks = math.ceil(shape.bytes * shape.growth / size / groups) * groups
            if _SMALLEST_BLOCK <= size < usual and blocks * 2 <= shape.records:
                yield from self._mixed(int(size), size, blocks, blocks)

    def _online_bytes(self) -> float:
        """Stored bytes that lie in all online buffers."""
        return self.means.online_buffer / 2 / self.shape.expansion * self.means.nodes

    def _mixed(self, cut_bytes: int | None, size: float, blocks: int, shards: int) -> Iterator[Method]:
        """One and two passes, random and even picks, with new blocks of a size."""
        suffix = "" if cut_bytes is None else f", blocks of {format_size(cut_bytes)}"
        window = self._window(f"{Kind.CORGI2}{suffix}", size, blocks)
        if not window:
            return
        data, n, out = self.data, self.n, int(self.shape.bytes * self.shape.growth)
        written = max(1.0, min(self.shape.records / blocks, n * data.examples))
        reads, writes = self.one.reads, shards * self._puts(out / shards)
        online = reads_of(size) * blocks * self.means.epochs
        for passes in (1,) if cut_bytes else (1, 2):
            groups, option = self.one.groups, f" --shard-size {int(size) // 1000}KB" if cut_bytes else ""
            middle = max(1.0, min(self.shape.records / max(1, self.two.between), n * data.examples))
            if passes == 2:
                groups, option = max(1, round(data.count / (n * n * data.examples / middle))), " --passes 2"
                reads, writes = reads + self.two.between, writes + self.two.between * self._puts(out / self.two.between)
            trimmed = min(window // groups * groups or window, int(data.total / written))
            if passes == 1:
                h, even = theory.h_after_pass(data, n, written), theory.window_even(data, n, trimmed, written)
            else:
                h = theory.h_butterfly(data, n, written, middle)
                even = theory.window_butterfly(data, n, trimmed, written, middle)
            new = Blocks(blocks, written, min(written, h))
            picks = (("random", window, theory.window_random(new, window)), ("even", trimmed, even))
            for name, seen, spread in picks:
                yield self._method(
                    Way(Kind.CORGI2, passes, name, cut_bytes),
                    (reads, writes, online),
                    (passes * (self.shape.bytes + out), out),
                    out,
                    seen,
                    size,
                    (new.h, spread, theory.window_full(new, seen)),
                    option,
                )

    def _puts(self, size: float) -> int:
        """Requests to write one object."""
        if self.shape.is_local:
            return theory.parts(math.ceil(size), PART_BYTES)
        part_bytes = upload_bytes(self.means.buffer)
        return 1 if size <= whole_bytes(part_bytes) else theory.parts(math.ceil(size), part_bytes) + 2

    def _window(self, name: str, size: float, blocks: int) -> int:
        window = self.means.window(size * self.shape.expansion, blocks)
        if not window:
            least = format_size(math.ceil(2 * size * self.shape.expansion))
            self.left_out.append(
                f"{name} is left out: a block takes {format_size(int(size * self.shape.expansion))} in memory, and an "
                f"online buffer holds two halves of blocks; {least} would do"
            )
        return window

    def _method(
        self,
        way: Way,
        requests: tuple[int, int, int],
        sizes: tuple[float, float],
        extra: int,
        window: int,
        block_bytes: float,
        quality: tuple[float, float, float],
        option: str | None = None,
    ) -> Method:
        """From reads and writes offline, reads online; bytes offline, and online in an epoch; and h, H, H_full."""
        (reads, writes, online), means = requests, self.means
        moved = sizes[1] * means.epochs
        command = target = None
        if option is not None:
            target = f"{self.shape.url.rstrip('/')}-mixed" if self.shape.is_folder else "DST"
            places = f"{shlex.quote(self.shape.url)} {shlex.quote(target)}"
            command = f"corgi2 shuffle {places} --buffer {_exact_size(means.buffer)}{option}"
        return Method(
            way=way,
            offline_requests=reads + writes,
            online_requests=online,
            offline_bytes=int(sizes[0]),
            online_bytes=int(moved),
            extra_bytes=extra,
            cost_usd=means.prices.requests(reads + online, writes) + means.prices.month(extra),
            offline_hours=means.hours(sizes[0], reads + writes, OFFLINE_IN_FLIGHT),
            online_hours=means.hours(moved, online, ONLINE_IN_FLIGHT),
            window=window,
            block_bytes=int(block_bytes),
            h=quality[0],
            H=quality[1],
            H_full=quality[2],
            target=target,
            command=command,
        )


def _exact_size(size: int) -> str:
    """So that it is read back as the same number."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def guess_offline(shape: Shape, buffer: int, passes: int = 1) -> Offline:
    """The pass that a shuffle would plan for blocks that are all alike."""
    block = shape.footprint / shape.blocks
    n = min(shape.blocks, int(buffer / block + 1e-9))
    if n < 1:
        raise ValueError(
            f"a block takes {format_size(math.ceil(block))} in memory, more than the buffer of {format_size(buffer)}; "
            f"buffer='{math.ceil(block / 1e6)}MB' would do, or smaller shards"
        )
    groups = math.ceil(shape.blocks / n)
    sizes = GroupSizes(shape.blocks, shape.footprint, groups, buffer)
    reads = shape.blocks * reads_of(shape.block_bytes)
    between = groups * sizes.shards_between if passes > 1 else 0
    shards = max(1, round(shape.shards / groups))
    return Offline(groups, groups * shards, groups * shards * sizes.blocks_per_shard(shards), reads, between)
