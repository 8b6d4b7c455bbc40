"""From what a person asks for to a job: the source found, its blocks outlined, the target checked. Writes nothing.

An unfinished target gives its own plan back, and refuses every other.
"""

import hashlib
import logging
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from corgi2.dataset import Index, Source, encode_index, find_source, is_matched, look, runs, same_files
from corgi2.errors import DamageError, NoRecordError, ShardError, SourceError, TooLargeError
from corgi2.formats import format_of
from corgi2.host import usable_memory
from corgi2.offline.discard import discard_in_place, discardable
from corgi2.offline.job import START_ANEW, Job, load_plan
from corgi2.offline.journal import DISCARDED, Journal
from corgi2.offline.names import next_names, prefix_of
from corgi2.offline.outline import outline
from corgi2.offline.passes import Pass, first_pass
from corgi2.offline.plan import Plan
from corgi2.offline.resume import check_empty, check_not_back, check_own, with_what_is_left
from corgi2.offline.settings import Settings
from corgi2.sizes import format_size
from corgi2.stores import Entry, Options, Store, open_store

_log = logging.getLogger("corgi2")

_FOREIGN_NAMES = ("index.json", "dataset_info.json", "state.json", "_metadata", "_common_metadata")

_FOREIGN_SUFFIXES = (".idx", ".index", ".crc")


def plan_shuffle(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None,
    settings: Settings,
    src_options: Options | None = None,
    dst_options: Options | None = None,
    restart: bool = False,
) -> Job:
    """The job that a shuffle would do. Nothing is touched, but in place ``restart`` discards an unfinished one, as long
    as nothing was consumed; into another folder the run does that, once it is clear that it can begin."""
    job = _planned(src, dst, settings, src_options, dst_options, restart)
    return replace(job, given_bytes=settings.buffer_bytes or 0)


def _planned(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None,
    settings: Settings,
    src_options: Options | None,
    dst_options: Options | None,
    restart: bool,
) -> Job:
    with naming_ways_out(settings):
        if not settings.in_place:
            if dst is None:
                raise ValueError("name a folder to write to, or give in_place=True")
            target = open_store(os.fspath(dst), dst_options)
            return _plan_to(find_source(src, src_options, "shuffle"), target, settings, restart)
        if dst is not None:
            raise ValueError(f"in_place=True has no target (got {os.fspath(dst)}); leave out one of the two")
        return _plan_in_place(src, settings, src_options, restart)


@contextmanager
def naming_ways_out(settings: Settings) -> Iterator[None]:
    """Errors about damaged shards say how a shuffle gets past them."""
    try:
        yield
    except (ShardError, DamageError) as error:
        if error.hint is not None:  # by whoever knows better: it lies between two passes
            raise
        errors = error.errors if isinstance(error, DamageError) else (error,)
        if settings.in_place:
            if not any(isinstance(each, TooLargeError | NoRecordError) for each in errors):
                error.hint = "restore it from a backup, and give the same command again"
        elif not settings.skip_bad:
            error.hint = "to leave out what is damaged, give the same command with skip_bad=True"
        raise


def _plan_to(source: Source, target: Store, settings: Settings, restart: bool) -> Job:
    _check_apart(source, target)
    journal, listing = Journal(target, 0), target.list()
    _check_runs(listing, target)
    if restart and 0 in runs(entry.path for entry in listing):
        return _anew(source, journal, settings, listing)
    held = load_plan(journal)
    if held is None:
        check_empty(journal, listing)
        return _new_job(source, target, settings, generation=0, prefix=prefix_of(source))
    plan, index = held
    done = journal.read_done() if runs(entry.path for entry in listing).get(0, False) else None
    is_done, most = done is not None, done.buffer_bytes if done is not None else None
    if settings.skip_bad and not plan.settings.skip_bad:
        plan.lenient().check(source.url, settings, target.url, is_done, most)
        if _is_same_leniently(plan, source):
            plan = plan.lenient()
        elif not is_done:
            return _anew_leniently(source, journal, plan, listing)
    plan.check(source.url, settings, target.url, is_done, most)
    start_anew = _DELETE if is_done else START_ANEW
    source = replace(source, entries=_planned_entries(plan, index, source.entries, source.url, start_anew))
    job = _resumed(plan, index, source, target)
    if not is_done:
        check_own(job, listing)
    return job


