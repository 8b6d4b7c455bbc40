"""The proof that a shuffle lost, repeated and altered nothing: both sides hold the same records, each equally often.

Counts and sums of keyed 128-bit hashes are compared, in constant memory. If they differ, further passes over the
hashes, one part of their range at a time, find out how many records are missing or extra, and where examples lie.
"""

import os
import secrets
import shlex
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from corgi2.arguments import suggesting
from corgi2.budget import readers_of, reading_bytes
from corgi2.dataset import Source, find_source, index_source, schema_difference
from corgi2.errors import DamageError, ShardError
from corgi2.formats import Format
from corgi2.progress import progress
from corgi2.proof.audit import Audit, audit
from corgi2.proof.kept import read_kept
from corgi2.records import Digest, runs
from corgi2.sizes import are, parse_size, plural
from corgi2.stores import Options, StoredShard, check_second

T = TypeVar("T")

_THREADS = 2
_EXAMPLES = 3
_SHOWN = 5
_HASH_BYTES = 128
"""Bytes of memory per hash in a pass that looks for differences: the hashes of both sides are compared."""

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
    """Differences besides the records: columns, metadata, and what lies between records and belongs to none."""
    notes: tuple[str, ...] = ()
    """What is stored differently, but means the same."""

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
            return f"the same {plural(self.records, 'record')}, each equally often, in whatever order"
        if not self.missing and not self.extra:
            return f"NOT the same: {plural(len(self.differences), 'difference')} besides the records"
        return (
            f"NOT the same: {self.missing:,} of {plural(self.records, 'record')} {are(self.missing)} missing, "
            f"{self.extra:,} of {self.target_records:,} {are(self.extra)} extra"
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
    holdout: str | os.PathLike[str] | None = None,
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
    holdout: None = None,
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
    holdout: str | os.PathLike[str] | None = None,
) -> Verdict | Audit:
    """Prove that two data sets hold the same records, in any order; or that a shuffled one is what its shuffle wrote.

    With ``src`` and ``dst``, both are read once, in constant memory, and counts and sums of keyed 128-bit hashes are
    compared. With one shuffled data set, every byte is compared with the sums that the shuffle kept: after a shuffle in
    place that is the only way. ``.same`` of the result is the answer. With ``holdout``, ``dst`` and the held-out
    records together are compared with ``src``.

    Args:
        src: A folder, one shard, a glob or a brace range, in any store; or, without ``dst``, a shuffled data set.
        dst: What ``src`` was shuffled into.
        quick: Without ``dst``: compare sizes, times and sums, and read no shard.
        buffer: Memory to read with, 1 GB by default; the largest record must fit half of it.
        src_options: Options for the first store (docs/stores.md).
        dst_options: The same for the second store, and for that of ``holdout``.
        holdout: The data set that was held out of ``src`` when it was shuffled into ``dst``.
    """
    memory = reading_bytes(None if buffer is None else parse_size(buffer))
    if dst is None and holdout is not None:
        raise ValueError("holdout= is compared together with dst=; name that, too")
    check_second(dst_options, dst is not None)
    if dst is None:
        return audit(src, src_options, quick=quick, memory=memory)
    if quick:
        raise ValueError("quick=True compares a shuffled data set with its own sums; leave out the source")
    source = find_source(src, src_options, "verify")
    targets = [find_source(each, dst_options, "verify") for each in (dst, holdout) if each is not None]
    with _naming_the_other_proof(targets[0]):
        return _compared(source, targets, memory)


def _compared(source: Source, targets: Sequence[Source], memory: int) -> Verdict:
    for target in targets:
        if source.format.name != target.format.name:
            raise ValueError(
                f"{source.url} is {source.format.name}, {target.url} is {target.format.name}: no common records"
            )
        columns = _compare_columns(source, target)
        if columns is not None:
            return columns
    return _compared_records(source, targets, memory)


@contextmanager
def _naming_the_other_proof(target: Source) -> Iterator[None]:
    """Of a source with damaged shards, which the shuffle left out, nothing else can be proven."""
    try:
        yield
    except (ShardError, DamageError) as error:
        if error.hint is None and any(shuffle.skipped for shuffle in read_kept(target.store).shuffles):
            named = shlex.quote(target.named)
            error.hint = f"the shuffle left out what was damaged: corgi2 verify {named} proves the rest"
        raise


def _compared_records(source: Source, targets: Sequence[Source], memory: int) -> Verdict:
    beside = [_compare_beside(source, target) for target in targets]
    differences, notes = ([line for each in beside for line in each[kind]] for kind in (0, 1))
    key = secrets.randbits(64)
    one, other = _Reading((source,), memory), _Reading(tuple(targets), memory)
    before, after = _digest(one, key), _digest(other, key)
    if _loose(before) != _loose(after):
        differences.append(
            f"what lies between records and belongs to none differs: {plural(before.loose, 'item')} in {source.url}, "
            f"{plural(after.loose, 'item')} in {other.name}"
        )
    found = Verdict(before.count, after.count, 0, 0, ())
    if _records(before) != _records(after):
        found = _differences(one, other, key, before.count, after.count)
        notes += _held_out(targets)
    return replace(found, differences=tuple(differences), notes=tuple(notes))


