"""The end of a shuffle: the new shards are indexed once they are all there, and those between the passes deleted. A run
that comes later finds them as they were left."""

import logging
from collections.abc import Sequence

from corgi2.dataset import Index, load_index, merge, save_index, with_entries, without
from corgi2.errors import SourceError
from corgi2.offline.journal import Marker
from corgi2.offline.names import new_shards
from corgi2.offline.new_shards import check_there, index_of
from corgi2.offline.passes import Pass
from corgi2.offline.planned import Shuffle
from corgi2.records import checksum_of
from corgi2.sizes import plural
from corgi2.stores import Store, StoredShard

_log = logging.getLogger("corgi2")


def finish(shuffle: Shuffle, pass_: Pass, markers: Sequence[Marker]) -> Index:
    """Write the index of the new shards, once they are all there."""
    origins = [(marker, pass_.origin(marker.group)) for marker in markers]
    shards = [(shard, origin) for marker, origin in origins for shard in marker.shards]
    there = check_there(shuffle.target, [shard for shard, _ in shards], _way_out(shuffle))
    index = index_of(shuffle.plan.suffix, schema_of(shuffle), shards, there)
    named = new_shards(shuffle.plan, there, len(pass_.groups) * pass_.shards)
    stale = named - {shard.path for shard, _ in shards}  # of a group that has fewer records since a shard was replaced
    for path in [
        *shuffle.journal.between(pass_.number),
        *sorted(stale),
    ]:  # drawn by no group, or by one that was overtaken
        shuffle.target.delete(path)
    save_index(shuffle.target, _beside_others(shuffle, index))
    return index


def schema_of(shuffle: Shuffle) -> str:
    """The schema that all shards share."""
    return str(shuffle.index.shards.column("schema")[0].as_py() or "")


def _way_out(shuffle: Shuffle) -> str:
    """The way out if a shard is not what its group's marker says. What was consumed cannot be read again."""
    if shuffle.plan.settings.in_place:
        return "what it was made of was consumed: restore it from a backup, and run the command again"
    if shuffle.plan.settings.passes > 1:
        return "restore it, or give restart=True to discard what was written and start over"
    return f"delete {shuffle.journal.pass_folder(1)}/groups there, and run the command again to make it again"


def _beside_others(shuffle: Shuffle, index: Index) -> Index:
    """In place, the folder may hold other shards, which the index already knows."""
    known = load_index(shuffle.target) if shuffle.plan.settings.in_place else None
    gone = {entry.path for entry in (*shuffle.index.entries, *shuffle.plan.held)}
    return index if known is None else merge(without(known, gone), index)


def as_it_is(shuffle: Shuffle, target: Store, index: Index) -> Index:
    """The index with the etags that shards have now. A run that was overtaken and killed may have published some of
    them again, with the same bytes, after the other had finished."""
    now = {entry.path: entry for entry in target.list()}
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
            f"{target.url}/{wrong[0].path}: has changed since the shuffle was finished, or is gone",
            hint=f"restore it from a copy, or delete {_folders(shuffle)} and give the same command again",
        )
    index = with_entries(index, [now[entry.path] for entry in index.entries])
    save_index(target, index)
    return index


def _folders(shuffle: Shuffle) -> str:
    """All that the shuffle has written."""
    return shuffle.target.url if shuffle.aside is None else f"{shuffle.target.url} and {shuffle.aside.url}"