def _anew(source: Source, journal: Journal, settings: Settings, listing: Sequence[Entry]) -> Job:
    """A plan in place of an unfinished one, which is discarded when the new one begins."""
    ours = tuple(discardable(journal, listing))
    job = _new_job(source, journal.store, settings, 0, prefix_of(source), sum(entry.size for entry in listing))
    return replace(job, discarded=ours)


def _is_same_leniently(plan: Plan, source: Source) -> bool:
    """Whether the plan would be this one if it had been made with --skip-bad: then its groups stay."""
    settings = replace(plan.lenient().settings, buffer_bytes=plan.buffer_bytes)
    other, _ = foresee(source, settings, plan.generation, plan.prefix)
    return replace(other, settings=plan.settings).equals(plan)


def _anew_leniently(source: Source, journal: Journal, plan: Plan, listing: Sequence[Entry]) -> Job:
    """Where blocks are parts of shards, their groups are others than those of whole shards, which --skip-bad mixes."""
    other = journal.other()
    if other:
        raise SourceError(
            f"{journal.store.url}: skip_bad=True mixes other blocks, and another run is at work there ({other})",
            hint=f"end it, and give the command again (if it is dead, delete {journal.lock_path} there first)",
        )
    settings = replace(plan.lenient().settings, buffer_bytes=plan.buffer_bytes)
    job = _anew(source, journal, settings, listing)
    _log.warning(
        "%s: skip_bad=True mixes whole shards; what was mixed in parts of them is made anew", journal.store.url
    )
    return job


def _plan_in_place(src: str | os.PathLike[str], settings: Settings, options: Options | None, restart: bool) -> Job:
    store, patterns = look(src, options)
    listing = store.list()
    begun = {run: done for run, done in runs(entry.path for entry in listing).items() if not done}
    if restart and begun and 0 not in begun:
        discard_in_place(Journal(store, max(begun)), listing)
        listing, begun = store.list(), {}
    if 0 in begun:
        raise SourceError(
            f"{store.url}: a shuffle into this folder is not finished", hint="give its command again first"
        )
    if not begun:
        source = find_source(src, options, "shuffle")
        generation, prefix = next_names(source, listing)
        _check_in_place(source, prefix)
        _check_links(source, listing)
        check_not_back(store, [entry.path for entry in listing])
        return _new_job(source, store, settings, generation, prefix)
    (generation,) = begun
    held = load_plan(Journal(store, generation))
    if held is None:
        raise SourceError(f"{store.url}: the plan of a shuffle in place has just been deleted; give the command again")
    plan, index = held
    if Journal(store, generation).fate() == DISCARDED:
        raise SourceError(f"{store.url}: a restart of the shuffle in place was stopped there; give it again")
    plan.check(store.url, settings, store.url, is_done=False)
    source = Source(store, tuple(index.entries), format_of(plan.suffix), (), patterns)
    return with_what_is_left(_resumed(plan, index, source, store), listing)


def _new_job(
    source: Source, target: Store, settings: Settings, generation: int, prefix: str, freed_bytes: int = 0
) -> Job:
    plan, first = foresee(source, settings, generation, prefix)
    job = Job(plan, target, first.index, first, is_begun=False)
    target.check_writable()
    _check_space(job, freed_bytes)
    return job


def foresee(source: Source, settings: Settings, generation: int = 0, prefix: str = "") -> tuple[Plan, Pass]:
    """What a shuffle would do, and its first pass; no target is needed to know."""
    buffer_bytes = settings.buffer_bytes or usable_memory() // 2
    profile = _profile(source, settings.skip_bad)
    blocks = outline(source, settings, buffer_bytes, profile)
    plan = Plan(
        source=source.url,
        suffix=source.format.suffix,
        settings=settings,
        buffer_bytes=buffer_bytes,
        generation=generation,
        prefix=prefix,
        shards=len(blocks.source.entries),
        profile=profile,
        growth=blocks.growth,
        blocks_sha256=hashlib.sha256(encode_index(blocks.index)).hexdigest(),
        skipped=blocks.skipped,
    )
    return plan, first_pass(blocks.source, blocks.index, plan)


