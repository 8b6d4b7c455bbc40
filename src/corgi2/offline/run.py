"""The offline half of Corgi²: read random groups of blocks, shuffle each, write it as new shards of the same format.

The plan is written first, every group writes its own marker once its shards are published, and what was consumed is
deleted only after the marker was read back. So a run that was killed anywhere continues when the same command is given
again: groups without a marker are made again, to the same bytes. Two runs of one plan may interleave at any call: they
write the same, and whoever finds a group done by the other goes on with the next.

Memory: one group, which fits the buffer, and a few slices.
"""

import logging
import os
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from corgi2.budget import check_usable
from corgi2.dataset import Index, load_index, make_index, merge, save_index, with_entries, without
from corgi2.errors import ShardError, SourceError, TooLargeError
from corgi2.host import keeping_sigterm
from corgi2.offline.consumed import Consumed
from corgi2.offline.discard import discard
from corgi2.offline.group import Mixing
from corgi2.offline.job import Job, commit_plan
from corgi2.offline.journal import Done, Marker, PassSum
from corgi2.offline.passes import Stage, next_stage
from corgi2.offline.planning import naming_ways_out, plan_shuffle
from corgi2.offline.report import Report
from corgi2.offline.resume import new_shards
from corgi2.offline.settings import Settings
from corgi2.offline.work import Made, Work
from corgi2.progress import Bar, progress
from corgi2.records import BLOCK_BYTES, Arena, Digest, Scan, checksum_of
from corgi2.sizes import parse_size, plural
from corgi2.stores import Options, Requests, StoredShard

_log = logging.getLogger("corgi2")

_SHOWN = 3


def shuffle(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    *,
    buffer: int | str | None = None,
    buffer_blocks: int | None = None,
    seed: int = 0,
    passes: int = 1,
    with_replacement: bool = False,
    shard_size: int | str | None = None,
    shard_records: int | None = None,
    in_place: bool = False,
    skip_bad: bool = False,
    restart: bool = False,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    storage_options: Options | None = None,
    target_options: Options | None = None,
) -> Report:
    """Shuffle ``src`` into ``dst``, or in place, or go on where an earlier run of the same plan stopped.

    ``workers`` reads and writes at a time, 4 by default. With ``engine="ray"``, groups are tasks of the cluster at
    ``address``, each with a buffer of its own, and ``workers`` are tasks a node, 1 by default.
    """
    settings = Settings(
        buffer_bytes=None if buffer is None else parse_size(buffer),
        buffer_blocks=buffer_blocks,
        seed=seed,
        passes=passes,
        with_replacement=with_replacement,
        shard_bytes=None if shard_size is None else parse_size(shard_size),
        shard_records=shard_records,
        in_place=in_place,
        skip_bad=skip_bad,
    )
    job = plan_shuffle(src, dst, settings, storage_options, target_options, restart)
    return run_shuffle(job, workers, engine, address)


def run_shuffle(job: Job, workers: int | None = None, engine: str = "local", address: str | None = None) -> Report:
    """Do what was planned, here or on a cluster."""
    if workers is not None and workers < 1:
        raise ValueError(f"--workers must be at least 1 (got {workers})")
    if engine not in ("local", "ray"):
        raise ValueError(f"--engine is local or ray (got {engine!r})")
    if address is not None and engine != "ray":
        raise ValueError("--address names a Ray cluster: give --engine ray with it")
    started = time.monotonic()
    run = _Run(job, workers or 4, _ray(workers or 1, address) if engine == "ray" else None)
    with naming_ways_out(job.recipe.settings):
        index = run.complete()
        if index is None:
            if engine == "local":
                check_usable(job.promised_bytes, job.room_bytes, job.target.url)
            index = run.make()
    stores = {id(store): store for store in (job.first.source.store, job.target)}.values()
    counts = [run.requests, *(store.requests for store in stores)]
    return Report(
        records=index.records,
        bytes=index.bytes,
        blocks=job.index.blocks.num_rows,
        groups=run.groups,
        n=job.first.n,
        shards=index.shards.num_rows,
        passes=job.recipe.settings.passes,
        reads=sum(count.reads for count in counts),
        writes=sum(count.writes for count in counts),
        deletes=sum(count.deletes for count in counts),
        seconds=time.monotonic() - started,
        buffer_bytes=job.room_bytes,
        resumed_groups=run.groups - run.made,
        skipped=(*job.recipe.skipped, *run.skipped),
    )


