"""The offline half of Corgi²: read random groups of blocks, shuffle each, write it as new shards of the same format.

The plan is written first, every group writes its own marker once its shards are published, and consumed shards are
deleted only after the marker was read back. So a run that was killed at any point resumes when the same command is run
again: groups without a marker are made again, with the same bytes. Two runs of one plan may interleave at any call:
they write the same, and a run that finds a group done by the other continues with the next.

Memory: one group, which fits the buffer, and a few slices.
"""

import logging
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from corgi2.arguments import suggesting
from corgi2.budget import check_usable
from corgi2.dataset import Index, load_index, save_index, with_entries
from corgi2.errors import SourceError
from corgi2.extras import needing
from corgi2.host import keeping_sigterm
from corgi2.offline.aside import Copying
from corgi2.offline.discard import discard
from corgi2.offline.engines.engine import Engine
from corgi2.offline.engines.local import LocalEngine
from corgi2.offline.finishing import finish, schema_of
from corgi2.offline.job import Job, commit_plan
from corgi2.offline.journal import Done, Marker, PassSum
from corgi2.offline.pass_run import PassRun
from corgi2.offline.passes import Pass, next_pass
from corgi2.offline.planning import naming_ways_out, plan_shuffle
from corgi2.offline.report import Report
from corgi2.offline.settings import Settings, parse_share
from corgi2.offline.side_files import describe, put_aside
from corgi2.offline.skipped import Skipped
from corgi2.offline.task import Task
from corgi2.offline.ways_back import naming_ways_back
from corgi2.progress import progress
from corgi2.records import Digest, checksum_of
from corgi2.sizes import parse_size, plural
from corgi2.stores import Options, Requests, Store, StoredShard

_log = logging.getLogger("corgi2")

_WORKERS = 4
"""Reads and writes in flight, unless a number is given."""


@suggesting
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
    block_size: int | str | None = None,
    range_size: int | str | None = None,
    in_place: bool = False,
    skip_bad: bool = False,
    restart: bool = False,
    force: bool = False,
    workers: int | None = None,
    engine: Literal["local", "ray"] = "local",
    tasks: int | None = None,
    address: str | None = None,
    src_options: Options | None = None,
    dst_options: Options | None = None,
    holdout: str | float | None = None,
    holdout_to: str | os.PathLike[str] | None = None,
    holdout_by: Literal["record", "shard"] | None = None,
) -> Report:
    """Shuffle ``src`` into ``dst``, or in place, or resume where an earlier run of the same plan stopped.

    Random groups of blocks are read into memory, shuffled, and written as new shards of the same format. No record is
    lost, repeated or altered; `corgi2.verify` proves it. The output depends on the source, the seed and the options,
    never on how often the run was stopped. To resume, make the same call again.

    Args:
        src: A folder, one shard, a glob (``train-*.tar``) or a brace range (``train-{000000..000146}.tar``), on this
            machine or in ``s3://``, ``gs://``, ``az://``.
        dst: An empty folder, or one that an unfinished run of the same plan has written to.
        buffer: Memory for one group of blocks, such as ``"8GB"``; a larger one mixes better. By default half of what
            this process may use. The process as a whole stays below 1.15 × buffer + 200 MB.
        buffer_blocks: Mix this many blocks at a time (n), not more.
        seed: Another seed gives another order.
        passes: Mix the new blocks again, in other groups; two passes mix almost any data set.
        with_replacement: Draw blocks and records as the paper's Algorithm 2 does, which drops about half of them.
        shard_size: Write shards of about this size. By default about as many shards as the source has.
        shard_records: Write shards of about this many records.
        block_size: Write blocks of about this size, several in a shard: what a loader reads at a time.
        range_size: Mix ranges of about this size, such as ``"4MB"``, in rounds: each group takes parts of as many
            blocks as memory allows, so that one pass mixes like two, with more reads and no more bytes. Needs an index
            with blocks of that size, or reads everything once more.
        in_place: Replace the shards of ``src``, group by group, without a second copy. Old shards are deleted once the
            new ones are safe.
        skip_bad: Leave out damaged shards, and list them in the report.
        restart: Discard what an unfinished shuffle has written to ``dst``, and start over.
        force: Run even if it gains nothing: n = 1, or many times as many shards as the source has.
        workers: Reads and writes in flight in one process, 4 by default. Changes the speed, never the output.
        engine: ``"local"``, or ``"ray"``: groups are tasks of a Ray cluster, each with its own buffer.
        tasks: With Ray: tasks per node, 1 by default.
        address: With Ray: the cluster's address, or ``"auto"``. By default Ray is started on this machine.
        src_options: Options for the source's store (docs/stores.md).
        dst_options: The same for the target's store, and for that of ``holdout_to``.
        holdout: Hold out this share for validation, such as ``"5%"`` or ``0.05`` (docs/validation.md).
        holdout_to: An empty folder for the held-out records.
        holdout_by: ``"record"``: a uniform sample of all records. ``"shard"``: whole shards, copied as they are, so
            that nothing of a held-out video or user is trained on.
    """
    settings = Settings(
        buffer_bytes=None if buffer is None else parse_size(buffer),
        buffer_blocks=buffer_blocks,
        seed=seed,
        passes=passes,
        with_replacement=with_replacement,
        shard_bytes=None if shard_size is None else parse_size(shard_size),
        shard_records=shard_records,
        block_bytes=None if block_size is None else parse_size(block_size),
        range_bytes=None if range_size is None else parse_size(range_size),
        in_place=in_place,
        skip_bad=skip_bad,
        holdout=None if holdout is None else parse_share(holdout),
        holdout_by=holdout_by,
        holdout_to=None if holdout_to is None else os.fspath(holdout_to),
    )
    check_engine(engine, workers, tasks, address)
    job = plan_shuffle(src, dst, settings, src_options, dst_options, restart, force)
    return run_shuffle(job, workers, engine, tasks, address)


