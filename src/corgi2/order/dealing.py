"""Dealing an epoch: one order of the blocks is cut into windows, and every window is shared out among all readers.

A window is what lies in the buffers of all readers at one time, so a step of SGD, which averages over all of them,
sees blocks that follow each other in that one order. Readers take whole blocks, with records divided as evenly as
possible; at the end each has exactly its quota, for which a few blocks are cut. Pure arithmetic: any reader of any
later world can work out from a few integers what all others have consumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corgi2.order.groups import even_order
from corgi2.order.nodes import Origin, assign, orders_at_home
from corgi2.order.permutations import BUFFERS, PICKS, Indices, permutation
from corgi2.order.rounds import round_order


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


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of an epoch: blocks in order, the number of records left in each, and, of begun blocks, which."""

    blocks: Indices
    counts: Indices
    rows: dict[int, Indices]
    """By block. A block that is missing here has all of its records left, in order."""
    origin: Origin

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def rows_of(self, block: int, first: int, last: int) -> Indices:
        """The records ``first`` to ``last``, exclusive, among those left of a block."""
        rows = self.rows.get(block)
        return np.arange(first, last) if rows is None else rows[first:last]


@dataclass(frozen=True, slots=True)
class Deal:
    """Pieces of blocks, ordered by reader, buffer and place: records ``first`` to ``last``, exclusive, among those left
    of the block."""

    rest: Rest
    reader: Indices
    buffer: Indices
    block: Indices
    first: Indices
    last: Indices
    again: npt.NDArray[np.bool_]
    """Whether a piece repeats what another piece has."""

    def buffers(self, reader: int) -> "list[Deal]":
        """The pieces of one reader, buffer by buffer."""
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


def epoch_rest(
    records: Indices, lineage: Indices | None, rules: Rules, epoch: int, rounds: Indices | None = None
) -> Rest:
    """A whole epoch. ``records`` per block; ``lineage`` as `even_order` takes it, if known; ``rounds`` if blocks were
    made in rounds."""
    key = (rules.seed, PICKS, epoch)
    if not rules.shuffle:
        order = np.arange(len(records))
    elif rules.picks == "even" and lineage is not None:
        order = even_order(lineage, key) if rounds is None else round_order(lineage, rounds, key)
    else:
        order = permutation(len(records), key)
    is_even = rules.shuffle and rules.picks == "even" and lineage is not None
    group = np.unique(lineage, axis=0, return_inverse=True)[1].ravel() if is_even and lineage is not None else None
    return Rest(order, records[order], {}, Origin(records, group, rounds if is_even else None))


def window_of(most: int, readers: int, lineage: Indices | None, blocks: int, rounds: Indices | None = None) -> int:
    """Blocks in all buffers, each of which holds at most ``most``: if possible, a multiple of the number of groups
    (of a round, if there are rounds), because then all of them are in it equally."""
    room = min(most * readers, blocks)
    if lineage is None or room == blocks:
        return room
    if rounds is not None:
        lineage = lineage[rounds == rounds[0]]
    groups = [len(np.unique(lineage[:, :level], axis=0)) for level in range(lineage.shape[1], 0, -1)]
    fitting = next((count for count in groups if count <= room), 1)
    return room // fitting * fitting


def deal(rest: Rest, world: World, rules: Rules) -> Deal:
    """Share out what is left of an epoch, to the last record."""
    quotas = rules.quotas(rest.total, world)
    again = _repeats(rest.total, world, rules)
    quotas -= again
    teams = _teams(rest, world, rules.seed)
    whole = _whole(rest, teams, quotas)
    kept = np.clip(quotas[whole.reader] - _before(whole.last, whole.reader), 0, whole.last)
    whole = whole._replace(last=kept)
    spread = _spread(rest, whole, quotas, teams, world.most)
    return _deal(rest, [whole, *spread, *_repeated(rest, again, [whole, *spread], world.most)])


