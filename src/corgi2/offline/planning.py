"""From what a person asks for to a planned shuffle: the source is found, its blocks outlined, the target checked.

Writes nothing. An unfinished target gives its own plan back, and refuses every other.
"""

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from corgi2.dataset import Index, Source, encode_index, find_source, look, runs, slack_of
from corgi2.errors import DamageError, NoRecordError, ShardError, SourceError, TooLargeError
from corgi2.formats import format_of
from corgi2.host import usable_memory
from corgi2.offline.discard import discard_in_place, discardable, discardable_aside
from corgi2.offline.holdout import draw_shards
from corgi2.offline.journal import DISCARDED, Journal
from corgi2.offline.names import next_names, prefix_of
from corgi2.offline.outline import outline
from corgi2.offline.passes import Pass, first_pass
from corgi2.offline.places import (
    check_apart,
    check_aside_apart,
    check_aside_empty,
    check_in_place,
    check_links,
    check_runs,
    check_space,
)
from corgi2.offline.plan import Plan
from corgi2.offline.plan_file import START_ANEW, load_plan, read_plan
from corgi2.offline.planned import Shuffle
from corgi2.offline.resume import check_empty, check_not_back, check_own, check_own_aside, with_what_is_left
from corgi2.offline.settings import Settings
from corgi2.offline.useless import check_useful
from corgi2.stores import Entry, Options, Store, check_second, open_store, parse_url

_log = logging.getLogger("corgi2")


def plan_shuffle(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None,
    settings: Settings,
    src_options: Options | None = None,
    dst_options: Options | None = None,
    restart: bool = False,
    force: bool = False,
) -> Shuffle:
    """A shuffle, ready to run. Nothing is touched, except that in place ``restart`` discards an unfinished one, as long
    as nothing was consumed; into another folder the run does that, once it is clear that it can begin. ``force`` lets a
    shuffle begin that gains nothing."""
    if settings.holdout_to is not None:  # the same from wherever it is called
        settings = replace(settings, holdout_to=str(parse_url(settings.holdout_to)))
    shuffle = _planned(src, dst, settings, src_options, dst_options, restart)
    if not shuffle.is_begun and not shuffle.is_continued and not force:
        check_useful(shuffle.plan, shuffle.first)
    return replace(shuffle, given_bytes=settings.buffer_bytes or 0)


def _planned(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None,
    settings: Settings,
    src_options: Options | None,
    dst_options: Options | None,
    restart: bool,
) -> Shuffle:
    with naming_ways_out(settings):
        aside = None if settings.holdout_to is None else open_store(settings.holdout_to, dst_options)
        if not settings.in_place:
            if dst is None:
                raise ValueError("name a folder to write to, or give in_place=True")
            target = open_store(os.fspath(dst), dst_options)
            return _plan_to(find_source(src, src_options, "shuffle"), target, settings, restart, aside, dst_options)
        if dst is not None:
            raise ValueError(f"in_place=True has no target (got {os.fspath(dst)}); leave out one of the two")
        check_second(dst_options, aside is not None)
        return _plan_in_place(src, settings, src_options, restart, aside, dst_options)


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