def _ray(tasks: int, address: str | None) -> "Engine":
    try:
        with keeping_sigterm():  # for which Ray has a handler of its own
            from corgi2.offline.engines.ray import RayEngine
    except ImportError as error:
        raise SourceError(
            f"--engine ray needs Ray, which is not installed ({error})", hint="pip install 'corgi2[ray]'"
        ) from error
    return RayEngine(tasks, address)


@dataclass(slots=True)
class _Run:
    """All passes of a job."""

    job: Job
    workers: int
    engine: "Engine | None" = None
    requests: Requests = field(default_factory=Requests)
    """Those that were made elsewhere."""
    groups: int = 0
    made: int = 0
    skipped: list[str] = field(default_factory=list)
    sums: list[PassSum] = field(default_factory=list)

    def complete(self) -> Index | None:
        """The index, where an earlier run has finished everything, and nobody has touched it since."""
        job = self.job
        if not job.is_begun or job.target.head(job.journal.done_path) is None:
            return None
        index = load_index(job.target)
        if index is None:
            return None
        index = self._as_it_is(index)
        job.target.sweep()
        done = job.journal.read_done()
        if done is not None:
            self.skipped += done.skipped
            self._check_skipped()
        self.groups = len(job.first.groups)
        return index

    def _as_it_is(self, index: Index) -> Index:
        """The index with the etags that shards have now. A run that was overtaken, and killed, may have published some
        of them again, with the same bytes, when the other had finished."""
        target, now = self.job.target, {entry.path: entry for entry in self.job.target.list()}
        checksums = index.shards.column("checksum").to_pylist()
        known = [pair for pair in zip(index.entries, checksums, strict=True) if now.get(pair[0].path) != pair[0]]
        if not known:
            return index
        pairs = [(entry, now.get(entry.path), checksum) for entry, checksum in known]
        wrong = [old for old, new, checksum in pairs if new is None or new.size != old.size or not checksum]
        if not wrong:
            _log.warning("%s: comparing the bytes of %s whose time is new", target.url, plural(len(pairs), "shard"))
            wrong = [old for old, new, checksum in pairs if new and checksum_of(StoredShard(target, new)) != checksum]
        if wrong:
            raise SourceError(
                f"{target.url}/{wrong[0].path}: has changed since the shuffle was finished, or is gone; corgi2 verify "
                f"{target.url} says what is wrong"
            )
        index = with_entries(index, [now[entry.path] for entry in index.entries])
        save_index(target, index)
        return index

    def make(self) -> Index:
        job = self.job
        if job.replaced:
            self._check_alone()
            count = plural(len(job.replaced), "shard")
            _log.warning("%s: replaced since the plan was made, and read as they are now: %s", job.target.url, count)
        if job.discarded:
            discard(job.journal, job.discarded)
        self.job = job = commit_plan(job)
        job.target.sweep()
        if job.recipe.settings.in_place and job.target.keeps_versions(job.journal.plan_path):
            _log.warning("%s keeps old versions of what is deleted: in place frees nothing there", job.target.url)
        self.groups = 0
        with job.journal.lock() as other, self.engine.running() if self.engine is not None else nullcontext():
            if other:
                _log.warning("%s: another run is at work there (%s); both may go on", job.target.url, other)
            stage = job.first
            arena = Work(job.recipe, job.target, stage, job.room_bytes).arena() if self.engine is None else None
            while True:
                markers = self._pass(stage, arena)
                if stage.is_last:
                    break
                stage = next_stage(stage, markers, job.recipe, job.target)
            index = _finish(job, stage, markers)
        # After the lock is gone: with this, everything is done.
        replaced = tuple(job.journal.replaced_paths()) if job.recipe.settings.in_place else ()
        job.journal.write_done(Done(tuple(self.sums), tuple(self.skipped), job.room_bytes, replaced))
        job.target.sweep()
        return index

    def _check_alone(self) -> None:
        """Two runs write the same only if they read the same, and another has perhaps listed what was there before."""
        journal = self.job.journal
        other = journal.other()
        if other:
            raise SourceError(
                f"{journal.store.url}: shards were replaced, and another run is at work there ({other}); end it, and "
                f"give the command again (if it is dead, delete {journal.lock_path} there first)"
            )

    def _check_skipped(self) -> None:
        """Nobody who did not ask for it is told that all is well when shards were left out, by another run."""
        if self.skipped and not self.job.recipe.settings.skip_bad:
            raise SourceError(
                f"{self.job.target.url}: damaged shards were left out there by a run with --skip-bad "
                f"({len(self.skipped)}, such as {self.skipped[0]})",
                hint="give the same command with --skip-bad to agree, or name an empty folder",
            )

    def _pass(self, stage: Stage, arena: Arena | None) -> list[Marker]:
        markers = _Pass(Work(self.job.recipe, self.job.target, stage, self.job.room_bytes), requests=self.requests)
        with _naming_ways_back(self.job):
            found = markers.run(self.workers, self.engine, arena)
        self.groups += len(stage.groups)
        self.made += len(markers.made)
        self.skipped += [line for marker in found for line in marker.skipped]
        self._check_skipped()
        if not any(marker.shards for marker in found):
            raise SourceError(
                f"{self.job.recipe.source}: no shard is sound ({len(self.skipped)} damaged, such as "
                f"{self.skipped[0]}); nothing was left to shuffle"
            )
        sums = _sum(marker.input for marker in found), _sum(marker.output for marker in found)
        self._check_passed_on(stage.number, sums[0])
        self.sums.append(PassSum(len(found), *sums))
        return found

    def _check_passed_on(self, number: int, taken: Digest) -> None:
        """A pass has read all that the pass before wrote, and nothing else."""
        if not self.sums or self.job.recipe.settings.with_replacement or taken == self.sums[-1].output:
            return
        raise SourceError(
            f"{self.job.target.url}: pass {number} read {taken}, but the pass before wrote {self.sums[-1].output}; the "
            "target is not finished. Shards were replaced between the passes, or please report this"
        )


