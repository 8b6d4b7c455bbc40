"""What a shuffle did."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
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
    skipped: tuple[str, ...]
    """The damage in shards that were left out."""

    @property
    def was_complete(self) -> bool:
        return self.resumed_groups == self.groups

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