def run_shuffle(
    job: Job,
    workers: int | None = None,
    engine: str = "local",
    tasks: int | None = None,
    address: str | None = None,
) -> Report:
    """Do what was planned, here or on a cluster."""
    makers = _engine(engine, workers or _WORKERS, tasks, address)
    started = time.monotonic()
    run = _Run(job, makers)
    with naming_ways_out(job.plan.settings):
        index = run.complete()
        if index is None:
            if makers.is_here:
                check_usable(job.promised_bytes, job.room_bytes, job.target.url)
            index = run.make()
    places = job.first.source.store, job.target, *([job.aside] if job.aside is not None else [])
    stores = {id(store): store for store in places}.values()
    counts = [run.requests, *(store.requests for store in stores)]
    return Report(
        records=index.records,
        bytes=index.bytes,
        blocks=job.index.blocks.num_rows,
        groups=run.groups,
        n=job.first.n,
        shards=index.shards.num_rows,
        passes=job.plan.settings.passes,
        reads=run.moved.reads,
        writes=run.moved.writes,
        deletes=sum(count.deletes for count in counts),
        other_requests=run.moved.lists
        + run.moved_aside.lists
        + sum(count.reads + count.writes + count.lists for count in counts),
        seconds=time.monotonic() - started,
        buffer_bytes=job.room_bytes,
        resumed_groups=run.groups - run.made,
        skipped=(*job.plan.skipped, *run.skipped),
        held_records=run.held.records if run.held is not None else 0,
        held_shards=run.held.shards.num_rows if run.held is not None else 0,
        held_writes=run.moved_aside.writes,
        holdout=job.plan.settings.holdout_to,
    )


def check_engine(name: str, workers: int | None, tasks: int | None, address: str | None) -> None:
    """Refuse arguments that do not go together, before anything is read."""
    for argument, value in (("workers", workers), ("tasks", tasks)):
        if value is not None and value < 1:
            raise ValueError(f"{argument}={value} must be at least 1")
    if name not in ("local", "ray"):
        raise ValueError(f"engine={name!r} is neither 'local' nor 'ray'")
    if name == "local" and (address is not None or tasks is not None):
        raise ValueError("address= and tasks= are for a Ray cluster: give engine='ray' with them")


def _engine(name: str, workers: int, tasks: int | None, address: str | None) -> Engine:
    check_engine(name, workers, tasks, address)
    if name == "local":
        return LocalEngine(workers)
    with needing("ray", "engine='ray'"), keeping_sigterm():  # Ray installs a handler of its own
        from corgi2.offline.engines.ray import RayEngine
    return RayEngine(workers, tasks or 1, address)


