"""From what a person asks for to a job: the source found, its blocks outlined, the target checked. Writes nothing.

An unfinished target gives its own plan back, and refuses every other.
"""

import hashlib
import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corgi2.errors import ShardError, SourceError
from corgi2.formats import format_of
from corgi2.index import Index, decode_index, encode_index, with_replaced
from corgi2.journal import DISCARDED, Journal
from corgi2.memory import usable_memory
from corgi2.outline import EMPTY, outline
from corgi2.recipe import Recipe, Settings
from corgi2.shard import BLOCK_BYTES
from corgi2.sizes import format_size, plural
from corgi2.source import CORGI_FOLDER, Source, find_source, is_matched, look, runs
from corgi2.stage import Stage, first_stage
from corgi2.stores import Entry, Options, Store, open_store, read_object

_GENERATION = re.compile(r"c\d+-$")
_DISCARDED = re.compile(rf"{re.escape(CORGI_FOLDER)}/c(\d+)/fate")
_FOREIGN_NAMES = ("index.json", "dataset_info.json", "state.json", "_metadata", "_common_metadata")
_FOREIGN_SUFFIXES = (".idx", ".index", ".crc")


@dataclass(frozen=True, slots=True)
class Job:
    """A planned shuffle."""

    recipe: Recipe
    target: Store
    index: Index
    """Of the source."""
    first: Stage
    is_begun: bool
    """Whether the target holds the plan already."""
    replaced: tuple[Entry, ...] = ()
    """In place: shards that somebody has put back since the plan was made, and that are read as they are now."""

    @property
    def journal(self) -> Journal:
        return Journal(self.target, self.recipe.generation)

    @property
    def needed_bytes(self) -> int:
        """Storage that it takes at the most while it runs, beside the source."""
        recipe, lengths = self.recipe, self.index.column("length")
        largest = max(int(lengths[group].sum()) for group in self.first.groups)
        moved = recipe.settings.in_place or recipe.settings.passes > 1
        in_flight = largest * min(2, len(self.first.groups)) if moved else 0
        copied = 0 if recipe.settings.in_place else self.index.bytes
        return int(recipe.growth * (copied + in_flight))

    @property
    def dropped(self) -> float:
        """The share of the records that will not be in the output."""
        if not self.recipe.settings.with_replacement:
            return 0.0
        drawn = np.bincount(np.concatenate(self.first.groups), minlength=self.index.blocks.num_rows)
        lost = float(np.average(np.exp(-drawn), weights=self.index.column("length")))
        for _ in range(self.recipe.settings.passes - 1):  # all copies of a record must be lost
            lost = float(np.exp(np.exp(lost - 1) - 1))
        return lost

    @property
    def reads(self) -> int:
        """About: of blocks, in requests of an object store. What lies between two passes is read as it was written."""
        between = 0 if self.first.is_last else len(self.first.groups) * self.first.shards
        first = int(np.ceil(self.index.column("length") / BLOCK_BYTES).sum())
        return first + between * (self.recipe.settings.passes - 1)

    @property
    def writes(self) -> int:
        """About: of shards, those between passes included."""
        stage = self.first
        made = len(stage.groups) * stage.shards
        return made if stage.is_last else made * (self.recipe.settings.passes - 1) + self.recipe.shards

    def as_json(self) -> dict[str, Any]:
        """What is planned, in the words of the report."""
        return {
            "blocks": self.index.blocks.num_rows,
            "bytes": self.index.bytes,
            "passes": self.recipe.settings.passes,
            "groups": len(self.first.groups),
            "n": self.first.n,
            "buffer_bytes": self.recipe.buffer_bytes,
            "reads": self.reads,
            "writes": self.writes,
            "growth": self.recipe.growth,
            "needed_bytes": self.needed_bytes,
            "free_bytes": self.target.free_bytes(),
            "dropped": self.dropped,
            "skipped": list(self.recipe.skipped),
            "target": self.target.url,
        }

    def describe(self) -> str:
        """One line with what will happen, and one for each thing to be warned of."""
        stage, settings, growth = self.first, self.recipe.settings, self.recipe.growth
        free = self.target.free_bytes()
        parts = [
            f"{plural(self.index.blocks.num_rows, 'block')}, {format_size(self.index.bytes)}",
            f"{plural(settings.passes, 'pass')}, {plural(len(stage.groups), 'group')} of n = {stage.n:,}",
            f"buffer {format_size(self.recipe.buffer_bytes)}",
            f"about {plural(self.reads, 'read')} and {plural(self.writes, 'write')}",
            f"the output is predicted to take {growth:.2f} of the input" if stage.source.format.compresses else "",
            f"{format_size(self.needed_bytes)} more storage"
            + (f", {format_size(free)} free" if free is not None else ""),
            f"in place in {self.target.url}" if settings.in_place else f"to {self.target.url}",
        ]
        lines = ["; ".join(part for part in parts if part), *(f"WARNING: {warning}" for warning in self._warnings())]
        return "\n".join(lines + [f"left out: {line}" for line in self.recipe.skipped])

    def _warnings(self) -> Iterator[str]:
        if self.recipe.settings.with_replacement:
            yield f"drawn with replacement: about {self.dropped:.0%} of the records will be dropped"
        if self.first.n == 1 and self.index.blocks.num_rows > 1 and self.recipe.settings.passes == 1:
            yield "n = 1: every block is shuffled in itself, and nothing is mixed between them; give a larger --buffer"
        if self.recipe.buffer_bytes > usable_memory():
            yield f"the buffer is larger than the memory of {format_size(usable_memory())} that this process may use"


