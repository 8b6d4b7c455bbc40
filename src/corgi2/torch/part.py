"""What the workers of a `CorgiLoader` read: batch by batch, as they are told."""

from collections.abc import Callable
from functools import partial
from typing import Any

from corgi2.extras import needing
from corgi2.online import Cursor, Feed, Items, Taken, Transform, Turn, place_of_turn
from corgi2.torch.handing import Handing
from corgi2.torch.tensors import as_tensors, which_worker

with needing("torch", "corgi2.torch"):
    from torch.utils.data import Dataset, get_worker_info

Collate = Callable[[list[Any]], Any]


class Part(Feed, Dataset):  # type: ignore[type-arg]
    """A data set that is asked for turns. It keeps nothing but the iterations that it reads, and could begin each of
    them anew at any turn."""

    collate: Collate | None = None
    """Makes a batch of a list of samples."""
    handing: Handing | None = None
    """In a worker of the loader itself: how it hands batches over."""

    @classmethod
    def of(cls, feed: Feed, **changes: Any) -> "Part":
        """What another reads, with some settings changed."""
        part = cls.__new__(cls)
        part.__dict__.update(feed.settings() | changes)
        part._prepare(0)
        return part

    def _prepare(self, _: int) -> None:
        self._open: dict[int, Items] = {}

    def __getstate__(self) -> dict[str, Any]:
        self.settle()
        return self.__dict__ | {"_open": {}}

    def __repr__(self) -> str:
        return f"<what a CorgiLoader reads: {super().__repr__()[1:-1]}>"

    def __len__(self) -> int:
        """Examples in an epoch of all ranks together, each counted once."""
        world, total = self.world(1), self.catalog.index.records
        return min(total, sum(self.rules.quota(total, world, rank) for rank in range(world.ranks)))

    def __getitem__(self, turn: Any) -> Any:
        raise TypeError(
            f"this data set is read by its CorgiLoader alone, and has no item {turn!r}; to shuffle, shard or batch in "
            "another way, give corgi2.torch.CorgiDataset to a DataLoader"
        )

    def __getitems__(self, turn: Any) -> Any:
        """The batch of a turn."""
        if not isinstance(turn, Turn):
            return self[turn]
        items = self._open.pop(turn.iteration, None) or self._begin(turn)
        batch = next(items)
        if turn.is_last:
            items.close()
        else:
            self._open[turn.iteration] = items
        return self.handing.wrapped(batch) if turn.is_own and self.handing is not None else batch

    def drop(self, iteration: int, wait: bool) -> None:
        """Read no further in an iteration that is over, or was left."""
        items = self._open.pop(iteration, None)
        if items is not None and wait:
            items.close()

    def _begin(self, turn: Turn) -> Items:
        if get_worker_info() is not None:
            self._open.clear()  # a worker has one iteration at a time
        workers = which_worker()[1]
        return self.read(Cursor(place_of_turn(turn, self, workers)), which_worker()[0], workers)

    def _batch(self, taken: Taken) -> Any:
        return as_tensors(super()._batch(taken))

    @property
    def _of_each(self) -> Transform | None:
        transform = super()._of_each
        return transform if self.collate is None else partial(_collated, transform, self.collate)


def _collated(transform: Transform | None, collate: Collate, samples: list[Any]) -> Any:
    return collate(samples if transform is None else transform(samples))
