"""All shards of a data set must have one schema; if they do not, how they differ."""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from corgi2.dataset.source import Source
from corgi2.errors import ShardError
from corgi2.records import Scan

Scanned = Scan | ShardError | None


def refuse_other_schemas(source: Source, scans: Sequence[Scanned]) -> list[Scanned]:
    """All shards must have the schema that most have."""
    schemas = [scan.schema for scan in scans if isinstance(scan, Scan)]
    if len(set(schemas)) < 2:
        return list(scans)
    common = statistics.mode(schemas)
    example = next(n for n, scan in enumerate(scans) if isinstance(scan, Scan) and scan.schema == common)
    return [
        ShardError(
            source.shard(number).name,
            source.entries[number].size,
            f"another schema than {source.entries[example].path}: {schema_difference(scan.schema, common)}; "
            "convert it, or leave it out",
        )
        if isinstance(scan, Scan) and scan.schema != common
        else scan
        for number, scan in enumerate(scans)
    ]


def schema_difference(schema: str, common: str) -> str:
    """What one schema lacks, what it has in addition, which types differ, and which columns are in another order; the
    first few of these."""
    ours, theirs = _columns(schema), _columns(common)
    shared = [place for place in ours if place in theirs]
    found = [
        *(f"'{place[0]}: {kind}' is missing" for place, kind in theirs.items() if place not in ours),
        *(f"'{place[0]}: {kind}' is extra" for place, kind in ours.items() if place not in theirs),
        *(f"'{p[0]}: {ours[p]}' against '{p[0]}: {theirs[p]}'" for p in shared if ours[p] != theirs[p]),
        *_other_order(shared, [place for place in theirs if place in ours]),
    ]
    more = len(found) - _SHOWN
    return ", ".join(found[:_SHOWN]) + (f", and {more} more" if more > 0 else "")


def _other_order(ours: list[tuple[str, int]], theirs: list[tuple[str, int]]) -> Iterator[str]:
    moved = next(((a[0], b[0]) for a, b in zip(ours, theirs, strict=True) if a != b), None)
    if moved:
        yield f"columns in another order: '{moved[0]}' comes before '{moved[1]}'"


_SHOWN = 4
"""The most differences between two schemas that are shown."""

_LINE = re.compile(r'((?:"(?:[^"\\]|\\.)*"|[^":])*): (.*)')
"""A name, in which a colon may only stand in quotes, and a type."""


def _columns(schema: str) -> dict[tuple[str, int], str]:
    """The type of each column, by its name, and its number among those of the same name."""
    columns, seen = dict[tuple[str, int], str](), Counter[str]()
    for line in schema.splitlines():
        name, kind = match.groups() if (match := _LINE.fullmatch(line)) else (line, "")
        columns[name, seen[name]] = kind
        seen[name] += 1
    return columns
