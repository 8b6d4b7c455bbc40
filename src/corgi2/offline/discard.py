"""Discarding what an unfinished shuffle has written, as long as nothing is lost."""

from collections.abc import Collection, Iterable, Sequence

from corgi2.dataset import runs
from corgi2.errors import SourceError
from corgi2.offline.journal import DISCARDED, Journal
from corgi2.offline.names import new_shards
from corgi2.offline.plan import Plan
from corgi2.offline.plan_file import load_plan, read_plan
from corgi2.offline.resume import foreign_aside, foreign_files
from corgi2.offline.side_files import put_back
from corgi2.stores import Entry, Store


def discardable_aside(plan: Plan, store: Store) -> tuple[Store, tuple[str, ...]]:
    """What an unfinished shuffle has held out; other files are refused."""
    paths = tuple(entry.path for entry in store.list())
    foreign = foreign_aside(plan, paths)
    journal = Journal(store, 0)
    if store.head(journal.plan_path) is not None and read_plan(journal).id != plan.id:
        foreign = [journal.plan_path]
    if foreign:
        raise SourceError(f"{store.url}: {foreign[0]} was not written by the shuffle; move it away first")
    return store, paths


def discardable(journal: Journal, listing: Iterable[Entry]) -> list[str]:
    """The files of an unfinished shuffle into a folder of its own; others are refused."""
    paths = [entry.path for entry in listing]
    url = journal.store.url
    if runs(paths)[0]:
        raise SourceError(f"{url}: holds a finished shuffle, which restart=True does not discard; delete it yourself")
    foreign = foreign_files(read_plan(journal), paths)
    if foreign:
        raise SourceError(f"{url}: {foreign[0]} was not written by the shuffle; move it away first")
    return paths


def discard_in_place(journal: Journal, listing: Iterable[Entry], aside: tuple[Store, tuple[str, ...]] | None) -> None:
    """As long as no group has its marker, all old shards are there. That they stay is decided before any deletion."""
    paths = {entry.path for entry in listing}
    if journal.fate() != DISCARDED:
        _check_unconsumed(journal, paths)
    ours = new_shards(read_plan(journal), paths)
    put_back(read_plan(journal), journal)
    kept = {journal.fate_path}  # so that a run that does not know yet meets no other of its generation
    discard(journal, sorted({*ours, *(path for path in paths if path.startswith(f"{journal.folder}/"))} - kept), aside)


def _check_unconsumed(journal: Journal, paths: Collection[str]) -> None:
    url, other = journal.store.url, journal.other()
    held = load_plan(journal)
    if other:
        raise SourceError(
            f"{url}: another run is at work there ({other}); end it, and run the command again (if it is dead, delete "
            f"{journal.lock_path} there first)"
        )
    is_marked = any(path.startswith(f"{journal.folder}/") and "/groups/" in path for path in paths)
    is_whole = held is not None and all(entry.path in paths for entry in held[1].entries)
    if is_marked or not is_whole or not journal.decide(DISCARDED):
        raise SourceError(
            f"{url}: restart=True would lose what an unfinished shuffle in place has written; run it without that"
        )


def discard(journal: Journal, paths: Sequence[str], aside: tuple[Store, tuple[str, ...]] | None = None) -> None:
    """Delete what an unfinished shuffle wrote: markers first, so that it could resume wherever this is stopped, then
    what it held out, and the plan nearly last."""
    ours = [path for path in paths if path.startswith(f"{journal.folder}/")]
    markers = [path for path in ours if "/groups/" in path]
    last = [journal.plan_path, *(path for path in ours if path.startswith(journal.source_path("")))]
    for path in markers:
        journal.store.delete(path)
    if aside is not None:
        _discard_aside(*aside)
    for path in [*(path for path in paths if path not in {*markers, *last}), *last]:
        journal.store.delete(path)


def _discard_aside(store: Store, paths: Sequence[str]) -> None:
    """Its markers go first, too, and its plan last."""
    plan = Journal(store, 0).plan_path
    markers = [path for path in paths if "/groups/" in path]
    rest = [path for path in paths if path not in {*markers, plan}]
    for path in [*markers, *rest, *(path for path in paths if path == plan)]:
        store.delete(path)
