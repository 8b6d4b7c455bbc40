"""The proof without the source: a shuffled data set is what its shuffle wrote, and that is what it read.

Every byte is compared with the index, every record is hashed again, and the sums are compared with those that the
shuffle's markers hold of what went in and what came out. In place, that is all the proof there can be.
"""

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from corgi2.digest import Digest, digest
from corgi2.errors import ShardError, SourceError, StoreError
from corgi2.index import Index, load_index, without
from corgi2.journal import Journal
from corgi2.progress import progress
from corgi2.recipe import Recipe
from corgi2.shard import Checksum, ShardFile, WatchedShard, checksum_of
from corgi2.sizes import plural
from corgi2.source import CORGI_FOLDER, Source, find_source, is_matched, runs
from corgi2.stores import Options, Store, read_object

_THREADS = 2


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found wrong; nothing, if it holds."""

    records: int
    shards: int
    is_quick: bool
    with_replacement: bool
    """Records were drawn: some are there more than once, others not at all."""
    skipped: tuple[str, ...]
    """The damage in shards that the shuffle left out."""
    problems: tuple[str, ...]

    @property
    def same(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"same": self.same}

    def as_text(self) -> str:
        return "\n".join([self._verdict(), *self.problems, *(f"left out: {line}" for line in self.skipped)])

    def _verdict(self) -> str:
        if not self.same:
            return f"NOT what the shuffle wrote: {plural(len(self.problems), 'problem')}"
        what = f"{plural(self.records, 'record')} in {plural(self.shards, 'shard')}"
        if self.is_quick:
            return f"{what}: sizes, times and sums are those that the shuffle wrote; the shards were not read"
        once = "as the shuffle drew them" if self.with_replacement else "each is there exactly once"
        return f"{what}: {once}, and unaltered"


def audit(dst: str | os.PathLike[str], storage_options: Options | None = None, *, quick: bool = False) -> Audit:
    """Check shuffled data against its index and its markers; ``quick`` reads no shard."""
    target = find_source(dst, storage_options, "verify")
    index = load_index(target.store)
    if index is None:
        raise SourceError(
            f"{target.url}: has no index to be compared with; name the source, too: corgi2 verify SRC {target.url}"
        )
    index = without(index, {path for path in index.shards.column("path").to_pylist() if not is_matched(target, path)})
    problems, sound = _compare_listing(target, index, quick)
    sums = _compare_markers(target.store)
    digests = {} if quick else dict(_read_all(target, index, sound, sums))
    problems += [found for found in digests.values() if isinstance(found, str)]
    problems += sums.problems
    if quick:
        problems += _indexed_anew(target, index, sums)
    elif not problems:
        problems += _compare_records(index, digests, sums)
    count = index.shards.num_rows
    return Audit(index.records, count, quick, sums.with_replacement, sums.skipped, tuple(problems))


def _indexed_anew(target: Source, index: Index, sums: "_Sums") -> list[str]:
    """Shards whose index is not the one that the shuffle wrote, so that their times say nothing."""
    known = zip(*(index.shards.column(name).to_pylist() for name in ("path", "checksum")), strict=True)
    return [
        f"indexed since the shuffle: {target.url}/{path}; only reading it tells (leave out --quick)"
        for path, checksum in known
        if sums.shards.get(path, checksum) != checksum
    ]


def _compare_listing(target: Source, index: Index, quick: bool) -> tuple[list[str], list[int]]:
    """What is missing, extra or of another size, and the numbers of the shards in the index that can be read."""
    now = {entry.path: entry for entry in target.entries}
    problems, sound = [], []
    for number, entry in enumerate(index.entries):
        found = now.pop(entry.path, None)
        if found is None:
            problems.append(f"missing: {target.url}/{entry.path}")
        elif found.size != entry.size:
            problems.append(f"altered: {target.url}/{entry.path} has {found.size} bytes, not {entry.size}")
        elif quick and found.etag != entry.etag:
            problems.append(f"altered: {target.url}/{entry.path} was written after the shuffle, or copied")
        else:
            sound.append(number)
    problems += [f"extra: {target.url}/{path} is not in the index" for path in now]
    return problems, sound


def _read_all(target: Source, index: Index, numbers: list[int], sums: "_Sums") -> Iterator[tuple[str, Digest | str]]:
    """For each shard, by path, the digest of its records, or what is wrong with it."""
    place = {entry.path: number for number, entry in enumerate(target.entries)}
    paths = index.shards.column("path").to_pylist()
    total = sum(target.entries[place[paths[number]]].size for number in numbers)
    with progress("verifying", 2 * total) as bar, ThreadPoolExecutor(_THREADS) as pool:

        def one(number: int) -> tuple[str, Digest | str]:
            file = target.shard(place[paths[number]])
            watched = WatchedShard(file, bar.advance, threading.Event())
            try:
                _check_bytes(watched, index, number, sums.shards.get(paths[number]))
                return paths[number], sum((digest(table) for table in target.format.stream(file)), Digest())
            except (ShardError, StoreError) as error:
                return paths[number], f"altered: {error}"
            finally:
                bar.advance(file.size)

        yield from pool.map(one, numbers)


def _check_bytes(file: ShardFile, index: Index, number: int, expected: bytes | None) -> None:
    """Compare a shard's bytes with the checksums of its blocks, and of all of it."""
    whole, expected = checksum_of(file), expected or index.shards.column("checksum")[number].as_py()
    if not expected or whole == expected:
        return
    rows = np.flatnonzero(index.column("shard") == number).tolist()
    for row in rows:
        block = index.blocks.slice(row, 1).to_pylist()[0]
        view = memoryview(bytearray(block["length"]))
        file.readinto(block["start"], view)
        if Checksum.of(view) != block["checksum"]:
            raise ShardError(file.name, block["start"], f"the block of {block['length']} bytes is not what was written")
    raise ShardError(file.name, 0, "the shard is not what was written")