class Engine(Protocol):
    """Makes groups somewhere else."""

    def running(self) -> AbstractContextManager[None]:
        """While groups are made."""

    def make(self, work: Work, groups: Sequence[int]) -> Generator[Made, None, None]:
        """What became of each group, in any order; each has written its marker."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """One stage of a job."""

    work: Work
    made: dict[int, Marker] = field(default_factory=dict)
    requests: Requests = field(default_factory=Requests)
    """Those that were made elsewhere."""

    def run(self, workers: int, engine: Engine | None, arena: Arena | None) -> list[Marker]:
        """Make all groups that have no marker yet; the markers of all."""
        journal, stage = self.work.journal, self.work.stage
        done = set(journal.marked(stage.number, len(stage.groups)))
        todo = [group for group in range(len(stage.groups)) if group not in done]
        known = {group: self._marker(group) for group in done} if stage.consumes else {}
        consumed = Consumed(stage, journal, self.work.recipe.settings.in_place)
        consumed.catch_up(known)
        lengths = stage.index.column("length")
        sizes = {group: int(lengths[np.unique(stage.groups[group])].sum()) for group in todo}
        label = "shuffling" if self.work.recipe.settings.passes == 1 else f"pass {stage.number}"
        with progress(label, sum(sizes.values()), len(todo)) as bar:
            if engine is None:
                self._here(todo, workers, arena or self.work.arena(), consumed, bar)
            else:
                self._there(todo, engine, consumed, bar, sizes)
        known |= self.made
        return [known.get(group) or self._marker(group) for group in range(len(stage.groups))]

    def _here(self, todo: Sequence[int], workers: int, arena: Arena, consumed: "Consumed", bar: Bar) -> None:
        """By threads. While a group's shards are on their way to the store, the next one is read."""
        groups = self.work.stage.groups
        with self.work.threads(workers) as threads, threads.stopping():
            mixer = self.work.mixer(arena, threads, bar.advance)
            before: Future[None] | None = None
            for group in todo:
                mixing = self.work.start(mixer, group, groups[group])
                if before is not None:
                    before.result()
                before = threads.settler.submit(self._settle, group, mixing, consumed)
                bar.step()
            if before is not None:
                before.result()

    def _settle(self, group: int, mixing: Mixing | None, consumed: "Consumed") -> None:
        """Write the marker, then delete what the group has consumed."""
        marker = self.work.settle(mixing)
        if marker is not None:
            self.made[group] = marker
        consumed.by(group)

    def _there(
        self, todo: Sequence[int], engine: Engine, consumed: "Consumed", bar: Bar, sizes: Mapping[int, int]
    ) -> None:
        with closing(engine.make(self.work, todo)) as results:  # which cancels the rest, and not when it is collected
            for made in results:
                if made.marker is not None:
                    self.made[made.group] = made.marker
                self.requests.add(made.requests)
                consumed.by(made.group)
                bar.advance(sizes[made.group])
                bar.step()

    def _marker(self, group: int) -> Marker:
        marker = self.work.marker(group)
        if marker is None:
            raise SourceError(f"{self.work.target.url}: the marker of group {group} is gone; give the command again")
        return marker


