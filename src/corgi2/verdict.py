"""The proof that a shuffle lost, repeated and altered nothing: both sides hold the same records, as often each.

Counts and sums of keyed 128-bit hashes are compared, in constant memory. If they differ, further passes over the
hashes, a part of their range at a time, find out how many records are missing or extra, and where examples lie.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from corgi2.audit import Audit, audit
from corgi2.digest import Digest, digest, hash_records
from corgi2.index import index_source, schema_difference
from corgi2.progress import progress
from corgi2.source import Source, find_source
from corgi2.stores import Options

T = TypeVar("T")

_THREADS = 2
_EXAMPLES = 3
_HASHES_AT_A_TIME = 16_000_000
"""Of each side, in one pass that looks for differences: 256 MB."""

_HASH = np.dtype([("low", "<u8"), ("high", "<u8")])


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether two data sets hold the same records; if not, what differs."""

    records: int
    target_records: int
    missing: int
    extra: int
    examples: tuple[str, ...]

    @property
    def same(self) -> bool:
        return not self.missing and not self.extra

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"same": self.same}

    def as_text(self) -> str:
        if self.same:
            return f"the same {self.records:,} records, each as often, whatever their order"
        lines = [
            f"NOT the same: {self.missing:,} of {self.records:,} records are missing, "
            f"{self.extra:,} of {self.target_records:,} are extra"
        ]
        return "\n".join([*lines, *self.examples])


@overload
def verify(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    quick: bool = False,
    storage_options: Options | None = None,
    target_options: Options | None = None,
) -> Verdict: ...
@overload
def verify(
    src: str | os.PathLike[str],
    dst: None = None,
    *,
    quick: bool = False,
    storage_options: Options | None = None,
    target_options: Options | None = None,
) -> Audit: ...
def verify(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    *,
    quick: bool = False,
    storage_options: Options | None = None,
    target_options: Options | None = None,
) -> Verdict | Audit:
    """Compare two data sets of one format, record by record, in any order; or one that was shuffled with what its
    shuffle kept, ``quick`` without reading its shards."""
    if dst is None:
        return audit(src, storage_options, quick=quick)
    if quick:
        raise ValueError("--quick compares a shuffled data set with its own sums; leave out the source")
    source, target = find_source(src, storage_options, "verify"), find_source(dst, target_options, "verify")
    if source.format.name != target.format.name:
        raise ValueError(
            f"{source.url} is {source.format.name}, {target.url} is {target.format.name}: no common records"
        )
    _compare_schemas(source, target)
    key = secrets.randbits(63)
    before, after = _digest(source, key), _digest(target, key)
    if before == after:
        return Verdict(before.count, after.count, 0, 0, ())
    return _differences(source, target, key, before.count, after.count)


def _compare_schemas(source: Source, target: Source) -> None:
    """Equal values under other names, or of other types, are other records."""
    if not source.format.has_footer:
        return
    ours, theirs = (index_source(each).shards.column("schema")[0].as_py() for each in (source, target))
    if ours != theirs:
        raise ValueError(f"{source.url} has other columns than {target.url}: {schema_difference(ours, theirs)}")


def _digest(source: Source, key: int) -> Digest:
    def shard(number: int) -> Digest:
        return sum((digest(table, key) for table in source.format.stream(source.shard(number))), Digest())

    return sum(_each_shard(source, shard), Digest())


def _each_shard(source: Source, task: Callable[[int], T]) -> Iterator[T]:
    """A task for each shard, a few at a time, with progress; results in the order of the shards."""
    sizes = [entry.size for entry in source.entries]
    with progress("verifying", sum(sizes)) as bar, ThreadPoolExecutor(_THREADS) as pool:
        for number, result in enumerate(pool.map(task, range(len(sizes)))):
            bar.advance(sizes[number])
            yield result


def _differences(source: Source, target: Source, key: int, before: int, after: int) -> Verdict:
    parts = max(1, -(-max(before, after) // _HASHES_AT_A_TIME))
    missing = extra = 0
    lost, strange = np.empty(0, _HASH), np.empty(0, _HASH)
    for part in range(parts):
        ours, theirs = _hashes(source, key, part, parts), _hashes(target, key, part, parts)
        less, more = _surplus(ours, theirs), _surplus(theirs, ours)
        missing, extra = missing + len(less), extra + len(more)
        lost, strange = np.append(lost, less)[:_EXAMPLES], np.append(strange, more)[:_EXAMPLES]
    examples = [f"missing: {place}" for place in _places(source, key, lost)]
    examples += [f"extra: {place}" for place in _places(target, key, strange)]
    return Verdict(before, after, missing, extra, tuple(examples))


def _hashes(source: Source, key: int, part: int, parts: int) -> npt.NDArray[Any]:
    """The sorted hashes of those records that fall into a part."""

    def shard(number: int) -> npt.NDArray[Any]:
        tables = source.format.stream(source.shard(number))
        found = [_in_part(_as_hashes(hash_records(table, key)), part, parts) for table in tables]
        return np.concatenate([np.empty(0, _HASH), *found])

    return np.sort(np.concatenate([np.empty(0, _HASH), *_each_shard(source, shard)]))


def _as_hashes(lanes: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(lanes.T).view(_HASH).ravel()


def _in_part(hashes: npt.NDArray[Any], part: int, parts: int) -> npt.NDArray[Any]:
    chosen: npt.NDArray[Any] = hashes[hashes["low"] % np.uint64(parts) == part]
    return chosen


def _surplus(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What the first holds more often than the second, as often as it does."""
    values, counts = np.unique(ours, return_counts=True)
    held = np.searchsorted(theirs, values, "right") - np.searchsorted(theirs, values, "left")
    return np.repeat(values, np.maximum(counts - held, 0))


def _places(source: Source, key: int, wanted: npt.NDArray[Any]) -> list[str]:
    """Shard and number of the first record with each of some hashes."""
    places: list[str] = []
    left = set(wanted.tolist())
    for number in range(len(source.entries)):
        at = 0
        for table in source.format.stream(source.shard(number)):
            if not left:
                return places
            hashes = _as_hashes(hash_records(table, key))
            for row in np.flatnonzero(np.isin(hashes["low"], wanted["low"])).tolist():
                if hashes[row].item() in left:
                    left.discard(hashes[row].item())
                    places.append(f"record {at + row} of {source.shard(number).name}")
            at += table.num_rows
    return places
