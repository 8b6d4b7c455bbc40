"""New shards, once they are all there: compared with what was written, and indexed."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from corgi2.dataset import NO_ROUND, Index, make_index
from corgi2.errors import SourceError
from corgi2.offline.journal import NewShard
from corgi2.records import BLOCK_BYTES, Scan
from corgi2.stores import Entry, Store


def check_there(store: Store, shards: Iterable[NewShard], way_out: str) -> dict[str, Entry]:
    """Everything in a store, by path; these shards have to be there."""
    there = {entry.path: entry for entry in store.list()}
    for shard in shards:
        entry = there.get(shard.path)
        if entry is None or entry.size != shard.size:
            wrong = "is gone" if entry is None else "is not the shard that was written"
            raise SourceError(f"{store.url}/{shard.path}: {wrong}; {way_out}")
    return there


class Origin(NamedTuple):
    """Where the blocks of a new shard come from, as the index keeps it."""

    lineage: tuple[int, ...] = ()
    round: int = NO_ROUND


def index_of(suffix: str, schema: str, shards: Iterable[tuple[NewShard, Origin]], there: Mapping[str, Entry]) -> Index:
    """The index of new shards."""
    scans = [
        (
            there[shard.path],
            Scan(shard.blocks, schema, shard.checksum, (origin.lineage,) * len(shard.blocks), origin.round),
        )
        for shard, origin in sorted(shards, key=lambda pair: pair[0].path)
    ]
    return make_index(suffix, BLOCK_BYTES, scans)