@contextmanager
def _naming_ways_back(job: Job) -> Iterator[None]:
    """Errors about shards that lie between two passes say how these are made again."""
    try:
        yield
    except ShardError as error:
        maker = job.journal.maker_of(error.shard.removeprefix(f"{job.target.url}/"))
        if maker is not None and not isinstance(error, TooLargeError):
            error.hint = _way_back(job, *maker)
        raise


def _way_back(job: Job, number: int, group: int) -> str:
    """To a shard that a group wrote for the next pass. What later passes read was deleted as it was consumed."""
    in_place, marker = job.recipe.settings.in_place, job.journal.marker_path(number, group)
    if number == 1 and not in_place:
        return f"delete {marker} there, and give the same command again: its group is made anew, the others stay"
    if not in_place:
        return "give the same command with --restart, which discards what was written and begins anew"
    if number == 1:
        made_of = [job.index.entries[block].path for block in job.first.groups[group].tolist()]
        names = ", ".join(made_of[:_SHOWN]) + (f" and {len(made_of) - _SHOWN} more" if len(made_of) > _SHOWN else "")
        return f"restore what it was made of from a backup ({names}), delete {marker}, and give the same command again"
    return "what it was made of was consumed: restore it, or the whole folder, from a backup"


def _finish(job: Job, stage: Stage, markers: Sequence[Marker]) -> Index:
    """Write the index of the new shards, once they are all there."""
    shards = sorted(
        ((shard, stage.lineage[marker.group]) for marker in markers for shard in marker.shards),
        key=lambda pair: pair[0].path,
    )
    there = {entry.path: entry for entry in job.target.list()}
    for shard, _ in shards:
        entry = there.get(shard.path)
        if entry is None or entry.size != shard.size:
            wrong = "is gone" if entry is None else "is not the shard that was written"
            raise SourceError(f"{job.target.url}/{shard.path}: {wrong}; {_way_out(job)}")
    schema = job.index.shards.column("schema")[0].as_py()
    scans = [
        (there[shard.path], Scan(shard.blocks, schema, shard.checksum, (tuple(numbers),) * len(shard.blocks)))
        for shard, numbers in shards
    ]
    index = make_index(job.recipe.suffix, BLOCK_BYTES, scans)
    named = new_shards(job.recipe, there, len(stage.groups) * stage.shards)
    stale = named - {shard.path for shard, _ in shards}  # of a group that has fewer records since one was replaced
    for path in [*job.journal.between(stage.number), *sorted(stale)]:  # drawn by no group, or by one that was overtaken
        job.target.delete(path)
    save_index(job.target, _beside_others(job, index))
    return index


def _way_out(job: Job) -> str:
    """From a shard that is not what its group's marker says. What was consumed cannot be read again."""
    if job.recipe.settings.in_place:
        return "what it was made of was consumed: restore it from a backup, and give the command again"
    if job.recipe.settings.passes > 1:
        return "restore it, or give --restart to discard what was written and begin anew"
    return f"delete {job.journal.pass_folder(1)}/groups there, and give the command again to make it anew"


def _sum(digests: Iterable[Digest]) -> Digest:
    return sum(digests, Digest())


def _beside_others(job: Job, index: Index) -> Index:
    """In place, the folder may hold other shards, which the index knows."""
    known = load_index(job.target) if job.recipe.settings.in_place else None
    return index if known is None else merge(without(known, {entry.path for entry in job.index.entries}), index)
