"""Which records or shards are held out for validation, as arithmetic.

By record, every group gives the floor or the ceiling of its share, without knowing the others: a random number of its
own decides which, so that the average is the share. By shard, shards are drawn when the shuffle is planned.
"""

from dataclasses import replace
from fractions import Fraction

from corgi2.dataset import Source
from corgi2.errors import SourceError
from corgi2.offline.settings import Settings
from corgi2.order import HOLDOUTS, Indices, draws, permutation
from corgi2.stores import Entry

_STEPS = 1 << 31
"""The resolution of the number between 0 and 1 that decides between the floor and the ceiling of a group's share."""


def held_of(settings: Settings, group: int, records: int) -> int:
    """How many of the first ``records`` of a group are held out; of all, the floor or the ceiling of the share."""
    (chance,) = draws(1, _STEPS, (settings.seed, 1, HOLDOUTS, group)).tolist()
    return int(settings.record_share * records + Fraction(chance, _STEPS))


def held_rows(settings: Settings, group: int, at: int, before: int, records: int) -> Indices:
    """Which of the next records of a group are held out, in random order, after ``before`` earlier ones."""
    count = held_of(settings, group, before + records) - held_of(settings, group, before)
    return permutation(records, (settings.seed, 1, HOLDOUTS, group, at))[:count].copy()


def draw_shards(source: Source, settings: Settings) -> tuple[Source, tuple[Entry, ...]]:
    """The source without the shards that are held out, and these; the same source if none are."""
    if settings.holdout_by != "shard":
        return source, ()
    entries = source.entries
    if len(entries) < 2:
        raise SourceError(
            f"{source.named}: has only one shard, and holdout_by='shard' would leave none; give holdout_by='record'"
        )
    count = min(len(entries) - 1, max(1, round(Fraction(str(settings.holdout)) * len(entries))))
    drawn = {*permutation(len(entries), (settings.seed, 1, HOLDOUTS))[:count].tolist()}
    rest = tuple(entry for number, entry in enumerate(entries) if number not in drawn)
    return replace(source, entries=rest), tuple(entries[number] for number in sorted(drawn))
