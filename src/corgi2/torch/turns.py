"""The turns of a loader, as torch's DataLoader takes them: a sampler, whose indices tell workers what to read."""

from collections.abc import Iterator
from typing import Any

from corgi2.extras import needing
from corgi2.online import Journey, Stage, Turn
from corgi2.torch.part import Part

with needing("torch", "corgi2.torch"):
    from torch.utils.data import BatchSampler, DistributedSampler


class Turns(BatchSampler, DistributedSampler):  # type: ignore[type-arg]
    """What a `CorgiLoader` has for both its sampler and its batch sampler.

    Frameworks look here for three things: whether ranks have parts of their own already (a `DistributedSampler`), how
    to set the epoch, and batches that can be skipped without being read.
    """

    batch_size = 1
    """0 where single samples come out."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        """``sampler`` is the loader's journey. A framework that makes a loader anew gives one of its own here, of which
        nothing is used."""
        self.journey = sampler if isinstance(sampler, Journey) else None
        self.batch_size, self.drop_last = batch_size, drop_last
        self.coming: Stage | None = None
        """The iteration that the loader itself is about to begin."""

    @property  # type: ignore[override]
    def sampler(self) -> "Turns":
        return self

    @sampler.setter
    def sampler(self, _: Any) -> None:
        pass

    def __iter__(self) -> Iterator[Turn]:  # type: ignore[override]
        return self._turns(self.coming)

    def _turns(self, stage: Stage | None) -> Iterator[Turn]:
        """Of an iteration; without one, another DataLoader asks, which begins the loader's next."""
        if self.journey is None:
            raise TypeError("these turns belong to no CorgiLoader: a framework has made a sampler anew")
        stage, part, is_over = stage or self.journey.begin(is_own=False), self.journey.feed, False
        try:
            yield from self.journey.turns(stage)
            is_over = True
        finally:
            if isinstance(part, Part):
                part.drop(stage.number, wait=is_over)

    def __len__(self) -> int:
        return 0 if self.journey is None else self.journey.length

    def set_epoch(self, epoch: int) -> None:
        if self.journey is not None:
            self.journey.set_epoch(epoch)
