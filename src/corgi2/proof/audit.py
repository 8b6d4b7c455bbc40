"""The proof without the source: a shuffled data set is what its shuffle wrote, and that is what it read.

Every shard is compared with the checksum in its group's marker, every record is hashed again with the key of the plan,
and the sums are compared with those that the markers hold for what went in and what came out. All files in
``.corgi2/`` are sealed and read, or named as not covered. After a shuffle in place, no other proof is possible. It
finds accidents: anyone who can rewrite the folder can rewrite the sums as well.
"""

import os
import shlex
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from corgi2.budget import readers_of
from corgi2.dataset import (
    INDEX_PATH,
    Index,
    Source,
    find_source,
    is_matched,
    load_index,
    make_index,
    without,
)
from corgi2.errors import ShardError, SourceError, StoreError, TooLargeError
from corgi2.offline import NewShard, Skipped
from corgi2.progress import progress
from corgi2.proof.kept import Kept, read_kept
from corgi2.records import READING_BYTES, Block, Checksum, Digest, ShardFile, WatchedShard, checksum_of, number_array
from corgi2.sizes import are, plural
from corgi2.stores import Options

_THREADS = 2


@dataclass(frozen=True, slots=True, repr=False)
class Audit:
    """The problems that were found; none, if the proof holds."""

    records: int
    shards: int
    is_quick: bool
    with_replacement: bool
    """Records were drawn with replacement: some are there more than once, others not at all."""
    skipped: tuple[Skipped, ...]
    """The errors of damaged shards that the shuffle left out."""
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What the proof does not cover."""

    @property
    def same(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return f"<Audit: {self._verdict()}>"

    def as_json(self) -> dict[str, Any]:
        """As the command line prints it."""
        return asdict(self) | {"same": self.same}

    def as_text(self) -> str:
        left_out = [f"left out: {each}" for each in self.skipped]
        return "\n".join([self._verdict(), *self.problems, *self.notes, *left_out])

    def _verdict(self) -> str:
        if not self.same:
            return f"NOT what the shuffle wrote: {plural(len(self.problems), 'problem')}"
        what = f"{plural(self.records, 'record')} in {plural(self.shards, 'shard')}"
        if self.is_quick:
            return f"{what}: sizes, times and sums are those that the shuffle wrote; the shards were not read"
        once = "as the shuffle drew them" if self.with_replacement else "each is there exactly once"
        return f"{what}: {once}, and unaltered"


def audit(
    dst: str | os.PathLike[str],
    src_options: Options | None = None,
    *,
    quick: bool = False,
    memory: int = _THREADS * READING_BYTES,
) -> Audit:
    """Check shuffled data against its index and its markers; ``quick`` reads no shard."""
    target = find_source(dst, src_options, "verify")
    kept = read_kept(target.store)
    if kept.is_empty:
        raise SourceError(
            f"{target.named}: nothing was shuffled here, so that there are no sums to compare it with; name the "
            f"source, too: corgi2 verify SRC {shlex.quote(target.named)}"
        )
    problems = [*kept.problems]
    index = _read_index(target, problems)
    written = {path: shard for path, shard in kept.live.items() if is_matched(target, path)}
    there, found = _compare_listing(target, written, index, quick)
    problems += there
    digests = {} if quick else _read_all(target, index, [written[path] for path in found], kept, memory)
    problems += [wrong for wrong in digests.values() if isinstance(wrong, str)]
    if quick:
        problems += _indexed_anew(target, index, written)
    elif not problems:
        sums = {path: each for path, each in digests.items() if isinstance(each, Digest)}
        problems += _compare_records(index, sums, kept)
    last = kept.shuffles[-1] if kept.shuffles else None
    return Audit(
        index.records,
        len(written),
        quick,
        last is not None and last.plan.settings.with_replacement,
        last.skipped if last is not None else (),
        tuple(problems),
        kept.notes,
    )


def _read_index(target: Source, problems: list[str]) -> Index:
    """What the index says about the shards that were named. If it cannot be read, that is a problem, and it counts as
    empty."""
    try:
        index = load_index(target.store)
    except SourceError as error:
        index = None
        problems.append(str(error))
    else:
        if index is None:
            problems.append(f"{target.url}/{INDEX_PATH}: is missing; corgi2 index {target.url} makes a new one")
    if index is None:
        return make_index(target.format.suffix, 0, [])
    return without(index, {path for path in index.shards.column("path").to_pylist() if not is_matched(target, path)})


def _indexed_anew(target: Source, index: Index, written: dict[str, NewShard]) -> list[str]:
    """Shards whose index is not the one that the shuffle wrote, so their times say nothing."""
    known = zip(*(index.shards.column(name).to_pylist() for name in ("path", "checksum")), strict=True)
    return [
        f"indexed since the shuffle: {target.url}/{path}; only reading it tells (leave out quick=True)"
        for path, checksum in known
        if path in written and written[path].checksum != checksum
    ]


def _compare_listing(
    target: Source, written: dict[str, NewShard], index: Index, quick: bool
) -> tuple[list[str], list[str]]:
    """What is missing, extra, of another size or not in the index; and the shards that can be read."""
    now = {entry.path: entry for entry in target.entries}
    known = {entry.path: entry for entry in index.entries}
    problems, sound = [], []
    for path, shard in sorted(written.items()):
        found, name = now.pop(path, None), f"{target.url}/{path}"
        if found is None:
            problems.append(
                f"missing: {name}; restore it from a copy, or delete the folder and shuffle the source anew"
            )
        elif found.size != shard.size:
            problems.append(f"altered: {name} has {found.size} bytes, not {shard.size}")
        elif index.shards.num_rows and path not in known:
            problems.append(f"not in the index: {name}")
        elif quick and path in known and found.etag != known[path].etag:
            problems.append(f"altered: {name} was written after the shuffle, or copied")
        else:
            sound.append(path)
    problems += [
        f"extra: {target.url}/{path} was not written by the shuffle; move it away, or name the others by a glob"
        for path in now
    ]
    gone = sorted(known.keys() - written.keys() - now.keys())
    return problems + [f"in the index, but no shard of the shuffle: {target.url}/{path}" for path in gone], sound


def _read_all(
    target: Source, index: Index, shards: list[NewShard], kept: "Kept", memory: int
) -> dict[str, Digest | str]:
    """For each shard, by path, the digest of its records, or what is wrong with it."""
    place = {entry.path: number for number, entry in enumerate(target.entries)}
    rows = {path: number for number, path in enumerate(index.shards.column("path").to_pylist())}
    threads = readers_of(memory, _THREADS)
    with progress("verifying", 2 * sum(shard.size for shard in shards)) as bar, ThreadPoolExecutor(threads) as pool:

        def one(shard: NewShard) -> tuple[str, Digest | str]:
            file, key = target.shard(place[shard.path]), kept.keys[shard.path]
            watched = WatchedShard(file, bar.advance, threading.Event())
            try:
                _check_bytes(watched, shard)
                if shard.path in rows:
                    _check_index(file, shard, _blocks_of(index, rows[shard.path]))
                tables = target.format.stream(file, memory // threads)
                return shard.path, sum((target.format.digest(table, key) for table in tables), Digest())
            except TooLargeError:  # this says nothing about the shard
                raise
            except (ShardError, StoreError) as error:
                return shard.path, f"altered: {error}"
            finally:
                bar.advance(file.size)

        return dict(pool.map(one, shards))


def _check_bytes(file: ShardFile, shard: NewShard) -> None:
    """Compare a shard's bytes with the checksum of all of it; if they differ, with those of its blocks."""
    if checksum_of(file) == shard.checksum:
        return
    for block in shard.blocks:
        if _checksum(file, block) != block.checksum:
            raise ShardError(file.name, block.start, f"the block of {block.length} bytes is not what was written")
    raise ShardError(file.name, 0, "the shard is not what was written")