def _plan_to(
    source: Source,
    target: Store,
    settings: Settings,
    restart: bool,
    aside: Store | None,
    options: Options | None,
) -> Shuffle:
    check_apart(source, target)
    check_aside_apart(source, target, aside)
    journal, listing = Journal(target, 0), target.list()
    check_runs(listing, target)
    if restart and 0 in runs(entry.path for entry in listing):
        return _anew(source, journal, settings, listing, aside, options)
    held = load_plan(journal)
    if held is None:
        check_empty(journal, listing)
        check_aside_empty(aside)
        return _new_shuffle(source, target, settings, 0, prefix_of(source), aside=aside)
    plan, index = held
    done = journal.read_done() if runs(entry.path for entry in listing).get(0, False) else None
    is_done, most = done is not None, done.buffer_bytes if done is not None else None
    if settings.skip_bad and not plan.settings.skip_bad:
        plan.lenient().check(source.url, settings, target.url, is_done, most)
        if _is_same_leniently(plan, source):
            plan = plan.lenient()
        elif not is_done:
            return _anew_leniently(source, journal, plan, listing, aside, options)
    plan.check(source.url, settings, target.url, is_done, most)
    start_anew = _DELETE if is_done else START_ANEW
    source = replace(source, entries=_planned_entries(plan, index, source.entries, source.url, start_anew))
    shuffle = _resumed(plan, index, source, target, aside)
    if not is_done:
        check_own(shuffle, listing)
        if aside is not None:
            check_own_aside(plan, aside, aside.list())
    return shuffle


def _anew(
    source: Source,
    journal: Journal,
    settings: Settings,
    listing: Sequence[Entry],
    aside: Store | None,
    options: Options | None,
) -> Shuffle:
    """A plan in place of an unfinished one, which is discarded when the new one begins."""
    ours = tuple(discardable(journal, listing))
    old = _old_aside(journal, options)
    if old is None or aside is None or old[0].url != aside.url:
        check_aside_empty(aside)
    freed = sum(entry.size for entry in listing)
    shuffle = _new_shuffle(source, journal.store, settings, 0, prefix_of(source), freed, aside)
    return replace(shuffle, discarded=ours, aside_discarded=old)


def _old_aside(journal: Journal, options: Options | None) -> tuple[Store, tuple[str, ...]] | None:
    """What the unfinished shuffle there has held out."""
    plan = read_plan(journal)
    address = plan.settings.holdout_to
    return None if address is None else discardable_aside(plan, open_store(address, options))


def _is_same_leniently(plan: Plan, source: Source) -> bool:
    """Whether the plan would be this one if it had been made with --skip-bad: then its groups stay."""
    settings = replace(plan.lenient().settings, buffer_bytes=plan.buffer_bytes)
    other, _, _ = foresee(source, settings, plan.generation, plan.prefix)
    return replace(other, settings=plan.settings).equals(plan)


def _anew_leniently(
    source: Source,
    journal: Journal,
    plan: Plan,
    listing: Sequence[Entry],
    aside: Store | None,
    options: Options | None,
) -> Shuffle:
    """Where blocks are parts of shards, their groups are others than those of whole shards, which --skip-bad mixes."""
    other = journal.other()
    if other:
        raise SourceError(
            f"{journal.store.url}: skip_bad=True mixes other blocks, and another run is at work there ({other})",
            hint=f"end it, and give the command again (if it is dead, delete {journal.lock_path} there first)",
        )
    settings = replace(plan.lenient().settings, buffer_bytes=plan.buffer_bytes)
    shuffle = replace(_anew(source, journal, settings, listing, aside, options), is_continued=True)
    _log.warning(
        "%s: skip_bad=True mixes whole shards; what was mixed in parts of them is made anew", journal.store.url
    )
    return shuffle