def plan_shuffle(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None,
    settings: Settings,
    storage_options: Options | None = None,
    target_options: Options | None = None,
    restart: bool = False,
) -> Job:
    """The job that a shuffle would do. Nothing is written, but ``restart`` discards an unfinished target, once it is
    clear that the new one can begin; in place, as long as nothing was consumed."""
    if settings.in_place:
        if dst is not None:
            raise ValueError(f"--in-place has no target (got {os.fspath(dst)}); leave out one of the two")
        return _plan_in_place(src, settings, storage_options, restart)
    if dst is None:
        raise ValueError("name a folder to write to, or give --in-place")
    source = find_source(src, storage_options, "shuffle")
    target = open_store(os.fspath(dst), target_options)
    _check_apart(source.store, target)
    journal, listing = Journal(target, 0), target.list()
    _check_runs(listing, target)
    if restart and 0 in runs(entry.path for entry in listing):
        ours = _discardable(journal, listing)
        job = _new_job(source, target, settings, 0, _prefix(source), sum(entry.size for entry in listing))
        _discard(journal, ours)
        return job
    held = load_plan(journal)
    if held is None:
        _check_empty(journal, listing)
        return _new_job(source, target, settings, generation=0, prefix=_prefix(source))
    recipe, index = held
    is_done = runs(entry.path for entry in listing).get(0, False)
    recipe.check(source.url, settings, target.url, is_done)
    start_anew = _DELETE if is_done else _START_ANEW
    source = replace(source, entries=_planned_entries(recipe, index, source.entries, source.url, start_anew))
    job = _resumed(recipe, index, source, target)
    if not is_done:
        _check_own(job, listing)
    return job


def _plan_in_place(src: str | os.PathLike[str], settings: Settings, options: Options | None, restart: bool) -> Job:
    store, patterns = look(src, options)
    listing = store.list()
    begun = {run: done for run, done in runs(entry.path for entry in listing).items() if not done}
    if restart and begun and 0 not in begun:
        _discard_in_place(Journal(store, max(begun)), listing)
        listing, begun = store.list(), {}
    if 0 in begun:
        raise SourceError(f"{store.url}: a shuffle into this folder is not finished; give its command again first")
    if not begun:
        source = find_source(src, options, "shuffle")
        generation, prefix = _next_names(source, listing)
        _check_in_place(source, prefix)
        _check_not_back(store, [entry.path for entry in listing])
        return _new_job(source, store, settings, generation, prefix)
    (generation,) = begun
    held = load_plan(Journal(store, generation))
    if held is None:
        raise SourceError(f"{store.url}: the plan of a shuffle in place has just been deleted; give the command again")
    recipe, index = held
    if Journal(store, generation).fate() == DISCARDED:
        raise SourceError(f"{store.url}: a --restart of the shuffle in place was stopped there; give it again")
    recipe.check(store.url, settings, store.url, is_done=False)
    source = Source(store, tuple(index.entries), format_of(recipe.suffix), (), patterns)
    return _with_what_is_left(_resumed(recipe, index, source, store), listing)


