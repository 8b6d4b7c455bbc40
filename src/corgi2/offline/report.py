"""What a shuffle did."""

from dataclasses import asdict, dataclass
from typing import Any

from corgi2.offline.skipped import Skipped
from corgi2.sizes import format_seconds, format_size, plural


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What a shuffle did. Reads and writes are those of shards, as its plan foresees them, also between passes."""

    records: int
    bytes: int
    blocks: int
    groups: int
    n: int
    shards: int
    passes: int
    reads: int
    writes: int
    deletes: int
    other_requests: int
    """Requests for planning, markers, the plan and the index."""
    seconds: float
    buffer_bytes: int
    resumed_groups: int
    """Groups that an earlier run, or another at the same time, had finished."""
    skipped: tuple[Skipped, ...]
    """The errors of damaged shards that were left out."""
    held_records: int = 0
    held_shards: int = 0
    held_writes: int = 0
    """What was held out."""
    holdout: str | None = None
    """The address of the held-out records."""

    @property
    def was_complete(self) -> bool:
        return self.resumed_groups == self.groups

    def as_json(self) -> dict[str, Any]:
        """As the command line prints it."""
        return asdict(self)

    def as_text(self) -> str:
        """As the command line prints it."""
        text = (
            f"{plural(self.records, 'record')} in {plural(self.shards, 'shard')}, {format_size(self.bytes)}; "
            f"{plural(self.reads, 'read')} and {plural(self.writes, 'write')} of shards, {format_seconds(self.seconds)}"
        )
        done = ", complete already" if self.was_complete else ""
        held = (
            f"{plural(self.held_records, 'record')} in {plural(self.held_shards, 'shard')}, "
            f"{plural(self.held_writes, 'write')}"
        )
        lines = [text + done, *([f"held out to {self.holdout}: {held}"] if self.holdout else [])]
        return "\n".join([*lines, *(f"left out: {each}" for each in self.skipped)])

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        left_out = f", {len(self.skipped)} left out" if self.skipped else ""
        return (
            f"<Report: {plural(self.records, 'record')} in {plural(self.shards, 'shard')}, {format_size(self.bytes)}, "
            f"{plural(self.passes, 'pass')} of n = {self.n:,}{left_out}, in {format_seconds(self.seconds)}>"
        )
