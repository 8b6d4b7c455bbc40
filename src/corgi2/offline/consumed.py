"""Deleting what a group has consumed, once its marker was read back."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from corgi2.errors import SourceError
from corgi2.offline.journal import CONSUMED, Journal
from corgi2.offline.passes import Pass


class Consumed:
    """Deletes shards that will not be read again: all groups that use them have their marker."""

    def __init__(self, pass_: Pass, journal: Journal, in_place: bool) -> None:
        self._stage, self._journal, self._store = pass_, journal, journal.store
        self._may_delete = not in_place
        shard = pass_.index.column("shard")
        self._shards = [np.unique(shard[group]).tolist() for group in pass_.groups] if pass_.consumes else []
        self._users = Counter(number for shards in self._shards for number in shards)

    def by(self, group: int) -> None:
        if self._stage.consumes:
            for path in self._used_up(group):
                self._delete(path)

    def _delete(self, path: str) -> None:
        """Delete a shard, but not before it is decided that the new shards will not be discarded."""
        if not self._may_delete and not self._journal.decide(CONSUMED):
            raise SourceError(f"{self._store.url}: the shuffle in place was discarded meanwhile; nothing was deleted")
        self._may_delete = True
        self._store.delete(path)

    def catch_up(self, groups: Iterable[int]) -> None:
        """Delete what earlier runs have consumed, but were stopped before they could delete."""
        if not self._stage.consumes:
            return
        there = {entry.path for entry in self._store.list()}
        for group in groups:
            for path in self._used_up(group):
                if path in there:
                    self._delete(path)

    def _used_up(self, group: int) -> Iterator[str]:
        for number in self._shards[group]:
            self._users[number] -= 1
            if not self._users[number]:
                yield self._stage.source.entries[number].path