def _new_job(
    source: Source, target: Store, settings: Settings, generation: int, prefix: str, freed_bytes: int = 0
) -> Job:
    recipe, first = foresee(source, settings, generation, prefix)
    job = Job(recipe, target, first.index, first, is_begun=False)
    target.check_writable()
    _check_space(job, freed_bytes)
    return job


def foresee(source: Source, settings: Settings, generation: int = 0, prefix: str = "") -> tuple[Recipe, Stage]:
    """What a shuffle would do, and its first pass; no target is needed to know."""
    buffer_bytes = settings.buffer_bytes or usable_memory() // 2
    profile = source.format.profile(source.shard(0))
    blocks = outline(source, settings, buffer_bytes, profile)
    recipe = Recipe(
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
    return recipe, first_stage(blocks.source, blocks.index, recipe)


def _resumed(recipe: Recipe, index: Index, source: Source, target: Store) -> Job:
    return Job(recipe, target, index, first_stage(source, index, recipe), is_begun=True)


def _prefix(source: Source) -> str:
    """What the names of all shards begin with, up to their number: ``train-``."""
    return _common([posixpath.basename(entry.path) for entry in source.entries], source) or "shard-"


def _common(names: Iterable[str], source: Source) -> str:
    common = posixpath.commonprefix(list(names)).removesuffix(source.format.suffix).rstrip("0123456789")
    return _GENERATION.sub("", common)


def _next_names(source: Source, listing: Iterable[Entry]) -> tuple[int, str]:
    """The next generation, and what its shards' paths begin with: a prefix that nothing has yet."""
    paths = [entry.path for entry in listing]
    prefix = _common([entry.path for entry in source.entries], source)
    discarded = [int(match[1]) for path in paths if (match := _DISCARDED.fullmatch(path))]
    generation = max([*runs(paths), *discarded], default=0) + 1
    while any(path.startswith(f"{prefix}c{generation}-") for path in paths):
        generation += 1
    return generation, f"{prefix}c{generation}-"


def _check_apart(source: Store, target: Store) -> None:
    here, there = _resolved(source), _resolved(target)
    if here.startswith(there) or there.startswith(here):
        raise SourceError(
            f"{target.url}: lies in the source {source.url}, or around it; name a folder of its own, or give --in-place"
        )


def _resolved(store: Store) -> str:
    """A folder under its true name: of this machine, it may be reached by several."""
    return (store.url if "://" in store.url else os.path.realpath(store.url)).rstrip("/") + "/"


def _check_empty(journal: Journal, listing: Iterable[Entry]) -> None:
    foreign = [entry.path for entry in listing if not entry.path.startswith(journal.source_path(""))]
    if foreign:
        raise SourceError(
            f"{journal.store.url}: is not empty ({len(foreign)} files, such as {foreign[0]}), and no shuffle of ours; "
            "name an empty folder"
        )


def _check_own(job: Job, listing: Iterable[Entry]) -> None:
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


def _check_not_back(store: Store, paths: Sequence[str]) -> None:
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
            f"{job.target.url}: {format_size(free)} are free, {format_size(job.needed_bytes)} are needed; make room"
            + ("" if job.recipe.settings.in_place else ", name another disk, or shuffle with --in-place")
        )


