"""What a trial is: its kind, its configuration and its chances, all from a seed and a number."""

import random
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

SUFFIXES = (".tar", ".tar.gz", ".tar.zst", ".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".tfrecord")
_CONFIGURATIONS = tuple(product(SUFFIXES, (False, True), (1, 2)))
_RANGES = {".tar": 5_000, ".jsonl": 1_000, ".tfrecord": 1_000}
"""Of a few records each, in formats that have ranges wherever records end."""
_STRIDE = 11
"""Has no divisor in common with the number of configurations, so that every kind meets all of them."""


class Kind(StrEnum):
    """What is done to a shuffle."""

    ONE = "one run killed"
    TWO = "two at once killed"
    THREE = "three at once killed"
    STOP = "stopped and continued"
    DISK = "disk full or failing"
    SERVER = "S3 server killed"
    NODE = "Ray node killed"
    DRIVER = "Ray driver killed"

    @property
    def is_ray(self) -> bool:
        return self in (Kind.NODE, Kind.DRIVER)


_ROUND = (
    *(Kind.ONE, Kind.STOP, Kind.TWO, Kind.DISK, Kind.ONE, Kind.THREE, Kind.SERVER, Kind.ONE, Kind.STOP, Kind.TWO),
    *(Kind.DISK, Kind.NODE, Kind.ONE, Kind.THREE, Kind.SERVER, Kind.STOP, Kind.TWO, Kind.DISK, Kind.ONE, Kind.DRIVER),
)
"""The kinds of twenty trials that follow each other."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One attack."""

    seed: int
    number: int

    @property
    def kind(self) -> Kind:
        return _ROUND[self.number % len(_ROUND)]

    @property
    def _configuration(self) -> tuple[str, bool, int]:
        turn, slot = divmod(self.number, len(_ROUND))
        return _CONFIGURATIONS[(turn + _STRIDE * slot + self.seed) % len(_CONFIGURATIONS)]

    @property
    def suffix(self) -> str:
        return self._configuration[0]

    @property
    def in_place(self) -> bool:
        return self._configuration[1]

    @property
    def passes(self) -> int:
        return self._configuration[2]

    @property
    def holdout(self) -> str | None:
        """What is held out, if anything is: records, or shards."""
        return self.chances("holdout").choice((None, "record", "shard"))

    @property
    def range_bytes(self) -> int | None:
        """The size of ranges, where some are mixed in rounds."""
        if self.in_place or self.passes > 1 or self.suffix not in _RANGES:
            return None
        return self.chances("ranges").choice((None, _RANGES[self.suffix]))

    def chances(self, what: str = "") -> random.Random:
        return random.Random(f"{self.seed} {self.number} {what}")  # noqa: S311 - to be repeated, not to be secret

    def __str__(self) -> str:
        way = "in place" if self.in_place else "copying"
        passes = f"{self.passes} pass{'es' * (self.passes > 1)}"
        held = f", {self.holdout}s held out" if self.holdout else ""
        held += ", ranges in rounds" if self.range_bytes else ""
        return f"trial {self.number} ({self.kind}; {self.suffix}, {way}, {passes}{held})"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a trial."""

    number: int
    runs: int
    blows: int
    """Kills, stops, faults."""
    seconds: float
    problem: str = ""


def chosen(seed: int, count: int, servers: int | None, rays: int | None) -> list[Trial]:
    """The first trials of a seed, with at most so many of those that need a server or a cluster."""
    left = {"server": count if servers is None else servers, "ray": count if rays is None else rays}
    trials: list[Trial] = []
    number = 0
    while len(trials) < count:
        trial = Trial(seed, number)
        need = "ray" if trial.kind.is_ray else "server" if trial.kind is Kind.SERVER else ""
        if not need or left[need]:
            trials.append(trial)
            left |= {need: left[need] - 1} if need else {}
        number += 1
    return trials
