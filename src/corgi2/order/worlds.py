"""Who shares an epoch: the readers of a world, the rules that hold for all of them, and how many examples each gets.

Pure arithmetic, with no knowledge of blocks.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from corgi2.order.permutations import Indices


class World(NamedTuple):
    """Who reads: the number of ranks, of workers per rank, of blocks in all their buffers, of examples per item (a
    batch, or one), and, if blocks come back to the same nodes, of ranks on each node."""

    ranks: int
    workers: int
    window: int
    item: int = 1
    nodes: tuple[int, ...] = ()

    @property
    def readers(self) -> int:
        return self.ranks * self.workers

    @property
    def most(self) -> int:
        """The most blocks in one reader's buffer."""
        return -(-self.window // self.readers)


class Share(NamedTuple):
    """What one world has consumed of an epoch: how many turns the workers of every rank took, one after another, and of
    how many examples each."""

    world: World
    turns: int
    turn: int

    def consumed(self, worker: int) -> int:
        """Examples that a worker has yielded, unless its quota ended earlier."""
        return self.turn * turns_of(worker, self.turns, self.world.workers)


def turns_of(worker: int, turns: int, workers: int) -> int:
    """How many of the turns, which go round robin, fall to a worker."""
    return -(-max(0, turns - worker) // workers)


@dataclass(frozen=True, slots=True)
class Rules:
    """How an epoch is ordered and ends: the same for all readers, and for all worlds that share it."""

    seed: int = 0
    shuffle: bool = True
    picks: str = "even"
    tail: str = "drop"
    drop_last: bool = False

    def quota(self, total: int, world: World, rank: int) -> int:
        """How many of the ``total`` examples are for a rank."""
        share, over = divmod(total, world.ranks)
        if self.tail == "repeat":
            share += over > 0
        elif self.tail == "keep":
            share += rank < over
        return share // world.item * world.item if self.drop_last else share

    def last_item(self, total: int, world: World) -> int:
        """How many examples are in the last item of the first rank."""
        quota = self.quota(total, world, 0)
        return quota - max(0, -(-quota // world.item) - 1) * world.item

    def repeats(self, total: int, world: World) -> list[int]:
        """How many examples at the end of each rank are repetitions. Those that gather the last items of all ranks, in
        the order of the ranks, find them behind all others."""
        over = max(0, world.ranks * self.quota(total, world, 0) - total) if self.tail == "repeat" else 0
        each, counts = self.last_item(total, world), [0] * world.ranks
        for rank in range(world.ranks - 1, -1, -1):
            counts[rank] = min(over, each)
            over -= counts[rank]
        return counts

    def quotas(self, total: int, world: World) -> Indices:
        """How many examples are for each reader, rank by rank. A worker's items are those of its turns."""
        counts = []
        for rank in range(world.ranks) if self.tail == "keep" else [0]:
            quota = self.quota(total, world, rank)
            items = -(-quota // world.item)
            own = [world.item * turns_of(worker, items, world.workers) for worker in range(world.workers)]
            if items:
                own[(items - 1) % world.workers] -= items * world.item - quota
            counts.append(own)
        return np.array(counts if self.tail == "keep" else counts * world.ranks, np.int64).ravel()