def _profile(source: Source, skip_bad: bool) -> str:
    """Of the first shard; where damaged ones may be left out, of the first that is sound."""
    number = 0
    while True:
        try:
            return source.format.profile(source.shard(number))
        except ShardError:
            number += 1
            if not skip_bad or number == len(source.entries):
                raise


def _resumed(plan: Plan, index: Index, source: Source, target: Store) -> Job:
    return Job(plan, target, index, first_pass(source, index, plan), is_begun=True)


def _check_apart(source: Source, target: Store) -> None:
    if source.store.holds(target, source.levels) or target.holds(source.store):
        raise SourceError(
            f"{target.url}: lies in the source {source.url}, or around it; name another folder, or give in_place=True"
        )


def _check_runs(listing: Iterable[Entry], target: Store) -> None:
    later = [run for run in runs(entry.path for entry in listing) if run]
    if later:
        raise SourceError(f"{target.url}: has been shuffled in place since; name an empty folder")


def _check_in_place(source: Source, prefix: str) -> None:
    example = f"{prefix}000000{source.format.suffix}"
    if not is_matched(source, example):
        raise SourceError(
            f"{source.url}: a new shard would be {example}, which does not match what you named "
            f"({', '.join(source.patterns or ())[:80]}); name the folder, or a glob that does"
        )
    stale = _foreign_indexes(source)
    if stale:
        raise SourceError(
            f"{source.url}/{stale[0]}: looks like an index of the shards, which would go stale (files of the kind: "
            f"{len(stale)}); move it away, or shuffle into another folder"
        )


def _check_links(source: Source, listing: Iterable[Entry]) -> None:
    """Deleting a shard that a link names would free nothing, and leave a name of nothing where a link names a shard."""
    linked = next((entry for entry in source.entries if entry.file is not None and entry.file.is_linked), None)
    if linked is not None:
        raise SourceError(
            f"{source.url}/{linked.path}: is reached by a link, and in place deletes what it has shuffled; put the "
            "file itself there, or shuffle into another folder"
        )
    paths = {entry.path for entry in source.entries}
    for first, second in same_files(listing):
        if first.path in paths or second.path in paths:
            raise SourceError(
                f"{source.url}/{second.path}: is the same file as {first.path}, and in place deletes what it has "
                "shuffled; remove one of the names, or shuffle into another folder"
            )


def _foreign_indexes(source: Source) -> list[str]:
    """Files that describe shards: known names, and names that begin like a shard's."""
    stems = {entry.path.removesuffix(source.format.suffix) for entry in source.entries}
    return [
        path
        for path in source.others
        if posixpath.basename(path) in _FOREIGN_NAMES
        or path.endswith(_FOREIGN_SUFFIXES)
        or any(path[:end] in stems for end in range(len(path)))
    ]


def _check_space(job: Job, freed_bytes: int) -> None:
    free = job.target.free_bytes()
    if free is not None and job.needed_bytes > free + freed_bytes:
        raise SourceError(
            f"{job.target.url}: {format_size(free)} are free, {format_size(job.needed_bytes)} are needed",
            hint="make room"
            + ("" if job.plan.settings.in_place else ", name another disk, or shuffle with in_place=True"),
            kind="space",
        )


def _planned_entries(plan: Plan, index: Index, found: Iterable[Entry], url: str, start_anew: str) -> tuple[Entry, ...]:
    """The shards as planned, if they still are what they were."""
    now, planned, listed = {entry.path: entry for entry in found}, index.entries, list[Entry | None]()
    left_out = {each.shard.removeprefix(f"{url}/") for each in plan.skipped}
    for entry in planned:
        listed.append(now.pop(entry.path, None))
        if listed[-1] != entry:
            raise SourceError(f"{url}/{entry.path}: has changed since the shuffle began", hint=start_anew)
    new = sorted(now.keys() - left_out)
    if new:
        raise SourceError(f"{url}/{new[0]}: is new since the shuffle began", hint=start_anew)
    return tuple(entry for entry in listed if entry)


_DELETE = "the shuffle is finished: keep it, or delete its folder to make another"
