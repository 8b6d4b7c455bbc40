"""A shuffle while it runs: one pass after another, then the index and the sums of all passes.

The plan is written first, every group writes its own marker once its shards are published, and consumed shards are
deleted only after the marker was read back. So a run that was killed at any point resumes when the same command is run
again: groups without a marker are made again, with the same bytes. Two runs of one plan may interleave at any call:
they write the same, and a run that finds a group done by the other continues with the next.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from corgi2.dataset import Index, load_index
from corgi2.errors import SourceError
from corgi2.offline.aside import Copying
from corgi2.offline.discard import discard
from corgi2.offline.engines.engine import Engine
from corgi2.offline.finishing import as_it_is, finish, schema_of
from corgi2.offline.journal import Done, Marker, PassSum
from corgi2.offline.pass_run import PassRun
from corgi2.offline.passes import Pass, next_pass
from corgi2.offline.plan_file import commit_plan
from corgi2.offline.planned import Shuffle
from corgi2.offline.side_files import describe, put_aside
from corgi2.offline.skipped import Skipped
from corgi2.offline.task import Task
from corgi2.offline.ways_back import naming_ways_back
from corgi2.progress import progress
from corgi2.records import Digest
from corgi2.sizes import plural
from corgi2.stores import Requests

_log = logging.getLogger("corgi2")


@dataclass(slots=True)
class ShuffleRun:
    """All passes of a shuffle."""

    shuffle: Shuffle
    engine: Engine
    requests: Requests = field(default_factory=Requests)
    """Requests that were sent from elsewhere."""
    moved: Requests = field(default_factory=Requests)
    """For shards, here and elsewhere."""
    moved_aside: Requests = field(default_factory=Requests)
    """The same for those that are held out."""
    groups: int = 0
    made: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    sums: list[PassSum] = field(default_factory=list)
    held: Index | None = None
    """The sums of what was held out."""

    def complete(self) -> Index | None:
        """The index, if an earlier run has finished everything, and nothing has changed since."""
        planned = self.shuffle
        if not planned.is_begun or planned.target.head(planned.journal.done_path) is None:
            return None
        index = load_index(planned.target)
        if index is None:
            return None
        index = as_it_is(planned, planned.target, index)
        held = None if planned.aside is None else load_index(planned.aside)
        self.held = None if planned.aside is None or held is None else as_it_is(planned, planned.aside, held)
        planned.target.sweep()
        done = planned.journal.read_done()
        if done is not None:
            self.skipped += done.skipped
            self._check_skipped()
        self.groups = len(planned.first.groups)
        return index

    def make(self) -> Index:
        planned = self.shuffle
        if planned.replaced:
            self._check_alone()
            count = plural(len(planned.replaced), "shard")
            _log.warning(
                "%s: replaced since the plan was made, and read as they are now: %s", planned.target.url, count
            )
        if planned.discarded:
            discard(planned.journal, planned.discarded, planned.aside_discarded)
        self.shuffle = planned = commit_plan(planned)
        planned.target.sweep()
        if planned.holdout is not None:
            planned.holdout.begin(planned.index)
        if planned.plan.settings.in_place and planned.target.keeps_versions(planned.journal.plan_path):
            _log.warning("%s keeps old versions of what is deleted: in place frees nothing there", planned.target.url)
        self.groups = 0
        with planned.journal.lock() as other, self.engine.running():
            if other:
                _log.warning("%s: another run is at work there (%s); both may continue", planned.target.url, other)
            put_aside(planned)
            self._copy_held()
            pass_ = planned.first
            while True:
                markers = self._pass(pass_)
                if pass_.is_last:
                    break
                pass_ = next_pass(pass_, markers, planned.plan, planned.target)
            index = finish(planned, pass_, markers)
            self._finish_held()
            describe(planned, index, self.held)
        # After the lock is gone: now everything is done.
        replaced = tuple(planned.journal.replaced_paths()) if planned.plan.settings.in_place else ()
        planned.journal.write_done(Done(tuple(self.sums), tuple(self.skipped), planned.room_bytes, replaced))
        planned.target.sweep()
        return index

    def _copy_held(self) -> None:
        """Copy the shards that are held out, in this process, whatever engine makes the groups."""
        planned = self.shuffle
        if planned.holdout is None or not planned.plan.held:
            return
        copying = Copying(planned.first.source, planned.holdout, planned.journal, schema_of(planned), self.moved_aside)
        with progress("holding out", sum(entry.size for entry in planned.plan.held), len(planned.plan.held)) as bar:
            self.skipped += copying.run(planned.plan.held, bar.advance)

    def _finish_held(self) -> None:
        planned = self.shuffle
        if planned.holdout is not None:
            first, groups = (
                (None, len(planned.plan.held)) if planned.plan.held else (planned.first, planned.first.count)
            )
            self.held = planned.holdout.finish(first, schema_of(planned), groups, planned.room_bytes)

    def _check_alone(self) -> None:
        """Two runs write the same only if they read the same, and another may have listed the shards before."""
        journal = self.shuffle.journal
        other = journal.other()
        if other:
            raise SourceError(
                f"{journal.store.url}: shards were replaced, and another run is at work there ({other}); end it, and "
                f"run the command again (if it is dead, delete {journal.lock_path} there first)"
            )

    def _check_skipped(self) -> None:
        """Without skip_bad=True, a run must not report success if another run has left out shards."""
        if self.skipped and not self.shuffle.plan.settings.skip_bad:
            raise SourceError(
                f"{self.shuffle.target.url}: damaged shards were left out there by a run with skip_bad=True "
                f"({len(self.skipped)}, such as {self.skipped[0]})",
                hint="run the same command with skip_bad=True to accept that, or name an empty folder",
            )

    def _pass(self, pass_: Pass) -> list[Marker]:
        planned = self.shuffle
        aside = planned.holdout if pass_.number == 1 and not planned.plan.held else None
        task = Task(planned.plan, planned.target, pass_, planned.room_bytes, self.moved, self.moved_aside, aside)
        markers = PassRun(task, requests=self.requests)
        with naming_ways_back(self.shuffle):
            found = markers.run(self.engine)
        self.groups += len(pass_.groups)
        self.made += len(markers.made)
        self.skipped += [each for marker in found for each in marker.skipped]
        self._check_skipped()
        if not any(marker.shards for marker in found) and not self.skipped:
            raise SourceError(f"{self.shuffle.plan.source}: all records were held out; nothing is left to shuffle")
        if not any(marker.shards for marker in found):
            raise SourceError(
                f"{self.shuffle.plan.source}: no shard is sound ({len(self.skipped)} damaged, such as "
                f"{self.skipped[0]}); nothing was left to shuffle"
            )
        sums = [_sum(getattr(marker, name) for marker in found) for name in ("input", "output", "held")]
        self._check_passed_on(pass_.number, sums[0])
        self.sums.append(PassSum(len(found), *sums))
        return found

    def _check_passed_on(self, number: int, taken: Digest) -> None:
        """Check that a pass has read everything that the pass before wrote, and nothing else."""
        if not self.sums or self.shuffle.plan.settings.with_replacement or taken == self.sums[-1].output:
            return
        raise SourceError(
            f"{self.shuffle.target.url}: pass {number} read {taken}, but the pass before wrote {self.sums[-1].output}; "
            "the target is not finished. Shards were replaced between the passes, or please report this"
        )


def _sum(digests: Iterable[Digest]) -> Digest:
    return sum(digests, Digest())