def _held_out(targets: Sequence[Source]) -> list[str]:
    """Where the rest may be, if only part of a shuffle was compared."""
    notes = read_kept(targets[0].store).notes if len(targets) == 1 else ()
    return [note for note in notes if "held out" in note]


def _records(sums: Digest) -> tuple[int, int, int]:
    return sums.count, sums.low, sums.high


def _loose(sums: Digest) -> tuple[int, int, int]:
    return sums.loose, sums.loose_low, sums.loose_high


def _compare_columns(source: Source, target: Source) -> Verdict | None:
    """Equal values under other names, or of other types, count as other records."""
    if not source.format.traits.has_columns:
        return None
    one, other = index_source(source), index_source(target)  # a proof trusts no index
    ours, theirs = (each.shards.column("schema")[0].as_py() for each in (one, other))
    if ours == theirs:
        return None
    problem = f"{source.url} has other columns than {target.url}: {schema_difference(ours, theirs)}"
    return Verdict(one.records, other.records, one.records, other.records, (), (problem,))


def _compare_beside(source: Source, target: Source) -> tuple[list[str], list[str]]:
    """What shards keep besides their records must be that of the first one, in all of them: returns what differs, and
    what is merely stored differently; the first example of each."""
    first, differences, notes = source.shard(0), dict[str, str](), dict[str, str]()
    for shard in map(target.shard, range(len(target.entries))):
        for lines, names in zip((differences, notes), source.format.compare(first, shard), strict=True):
            for name in names:
                lines.setdefault(name, f"{name} differs in {shard.name}")
    return [*differences.values()][:_SHOWN], [*notes.values()][:_SHOWN]


@dataclass(frozen=True, slots=True)
class _Reading:
    """Sources that are read as one, and the memory to read them with, shared by a few threads."""

    sources: tuple[Source, ...]
    memory: int

    @property
    def format(self) -> Format:
        return self.sources[0].format

    @property
    def name(self) -> str:
        return " and ".join(source.url for source in self.sources)

    @property
    def shards(self) -> list[StoredShard]:
        return [source.shard(number) for source in self.sources for number in range(len(source.entries))]

    def stream(self, shard: StoredShard) -> Iterator[Any]:
        """The records of a shard as tables."""
        return self.format.stream(shard, self.memory // self._threads)

    @property
    def _threads(self) -> int:
        """One thread if memory is short: each holds more than its share of a small buffer."""
        return readers_of(self.memory, _THREADS)

    def hashes(self, table: Any, key: int) -> npt.NDArray[Any]:
        lanes = self.format.hash_records(table, key)
        return np.ascontiguousarray(lanes.T).view(_HASH).ravel()

    def tables(self, shards: Sequence[StoredShard]) -> Iterator[Any]:
        """The records of a few small shards in one table, or else of each in its own."""
        together = self.format.stream_together(shards, self.memory // self._threads) if len(shards) > 1 else None
        if together is not None:
            yield together
            return
        for shard in shards:
            yield from self.stream(shard)

    def each_run(self, task: Callable[[Sequence[StoredShard]], T]) -> list[T]:
        """A task for each run of small shards, a few at a time, with progress; results in the order of the shards."""
        shards = self.shards
        sizes = [shard.size for shard in shards]
        with progress("verifying", sum(sizes)) as bar, ThreadPoolExecutor(self._threads) as pool:

            def one(some: slice) -> T:
                result = task(shards[some])
                bar.advance(sum(sizes[some]))
                return result

            return list(pool.map(one, runs(sizes)))


def _digest(reading: _Reading, key: int) -> Digest:
    def run(shards: Sequence[StoredShard]) -> Digest:
        return sum((reading.format.digest(table, key) for table in reading.tables(shards)), Digest())

    return sum(reading.each_run(run), Digest())


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
    """The sorted hashes of the records that fall into one part of the range."""

    def run(shards: Sequence[StoredShard]) -> npt.NDArray[Any]:
        found = [_in_part(reading.hashes(table, key), part, parts) for table in reading.tables(shards)]
        return np.concatenate([np.empty(0, _HASH), *found])

    hashes = np.concatenate([np.empty(0, _HASH), *reading.each_run(run)])
    hashes.sort()
    return hashes


def _in_part(hashes: npt.NDArray[Any], part: int, parts: int) -> npt.NDArray[Any]:
    chosen: npt.NDArray[Any] = hashes[hashes["low"] % np.uint64(parts) == part]
    return chosen


def _surplus(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The hashes that the first holds more often than the second, each repeated by the difference."""
    values, counts = np.unique(ours, return_counts=True)
    held = np.searchsorted(theirs, values, "right") - np.searchsorted(theirs, values, "left")
    return np.repeat(values, np.maximum(counts - held, 0))


def _places(reading: _Reading, key: int, wanted: npt.NDArray[Any]) -> list[str]:
    """Shard and number of the first record with each of some hashes."""
    places: list[str] = []
    left = set(wanted.tolist())
    for file in reading.shards:
        at = 0
        for table in reading.stream(file):
            if not left:
                return places
            hashes = reading.hashes(table, key)
            for row in np.flatnonzero(np.isin(hashes["low"], wanted["low"])).tolist():
                if hashes[row].item() in left:
                    left.discard(hashes[row].item())
                    places.append(f"record {at + row} of {file.name}")
            at += table.num_rows
    return places