def _planned_entries(
    recipe: Recipe, index: Index, found: Iterable[Entry], url: str, start_anew: str
) -> tuple[Entry, ...]:
    """The shards as planned, if they still are what they were."""
    now, planned = {entry.path: entry for entry in found}, index.entries
    left_out = {line.split(": at byte ")[0].removeprefix(f"{url}/") for line in recipe.skipped}
    for entry in planned:
        if now.pop(entry.path, None) != entry:
            raise SourceError(f"{url}/{entry.path}: has changed since the shuffle began; {start_anew}")
    new = sorted(now.keys() - left_out)
    if new:
        raise SourceError(f"{url}/{new[0]}: is new since the shuffle began; {start_anew}")
    return tuple(planned)


_START_ANEW = "--restart discards what was written and begins anew"
_DELETE = "the shuffle is finished: keep it, or delete its folder to make another"


def _with_what_is_left(job: Job, listing: Iterable[Entry]) -> Job:
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


def load_plan(journal: Journal) -> tuple[Recipe, Index] | None:
    """What an earlier run has planned."""
    if journal.store.head(journal.plan_path) is None:
        return None
    recipe, url = _load_recipe(journal), journal.store.url
    path = journal.source_path(recipe.blocks_sha256)
    blocks = journal.store.head(path)
    data = read_object(journal.store, blocks) if blocks else bytearray()
    if hashlib.sha256(data).hexdigest() != recipe.blocks_sha256:
        raise SourceError(f"{url}/{path}: is not what the plan was made for; {_START_ANEW}")
    return recipe, decode_index(data, f"{url}/{path}")


def _load_recipe(journal: Journal) -> Recipe:
    name, entry = f"{journal.store.url}/{journal.plan_path}", journal.store.head(journal.plan_path)
    if entry is None:
        raise SourceError(f"{name}: has just been deleted; give the command again")
    return Recipe.decode(read_object(journal.store, entry), name)


def commit_plan(job: Job) -> None:
    """Whoever creates the plan first has made it; everybody else must have made the same."""
    journal = job.journal
    if job.replaced:
        journal.write_replaced(job.replaced)
    if job.is_begun:
        return
    source_path = journal.source_path(job.recipe.blocks_sha256)
    journal.store.publish(source_path, [encode_index(job.index)])
    journal.store.create(journal.plan_path, job.recipe.encode())
    held = load_plan(journal)
    if held is None or held[0] != job.recipe:
        if held is not None and held[0].blocks_sha256 != job.recipe.blocks_sha256:
            journal.store.delete(source_path)
        raise SourceError(
            f"{job.target.url}: another shuffle has just begun there; give the same command as it, or wait for its end"
        )


def _discardable(journal: Journal, listing: Iterable[Entry]) -> list[str]:
    """The files of an unfinished shuffle into a folder of its own; others are refused."""
    paths = [entry.path for entry in listing]
    url = journal.store.url
    if runs(paths)[0]:
        raise SourceError(f"{url}: holds a finished shuffle, which --restart does not discard; delete it yourself")
    foreign = _foreign(_load_recipe(journal), paths)
    if foreign:
        raise SourceError(f"{url}: {foreign[0]} was not written by the shuffle; move it away first")
    return paths


def _discard_in_place(journal: Journal, listing: Iterable[Entry]) -> None:
    """As long as no group has its marker, all old shards are there. That they stay is settled before anything goes."""
    paths = {entry.path for entry in listing}
    if journal.fate() != DISCARDED:
        _check_unconsumed(journal, paths)
    ours = new_shards(_load_recipe(journal), paths)
    kept = {journal.fate_path}  # so that a run that knows nothing of it yet meets no other of its generation
    _discard(journal, sorted({*ours, *(path for path in paths if path.startswith(f"{journal.folder}/"))} - kept))


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


def _discard(journal: Journal, paths: Sequence[str]) -> None:
    """Delete what an unfinished shuffle wrote: markers first, so that it could go on wherever this is stopped, and the
    plan nearly last."""
    ours = [path for path in paths if path.startswith(f"{journal.folder}/")]
    markers = [path for path in ours if "/groups/" in path]
    last = [journal.plan_path, *(path for path in ours if path.startswith(journal.source_path("")))]
    for path in [*markers, *(path for path in paths if path not in {*markers, *last}), *last]:
        journal.store.delete(path)
