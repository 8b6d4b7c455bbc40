"""Damaged shards that a shuffle left out, as values: which ones, and what is wrong with them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from corgi2.errors import ShardError


@dataclass(frozen=True, slots=True, order=True)
class Skipped:
    """A shard that was left out. As text it is the error that was found."""

    shard: str
    """Its address."""
    offset: int
    """The byte where it went wrong."""
    problem: str

    @staticmethod
    def of(error: ShardError) -> "Skipped":
        return Skipped(error.shard, error.offset, error.problem)

    def __str__(self) -> str:
        return str(ShardError(self.shard, self.offset, self.problem))


def decode_skipped(fields: Iterable[Mapping[str, Any]]) -> tuple[Skipped, ...]:
    """Decode them from what was kept."""
    return tuple(Skipped(each["shard"], each["offset"], each["problem"]) for each in fields)