@dataclass(slots=True)
class _Run:
    """All passes of a job."""

    job: Job
    engine: Engine
    requests: Requests = field(default_factory=Requests)
    """Requests that were sent from elsewhere."""
    moved: Requests = field(default_factory=Requests)
    """For shards, here and elsewhere."""
    moved_aside: Requests = field(default_factory=Requests)
    """The same for those that are held out."""
    groups: int = 0
    made: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    sums: list[PassSum] = field(default_factory=list)
    held: Index | None = None
    """The sums of what was held out."""

    def complete(self) -> Index | None:
        """The index, if an earlier run has finished everything, and nothing has changed since."""
        job = self.job
        if not job.is_begun or job.target.head(job.journal.done_path) is None:
            return None
        index = load_index(job.target)
        if index is None:
            return None
        index, held = self._as_it_is(job.target, index), None if job.aside is None else load_index(job.aside)
        self.held = None if job.aside is None or held is None else self._as_it_is(job.aside, held)
        job.target.sweep()
        done = job.journal.read_done()
        if done is not None:
            self.skipped += done.skipped
            self._check_skipped()
        self.groups = len(job.first.groups)
        return index

    def _as_it_is(self, target: Store, index: Index) -> Index:
        """The index with the etags that shards have now. A run that was overtaken and killed may have published some of
        them again, with the same bytes, after the other had finished."""
        now = {entry.path: entry for entry in target.list()}
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
                f"{target.url}/{wrong[0].path}: has changed since the shuffle was finished, or is gone",
                hint=f"restore it from a copy, or delete {self._folders} and give the same command again",
            )
        index = with_entries(index, [now[entry.path] for entry in index.entries])
        save_index(target, index)
        return index

    @property
    def _folders(self) -> str:
        """All that the shuffle has written."""
        job = self.job
        return job.target.url if job.aside is None else f"{job.target.url} and {job.aside.url}"

    def make(self) -> Index:
        job = self.job
        if job.replaced:
            self._check_alone()
            count = plural(len(job.replaced), "shard")
            _log.warning("%s: replaced since the plan was made, and read as they are now: %s", job.target.url, count)
        if job.discarded:
            discard(job.journal, job.discarded, job.aside_discarded)
        self.job = job = commit_plan(job)
        job.target.sweep()
        if job.holdout is not None:
            job.holdout.begin(job.index)
        if job.plan.settings.in_place and job.target.keeps_versions(job.journal.plan_path):
            _log.warning("%s keeps old versions of what is deleted: in place frees nothing there", job.target.url)
        self.groups = 0
        with job.journal.lock() as other, self.engine.running():
            if other:
                _log.warning("%s: another run is at work there (%s); both may continue", job.target.url, other)
            put_aside(job)
            self._copy_held()
            pass_ = job.first
            while True:
                markers = self._pass(pass_)
                if pass_.is_last:
                    break
                pass_ = next_pass(pass_, markers, job.plan, job.target)
            index = finish(job, pass_, markers)
            self._finish_held()
            describe(job, index, self.held)
        # After the lock is gone: now everything is done.
        replaced = tuple(job.journal.replaced_paths()) if job.plan.settings.in_place else ()
        job.journal.write_done(Done(tuple(self.sums), tuple(self.skipped), job.room_bytes, replaced))
        job.target.sweep()
        return index

    def _copy_held(self) -> None:
        """Copy the shards that are held out, in this process, whatever engine makes the groups."""
        job = self.job
        if job.holdout is None or not job.plan.held:
            return
        copying = Copying(job.first.source, job.holdout, job.journal, schema_of(job), self.moved_aside)
        with progress("holding out", sum(entry.size for entry in job.plan.held), len(job.plan.held)) as bar:
            self.skipped += copying.run(job.plan.held, bar.advance)

    def _finish_held(self) -> None:
        job = self.job
        if job.holdout is not None:
            first, groups = (None, len(job.plan.held)) if job.plan.held else (job.first, job.first.count)
            self.held = job.holdout.finish(first, schema_of(job), groups, job.room_bytes)

    def _check_alone(self) -> None:
        """Two runs write the same only if they read the same, and another may have listed the shards before."""
        journal = self.job.journal
        other = journal.other()
        if other:
            raise SourceError(
                f"{journal.store.url}: shards were replaced, and another run is at work there ({other}); end it, and "
                f"run the command again (if it is dead, delete {journal.lock_path} there first)"
            )

    def _check_skipped(self) -> None:
        """Without skip_bad=True, a run must not report success if another run has left out shards."""
        if self.skipped and not self.job.plan.settings.skip_bad:
            raise SourceError(
                f"{self.job.target.url}: damaged shards were left out there by a run with skip_bad=True "
                f"({len(self.skipped)}, such as {self.skipped[0]})",
                hint="run the same command with skip_bad=True to accept that, or name an empty folder",
            )

    def _pass(self, pass_: Pass) -> list[Marker]:
        job = self.job
        aside = job.holdout if pass_.number == 1 and not job.plan.held else None
        task = Task(job.plan, job.target, pass_, job.room_bytes, self.moved, self.moved_aside, aside)
        markers = PassRun(task, requests=self.requests)
        with naming_ways_back(self.job):
            found = markers.run(self.engine)
        self.groups += len(pass_.groups)
        self.made += len(markers.made)
        self.skipped += [each for marker in found for each in marker.skipped]
        self._check_skipped()
        if not any(marker.shards for marker in found) and not self.skipped:
            raise SourceError(f"{self.job.plan.source}: all records were held out; nothing is left to shuffle")
        if not any(marker.shards for marker in found):
            raise SourceError(
                f"{self.job.plan.source}: no shard is sound ({len(self.skipped)} damaged, such as "
                f"{self.skipped[0]}); nothing was left to shuffle"
            )
        sums = [_sum(getattr(marker, name) for marker in found) for name in ("input", "output", "held")]
        self._check_passed_on(pass_.number, sums[0])
        self.sums.append(PassSum(len(found), *sums))
        return found

    def _check_passed_on(self, number: int, taken: Digest) -> None:
        """Check that a pass has read everything that the pass before wrote, and nothing else."""
        if not self.sums or self.job.plan.settings.with_replacement or taken == self.sums[-1].output:
            return
        raise SourceError(
            f"{self.job.target.url}: pass {number} read {taken}, but the pass before wrote {self.sums[-1].output}; the "
            "target is not finished. Shards were replaced between the passes, or please report this"
        )


def _sum(digests: Iterable[Digest]) -> Digest:
    return sum(digests, Digest())
