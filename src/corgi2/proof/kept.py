"""What a shuffle has kept in ``.corgi2/``: every file is read and is sound, a problem, or named as not covered."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from corgi2.dataset import (
    CORGI_FOLDER,
    INDEX_PATH,
    generations,
)
from corgi2.errors import SourceError
from corgi2.offline import CONSUMED, DISCARDED, Done, Journal, Marker, NewShard, Plan, Skipped, load_plan
from corgi2.records import Digest
from corgi2.sizes import plural
from corgi2.stores import Store


@dataclass(frozen=True, slots=True)
class KeptShuffle:
    """What a finished shuffle has kept about itself."""

    plan: Plan
    done: Done
    markers: tuple[Marker, ...]
    """The markers of its last pass."""

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        return (*self.plan.skipped, *self.done.skipped)


@dataclass(slots=True)
class Kept:
    """What all shuffles have kept: the problems with it, the files that nothing covers, and the shards that they wrote
    and that no later one has consumed."""

    problems: list[str] = field(default_factory=list)
    shuffles: list[KeptShuffle] = field(default_factory=list)
    live: dict[str, NewShard] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    """The keys that the records of each were hashed with."""
    covered: set[str] = field(default_factory=lambda: {INDEX_PATH})
    files: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether no shuffle has left anything, sound or not."""
        return not self.shuffles and not self.problems

    @property
    def notes(self) -> tuple[str, ...]:
        strange = [path for path in self.files if path not in self.covered]
        if not strange:
            return (*self._siblings(),)
        return (
            *self._siblings(),
            f"not covered: {plural(len(strange), 'file')} in {CORGI_FOLDER}/, such as {strange[0]}",
        )

    def _siblings(self) -> Iterator[str]:
        """Notes on what a shuffle wrote elsewhere."""
        for plan in (shuffle.plan for shuffle in self.shuffles[-1:]):
            if plan.sibling:
                yield f"only what was held out was checked; the rest is in {plan.sibling}"
            elif plan.settings.holdout_to:
                place = plan.settings.holdout_to
                other = f"verify {shlex.quote(place)} checks that" if plan.settings.in_place else _BOTH
                yield f"checked is what was shuffled, alone; {_share(plan)} held out to {place}, and corgi2 {other}"


_BOTH = "verify SRC DST VAL proves both"
"""If the source is still there."""


def _share(plan: Plan) -> str:
    held = len(plan.held)
    return (
        f"{plural(held, 'shard')} {'was' if held == 1 else 'were'}"
        if held
        else f"{plan.settings.holdout or 0:.3%} of the records were"
    )


def read_kept(store: Store) -> Kept:
    """Read what the shuffles have kept, the oldest first: a later one in place consumes what an earlier one wrote."""
    kept = Kept(files=[entry.path for entry in store.list(CORGI_FOLDER)])
    found = [run for run in generations(kept.files) if _has_begun(Journal(store, run), kept)]
    for generation in found:
        _read_shuffle(Journal(store, generation), kept)
    return kept


def _has_begun(journal: Journal, kept: Kept) -> bool:
    """Whether a shuffle has written anything: not if it was killed before it wrote its plan, or was discarded."""
    before = journal.lock_path, journal.source_path("")
    files = [path for path in kept.files if path.startswith(f"{journal.folder}/") and not path.startswith(before)]
    try:
        if files == [journal.fate_path] and journal.fate() == DISCARDED:
            kept.covered |= set(files)
            return False
    except SourceError as error:
        kept.problems.append(str(error))
        return False
    return bool(files)


def _read_shuffle(journal: Journal, kept: Kept) -> None:
    try:
        held, done = load_plan(journal), journal.read_done()
        if held is None or done is None:
            gone = journal.plan_path if held is None else journal.done_path
            raise SourceError(
                f"{journal.store.url}/{gone}: is missing; restore it from a backup, or compare with the source"
            )
        plan, index = held
        _check_decisions(journal, kept)
        kept.problems += [f"{journal.store.url}/{path}: is missing" for path in done.replaced if path not in kept.files]
    except SourceError as error:
        kept.problems.append(str(error))
        return
    for entry in index.entries if plan.settings.in_place else ():
        kept.live.pop(entry.path, None)
    markers = tuple(_add_up(journal, plan, done, kept))
    kept.covered |= {journal.plan_path, journal.source_path(plan.blocks_sha256), journal.done_path}
    kept.shuffles.append(KeptShuffle(plan, done, markers))
    for shard in (shard for marker in markers for shard in marker.shards):
        kept.live[shard.path], kept.keys[shard.path] = shard, plan.key


def _check_decisions(journal: Journal, kept: Kept) -> None:
    """Check what else a shuffle in place has written down."""
    if journal.fate() != (CONSUMED if journal.generation else None):
        raise SourceError(f"{journal.store.url}/{journal.fate_path}: is not what a finished shuffle leaves")
    journal.read_replaced()
    sides = journal.side_paths()
    for path in sides:
        journal.read_side(path.rpartition("/")[2])
    decided = [path for path in kept.files if path == journal.fate_path or journal.is_replaced(path)]
    kept.covered |= {*sides, *decided}


def _add_up(journal: Journal, plan: Plan, done: Done, kept: Kept) -> list[Marker]:
    """Compare the markers of all passes with the sums; returns the markers of the last pass."""
    before: Digest | None = None
    markers: list[Marker] = []
    for number, sums in enumerate(done.passes, 1):
        markers = [marker for group in range(sums.groups) if (marker := _marker(journal, number, group, plan, kept))]
        taken = sum((marker.input for marker in markers), Digest())
        given = sum((marker.output for marker in markers), Digest())
        held = sum((marker.held for marker in markers), Digest())
        if len(markers) < sums.groups or (taken, given, held) != (sums.input, sums.output, sums.held):
            kept.problems.append(f"the markers of pass {number} do not add up to what was noted at the end")
        if not plan.settings.with_replacement:
            unequal = [marker.group for marker in markers if not marker.is_even]
            kept.problems += [f"group {group} of pass {number} wrote other records than it read" for group in unequal]
            if before not in (None, taken):
                kept.problems.append(f"pass {number} read other records than the pass before wrote")
        before = given
    return markers


def _marker(journal: Journal, number: int, group: int, plan: Plan, kept: Kept) -> Marker | None:
    path = journal.marker_path(number, group)
    try:
        marker = journal.read_marker(number, group)
    except SourceError as error:
        kept.problems.append(str(error))
        return None
    kept.covered.add(path)
    if marker is None:
        kept.problems.append(f"{journal.store.url}/{path}: is missing")
    elif (marker.group, marker.plan) != (group, plan.id):
        kept.problems.append(f"{journal.store.url}/{path}: is the marker of another group, or of another plan")
        return None
    return marker
