"""Dealing an epoch: one order of the blocks is cut into windows, and every window is shared out among all readers.

Readers take whole blocks, with records divided as evenly as possible; at the end each has exactly its quota, for which
a few blocks are cut. Pure arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corgi2.order.epochs import Rest
from corgi2.order.nodes import assign, orders_at_home
from corgi2.order.permutations import Indices
from corgi2.order.worlds import Rules, World


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
