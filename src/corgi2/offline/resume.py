"""What already lies in a target: whose it is, whether a shuffle can resume it, and discarding it."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from corgi2.dataset import CORGI_FOLDER, Index, is_matched, runs, with_replaced
from corgi2.errors import ShardError, SourceError
from corgi2.formats import format_of, suffix_of
from corgi2.offline.journal import Journal
from corgi2.offline.names import new_shards
from corgi2.offline.outline import EMPTY
from corgi2.offline.plan import Plan
from corgi2.offline.plan_file import load_plan
from corgi2.offline.planned import Shuffle
from corgi2.offline.side_files import side_names
from corgi2.sizes import plural
from corgi2.stores import Entry, Store


def check_empty(journal: Journal, listing: Iterable[Entry]) -> None:
    foreign = [entry.path for entry in listing if not entry.path.startswith(journal.source_path(""))]
    if foreign:
        raise SourceError(
            f"{journal.store.url}: is not empty ({plural(len(foreign), 'file')}, such as {foreign[0]}), and not "
            "a shuffle of corgi2; name an empty folder"
        )


def check_own(shuffle: Shuffle, listing: Iterable[Entry]) -> None:
    """Check that an unfinished target holds only what the shuffle has written there, or will write."""
    most = len(shuffle.first.groups) * shuffle.first.shards if shuffle.first.is_last else None
    foreign = foreign_files(shuffle.plan, (entry.path for entry in listing), most)
    if foreign:
        raise SourceError(
            f"{shuffle.target.url}/{foreign[0]}: is not a shard of the unfinished shuffle there (such files: "
            f"{len(foreign)}); move it away to resume"
        )


def check_own_aside(plan: Plan, store: Store, listing: Iterable[Entry]) -> None:
    """Check that everything in the folder for held-out records was held out by this shuffle."""
    foreign = foreign_aside(plan, (entry.path for entry in listing))
    if foreign:
        raise SourceError(
            f"{store.url}/{foreign[0]}: was not held out by the unfinished shuffle (such files: "
            f"{len(foreign)}); move it away to resume"
        )


def foreign_aside(plan: Plan, paths: Iterable[str]) -> list[str]:
    """Files that are neither held-out shards of a shuffle, nor kept next to them."""
    held = {entry.path for entry in plan.held}
    return [path for path in foreign_files(plan, paths) if path not in held]


def foreign_files(plan: Plan, paths: Iterable[str], most: int | None = None) -> list[str]:
    """Files that are neither new shards, of which there are at most ``most``, nor describe them or are kept there."""
    ours = new_shards(plan, paths := list(paths), most)
    ours |= set(side_names(format_of(plan.suffix)))
    return [path for path in paths if not path.startswith(f"{CORGI_FOLDER}/") and path not in ours]


def check_not_back(store: Store, paths: Sequence[str]) -> None:
    """A run that was held up while another finished, and a third shuffled its new shards again, writes some of these
    again when it wakes up: their records would be there twice."""
    done = [run for run, is_done in runs(paths).items() if run and is_done]
    plans = [held for run in done if len(done) > 1 and (held := _old_plan(Journal(store, run)))]
    written = {path for plan, _ in plans for path in new_shards(plan, paths)}
    back = sorted(written & {entry.path for _, index in plans for entry in index.entries})
    if back:
        raise SourceError(
            f"{store.url}/{back[0]}: its records were shuffled in place again, into newer shards, and it is back "
            f"(such shards: {len(back)}); delete it, or move it away"
        )


def _old_plan(journal: Journal) -> tuple[Plan, Index] | None:
    """None if it cannot be read: only a check depends on it."""
    try:
        return load_plan(journal)
    except SourceError:
        return None


def with_what_is_left(shuffle: Shuffle, listing: Iterable[Entry]) -> Shuffle:
    """In place: check that all shards that were not consumed are there, and no others. A damaged shard stops a shuffle,
    and may have been restored: if no marker names it, it was not consumed, and is read as it is now."""
    now, pass_ = {entry.path: entry for entry in listing}, shuffle.first
    done = shuffle.journal.marked(1, len(pass_.groups))
    consumed = {pass_.source.entries[block].path for group in done for block in pass_.groups[group].tolist()}
    known = shuffle.journal.read_replaced()
    left = tuple(
        _left(shuffle, entry, now.pop(entry.path, None), entry.path in consumed, known)
        for entry in shuffle.index.entries
    )
    for entry in shuffle.plan.held:
        _left_aside(shuffle, entry, now.pop(entry.path, None))
    _check_new(shuffle, now)
    replaced = tuple(new for old, new in zip(shuffle.index.entries, left, strict=True) if new != old)
    if not replaced:
        return shuffle
    source = replace(pass_.source, entries=left)
    return replace(
        shuffle, first=replace(pass_, source=source, index=with_replaced(pass_.index, left)), replaced=replaced
    )


def _left(shuffle: Shuffle, planned: Entry, found: Entry | None, is_consumed: bool, known: Collection[Entry]) -> Entry:
    """The shard to read, or to delete."""
    name = f"{shuffle.target.url}/{planned.path}"
    if found == planned or (found is None and is_consumed):
        return planned
    if found is None:
        raise SourceError(f"{name}: is gone, and was not shuffled yet; restore it from a backup to resume")
    if is_consumed and found not in known:
        raise SourceError(f"{name}: has changed, and its old content is already in new shards; move it away to resume")
    if not found.size:
        raise ShardError(name, 0, EMPTY)
    return planned if is_consumed else found


def _left_aside(shuffle: Shuffle, planned: Entry, found: Entry | None) -> None:
    """Check a shard that is held out, and deleted once its copy is safe."""
    number = shuffle.plan.held.index(planned)
    if found != planned and (shuffle.holdout is None or shuffle.holdout.journal.read_marker(1, number) is None):
        wrong = "is gone" if found is None else "has changed"
        raise SourceError(
            f"{shuffle.target.url}/{planned.path}: {wrong}, and was not held out yet; restore it from a backup to "
            "resume"
        )


def _check_new(shuffle: Shuffle, others: Iterable[str]) -> None:
    for path in others:
        ours = path.startswith((shuffle.plan.prefix, f"{CORGI_FOLDER}/"))
        if not ours and suffix_of(path) == shuffle.plan.suffix and is_matched(shuffle.first.source, path):
            raise SourceError(
                f"{shuffle.target.url}/{path}: is new since the shuffle in place began; move it away to resume"
            )
