"""The ways of shuffling a data set, and what each costs and buys, as values."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from corgi2.sizes import format_size, plural


class Kind(StrEnum):
    """The kind of a method, whatever its settings."""

    RANDOM_ACCESS = "random access"
    SHUFFLE_ONCE = "shuffle once"
    SEQUENTIAL = "sequential"
    CORGIPILE = "CorgiPile"
    CORGI2 = "Corgi²"

    @property
    def is_reference(self) -> bool:
        """Whether it serves only for comparison, because corgi2 does not run it."""
        return self in (Kind.RANDOM_ACCESS, Kind.SHUFFLE_ONCE, Kind.SEQUENTIAL)


@dataclass(frozen=True, slots=True)
class Way:
    """A method, with its settings."""

    kind: Kind
    passes: int = 0
    picks: str = "random"
    cut_bytes: int | None = None
    """The size of new blocks, if they are cut smaller than the old ones; or of the blocks of a new index."""
    range_bytes: int | None = None
    """The size of ranges, if they are mixed in rounds."""

    @property
    def name(self) -> str:
        cut = "" if self.cut_bytes is None else f", blocks of {format_size(self.cut_bytes)}"
        if self.kind is not Kind.CORGI2:
            return f"{self.kind}{cut}"
        if self.range_bytes is not None:
            return f"{self.kind}, ranges of {format_size(self.range_bytes)} in rounds, {self.picks} picks"
        return f"{self.kind}{cut}, {plural(self.passes, 'pass')}, {self.picks} picks"


@dataclass(frozen=True, slots=True)
class Money:
    """Costs in dollars."""

    requests: float
    """Requests of the offline pass and of all epochs."""
    storage: float
    """A month of what is stored twice."""
    traffic: float
    """Traffic of what is read."""
    machines: float | None
    """The machines that shuffle, while they do; None if their price is not known."""

    @property
    def total(self) -> float:
        return self.requests + self.storage + self.traffic + (self.machines or 0.0)


@dataclass(frozen=True, slots=True)
class Method:
    """One way, and what it costs and buys."""

    way: Way
    groups: int
    """Of all passes."""
    n: int
    offline_reads: int
    offline_writes: int
    online_requests: int
    offline_bytes: int
    online_bytes: int
    extra_bytes: int
    objects: int
    """Shards that are read in training."""
    object_bytes: int
    """Their mean size."""
    money: Money
    usd_per_tb: float
    """The total per TB of the data set."""
    offline_hours: float
    online_hours: float
    """Seconds of all epochs, if they only read."""
    window: int
    """Blocks in all buffers at one time."""
    block_bytes: int
    h: float
    H: float
    H_full: float
    """Of a full shuffle, through the same window."""
    R: float
    """What SGD feels over time."""
    R_full: float
    is_exact: bool
    """Whether h, H and R are exact, and not from closed forms, which are off by up to a fifth here."""
    target: str | None
    """Where an offline pass writes to."""
    command: str | None
    """The command to run first: a whole line for a shell."""

    @property
    def name(self) -> str:
        return self.way.name

    @property
    def offline_requests(self) -> int:
        return self.offline_reads + self.offline_writes

    @property
    def requests(self) -> int:
        return self.offline_requests + self.online_requests

    @property
    def hours(self) -> float:
        return self.offline_hours + self.online_hours

    @property
    def cost_usd(self) -> float:
        return self.money.total

    @property
    def relative(self) -> float:
        """H over that of a full shuffle: also the ratio of Theorem 2's leading terms."""
        return self.H / self.H_full if self.H_full > 0 else 1.0

    @property
    def felt(self) -> float:
        """R over that of a full shuffle."""
        return self.R / self.R_full if self.R_full > 0 else 1.0

    def as_json(self) -> dict[str, Any]:
        values = asdict(self)
        sums = {name: getattr(self, name) for name in ("offline_requests", "cost_usd", "relative", "felt")}
        return {"name": self.name, **values.pop("way"), **values, **sums}
