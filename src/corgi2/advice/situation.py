"""What a plan is made for: a data set, what an offline pass would make of it, and the means to do it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from corgi2.advice.prices import Prices
from corgi2.offline import AT_ONCE, GroupSizes
from corgi2.online import Beside
from corgi2.order import Drawing, Indices, Step, descent
from corgi2.sizes import format_size, plural
from corgi2.stores import CONNECTIONS, ranges_for, reads_of, upload_bytes, writes_of
from corgi2.theory import Blocks

Floats = npt.NDArray[np.float64]

_MOST_BLOCKS = 100_000
"""The most blocks for which groups are drawn one by one."""


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
    h_worst: float | None = None
    """Where it is not known, but corgi2 has mixed the data: what that left at the worst."""
    by: tuple[str, ...] = ()
    """What it was measured by."""
    ragged: float = 0.0
    """As in `theory.Blocks`."""
    growth: float = 1.0
    is_counted: bool = True
    """Whether the number of records is exact."""
    is_local: bool = False
    connections: int = CONNECTIONS
    """Connections of one process to its store."""
    ranges: int = CONNECTIONS
    """How many requests may share a read."""
    reads_records: bool = True
    """Whether one record can be read alone."""
    has_ranges: bool = True
    """Whether blocks can be cut within shards."""
    is_shuffled: bool = False
    contradiction: str = ""
    """Why it is not what its shuffle should have left, where that was seen."""
    needs_index: bool = False
    """Whether a loader refuses it until ``corgi2 index`` has counted its records."""
    is_cut: bool = False
    """Whether blocks were cut for the offline buffer, so that a loader reads larger ones."""
    sibling: str = ""
    """Where the rest is, if it was held out for validation."""
    url: str = "SRC"
    """The address as typed."""
    target: str | None = None
    """A folder for the shuffled data."""
    notes: tuple[str, ...] = ()
    decoded: int = 0
    """Stored bytes of the largest block, where blocks are decoded on their way into a loader's buffer."""
    sizes: Floats | None = field(default=None, repr=False, compare=False)
    """Records of each block, about; None where all are alike."""
    footprints: Floats | None = field(default=None, repr=False, compare=False)
    """Bytes in memory of each block; None where all are alike."""
    lineage: Indices | None = field(default=None, repr=False, compare=False)
    """The lineage of each block, if corgi2 wrote it."""
    rounds: Indices | None = field(default=None, repr=False, compare=False)
    """The round of each block, if corgi2 made it of ranges."""
    knows_ranges: bool = False
    """Whether it is known where ranges begin: by an index of small blocks, or by footers."""

    def __post_init__(self) -> None:
        for name in ("records", "bytes", "shards", "blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1 (got {getattr(self, name)})")
        if self.records < self.blocks:
            raise ValueError(
                f"{plural(self.records, 'record')} in {plural(self.blocks, 'block')}: every block must hold a record"
            )
        if self.h_D is not None and not 0 <= self.h_D <= self.block_records:
            raise ValueError(
                f"h_D must lie between 0 and b = {self.block_records:,.4g}, the records per block (got {self.h_D:,.4g})"
            )

    def reads(self, size: float, at_once: int) -> int:
        """Requests to read a block of this size while ``at_once`` are read; one, if it is on a disk."""
        return 1 if self.is_local else reads_of(size, ranges_for(self.ranges, at_once))

    @property
    def records_text(self) -> str:
        return f"{'' if self.is_counted else 'about '}{plural(self.records, 'record')}"

    @property
    def block_records(self) -> float:
        return self.records / self.blocks

    @property
    def block_bytes(self) -> float:
        return self.bytes / self.blocks

    @property
    def out_bytes(self) -> float:
        """Stored bytes of the shuffled data."""
        return self.bytes * self.growth

    @property
    def expansion(self) -> float:
        """Bytes in memory per stored byte."""
        return self.footprint / self.bytes

    @property
    def theory(self) -> Blocks:
        """Where h_D is not known, the worst is assumed."""
        known = (h for h in (self.h_D, self.h_worst) if h is not None)
        return Blocks(self.blocks, self.block_records, next(known, self.block_records), self.ragged)


