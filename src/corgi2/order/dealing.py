"""An epoch, dealt: one order of the blocks, cut into windows, and every window shared out among all readers.

A window is what lies in the buffers of all readers at one time, so that a step of SGD, which averages over all of them,
sees blocks that follow each other in the one order. Readers take whole blocks, as evenly in records as can be; at the
end each has exactly its quota, for which a few blocks are cut. Pure arithmetic: any reader of any later world can work
out from a few integers what all others have consumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corgi2.order.groups import even_order
from corgi2.order.permutations import BUFFERS, PICKS, Indices, permutation


class World(NamedTuple):
    """Who reads: so many ranks of so many workers, with so many blocks in all their buffers; in items of so many
    examples: a batch, or one."""

    ranks: int
    workers: int
    window: int
    item: int = 1

    @property
    def readers(self) -> int:
        return self.ranks * self.workers

    @property
    def most(self) -> int:
        """Blocks in one reader's buffer."""
        return -(-self.window // self.readers)


class Share(NamedTuple):
    """What one world has consumed of an epoch: on every rank its workers took so many turns, one after another, of so
    many examples each."""

    world: World
    turns: int
    turn: int

    def consumed(self, worker: int) -> int:
        """Examples that a worker gave, unless its quota ended before."""
        return self.turn * turns_of(worker, self.turns, self.world.workers)


def turns_of(worker: int, turns: int, workers: int) -> int:
    """How many of the turns, which go round, fall to a worker."""
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
        """Examples for a rank, of so many."""
        share, over = divmod(total, world.ranks)
        if self.tail == "repeat":
            share += over > 0
        elif self.tail == "keep":
            share += rank < over
        return share // world.item * world.item if self.drop_last else share

    def quotas(self, total: int, world: World) -> Indices:
        """Examples for every reader, rank by rank. A worker's items are those of its turns."""
        counts = []
        for rank in range(world.ranks) if self.tail == "keep" else [0]:
            quota = self.quota(total, world, rank)
            items = -(-quota // world.item)
            own = [world.item * turns_of(worker, items, world.workers) for worker in range(world.workers)]
            if items:
                own[(items - 1) % world.workers] -= items * world.item - quota
            counts.append(own)
        return np.array(counts if self.tail == "keep" else counts * world.ranks, np.int64).ravel()


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of an epoch: blocks in order, the number of records of each, and, of those begun, which."""

    blocks: Indices
    counts: Indices
    rows: dict[int, Indices]
    """By block; all of its records, in order, where it is not here."""

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def rows_of(self, block: int, first: int, last: int) -> Indices:
        """The records of a block that are first, …, last, not included, among those left."""
        rows = self.rows.get(block)
        return np.arange(first, last) if rows is None else rows[first:last]


@dataclass(frozen=True, slots=True)
class Deal:
    """Pieces of blocks, ordered by reader, buffer and place: records ``first`` to ``last``, not included, of those that
    the rest has of it."""

    rest: Rest
    reader: Indices
    buffer: Indices
    block: Indices
    first: Indices
    last: Indices
    again: npt.NDArray[np.bool_]
    """Where it repeats what another piece has."""

    def buffers(self, reader: int) -> "list[Deal]":
        """The pieces of one reader, a buffer after another."""
        own = self._part(slice(*np.searchsorted(self.reader, [reader, reader + 1])))
        cuts = np.flatnonzero(np.diff(own.buffer)) + 1
        bounds = [0, *cuts.tolist(), len(own.buffer)]
        return [own._part(slice(*bound)) for bound in pairwise(bounds) if len(own.buffer)]

    def _part(self, part: slice) -> "Deal":
        fields = (self.reader, self.buffer, self.block, self.first, self.last, self.again)
        return Deal(self.rest, *(field[part] for field in fields))  # type: ignore[arg-type]

    @property
    def counts(self) -> Indices:
        return self.last - self.first


def epoch_rest(records: Indices, lineage: Indices | None, rules: Rules, epoch: int) -> Rest:
    """A whole epoch. ``records`` of each block; ``lineage`` as `even_order` takes it, where it is known."""
    key = (rules.seed, PICKS, epoch)
    if not rules.shuffle:
        order = np.arange(len(records))
    elif rules.picks == "even" and lineage is not None:
        order = even_order(lineage, key)
    else:
        order = permutation(len(records), key)
    return Rest(order, records[order], {})


def window_of(most: int, readers: int, lineage: Indices | None, blocks: int) -> int:
    """Blocks in all buffers, of which each holds at most so many: a multiple of the number of groups where it can be,
    because then all groups are in it alike."""
    room = min(most * readers, blocks)
    if lineage is None or room == blocks:
        return room
    groups = [len(np.unique(lineage[:, :level], axis=0)) for level in range(lineage.shape[1], 0, -1)]
    fitting = next((count for count in groups if count <= room), 1)
    return room // fitting * fitting


def deal(rest: Rest, world: World, rules: Rules) -> Deal:
    """Share out what is left of an epoch, to the last record."""
    quotas = rules.quotas(rest.total, world)
    whole = _whole(rest, world, quotas)
    kept = np.clip(quotas[whole.reader] - _before(whole.last, whole.reader), 0, whole.last)
    whole = whole._replace(last=kept)
    extra = _spread(rest, whole, quotas, world, again=rules.tail == "repeat")
    return _deal(rest, [whole, *extra])


def deal_shards(rest: Rest, world: World) -> Deal:
    """The same where the records are not known: whole blocks, as evenly in their counts, whatever these are, as can
    be; there are no quotas."""
    return _deal(rest, [_whole(rest, world, np.zeros(world.readers, np.int64))])


class _Pieces(NamedTuple):
    reader: Indices
    buffer: Indices
    place: Indices
    """In the order of the rest."""
    first: Indices
    last: Indices
    again: bool = False


def _whole(rest: Rest, world: World, quotas: Indices) -> _Pieces:
    """All blocks, uncut, in the order of their readers."""
    reader = _assign(rest.counts, world, quotas)
    window = np.arange(len(rest.blocks)) // max(1, world.window)
    order = np.argsort(reader, kind="stable")
    return _Pieces(reader[order], window[order], order, np.zeros(len(order), np.int64), rest.counts[order])


def _deal(rest: Rest, parts: Sequence[_Pieces]) -> Deal:
    again = np.concatenate([np.full(len(part.place), part.again) for part in parts])
    reader, buffer, place, first, last = (np.concatenate([part[n] for part in parts]) for n in range(5))
    kept = np.flatnonzero(last > first)
    order = kept[np.lexsort((again[kept], place[kept], buffer[kept], reader[kept]))]
    return Deal(rest, reader[order], buffer[order], rest.blocks[place[order]], first[order], last[order], again[order])


def _assign(counts: Indices, world: World, quotas: Indices) -> Indices:
    """A reader for every block. In every window each takes its turn; the largest blocks go to whoever is furthest
    from its quota."""
    readers = world.readers
    if readers == 1:
        return np.zeros(len(counts), np.int64)
    chosen, ahead = np.empty(len(counts), np.int64), -quotas
    for start in range(0, len(counts), world.window):
        stop = min(len(counts), start + world.window)
        by_size = start + np.argsort(-counts[start:stop], kind="stable")
        for at in range(0, stop - start, readers):
            some = by_size[at : at + readers]
            who = np.argsort(ahead, kind="stable")[: len(some)]
            chosen[some] = who
            ahead[who] += counts[some]
    return chosen


def _before(counts: Indices, reader: Indices) -> Indices:
    """Of pieces in the order of their readers: the records that the reader's earlier pieces have."""
    sums = np.cumsum(counts) - counts
    _, starts, sizes = np.unique(reader, return_index=True, return_counts=True)
    return sums - np.repeat(sums[starts], sizes)


def _spread(rest: Rest, whole: _Pieces, quotas: Indices, world: World, again: bool) -> list[_Pieces]:
    """What is over, in the order of the blocks, for those who have too little; and after it, from the front again."""
    given = np.bincount(whole.reader, whole.last, len(quotas)).astype(np.int64)
    missing = quotas - given
    if not missing.any():
        return []
    left = np.empty(len(rest.counts), np.int64)
    left[whole.place] = rest.counts[whole.place] - whole.last
    last_window = (len(rest.counts) - 1) // max(1, world.window)
    held = np.bincount(whole.reader[(whole.buffer == last_window) & (whole.last > 0)], minlength=len(quotas))
    over = int(left.sum())
    parts = [_cut(rest.counts - left, left, missing, 0, held, last_window, world, False)]
    if again:
        repeated = -(-(int(missing.sum()) - over) // max(1, rest.total))
        for _ in range(max(0, repeated)):
            parts.append(_cut(rest.counts * 0, rest.counts, missing, over, held, last_window, world, True))
            over += rest.total
    return parts


def _cut(
    first: Indices, counts: Indices, missing: Indices, done: int, held: Indices, window: int, world: World, again: bool
) -> _Pieces:
    """Runs of records, one of each block, laid end to end against what readers miss, of which so much is done."""
    runs, wants = done + np.concatenate([[0], np.cumsum(counts)]), np.concatenate([[0], np.cumsum(missing)])
    bounds = np.unique(np.clip(np.concatenate([runs, wants]), done, min(int(runs[-1]), int(wants[-1]))))
    starts, stops = bounds[:-1], bounds[1:]
    place = np.searchsorted(runs, starts, "right") - 1
    reader = np.searchsorted(wants, starts, "right") - 1
    number = np.arange(len(reader)) - np.searchsorted(reader, reader)
    buffer = window + (held[reader] + number) // max(1, world.most)
    at = first[place] - runs[place]
    held += np.bincount(reader, minlength=len(held))
    return _Pieces(reader, buffer, place, starts + at, stops + at, again)


def buffer_order(count: int, rules: Rules, epoch: int, change: int, reader: int, buffer: int) -> Indices:
    """The order of the records of a buffer, as they lie in its pieces. ``change`` counts the worlds before."""
    return (
        permutation(count, (rules.seed, BUFFERS, epoch, change, reader, buffer)) if rules.shuffle else np.arange(count)
    )


def consume(rest: Rest, share: Share, rules: Rules, epoch: int, change: int) -> Rest:
    """What a world leaves of what it found."""
    dealt = deal(rest, share.world, rules)
    left = dict(zip(rest.blocks.tolist(), rest.counts.tolist(), strict=True))
    kept: dict[int, npt.NDArray[np.bool_]] = {}
    for reader in range(share.world.readers):
        consumed = share.consumed(reader % share.world.workers)
        for part in dealt.buffers(reader):
            if consumed <= 0:
                break
            size = int(part.counts.sum())
            gone = _gone(part, min(consumed, size), rules, epoch, change, reader)
            consumed -= size
            for block, first, mask in gone:
                there = kept.get(block)
                if there is None:
                    there = kept[block] = np.ones(left[block], bool)
                there[first : first + len(mask)] &= ~mask
    rows = dict(rest.rows)
    for block, mask in kept.items():
        rows[block] = rest.rows_of(block, 0, len(mask))[mask]
        left[block] = len(rows[block])
    counts = np.array([left[block] for block in rest.blocks.tolist()], np.int64)
    filled = counts > 0
    return Rest(rest.blocks[filled], counts[filled], {block: rows[block] for block in rows if left[block]})


def _gone(
    part: Deal, consumed: int, rules: Rules, epoch: int, change: int, reader: int
) -> list[tuple[int, int, npt.NDArray[np.bool_]]]:
    """Which records of a buffer's pieces are consumed: the block, the piece's first, and a mask. What was repeated
    is not consumed by it."""
    size = int(part.counts.sum())
    mask = np.ones(size, bool)
    if consumed < size:
        order = buffer_order(size, rules, epoch, change, reader, int(part.buffer[0]))
        mask[order[consumed:]] = False
    ends = np.cumsum(part.counts)
    return [
        (int(part.block[n]), int(part.first[n]), mask[ends[n] - part.counts[n] : ends[n]])
        for n in range(len(ends))
        if not part.again[n]
    ]


def replay(rest: Rest, shares: Sequence[Share], rules: Rules, epoch: int) -> Rest:
    """What all worlds before leave of an epoch."""
    for change, share in enumerate(shares):
        rest = consume(rest, share, rules, epoch, change)
    return rest
