"""Where a loader is whose batches one process gives out, though others may read them: the epoch, and the batches given.

A turn is one batch of an iteration. Each turn names all that a worker needs to read it, so workers keep nothing that
could go out of step: they may live on, begin late, or be told to begin in the middle of an epoch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from corgi2.online.feed import Feed
from corgi2.online.place import Place, whole_number
from corgi2.order import replay, turns_of


class Turn(NamedTuple):
    """One batch of an iteration."""

    iteration: int
    start: Place
    """Of the iteration."""
    number: int
    """Turns of the rank before it, since the start."""
    is_last: bool
    """Of its worker."""
    is_own: bool
    """Whether the loader itself gives it out; else another DataLoader does, which was handed the loader's turns."""


@dataclass(slots=True, eq=False)
class Stage:
    """An iteration of a loader."""

    number: int
    start: Place
    total: int
    """Batches for this rank."""
    most: int
    """Batches of the rank that has the most."""
    remainder: int
    """How many examples the last batches of all ranks have together, less repetitions; 0 if they are whole."""
    given: int = 0
    is_own: bool = True
    is_over: bool = False

    @property
    def is_done(self) -> bool:
        """Whether all ranks have had all of it."""
        return self.is_over or self.given >= self.most


class Journey:
    """Counts what a loader gives out. The epoch advances when the first batch of an iteration is asked for."""

    def __init__(self, feed: Feed, workers: int, epoch: int, check: Callable[[Place, int | None], None]) -> None:
        """``check`` is told where an iteration begins, before it does, and may refuse it; and how many batches of the
        one before were given, if that was left, and nobody has said which comes next."""
        self.feed, self.workers, self._check = feed, workers, check
        self.next = Place(epoch)
        self.latest: Stage | None = None
        self.is_asked = False
        """For a new iteration, which has not begun."""
        self._is_told = False
        """Which epoch comes next."""
        self._begun = 0
        self._totals: dict[Place, int] = {}

    def begin(self, is_own: bool = True) -> Stage:
        """The next iteration. From now on, the one after it is the next."""
        start, rank = self.next, self.feed.rank
        if start.shares and not is_own:
            raise RuntimeError(
                f"this loader goes on by itself after batch {_given(start)} of epoch {start.epoch}, by the state that "
                "it has loaded; iterate it without skipping batches"
            )
        self._check(start, self._left)
        total, most = self.left(start, rank), self.left(start, 0)
        stage = Stage(self._begun, start, total, most, self._remainder(start), is_own=is_own)
        self.latest, self.next, self.is_asked, self._is_told = stage, Place(start.epoch + 1), False, False
        self._begun += 1
        self._totals.clear()
        return stage

    def turns(self, stage: Stage) -> Iterator[Turn]:
        for number in range(stage.total):
            is_last = number + self.workers >= stage.total
            yield Turn(stage.number, stage.start, number, is_last, stage.is_own)

    @property
    def place(self) -> Place:
        """What all ranks have given out."""
        latest = self.latest
        if latest is None or latest.is_done:
            return self.next
        return self._after(latest.start, latest.given) if latest.given else latest.start

    def load(self, place: Place) -> None:
        """The next iteration begins there, or, if nothing is left there, with the next epoch."""
        place = self._after(place, 0) if place.shares else place
        self.next, self.latest = place if self.left(place, 0) else Place(place.epoch + 1), None
        self._is_told = True

    def set_epoch(self, epoch: int) -> None:
        """The next iteration yields this epoch, from its beginning, or from a loaded state that lies in it."""
        self._is_told = True
        if epoch != self.next.epoch:
            self.next = Place(whole_number("epoch", epoch, 0))

    @property
    def _left(self) -> int | None:
        latest = self.latest
        return None if latest is None or self._is_told or latest.given >= latest.total else latest.given

    @property
    def length(self) -> int:
        """Batches of this rank in the current epoch: those already given, also by other worlds, and those left."""
        latest = self.latest
        start = self.next if latest is None or latest.is_done or self.is_asked else latest.start
        return _given(start) + self.left(start, self.feed.rank)

    def left(self, place: Place, rank: int) -> int:
        """Batches that a rank has from a place on."""
        world = self.feed.world(self.workers)
        earlier, done = self._split(place)
        total = self._total(earlier)
        self.feed.check_length(total, world, fresh=not place.shares)
        return max(0, -(-self.feed.rules.quota(total, world, rank) // world.item) - done)

    def _remainder(self, start: Place) -> int:
        world, rules = self.feed.world(self.workers), self.feed.rules
        total = self._total(self._split(start)[0])
        last = world.ranks * rules.last_item(total, world) - sum(rules.repeats(total, world))
        return last % (world.ranks * world.item)

    def _total(self, earlier: Place) -> int:
        """Examples that earlier worlds leave."""
        records = self.feed.catalog.index.column("records")
        if not earlier.shares:
            return int(records.sum())
        if earlier not in self._totals:
            rest = self.feed.whole_epoch(records, earlier.epoch)
            self._totals[earlier] = replay(rest, earlier.shares, self.feed.rules, earlier.epoch).total
        return self._totals[earlier]

    def _split(self, place: Place) -> tuple[Place, int]:
        """What other worlds have consumed, and the turns that this one has taken since."""
        return split(place, self.feed, self.workers)

    def _after(self, start: Place, turns: int) -> Place:
        world = self.feed.world(self.workers)
        return self.feed.place_after(start, turns, world.item, self.workers)


def split(place: Place, feed: Feed, workers: int) -> tuple[Place, int]:
    """What other worlds have consumed, and the turns that this one has taken since."""
    if not place.shares or place.shares[-1].world != feed.world(workers):
        return place, 0
    return replace(place, shares=place.shares[:-1]), place.shares[-1].turns


def place_of_turn(turn: Turn, feed: Feed, workers: int) -> Place:
    """Where the reader is that has this turn."""
    earlier, done = split(turn.start, feed, workers)
    number = done + turn.number
    role = number % workers
    return replace(earlier, reader=(role, feed.world(workers).item * turns_of(role, number, workers)))


def _given(place: Place) -> int:
    return sum(share.turns for share in place.shares)
