"""What lies in a target already: whose it is, whether a shuffle can resume it, and discarding it."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from corgi2.dataset import CORGI_FOLDER, Index, is_matched, runs, with_replaced
from corgi2.errors import ShardError, SourceError
from corgi2.offline.job import Job, load_plan
from corgi2.offline.journal import Journal
from corgi2.offline.outline import EMPTY
from corgi2.offline.plan import Plan
from corgi2.stores import Entry, Store


def check_empty(journal: Journal, listing: Iterable[Entry]) -> None:
    foreign = [entry.path for entry in listing if not entry.path.startswith(journal.source_path(""))]
    if foreign:
        raise SourceError(
            f"{journal.store.url}: is not empty ({len(foreign)} files, such as {foreign[0]}), and no shuffle of ours; "
            "name an empty folder"
        )


def check_own(job: Job, listing: Iterable[Entry]) -> None:
    """What lies in an unfinished target is what the shuffle has written there, or will write."""
    most = len(job.first.groups) * job.first.shards if job.first.is_last else None
    foreign = foreign_files(job.plan, (entry.path for entry in listing), most)
    if foreign:
        raise SourceError(
            f"{job.target.url}/{foreign[0]}: is no shard of the unfinished shuffle there (files of the kind: "
            f"{len(foreign)}); move it away, to resume"
        )


def foreign_files(plan: Plan, paths: Iterable[str], most: int | None = None) -> list[str]:
    """Files that are neither new shards, of which there are so many at the most, nor what is kept beside them."""
    ours = new_shards(plan, paths := list(paths), most)
    return [path for path in paths if not path.startswith(f"{CORGI_FOLDER}/") and path not in ours]


def new_shards(plan: Plan, paths: Iterable[str], most: int | None = None) -> set[str]:
    """Those that are named like what the shuffle writes, numbered below ``most``."""
    shard = re.compile(rf"{re.escape(plan.prefix)}(\d{{6,}}){re.escape(plan.suffix)}")
    found = ((path, shard.fullmatch(path)) for path in paths)
    return {path for path, match in found if match and (most is None or int(match[1]) < most)}


def check_not_back(store: Store, paths: Sequence[str]) -> None:
    """A run that was held up while another finished, and a third shuffled its new shards again, writes some of these
    once more when it wakes up: their records would be there twice."""
    done = [run for run, is_done in runs(paths).items() if run and is_done]
    plans = [held for run in done if len(done) > 1 and (held := _old_plan(Journal(store, run)))]
    written = {path for plan, _ in plans for path in new_shards(plan, paths)}
    back = sorted(written & {entry.path for _, index in plans for entry in index.entries})
    if back:
        raise SourceError(
            f"{store.url}/{back[0]}: its records were shuffled in place again, into newer shards, and it is back "
            f"(shards of the kind: {len(back)}); delete it, or move it away"
        )


def _old_plan(journal: Journal) -> tuple[Plan, Index] | None:
    """None where it cannot be read: nothing but a check rests on it."""
    try:
        return load_plan(journal)
    except SourceError:
        return None


def with_what_is_left(job: Job, listing: Iterable[Entry]) -> Job:
    """In place: all shards are there that were not consumed, and no others. One that is damaged stops a shuffle, and
    may have been restored: what no marker speaks of was consumed by nobody, so that it is read as it is now."""
    now, pass_ = {entry.path: entry for entry in listing}, job.first
    done = job.journal.marked(1, len(pass_.groups))
    consumed = {pass_.source.entries[block].path for group in done for block in pass_.groups[group].tolist()}
    known = job.journal.read_replaced()
    left = tuple(
        _left(job, entry, now.pop(entry.path, None), entry.path in consumed, known) for entry in job.index.entries
    )
    _check_new(job, now)
    replaced = tuple(new for old, new in zip(job.index.entries, left, strict=True) if new != old)
    if not replaced:
        return job
    source = replace(pass_.source, entries=left)
    return replace(job, first=replace(pass_, source=source, index=with_replaced(pass_.index, left)), replaced=replaced)


def _left(job: Job, planned: Entry, found: Entry | None, is_consumed: bool, known: Collection[Entry]) -> Entry:
    """The shard to read, or to delete."""
    name = f"{job.target.url}/{planned.path}"
    if found == planned or (found is None and is_consumed):
        return planned
    if found is None:
        raise SourceError(f"{name}: is gone, and was not shuffled yet; restore it from a backup, to resume")
    if is_consumed and found not in known:
        raise SourceError(f"{name}: has changed, and what it was is in new shards already; move it away, to resume")
    if not found.size:
        raise ShardError(name, 0, EMPTY)
    return planned if is_consumed else found


def _check_new(job: Job, others: Iterable[str]) -> None:
    for path in others:
        ours = path.startswith((job.plan.prefix, f"{CORGI_FOLDER}/"))
        if not ours and path.endswith(job.plan.suffix) and is_matched(job.first.source, path):
            raise SourceError(
                f"{job.target.url}/{path}: is new since the shuffle in place began; move it away, to resume"
            )
