"""What was read about a shard, kept for a while: by its version, and up to some bytes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from corgi2.records import ShardFile

Known = TypeVar("Known")


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of a shard, as the key of a cache."""

    name: str
    size: int
    version: str
    file: ShardFile = field(compare=False)


class Recent(Generic[Known]):
    """What was recently learned about shards. ``weigh`` tells the bytes of it, as stored."""

    def __init__(self, learn: Callable[[ShardFile], Known], weigh: Callable[[Known], int], most_bytes: int) -> None:
        self._learn, self._weigh, self._most = learn, weigh, most_bytes
        self._held: dict[_Version, Known] = {}
        self._bytes, self._lock = 0, threading.Lock()

    def of(self, file: ShardFile) -> Known:
        shard = _Version(file.name, file.size, file.version, file)
        with self._lock:
            held = self._held.pop(shard, None)
            if held is not None:
                self._held[shard] = held
                return held
        found = self._learn(file)
        with self._lock:
            if shard not in self._held:
                self._held[shard] = found
                self._bytes += self._weigh(found)
            while self._bytes > self._most and len(self._held) > 1:
                self._bytes -= self._weigh(self._held.pop(next(iter(self._held))))
        return found