@dataclass(frozen=True, slots=True)
class Offline:
    """A shuffle as it would be planned: its groups, what it reads and writes, what it leaves."""

    groups: int
    """Of all passes."""
    n: int
    """Blocks in the largest group of the first pass."""
    shards: int
    blocks: int
    reads: int
    writes: int
    between: int = 0
    """Shards between two passes."""
    first_groups: int = 1
    """Of the first pass."""
    steps: tuple[Step, ...] = field(default=(), repr=False, compare=False)
    """Its passes, if their groups are known."""
    lineage: Indices | None = field(default=None, repr=False, compare=False)
    """Of the groups of the last pass, where it is known."""
    footprints: Floats | None = field(default=None, repr=False, compare=False)
    """Bytes in memory of the groups of the last pass; None where all are alike."""

    @property
    def most(self) -> int:
        """The largest n of all passes; that of a later one is estimated where its groups are not known."""
        known = [len(group) for step in self.steps[1:] for group in step.groups]
        return max([self.n, *(known or [self.between // max(1, self.first_groups)])])

    @property
    def last_groups(self) -> int:
        """The number of groups in the last pass."""
        return len(self.lineage) if self.lineage is not None else self.groups


@dataclass(frozen=True, slots=True)
class Stock:
    """Blocks as a loader's buffer holds them."""

    sizes: Floats
    """Bytes in memory, of blocks of which there are ``each`` of every size."""
    each: int
    stored: int = 0
    """Bytes of the largest as it is stored, where blocks are decoded on their way."""

    @property
    def beside(self) -> Beside:
        return Beside(math.ceil(self.sizes.max()), self.stored)

    def held(self, buffer_bytes: int) -> int:
        """Blocks, whichever they are, that lie in a half of one reader's buffer, by the rule of the loader."""
        sizes, left = np.sort(self.sizes)[::-1], self.beside.left(buffer_bytes // 2) * (1 + 1e-12)
        sums = np.cumsum(sizes * self.each)
        whole = int(np.searchsorted(sums, left, "right"))
        if whole == len(sizes):
            return whole * self.each
        return whole * self.each + max(0, int((left - (sums[whole - 1] if whole else 0)) / sizes[whole]))


@dataclass(frozen=True, slots=True)
class Means:
    """What there is to shuffle and train with."""

    buffer: int
    """The buffer of the offline pass, per node."""
    online_buffer: int
    """The buffer of the loader, per node: one half is consumed while the other is filled."""
    epochs: int
    nodes: int
    prices: Prices
    bandwidth: float
    """Bytes per second, per node."""
    latency: float
    """Seconds until an answer begins."""
    how: str = "as given"
    """Where the last two come from."""
    node_price: float | None = None
    """Dollars per hour for a machine that shuffles; None if not known."""
    machine: str = ""
    """Which machine, and the date of its price."""
    traffic_price: float = 0.0
    """Dollars per GB that is read."""
    options: tuple[str, ...] = ()
    """Options of the store, as words for the command line; secrets as variables of a shell."""
    kept: Mapping[str, str | int | float] = field(default_factory=dict)
    """The same as a program gives them, without secrets."""
    knows_buffer: bool = True
    """Whether the buffer was given; else it is that of this machine."""

    def __post_init__(self) -> None:
        for name in ("buffer", "online_buffer", "epochs", "nodes", "bandwidth"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name.replace('_', ' ')} is above 0 (got {value:g})")
            if name in ("epochs", "nodes") and value != int(value):
                raise ValueError(f"{name} is a whole number (got {value:g}); {name}={math.ceil(value)} is the next")
        if not 0 <= self.latency < math.inf:
            raise ValueError(f"latency must be a number of milliseconds, not negative (got {1000 * self.latency:g})")

    def window(self, stock: Stock) -> int:
        """Blocks that lie in the buffers of all nodes at one time; of so many that there are."""
        return min(stock.held(self.online_buffer) * self.nodes, stock.each * len(stock.sizes))

    def hours(self, size: float, requests: float, in_flight: int) -> float:
        return max(size / self.bandwidth, requests * self.latency / in_flight) / self.nodes / 3600

    def writes(self, size: float, is_local: bool) -> int:
        """Requests to write one object."""
        return 1 if is_local else writes_of(size, upload_bytes(self.buffer))


def guess_offline(shape: Shape, means: Means, passes: int = 1) -> Offline:
    """What a shuffle would plan for blocks that are all alike."""
    block = shape.footprint / shape.blocks
    n = min(shape.blocks, int(means.buffer / block + 1e-9))
    if n < 1:
        raise ValueError(
            f"a block takes {format_size(math.ceil(block))} in memory, more than the buffer of "
            f"{format_size(means.buffer)}; buffer='{math.ceil(block / 1e6)}MB' would do, or smaller shards"
        )
    groups = math.ceil(shape.blocks / n)
    sizes = GroupSizes(shape.blocks, shape.footprint, groups, means.buffer)
    between = groups * sizes.shards_between if passes > 1 else 0
    steps, lineage = _steps(shape.blocks, n, passes, sizes.shards_between)
    last = len(steps[-1].groups) if steps else groups
    shards = max(1, round(shape.shards / last))
    written = GroupSizes(between or shape.blocks, shape.footprint, last, means.buffer).blocks_per_shard(shards)
    reads = shape.blocks * shape.reads(shape.block_bytes, min(AT_ONCE, n))
    writes = last * shards * means.writes(shape.out_bytes / (last * shards), shape.is_local)
    if between:
        reads += between * shape.reads(shape.out_bytes / between, AT_ONCE)
        writes += between * means.writes(shape.out_bytes / between, shape.is_local)
    total = groups + (last if between else 0)
    blocks = last * shards * written
    n = -(-shape.blocks // groups)
    return Offline(total, n, last * shards, blocks, reads, writes, between, groups, steps, lineage)


def _steps(blocks: int, n: int, passes: int, between: int) -> tuple[tuple[Step, ...], Indices | None]:
    """Passes over equal blocks, drawn as the shuffle does with seed 0."""
    steps, lineage, count = list[Step](), None, blocks
    if max(blocks, -(-blocks // n) * between) > _MOST_BLOCKS:
        return (), None
    for number in range(1, passes + 1):
        most = n if number == 1 else max(1, n * count // blocks)
        groups = Drawing(0, number).groups(np.ones(count, np.int64), count, most, lineage)
        own = np.array(descent(groups, lineage))
        steps.append(Step(groups, between))
        lineage, count = np.repeat(own, between, axis=0), len(groups) * between
    return tuple(steps), own