def _plan_in_place(
    src: str | os.PathLike[str],
    settings: Settings,
    options: Options | None,
    restart: bool,
    aside: Store | None,
    aside_options: Options | None,
) -> Shuffle:
    store, patterns = look(src, options)
    listing = store.list()
    begun = {run: done for run, done in runs(entry.path for entry in listing).items() if not done}
    if restart and begun and 0 not in begun:
        journal = Journal(store, max(begun))
        discard_in_place(journal, listing, _old_aside(journal, aside_options))
        listing, begun = store.list(), {}
    if 0 in begun:
        raise SourceError(
            f"{store.url}: a shuffle into this folder is not finished", hint="give its command again first"
        )
    if not begun:
        source = find_source(src, options, "shuffle")
        generation, prefix = next_names(source, listing)
        check_in_place(source, prefix)
        check_links(source, listing)
        check_not_back(store, [entry.path for entry in listing])
        check_aside_apart(source, store, aside)
        check_aside_empty(aside)
        return _new_shuffle(source, store, settings, generation, prefix, aside=aside)
    (generation,) = begun
    held = load_plan(Journal(store, generation))
    if held is None:
        raise SourceError(f"{store.url}: the plan of a shuffle in place has just been deleted; give the command again")
    plan, index = held
    if Journal(store, generation).fate() == DISCARDED:
        raise SourceError(f"{store.url}: a restart of the shuffle in place was stopped there; give it again")
    plan.check(store.url, settings, store.url, is_done=False)
    source = Source(store, tuple(index.entries), format_of(plan.suffix), (), patterns)
    if aside is not None:
        check_own_aside(plan, aside, aside.list())
    return with_what_is_left(_resumed(plan, index, source, store, aside), listing)


def _new_shuffle(
    source: Source,
    target: Store,
    settings: Settings,
    generation: int,
    prefix: str,
    freed_bytes: int = 0,
    aside: Store | None = None,
) -> Shuffle:
    plan, index, first = foresee(source, settings, generation, prefix)
    shuffle = Shuffle(plan, target, index, first, is_begun=False, aside=aside)
    target.check_writable()
    check_space(shuffle, target, shuffle.needed_bytes, freed_bytes)
    if aside is not None:
        aside.check_writable()
        check_space(shuffle, aside, shuffle.held_bytes, freed_bytes)
    return shuffle


def foresee(source: Source, settings: Settings, generation: int = 0, prefix: str = "") -> tuple[Plan, Index, Pass]:
    """What a shuffle would do, the blocks that it was planned with, and its first pass; no target is needed to know."""
    buffer_bytes = settings.buffer_bytes or usable_memory() // 2
    source, held = draw_shards(source, settings)
    profile = _profile(source, settings.skip_bad)
    blocks = outline(source, settings, buffer_bytes, profile)
    plan = Plan(
        source=source.url,
        named=source.named,
        options=dict(source.options),
        suffix=source.format.suffix,
        settings=settings,
        buffer_bytes=buffer_bytes,
        generation=generation,
        prefix=prefix,
        shards=len(blocks.source.entries),
        profile=profile,
        growth=blocks.growth,
        slack=slack_of(blocks.source, blocks.index) if settings.passes > 1 else 1.0,
        blocks_sha256=hashlib.sha256(encode_index(blocks.index)).hexdigest(),
        skipped=blocks.skipped,
        held=held,
    )
    return plan, blocks.index, first_pass(blocks.source, blocks.index, plan)


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


def _resumed(plan: Plan, index: Index, source: Source, target: Store, aside: Store | None) -> Shuffle:
    return Shuffle(plan, target, index, first_pass(source, index, plan), is_begun=True, aside=aside)


def _planned_entries(plan: Plan, index: Index, found: Iterable[Entry], url: str, start_anew: str) -> tuple[Entry, ...]:
    """The shards as planned, if they still are what they were."""
    now, planned, listed = {entry.path: entry for entry in found}, index.entries, list[Entry | None]()
    left_out = {each.shard.removeprefix(f"{url}/") for each in plan.skipped}
    for entry in plan.held:
        if now.pop(entry.path, None) != entry:
            raise SourceError(f"{url}/{entry.path}: has changed since the shuffle began", hint=start_anew)
    for entry in planned:
        listed.append(now.pop(entry.path, None))
        if listed[-1] != entry:
            raise SourceError(f"{url}/{entry.path}: has changed since the shuffle began", hint=start_anew)
    new = sorted(now.keys() - left_out)
    if new:
        raise SourceError(f"{url}/{new[0]}: is new since the shuffle began", hint=start_anew)
    return tuple(entry for entry in listed if entry)


_DELETE = "the shuffle is finished: keep it, or delete its folder to make another"
