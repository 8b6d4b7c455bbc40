"""Discarding what an unfinished shuffle has written, as long as nothing is lost by it."""

from collections.abc import Collection, Iterable, Sequence

from corgi2.dataset import runs
from corgi2.errors import SourceError
from corgi2.offline.job import load_plan, read_plan
from corgi2.offline.journal import DISCARDED, Journal
from corgi2.offline.resume import foreign_files, new_shards
from corgi2.stores import Entry


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


def discard_in_place(journal: Journal, listing: Iterable[Entry]) -> None:
    """As long as no group has its marker, all old shards are there. That they stay is settled before anything goes."""
    paths = {entry.path for entry in listing}
    if journal.fate() != DISCARDED:
        _check_unconsumed(journal, paths)
    ours = new_shards(read_plan(journal), paths)
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
            f"{url}: restart=True would lose what an unfinished shuffle in place has written; give the same without it"
        )


def discard(journal: Journal, paths: Sequence[str]) -> None:
    """Delete what an unfinished shuffle wrote: markers first, so that it could go on wherever this is stopped, and the
    plan nearly last."""
    ours = [path for path in paths if path.startswith(f"{journal.folder}/")]
    markers = [path for path in ours if "/groups/" in path]
    last = [journal.plan_path, *(path for path in ours if path.startswith(journal.source_path("")))]
    for path in [*markers, *(path for path in paths if path not in {*markers, *last}), *last]:
        journal.store.delete(path)