def _check_index(file: ShardFile, shard: NewShard, blocks: list[Block]) -> None:
    """Compare what the index says about a shard with what was written; with the shard, if it was indexed anew since."""
    written = {(block.start, block.length): block for block in shard.blocks}
    for block in blocks:
        same = written.get((block.start, block.length))
        checksum = same.checksum if same is not None else _checksum(file, block)
        if (block.checksum and block.checksum != checksum) or (same is not None and same.records != block.records):
            raise ShardError(file.name, block.start, "the index disagrees with the shard; run corgi2 index again")
    if sum(block.records for block in blocks) != sum(block.records for block in shard.blocks):
        raise ShardError(file.name, 0, "the index miscounts the records that were written; run corgi2 index again")


def _checksum(file: ShardFile, block: Block) -> bytes:
    view = memoryview(bytearray(block.length))
    file.readinto(block.start, view)
    return Checksum.of(view)


def _blocks_of(index: Index, shard: int) -> list[Block]:
    rows = index.blocks.take(number_array(np.flatnonzero(index.column("shard") == shard))).to_pylist()
    names = [field.name for field in fields(Block)]
    return [Block(**{name: row[name] for name in names}) for row in rows]


def _compare_records(index: Index, found: dict[str, Digest], kept: Kept) -> list[str]:
    """Whether the shards of each shuffle, if they are all there, hold the records that it wrote."""
    count = sum(each.count for each in found.values())
    problems = []
    if count != index.records:
        problems.append(f"{plural(count, 'record')} {are(count)} there, but the index counts {index.records:,}")
    for shuffle in kept.shuffles:
        paths = {shard.path for marker in shuffle.markers for shard in marker.shards}
        is_whole = all(path in found and kept.keys[path] == shuffle.plan.key for path in paths)
        given = sum((marker.output for marker in shuffle.markers), Digest())
        if is_whole and sum((found[path] for path in paths), Digest()) != given:
            problems.append("the records that are there do not add up to those that were written")
    return problems
