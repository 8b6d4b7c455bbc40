"""One running pass: groups without a marker are made, and what they have consumed is deleted."""

from dataclasses import dataclass, field

from corgi2.errors import SourceError
from corgi2.offline.consumed import Consumed
from corgi2.offline.engines.engine import Engine
from corgi2.offline.journal import Marker
from corgi2.offline.task import Made, Task
from corgi2.progress import Bar, progress
from corgi2.stores import Requests


@dataclass(frozen=True, slots=True)
class PassRun:
    """One pass of a shuffle."""

    task: Task
    made: dict[int, Marker] = field(default_factory=dict)
    requests: Requests = field(default_factory=Requests)
    """Requests that were sent from elsewhere."""

    def run(self, engine: Engine) -> list[Marker]:
        """Make all groups that have no marker yet; returns the markers of all."""
        journal, pass_ = self.task.journal, self.task.pass_
        done = set(journal.marked(pass_.number, len(pass_.groups)))
        todo = [group for group in range(len(pass_.groups)) if group not in done]
        known = {group: self._marker(group) for group in done} if pass_.consumes else {}
        consumed = Consumed(pass_, journal, self.task.plan.settings.in_place)
        consumed.catch_up(known)
        label = "shuffling" if self.task.plan.settings.passes == 1 else f"pass {pass_.number}"
        with progress(label, sum(map(self.task.bytes_of, todo)), len(todo)) as bar:
            engine.make(self.task, todo, bar.advance, lambda made: self._settle(made, consumed, bar))
        known |= self.made
        return [known.get(group) or self._marker(group) for group in range(len(pass_.groups))]

    def _settle(self, made: Made, consumed: Consumed, bar: Bar) -> None:
        """A group has its marker: what it has consumed can go."""
        if made.marker is not None:
            self.made[made.group] = made.marker
        self.requests.add(made.requests)
        self.task.moved.add(made.moved)
        self.task.moved_aside.add(made.moved_aside)
        consumed.by(made.group)
        bar.step()

    def _marker(self, group: int) -> Marker:
        marker = self.task.marker(group)
        if marker is None:
            raise SourceError(f"{self.task.target.url}: the marker of group {group} is gone; run the command again")
        return marker