@dataclass(frozen=True, slots=True)
class _Sums:
    """What the last shuffle kept: what is wrong with it, the shards that it wrote, and the sum of their records."""

    problems: tuple[str, ...]
    shards: dict[str, bytes] = field(default_factory=dict)
    """The checksum of each, by its path."""
    output: Digest = field(default_factory=Digest)
    with_replacement: bool = False
    skipped: tuple[str, ...] = ()


def _compare_markers(store: Store) -> _Sums:
    """Read the markers of the last shuffle, and add them up."""
    generation = max(runs(entry.path for entry in store.list(CORGI_FOLDER, levels=2)), default=None)
    if generation is None:
        return _Sums((f"{store.url}: has an index, but no sums of a shuffle; name the source, too",))
    journal = Journal(store, generation)
    recipe = Recipe.decode(_read(store, journal.plan_path), f"{store.url}/{journal.plan_path}")
    done = json.loads(_read(store, journal.done_path))
    passes = done["passes"]
    problems: list[str] = []
    before: Digest | None = None
    for number, sums in enumerate(passes, 1):
        found = [journal.read_marker(number, group) for group in range(sums["groups"])]
        markers = [marker for marker in found if marker is not None]
        taken = sum((marker.input for marker in markers), Digest())
        given = sum((marker.output for marker in markers), Digest())
        if len(markers) < len(found) or (taken, given) != (Digest(**sums["input"]), Digest(**sums["output"])):
            problems.append(f"the markers of pass {number} do not add up to what was noted at the end")
        if not recipe.settings.with_replacement:
            unequal = [marker.group for marker in markers if marker.input != marker.output]
            problems += [f"group {group} of pass {number} wrote other records than it read" for group in unequal]
            if before not in (None, taken):
                problems.append(f"pass {number} read other records than the pass before wrote")
        before = given
    shards = {shard.path: shard.checksum for marker in markers for shard in marker.shards}
    skipped = (*recipe.skipped, *done["skipped"])
    return _Sums(tuple(problems), shards, given, recipe.settings.with_replacement, skipped)


def _compare_records(index: Index, digests: dict[str, Digest | str], sums: _Sums) -> list[str]:
    """Whether the shards of the last shuffle hold the records that it wrote."""
    there = {path: found for path, found in digests.items() if isinstance(found, Digest)}
    count = sum(found.count for found in there.values())
    problems = []
    if count != index.records:
        problems.append(f"{count:,} records are there, the index knows {index.records:,}")
    if sums.shards.keys() <= there.keys() and sum((there[path] for path in sums.shards), Digest()) != sums.output:
        problems.append("the records that are there do not add up to those that were written")
    return problems


def _read(store: Store, path: str) -> bytearray:
    entry = store.head(path)
    if entry is None:
        raise SourceError(f"{store.url}/{path}: is gone; name the source, too, to compare with it")
    return read_object(store, entry)