def _repeats(total: int, world: World, rules: Rules) -> Indices:
    """How many examples each reader repeats: those in the last item of its rank."""
    counts = np.zeros((world.ranks, world.workers), np.int64)
    last = -(-rules.quota(total, world, 0) // world.item) - 1
    counts[:, last % world.workers] = rules.repeats(total, world)
    return counts.ravel()


def deal_shards(rest: Rest, world: World, seed: int = 0) -> Deal:
    """The same if the numbers of records are not known: whole blocks, as evenly in their counts, whatever these are, as
    possible; there are no quotas."""
    return _deal(rest, [_whole(rest, _teams(rest, world, seed), np.zeros(world.readers, np.int64))])


class _Team(NamedTuple):
    """Readers that share out blocks among themselves, window by window: those of a node, or all of them."""

    readers: range
    places: Indices
    """Of their blocks, in the order of the rest."""
    window: int

    @property
    def last_window(self) -> int:
        return max(0, len(self.places) - 1) // self.window


def _teams(rest: Rest, world: World, seed: int) -> list[_Team]:
    """One for each node, if blocks come back to the same nodes; else one."""
    if len(world.nodes) < 2:
        return [_Team(range(world.readers), np.arange(len(rest.blocks)), max(1, world.window))]
    teams, before = list[_Team](), 0
    places = orders_at_home(rest.blocks, rest.origin, world.nodes, seed)
    for ranks, own in zip(world.nodes, places, strict=True):
        readers = range(before * world.workers, (before + ranks) * world.workers)
        teams.append(_Team(readers, own, max(1, world.window * ranks // world.ranks)))
        before += ranks
    return teams


class _Pieces(NamedTuple):
    reader: Indices
    buffer: Indices
    place: Indices
    """In the order of the rest."""
    first: Indices
    last: Indices
    again: bool = False


def _whole(rest: Rest, teams: Sequence[_Team], quotas: Indices) -> _Pieces:
    """All blocks, uncut, in the order of their readers."""
    places = np.concatenate([team.places for team in teams])
    buffer = np.concatenate([np.arange(len(team.places)) // team.window for team in teams])
    reader = np.concatenate([_assigned(rest, team, quotas) for team in teams])
    order = np.argsort(reader, kind="stable")
    place = places[order]
    return _Pieces(reader[order], buffer[order], place, np.zeros(len(order), np.int64), rest.counts[place])


def _assigned(rest: Rest, team: _Team, quotas: Indices) -> Indices:
    own = quotas[team.readers.start : team.readers.stop]
    return team.readers.start + assign(rest.counts[team.places], len(team.readers), team.window, own)


def _deal(rest: Rest, parts: Sequence[_Pieces]) -> Deal:
    again = np.concatenate([np.full(len(part.place), part.again) for part in parts])
    reader, buffer, place, first, last = (np.concatenate([part[n] for part in parts]) for n in range(5))
    kept = np.flatnonzero(last > first)
    order = kept[np.lexsort((again[kept], place[kept], buffer[kept], reader[kept]))]
    return Deal(rest, reader[order], buffer[order], rest.blocks[place[order]], first[order], last[order], again[order])


def _before(counts: Indices, reader: Indices) -> Indices:
    """For pieces in the order of their readers: the number of records in the same reader's earlier pieces."""
    sums = np.cumsum(counts) - counts
    _, starts, sizes = np.unique(reader, return_index=True, return_counts=True)
    return sums - np.repeat(sums[starts], sizes)


def _spread(rest: Rest, whole: _Pieces, quotas: Indices, teams: Sequence[_Team], most: int) -> list[_Pieces]:
    """The surplus, in the order of the blocks, goes to readers that have too little."""
    given = np.bincount(whole.reader, whole.last, len(quotas)).astype(np.int64)
    missing = quotas - given
    if not missing.any():
        return []
    left = np.empty(len(rest.counts), np.int64)
    left[whole.place] = rest.counts[whole.place] - whole.last
    last = np.repeat([team.last_window for team in teams], [len(team.readers) for team in teams])
    held = np.bincount(whole.reader[(whole.buffer == last[whole.reader]) & (whole.last > 0)], minlength=len(quotas))
    return [_cut(rest.counts - left, left, missing, 0, held, last, most)]


def _repeated(rest: Rest, again: Indices, parts: list[_Pieces], most: int) -> list[_Pieces]:
    """Records that are repeated, in buffers of their own behind all others."""
    behind = 1 + max((int(part.buffer.max()) for part in parts if len(part.buffer)), default=0)
    held, last, starts = again * 0, again * 0 + behind, range(0, int(again.sum()), max(1, rest.total))
    pieces = [_cut(rest.counts * 0, rest.counts, again, start, held, last, most) for start in starts]
    return [part._replace(again=True) for part in pieces]


def _cut(
    first: Indices, counts: Indices, missing: Indices, done: int, held: Indices, last: Indices, most: int
) -> _Pieces:
    """Lay runs of records, one per block, end to end against what readers miss, of which ``done`` is already filled.
    ``held`` counts the blocks that each reader has in the window."""
    runs, wants = done + np.concatenate([[0], np.cumsum(counts)]), np.concatenate([[0], np.cumsum(missing)])
    bounds = np.unique(np.clip(np.concatenate([runs, wants]), done, min(int(runs[-1]), int(wants[-1]))))
    starts, stops = bounds[:-1], bounds[1:]
    place = np.searchsorted(runs, starts, "right") - 1
    reader = np.searchsorted(wants, starts, "right") - 1
    number = np.arange(len(reader)) - np.searchsorted(reader, reader)
    buffer = last[reader] + (held[reader] + number) // max(1, most)
    at = first[place] - runs[place]
    held += np.bincount(reader, minlength=len(held))
    return _Pieces(reader, buffer, place, starts + at, stops + at)


def buffer_order(count: int, rules: Rules, epoch: int, change: int, reader: int, buffer: int) -> Indices:
    """The order of the records of a buffer, as they lie in its pieces. ``change`` counts the earlier worlds."""
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
    rows = {block: rows[block] for block in rows if left[block]}
    return Rest(rest.blocks[filled], counts[filled], rows, rest.origin)


def _gone(
    part: Deal, consumed: int, rules: Rules, epoch: int, change: int, reader: int
) -> list[tuple[int, int, npt.NDArray[np.bool_]]]:
    """Which records of a buffer's pieces are consumed: the block, the piece's first record, and a mask. Repeating a
    record does not consume it."""
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
    """What all earlier worlds leave of an epoch."""
    for change, share in enumerate(shares):
        rest = consume(rest, share, rules, epoch, change)
    return rest
