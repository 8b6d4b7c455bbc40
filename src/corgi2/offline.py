"""The offline half of Corgi²: read random groups of blocks, shuffle each, write it as new shards of the same format.

What makes the output (the source's listing, its blocks, seed, buffer) is written to ``.corgi2/plan`` first, and every
group writes its own marker once its shards are published, with the digests of what went in and came out. So a run that
was killed anywhere continues when the same command is given again: groups without a marker are made again, to the same
bytes. Two runs of one plan may interleave: they write the same.

Memory: one group, which fits the buffer, and a few slices.
"""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from corgi2.block import Arena, Group, Indices, gather
from corgi2.digest import Digest, digest, hash_records
from corgi2.errors import SourceError
from corgi2.index import Index, make_index, save_index
from corgi2.plan import keep_apart, permutation
from corgi2.progress import progress
from corgi2.recipe import Job, commit_plan, plan_shuffle
from corgi2.shard import BLOCK_BYTES, Block, Scan, Writing
from corgi2.source import CORGI_FOLDER
from corgi2.stores import Options, Store, read_object

MARKERS = f"{CORGI_FOLDER}/groups"

_TOLERANCE = 1.1
"""A group may take so much more than the buffer before it is split: footprints of Parquet are estimates."""
_HASH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Report:
    """What a shuffle did. Reads and writes are those that the stores counted in this run."""

    records: int
    bytes: int
    blocks: int
    groups: int
    n: int
    shards: int
    reads: int
    writes: int
    seconds: float
    buffer_bytes: int
    resumed_groups: int
    """Groups that an earlier run had finished."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def shuffle(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    buffer: int | str | None = None,
    seed: int = 0,
    workers: int = 4,
    storage_options: Options | None = None,
    target_options: Options | None = None,
) -> Report:
    """Shuffle ``src`` into ``dst``, or go on where an earlier run of the same plan stopped."""
    return run_shuffle(plan_shuffle(src, dst, buffer, seed, storage_options, target_options), workers)


def run_shuffle(job: Job, workers: int = 4) -> Report:
    """Do what was planned."""
    started = time.monotonic()
    made = _run(job, workers)
    index = _finish(job)
    return Report(
        records=index.records,
        bytes=index.bytes,
        blocks=job.index.blocks.num_rows,
        groups=len(job.groups),
        n=job.n,
        shards=index.shards.num_rows,
        reads=job.source.store.requests.reads,
        writes=job.target.requests.writes,
        seconds=time.monotonic() - started,
        buffer_bytes=job.recipe.buffer_bytes,
        resumed_groups=len(job.groups) - made,
    )


def _run(job: Job, workers: int) -> int:
    """Make all groups that have no marker yet; how many that were."""
    commit_plan(job)
    done = {entry.path for entry in job.target.list(MARKERS)}
    todo = [number for number in range(len(job.groups)) if _marker(number) not in done]
    lengths = job.index.column("length")
    arena = Arena(int(_TOLERANCE * job.recipe.buffer_bytes))
    total = int(sum(lengths[job.groups[number]].sum() for number in todo))
    profile = job.source.format.profile(job.source.shard(0))
    with progress("shuffling", total) as advance, ThreadPoolExecutor(workers) as pool:
        for number in todo:
            made = _Mixer(job, number, arena, pool, profile).mix()
            job.target.publish(_marker(number), [json.dumps(made, indent=1).encode()])
            advance(int(lengths[job.groups[number]].sum()))
    return len(todo)


def _marker(group: int) -> str:
    return f"{MARKERS}/{group:06d}"


@dataclass(frozen=True, slots=True)
class _Mixer:
    """Makes the shards of one group."""

    job: Job
    group: int
    arena: Arena
    pool: ThreadPoolExecutor
    profile: Any

    def mix(self) -> dict[str, Any]:
        """Read, shuffle, write; what to note in the group's marker."""
        shards = list(range(self.job.recipe.shards_per_group))
        parts = list(self._parts(self.job.groups[self.group], shards, len(shards)))
        taken, given = sum((part[0] for part in parts), Digest()), sum((part[1] for part in parts), Digest())
        if taken != given:
            raise SourceError(
                f"{self.job.target.url}: group {self.group}: read {taken}, wrote {given}; nothing was lost"
            )
        written = [shard for part in parts for shard in part[2]]
        return {"group": self.group, "input": asdict(taken), "output": asdict(given), "shards": written}

    def _parts(
        self, blocks: Indices, shards: list[int], step: int
    ) -> Iterator[tuple[Digest, Digest, list[dict[str, Any]]]]:
        """The group in one part, or, where blocks turn out larger than planned, in halves that fit."""
        self.arena.clear()
        try:
            group = self._read(blocks)
        except MemoryError as error:
            if len(blocks) == 1:
                raise SourceError(f"{error}; give a larger --buffer") from error
            half = -(-len(shards) // 2)
            right = shards[half:] or [shards[0] + step]
            yield from self._parts(blocks[: len(blocks) // 2], shards[:half], 2 * step)
            yield from self._parts(blocks[len(blocks) // 2 :], right, 2 * step)
            return
        cuts = np.arange(1, len(shards)) * group.records // len(shards)
        order = permutation(group.records, (self.job.recipe.seed, 0, 1, self.group, shards[0]))
        if group.keys is not None:
            order = keep_apart(order, group.keys, cuts.tolist())
        pieces = [piece for piece in zip(shards, np.split(order, cuts), strict=True) if len(piece[1])]
        written = list(self.pool.map(lambda piece: self._write(group, *piece), pieces))
        yield _digest_of(group), sum((part for part, _ in written), Digest()), [shard for _, shard in written]

    def _read(self, blocks: Indices) -> Group:
        job = self.job
        group = job.source.format.read(job.index.pieces(job.source, blocks), self.arena, self.pool.map)
        if group.footprint > _TOLERANCE * job.recipe.buffer_bytes:
            raise MemoryError(f"{group.footprint} bytes do not fit the buffer of {job.recipe.buffer_bytes}")
        return group

    def _write(self, group: Group, shard: int, order: Indices) -> tuple[Digest, dict[str, Any]]:
        job, tally = self.job, _Tally()
        path = f"{job.recipe.prefix}{self.group:05d}-{shard:03d}{job.recipe.suffix}"
        body = _Captured(job.source.format.write(tally.of(gather(group, order)), self.profile))
        entry = job.target.publish(path, body)
        blocks = [asdict(block) | {"checksum": block.checksum.hex()} for block in body.blocks]
        return tally.total, {"path": path, "size": entry.size, "blocks": blocks}


@dataclass(slots=True)
class _Tally:
    """The digest of tables as they pass."""

    total: Digest = field(default_factory=Digest)

    def of(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            self.total += digest(table)
            yield table


class _Captured:
    """The bytes of a shard; once they have passed, its blocks."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self.blocks: tuple[Block, ...] = ()

    def __iter__(self) -> Iterator[Any]:
        self.blocks = yield from self._writing


def _digest_of(group: Group) -> Digest:
    """The digest of a group's records, a piece of its table after another; rows that are no records do not count."""
    total, is_record = Digest(), np.full(group.table.num_rows, group.rows is None)
    if group.rows is not None:
        is_record[group.rows] = True
    for start in range(0, group.table.num_rows, _HASH_ROWS):
        lanes = hash_records(group.table.slice(start, _HASH_ROWS))[:, is_record[start : start + _HASH_ROWS]]
        low, high = lanes.sum(axis=1, dtype=np.uint64)
        total += Digest(lanes.shape[1], int(low), int(high))
    return total


def read_markers(target: Store, groups: int) -> list[dict[str, Any]]:
    """The markers of all groups; a missing one means that the shuffle is not finished."""
    markers = []
    for number in range(groups):
        entry = target.head(_marker(number))
        if entry is None:
            raise SourceError(f"{target.url}: the shuffle is not finished; give its command again to go on")
        markers.append(json.loads(read_object(target, entry)))
    return markers


def _finish(job: Job) -> Index:
    """Write the index of the new shards, once they are all there."""
    markers = read_markers(job.target, len(job.groups))
    listing = {entry.path: entry for entry in job.target.list() if not entry.path.startswith(f"{CORGI_FOLDER}/")}
    shards = sorted((shard["path"], marker["group"], shard) for marker in markers for shard in marker["shards"])
    scans, lineage = [], []
    schema = job.index.shards.column("schema")[0].as_py()
    for path, group, shard in shards:
        entry = listing.get(path)
        if entry is None or entry.size != shard["size"]:
            raise SourceError(f"{job.target.url}/{path}: is not the shard that was written; start the shuffle anew")
        blocks = [Block(**block | {"checksum": bytes.fromhex(block["checksum"])}) for block in shard["blocks"]]
        scans.append((entry, Scan(tuple(blocks), schema)))
        lineage.extend([[group]] * len(blocks))
    index = make_index(job.recipe.suffix, BLOCK_BYTES, scans, lineage)
    save_index(job.target, index)
    return index
