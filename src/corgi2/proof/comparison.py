"""The proof that a shuffle lost, repeated and altered nothing: both sides hold the same records, as often each.

Counts and sums of keyed 128-bit hashes are compared, in constant memory. If they differ, further passes over the
hashes, a part of their range at a time, find out how many records are missing or extra, and where examples lie.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from corgi2.arguments import suggesting
from corgi2.budget import readers_of, reading_bytes
from corgi2.dataset import Source, find_source, index_source, schema_difference
from corgi2.progress import progress
from corgi2.proof.audit import Audit, audit
from corgi2.records import Digest
from corgi2.sizes import parse_size, plural
from corgi2.stores import Options

T = TypeVar("T")

_THREADS = 2
_EXAMPLES = 3
_SHOWN = 5
_HASH_BYTES = 128
"""Of memory for a hash, in one pass that looks for differences: those of both sides, while they are compared."""

_HASH = np.dtype([("low", "<u8"), ("high", "<u8")])


@dataclass(frozen=True, slots=True, repr=False)
class Verdict:
    """Whether two data sets hold the same records; if not, what differs."""

    records: int
    target_records: int
    missing: int
    extra: int
    examples: tuple[str, ...]
    differences: tuple[str, ...] = ()
    """Beside the records: columns, metadata, what lies between records and belongs to none."""
    notes: tuple[str, ...] = ()
    """What is stored otherwise, and means the same."""

    @property
    def same(self) -> bool:
        return not (self.missing or self.extra or self.differences)

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return f"<Verdict: {self._verdict()}>"

    def as_json(self) -> dict[str, Any]:
        """As the command line prints it."""
        return asdict(self) | {"same": self.same}

    def as_text(self) -> str:
        return "\n".join([self._verdict(), *self.differences, *self.examples, *self.notes])

    def _verdict(self) -> str:
        if self.same:
            return f"the same {self.records:,} records, each as often, whatever their order"
        if not self.missing and not self.extra:
            return f"NOT the same: {plural(len(self.differences), 'difference')} beside the records"
        return (
            f"NOT the same: {self.missing:,} of {self.records:,} records are missing, "
            f"{self.extra:,} of {self.target_records:,} are extra"
        )


@overload
def verify(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    quick: bool = False,
    buffer: int | str | None = None,
    src_options: Options | None = None,
    dst_options: Options | None = None,
) -> Verdict: ...
@overload
def verify(
    src: str | os.PathLike[str],
    dst: None = None,
    *,
    quick: bool = False,
    buffer: int | str | None = None,
    src_options: Options | None = None,
    dst_options: Options | None = None,
) -> Audit: ...
@suggesting
def verify(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    *,
    quick: bool = False,
    buffer: int | str | None = None,
    src_options: Options | None = None,
    dst_options: Options | None = None,
) -> Verdict | Audit:
    """Prove that two data sets hold the same records, in any order; or that a shuffled one is what its shuffle wrote.

    With ``src`` and ``dst``, both are read once, in constant memory, and counts and sums of keyed 128-bit hashes are
    compared. With one shuffled data set, every byte is compared with what the shuffle kept of it: after a shuffle in
    place that is the only way. ``.same`` of the result is the answer.

    Args:
        src: A folder, one shard, a glob or a brace range, in any store; or, without ``dst``, a shuffled data set.
        dst: What ``src`` was shuffled into.
        quick: Without ``dst``: compare sizes, times and sums, and read no shard.
        buffer: Memory to read with, 1 GB by default; the largest record must fit half of it.
        src_options: Options for the first store (docs/stores.md).
        dst_options: The same for the second.
    """
    memory = reading_bytes(None if buffer is None else parse_size(buffer))
    if dst is None:
        return audit(src, src_options, quick=quick, memory=memory)
    if quick:
        raise ValueError("quick=True compares a shuffled data set with its own sums; leave out the source")
    source, target = find_source(src, src_options, "verify"), find_source(dst, dst_options, "verify")
    if source.format.name != target.format.name:
        raise ValueError(
            f"{source.url} is {source.format.name}, {target.url} is {target.format.name}: no common records"
        )
    columns = _compare_columns(source, target)
    if columns is not None:
        return columns
    differences, notes = _compare_beside(source, target)
    key = secrets.randbits(64)
    before, after = (_digest(_Reading(each, memory), key) for each in (source, target))
    if _loose(before) != _loose(after):
        differences.append(
            f"what lies between records and belongs to none differs: {plural(before.loose, 'item')} in {source.url}, "
            f"{plural(after.loose, 'item')} in {target.url}"
        )
    found = Verdict(before.count, after.count, 0, 0, ())
    if _records(before) != _records(after):
        found = _differences(_Reading(source, memory), _Reading(target, memory), key, before.count, after.count)
    return replace(found, differences=tuple(differences), notes=tuple(notes))


def _records(sums: Digest) -> tuple[int, int, int]:
    return sums.count, sums.low, sums.high


def _loose(sums: Digest) -> tuple[int, int, int]:
    return sums.loose, sums.loose_low, sums.loose_high


def _compare_columns(source: Source, target: Source) -> Verdict | None:
    """Equal values under other names, or of other types, are other records."""
    if not source.format.traits.has_columns:
        return None
    one, other = index_source(source), index_source(target)  # a proof believes no index
    ours, theirs = (each.shards.column("schema")[0].as_py() for each in (one, other))
    if ours == theirs:
        return None
    problem = f"{source.url} has other columns than {target.url}: {schema_difference(ours, theirs)}"
    return Verdict(one.records, other.records, one.records, other.records, (), (problem,))


def _compare_beside(source: Source, target: Source) -> tuple[list[str], list[str]]:
    """What shards keep beside their records is that of the first one, in all of them: what differs, and what is merely
    stored otherwise; the first example of each."""
    first, differences, notes = source.shard(0), dict[str, str](), dict[str, str]()
    for shard in map(target.shard, range(len(target.entries))):
        for lines, names in zip((differences, notes), source.format.compare(first, shard), strict=True):
            for name in names:
                lines.setdefault(name, f"{name} differs in {shard.name}")
    return [*differences.values()][:_SHOWN], [*notes.values()][:_SHOWN]


@dataclass(frozen=True, slots=True)
class _Reading:
    """A source, and the memory to read it with, shared by a few threads."""

    source: Source
    memory: int

    def stream(self, number: int) -> Iterator[Any]:
        """The records of a shard as tables."""
        return self.source.format.stream(self.source.shard(number), self.memory // self._threads)

    @property
    def _threads(self) -> int:
        """One where memory is short: each holds more than its share of a small buffer."""
        return readers_of(self.memory, _THREADS)

    def hashes(self, table: Any, key: int) -> npt.NDArray[Any]:
        lanes = self.source.format.hash_records(table, key)
        return np.ascontiguousarray(lanes.T).view(_HASH).ravel()

    def each_shard(self, task: Callable[[int], T]) -> list[T]:
        """A task for each shard, a few at a time, with progress; results in the order of the shards."""
        sizes = [entry.size for entry in self.source.entries]
        with progress("verifying", sum(sizes)) as bar, ThreadPoolExecutor(self._threads) as pool:

            def one(number: int) -> T:
                result = task(number)
                bar.advance(sizes[number])
                return result

            return list(pool.map(one, range(len(sizes))))


def _digest(reading: _Reading, key: int) -> Digest:
    def shard(number: int) -> Digest:
        return sum((reading.source.format.digest(table, key) for table in reading.stream(number)), Digest())

    return sum(reading.each_shard(shard), Digest())


def _differences(source: _Reading, target: _Reading, key: int, before: int, after: int) -> Verdict:
    parts = max(1, -(-max(before, after) // (source.memory // _HASH_BYTES)))
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


def _hashes(reading: _Reading, key: int, part: int, parts: int) -> npt.NDArray[Any]:
    """The sorted hashes of those records that fall into a part."""

    def shard(number: int) -> npt.NDArray[Any]:
        found = [_in_part(reading.hashes(table, key), part, parts) for table in reading.stream(number)]
        return np.concatenate([np.empty(0, _HASH), *found])

    hashes = np.concatenate([np.empty(0, _HASH), *reading.each_shard(shard)])
    hashes.sort()
    return hashes


def _in_part(hashes: npt.NDArray[Any], part: int, parts: int) -> npt.NDArray[Any]:
    chosen: npt.NDArray[Any] = hashes[hashes["low"] % np.uint64(parts) == part]
    return chosen


def _surplus(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What the first holds more often than the second, as often as it does."""
    values, counts = np.unique(ours, return_counts=True)
    held = np.searchsorted(theirs, values, "right") - np.searchsorted(theirs, values, "left")
    return np.repeat(values, np.maximum(counts - held, 0))


def _places(reading: _Reading, key: int, wanted: npt.NDArray[Any]) -> list[str]:
    """Shard and number of the first record with each of some hashes."""
    places: list[str] = []
    left = set(wanted.tolist())
    for number in range(len(reading.source.entries)):
        at = 0
        for table in reading.stream(number):
            if not left:
                return places
            hashes = reading.hashes(table, key)
            for row in np.flatnonzero(np.isin(hashes["low"], wanted["low"])).tolist():
                if hashes[row].item() in left:
                    left.discard(hashes[row].item())
                    places.append(f"record {at + row} of {reading.source.shard(number).name}")
            at += table.num_rows
    return places
