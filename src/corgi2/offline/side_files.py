"""Files beside shards that say which these are (``state.json``), written anew for the new shards.

Into another folder, they are written when all shards are there. In place, they move into the journal before the first
old shard is deleted, so that other readers refuse the folder while it is in transition; they are written anew, each by
rename, before the shuffle is done; and a restart puts them back.
"""

import posixpath
from collections.abc import Iterable, Mapping

from corgi2.dataset import Index, Source
from corgi2.errors import SourceError
from corgi2.formats import Described, Format, format_of
from corgi2.offline.journal import DISCARDED, Journal
from corgi2.offline.plan import Plan
from corgi2.offline.planned import Shuffle
from corgi2.stores import Entry, Store, read_path


def side_names(format: Format) -> tuple[str, ...]:
    return format.side_files.names if format.side_files is not None else ()


def check_described(source: Source) -> list[str]:
    """The files that a shuffle in place will write anew. It is refused if that cannot be done."""
    folder, side = _folder_of(source.entries), source.format.side_files
    places = {} if folder is None else _places(source.format, folder)
    places = {name: path for name, path in places.items() if path in source.others}
    if side is None or not places:
        return []
    problem = side.problem(_read(source.store, places), [posixpath.basename(entry.path) for entry in source.entries])
    if problem:
        path = [*places.values()][-1]
        raise SourceError(f"{source.url}/{path}: {problem}", hint="move it away, or shuffle into another folder")
    return [*places.values()]


def put_aside(shuffle: Shuffle) -> None:
    """In place: move the files into the journal. A file that is not what was kept is a new one, and stays."""
    journal, store = shuffle.journal, shuffle.target
    places = _in_place(shuffle.plan) if shuffle.plan.settings.in_place else {}
    for name, path in places.items():
        found = read_path(store, path)
        if found is not None and journal.fate() != DISCARDED and journal.keep_side(name, bytes(found)):
            store.delete(path)


def put_back(plan: Plan, journal: Journal) -> None:
    """Before a restart in place discards the journal."""
    for name, path in _in_place(plan).items():
        kept = journal.read_side(name)
        if kept is not None and journal.store.head(path) is None:
            journal.store.publish(path, [kept])


def describe(shuffle: Shuffle, index: Index, held: Index | None) -> None:
    """Write the files for the new shards, and for those that are held out, if the old shards had them."""
    source = shuffle.first.source
    folder = _folder_of(source.entries)
    if shuffle.plan.settings.in_place:
        kept = {name: shuffle.journal.read_side(name) for name in side_names(source.format)}
        old = {name: data for name, data in kept.items() if data is not None}
    else:
        old = {} if folder is None else _read(source.store, _places(source.format, folder))
    for store, shards in ((shuffle.target, index), (shuffle.aside, held)):
        if old and store is not None and shards is not None:
            _write(source.format, old, store, shards)


def _write(format: Format, old: Mapping[str, bytes], store: Store, index: Index) -> None:
    side, folder = format.side_files, _folder_of(index.entries)
    if side is None or folder is None or side.problem(old, None):
        return
    places = _places(format, folder)
    for name, data in side.rebuilt(old, _described(index)).items():
        store.publish(places[name], [data])


def _in_place(plan: Plan) -> dict[str, str]:
    """Beside the new shards, and so beside the old ones."""
    return _places(format_of(plan.suffix), posixpath.dirname(plan.prefix))


def _places(format: Format, folder: str) -> dict[str, str]:
    return {name: posixpath.join(folder, name) for name in side_names(format)}


def _folder_of(entries: Iterable[Entry]) -> str | None:
    """The folder that all shards lie in."""
    folders = {posixpath.dirname(entry.path) for entry in entries}
    return folders.pop() if len(folders) == 1 else None


def _read(store: Store, places: Mapping[str, str]) -> dict[str, bytes]:
    found = {name: read_path(store, path) for name, path in places.items()}
    return {name: bytes(data) for name, data in found.items() if data is not None}


def _described(index: Index) -> list[Described]:
    records, shard = index.column("records"), index.column("shard")
    checksums = index.shards.column("checksum").to_pylist()
    return [
        Described(posixpath.basename(entry.path), entry.size, int(records[shard == number].sum()), checksums[number])
        for number, entry in enumerate(index.entries)
    ]
