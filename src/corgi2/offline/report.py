"""What a shuffle did."""

from dataclasses import asdict, dataclass
from typing import Any

from corgi2.offline.skipped import Skipped
from corgi2.sizes import format_seconds, format_size, plural


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What a shuffle did. Reads, writes and deletes are those that the stores counted, planning included."""

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
    seconds: float
    buffer_bytes: int
    resumed_groups: int
    """Groups that an earlier run, or another at the same time, had finished."""
    skipped: tuple[Skipped, ...]
    """The damage in shards that were left out."""

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
            f"{plural(self.reads, 'read')}, {plural(self.writes, 'write')}, {format_seconds(self.seconds)}"
        )
        done = ", complete already" if self.was_complete else ""
        return "\n".join([text + done, *(f"left out: {each}" for each in self.skipped)])

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        left_out = f", {len(self.skipped)} left out" if self.skipped else ""
        return (
            f"<Report: {plural(self.records, 'record')} in {plural(self.shards, 'shard')}, {format_size(self.bytes)}, "
            f"{plural(self.passes, 'pass')} of n = {self.n:,}{left_out}, in {format_seconds(self.seconds)}>"
        )
