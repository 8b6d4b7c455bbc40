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
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from corgi2.arguments import suggesting
from corgi2.budget import check_usable
from corgi2.dataset import Index, load_index, save_index, with_entries
from corgi2.errors import SourceError
from corgi2.host import keeping_sigterm
from corgi2.offline.consumed import Consumed
from corgi2.offline.discard import discard
from corgi2.offline.engines.engine import Engine
from corgi2.offline.engines.local import LocalEngine
from corgi2.offline.finishing import finish
from corgi2.offline.job import Job, commit_plan
from corgi2.offline.journal import Done, Marker, PassSum
from corgi2.offline.passes import Pass, next_pass
from corgi2.offline.planning import naming_ways_out, plan_shuffle
from corgi2.offline.report import Report
from corgi2.offline.settings import Settings
from corgi2.offline.skipped import Skipped
from corgi2.offline.task import Made, Task
from corgi2.offline.ways_back import naming_ways_back
from corgi2.progress import Bar, progress
from corgi2.records import Digest, checksum_of
from corgi2.sizes import parse_size, plural
from corgi2.stores import Options, Requests, StoredShard

_log = logging.getLogger("corgi2")

_WORKERS = 4


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
    in_place: bool = False,
    skip_bad: bool = False,
    restart: bool = False,
    workers: int | None = None,
    engine: Literal["local", "ray"] = "local",
    tasks: int | None = None,
    address: str | None = None,
    src_options: Options | None = None,
    dst_options: Options | None = None,
) -> Report:
    """Shuffle ``src`` into ``dst``, or in place, or resume where an earlier run of the same plan stopped.

    Random groups of blocks are read into memory, shuffled, and written as new shards of the same format. No record is
    lost, repeated or altered; `corgi2.verify` proves it. The output depends on the source, the seed and the options,
    never on how often the run was stopped. Give the same call again to resume.

    Args:
        src: A folder, one shard, a glob (``train-*.tar``) or a brace range (``train-{000000..000146}.tar``), on this
            machine or in ``s3://``, ``gs://``, ``az://``.
        dst: An empty folder, or one that an unfinished run of the same plan has written to.
        buffer: Memory for one group of blocks, such as ``"8GB"``; a larger one mixes better. By default half of what
            this process may use. The process as a whole stays below 1.15 × buffer + 200 MB.
        buffer_blocks: Mix so many blocks at a time (n), not more.
        seed: Another seed gives another order.
        passes: Mix again what was mixed, with blocks of other groups; two passes mix almost any data set.
        with_replacement: Draw blocks and records as the paper's Algorithm 2 does, which drops about half of them.
        shard_size: Write shards of about this size. By default about as many shards as the source has.
        shard_records: Write shards of about so many records.
        in_place: Replace the shards of ``src``, group by group, without a second copy. Old shards are deleted once the
            new ones are safe.
        skip_bad: Leave damaged shards out, and list them in the report.
        restart: Discard what an unfinished shuffle has written to ``dst``, and begin anew.
        workers: Reads and writes in flight in one process, 4 by default. Changes the speed, never the output.
        engine: ``"local"``, or ``"ray"``: groups are tasks of a Ray cluster, each with a buffer of its own.
        tasks: With Ray: tasks per node, 1 by default.
        address: With Ray: the cluster's address, or ``"auto"``. By default Ray is started on this machine.
        src_options: Options for the source's store (docs/stores.md).
        dst_options: The same for the target's.
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
    check_engine(engine, workers, tasks, address)
    job = plan_shuffle(src, dst, settings, src_options, dst_options, restart)
    return run_shuffle(job, workers, engine, tasks, address)


def run_shuffle(
    job: Job,
    workers: int | None = None,
    engine: str = "local",
    tasks: int | None = None,
    address: str | None = None,
) -> Report:
    """Do what was planned, here or on a cluster."""
    makers = _engine(engine, workers, tasks, address)
    started = time.monotonic()
    run = _Run(job, makers)
    with naming_ways_out(job.plan.settings):
        index = run.complete()
        if index is None:
            if makers.is_here:
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
        passes=job.plan.settings.passes,
        reads=sum(count.reads for count in counts),
        writes=sum(count.writes for count in counts),
        deletes=sum(count.deletes for count in counts),
        seconds=time.monotonic() - started,
        buffer_bytes=job.room_bytes,
        resumed_groups=run.groups - run.made,
        skipped=(*job.plan.skipped, *run.skipped),
    )


def check_engine(name: str, workers: int | None, tasks: int | None, address: str | None) -> None:
    """Refuse arguments that do not go together, before anything is looked at."""
    for argument, value in (("workers", workers), ("tasks", tasks)):
        if value is not None and value < 1:
            raise ValueError(f"{argument}={value} must be at least 1")
    if name not in ("local", "ray"):
        raise ValueError(f"engine={name!r} is neither 'local' nor 'ray'")
    if name == "local" and (address is not None or tasks is not None):
        raise ValueError("address= and tasks= speak of a Ray cluster: give engine='ray' with them")


def _engine(name: str, workers: int | None, tasks: int | None, address: str | None) -> Engine:
    check_engine(name, workers, tasks, address)
    if name == "local":
        return LocalEngine(workers or _WORKERS)
    try:
        with keeping_sigterm():  # for which Ray has a handler of its own
            from corgi2.offline.engines.ray import RayEngine
    except ImportError as error:
        raise SourceError(
            f"engine='ray' needs Ray, which is not installed ({error})", hint="pip install 'corgi2[ray]'"
        ) from error
    return RayEngine(workers or _WORKERS, tasks or 1, address)


@dataclass(slots=True)
class _Run:
    """All passes of a job."""

    job: Job
    engine: Engine
    requests: Requests = field(default_factory=Requests)
    """Those that were made elsewhere."""
    groups: int = 0
    made: int = 0
    skipped: list[Skipped] = field(default_factory=list)
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
        if job.plan.settings.in_place and job.target.keeps_versions(job.journal.plan_path):
            _log.warning("%s keeps old versions of what is deleted: in place frees nothing there", job.target.url)
        self.groups = 0
        with job.journal.lock() as other, self.engine.running():
            if other:
                _log.warning("%s: another run is at work there (%s); both may continue", job.target.url, other)
            pass_ = job.first
            while True:
                markers = self._pass(pass_)
                if pass_.is_last:
                    break
                pass_ = next_pass(pass_, markers, job.plan, job.target)
            index = finish(job, pass_, markers)
        # After the lock is gone: with this, everything is done.
        replaced = tuple(job.journal.replaced_paths()) if job.plan.settings.in_place else ()
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
        if self.skipped and not self.job.plan.settings.skip_bad:
            raise SourceError(
                f"{self.job.target.url}: damaged shards were left out there by a run with skip_bad=True "
                f"({len(self.skipped)}, such as {self.skipped[0]})",
                hint="give the same command with skip_bad=True to agree, or name an empty folder",
            )

    def _pass(self, pass_: Pass) -> list[Marker]:
        markers = _PassRun(Task(self.job.plan, self.job.target, pass_, self.job.room_bytes), requests=self.requests)
        with naming_ways_back(self.job):
            found = markers.run(self.engine)
        self.groups += len(pass_.groups)
        self.made += len(markers.made)
        self.skipped += [each for marker in found for each in marker.skipped]
        self._check_skipped()
        if not any(marker.shards for marker in found):
            raise SourceError(
                f"{self.job.plan.source}: no shard is sound ({len(self.skipped)} damaged, such as "
                f"{self.skipped[0]}); nothing was left to shuffle"
            )
        sums = _sum(marker.input for marker in found), _sum(marker.output for marker in found)
        self._check_passed_on(pass_.number, sums[0])
        self.sums.append(PassSum(len(found), *sums))
        return found

    def _check_passed_on(self, number: int, taken: Digest) -> None:
        """A pass has read all that the pass before wrote, and nothing else."""
        if not self.sums or self.job.plan.settings.with_replacement or taken == self.sums[-1].output:
            return
        raise SourceError(
            f"{self.job.target.url}: pass {number} read {taken}, but the pass before wrote {self.sums[-1].output}; the "
            "target is not finished. Shards were replaced between the passes, or please report this"
        )


@dataclass(frozen=True, slots=True)
class _PassRun:
    """One pass of a job."""

    task: Task
    made: dict[int, Marker] = field(default_factory=dict)
    requests: Requests = field(default_factory=Requests)
    """Those that were made elsewhere."""

    def run(self, engine: Engine) -> list[Marker]:
        """Make all groups that have no marker yet; the markers of all."""
        journal, pass_ = self.task.journal, self.task.pass_
        done = set(journal.marked(pass_.number, len(pass_.groups)))
        todo = [group for group in range(len(pass_.groups)) if group not in done]
        known = {group: self._marker(group) for group in done} if pass_.consumes else {}
        consumed = Consumed(pass_, journal, self.task.plan.settings.in_place)
        consumed.catch_up(known)
        label = "shuffling" if self.task.plan.settings.passes == 1 else f"pass {pass_.number}"
        with progress(label, sum(map(self.task.bytes_of, todo)), len(todo)) as bar:
            engine.make(self.task, todo, bar.advance, lambda made: self._settle(made, consumed, bar))
        known |= self.made
        return [known.get(group) or self._marker(group) for group in range(len(pass_.groups))]

    def _settle(self, made: Made, consumed: Consumed, bar: Bar) -> None:
        """A group has its marker: what it has consumed can go."""
        if made.marker is not None:
            self.made[made.group] = made.marker
        self.requests.add(made.requests)
        consumed.by(made.group)
        bar.step()

    def _marker(self, group: int) -> Marker:
        marker = self.task.marker(group)
        if marker is None:
            raise SourceError(f"{self.task.target.url}: the marker of group {group} is gone; give the command again")
        return marker


def _sum(digests: Iterable[Digest]) -> Digest:
    return sum(digests, Digest())
