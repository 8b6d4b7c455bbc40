"""What lies in a target already: whose it is, whether a shuffle can go on with it, and discarding it."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from corgi2.dataset.index import Index, with_replaced
from corgi2.dataset.source import CORGI_FOLDER, is_matched, runs
from corgi2.errors import ShardError, SourceError
from corgi2.offline.job import Job, load_plan, load_recipe
from corgi2.offline.journal import DISCARDED, Journal
from corgi2.offline.outline import EMPTY
from corgi2.offline.recipe import Recipe
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
    foreign = _foreign(job.recipe, (entry.path for entry in listing), most)
    if foreign:
        raise SourceError(
            f"{job.target.url}/{foreign[0]}: is no shard of the unfinished shuffle there (files of the kind: "
            f"{len(foreign)}); move it away, to go on"
        )


def _foreign(recipe: Recipe, paths: Iterable[str], most: int | None = None) -> list[str]:
    """Files that are neither new shards, of which there are so many at the most, nor what is kept beside them."""
    ours = new_shards(recipe, paths := list(paths), most)
    return [path for path in paths if not path.startswith(f"{CORGI_FOLDER}/") and path not in ours]


def new_shards(recipe: Recipe, paths: Iterable[str], most: int | None = None) -> set[str]:
    """Those that are named like what the shuffle writes, numbered below ``most``."""
    shard = re.compile(rf"{re.escape(recipe.prefix)}(\d{{6,}}){re.escape(recipe.suffix)}")
    found = ((path, shard.fullmatch(path)) for path in paths)
    return {path for path, match in found if match and (most is None or int(match[1]) < most)}


def check_not_back(store: Store, paths: Sequence[str]) -> None:
    """A run that was held up while another finished, and a third shuffled its new shards again, writes some of these
    once more when it wakes up: their records would be there twice."""
    done = [run for run, is_done in runs(paths).items() if run and is_done]
    plans = [plan for run in done if len(done) > 1 and (plan := _old_plan(Journal(store, run)))]
    written = {path for recipe, _ in plans for path in new_shards(recipe, paths)}
    back = sorted(written & {entry.path for _, index in plans for entry in index.entries})
    if back:
        raise SourceError(
            f"{store.url}/{back[0]}: its records were shuffled in place again, into newer shards, and it is back "
            f"(shards of the kind: {len(back)}); delete it, or move it away"
        )


def _old_plan(journal: Journal) -> tuple[Recipe, Index] | None:
    """None where it cannot be read: nothing but a check rests on it."""
    try:
        return load_plan(journal)
    except SourceError:
        return None


def with_what_is_left(job: Job, listing: Iterable[Entry]) -> Job:
    """In place: all shards are there that were not consumed, and no others. One that is damaged stops a shuffle, and
    may have been restored: what no marker speaks of was consumed by nobody, so that it is read as it is now."""
    now, stage = {entry.path: entry for entry in listing}, job.first
    done = job.journal.marked(1, len(stage.groups))
    consumed = {stage.source.entries[block].path for group in done for block in stage.groups[group].tolist()}
    known = job.journal.read_replaced()
    left = tuple(
        _left(job, entry, now.pop(entry.path, None), entry.path in consumed, known) for entry in job.index.entries
    )
    _check_new(job, now)
    replaced = tuple(new for old, new in zip(job.index.entries, left, strict=True) if new != old)
    if not replaced:
        return job
    source = replace(stage.source, entries=left)
    return replace(job, first=replace(stage, source=source, index=with_replaced(stage.index, left)), replaced=replaced)


def _left(job: Job, planned: Entry, found: Entry | None, is_consumed: bool, known: Collection[Entry]) -> Entry:
    """The shard to read, or to delete."""
    name = f"{job.target.url}/{planned.path}"
    if found == planned or (found is None and is_consumed):
        return planned
    if found is None:
        raise SourceError(f"{name}: is gone, and was not shuffled yet; restore it from a backup, to go on")
    if is_consumed and found not in known:
        raise SourceError(f"{name}: has changed, and what it was is in new shards already; move it away, to go on")
    if not found.size:
        raise ShardError(name, 0, EMPTY)
    return planned if is_consumed else found


def _check_new(job: Job, others: Iterable[str]) -> None:
    for path in others:
        ours = path.startswith((job.recipe.prefix, f"{CORGI_FOLDER}/"))
        if not ours and path.endswith(job.recipe.suffix) and is_matched(job.first.source, path):
            raise SourceError(
                f"{job.target.url}/{path}: is new since the shuffle in place began; move it away, to go on"
            )


def discardable(journal: Journal, listing: Iterable[Entry]) -> list[str]:
    """The files of an unfinished shuffle into a folder of its own; others are refused."""
    paths = [entry.path for entry in listing]
    url = journal.store.url
    if runs(paths)[0]:
        raise SourceError(f"{url}: holds a finished shuffle, which --restart does not discard; delete it yourself")
    foreign = _foreign(load_recipe(journal), paths)
    if foreign:
        raise SourceError(f"{url}: {foreign[0]} was not written by the shuffle; move it away first")
    return paths


def discard_in_place(journal: Journal, listing: Iterable[Entry]) -> None:
    """As long as no group has its marker, all old shards are there. That they stay is settled before anything goes."""
    paths = {entry.path for entry in listing}
    if journal.fate() != DISCARDED:
        _check_unconsumed(journal, paths)
    ours = new_shards(load_recipe(journal), paths)
    kept = {journal.fate_path}  # so that a run that knows nothing of it yet meets no other of its generation
    discard(journal, sorted({*ours, *(path for path in paths if path.startswith(f"{journal.folder}/"))} - kept))


def _check_unconsumed(journal: Journal, paths: Collection[str]) -> None:
    url, other = journal.store.url, journal.other()
    held = load_plan(journal)
    if other:
        raise SourceError(
            f"{url}: another run is at work there ({other}); end it, and give the command again (if it is dead, delete "
            f"{journal.lock_path} there first)"
        )
    is_marked = any(path.startswith(f"{journal.folder}/") and "/groups/" in path for path in paths)
    is_whole = held is not None and all(entry.path in paths for entry in held[1].entries)
    if is_marked or not is_whole or not journal.decide(DISCARDED):
        raise SourceError(
            f"{url}: --restart would lose what an unfinished --in-place has written; give the same command without it"
        )


def discard(journal: Journal, paths: Sequence[str]) -> None:
    """Delete what an unfinished shuffle wrote: markers first, so that it could go on wherever this is stopped, and the
    plan nearly last."""
    ours = [path for path in paths if path.startswith(f"{journal.folder}/")]
    markers = [path for path in ours if "/groups/" in path]
    last = [journal.plan_path, *(path for path in ours if path.startswith(journal.source_path("")))]
    for path in [*markers, *(path for path in paths if path not in {*markers, *last}), *last]:
        journal.store.delete(path)
