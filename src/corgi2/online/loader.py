"""Online: read random blocks into a buffer, shuffle it, give it out (CorgiPile), for plain Python and for torch.

`Feed` is what both share: a data set's blocks, how epochs are ordered, where a reader is. Its state is a few integers,
from which any reader of any later world works out what all others have consumed (`corgi2.order`).
"""

import os
from collections.abc import Mapping
from typing import Any

from corgi2.arguments import suggesting
from corgi2.online.feed import BatchFormat, Feed, Items, Picks, Tail, Transform
from corgi2.online.place import Cursor, Place, whole_number
from corgi2.stores import Options


class Loader(Feed):
    """Batches, or samples, of one data set, epoch after epoch: every iteration is one epoch, beginning with ``epoch``.

    There is one reader per rank: threads read ahead, and decoding happens in the caller's thread.

    Args:
        src: A folder, a glob or a brace range, on this machine or in an object store; shuffled by corgi2 or not.
        buffer: Memory for this rank's data, for all of its readers together: ``"2GB"``, or bytes.
        buffer_blocks: Instead of ``buffer``: how many blocks each reader's buffer holds.
        batch_size: Examples per batch. Without it, single samples come out.
        seed: With the epoch, the ranks, the workers and the buffer it decides the order.
        transform: Called with each sample, or each batch.
        picks: ``"even"`` spreads each window over the groups of the offline pass; ``"random"`` is the paper's.
        tail: ``"drop"`` leaves out fewer than ``world_size`` examples per epoch, ``"repeat"`` fills up with as few, so
            that all ranks have equally many; ``"keep"`` gives every example once.
        drop_last: Leave out the one short batch.
        shuffle: False gives the stored order.
        repeat: Epochs without end.
        rank: Found by itself, from ``torch.distributed`` or the launcher's variables; so is ``world_size``.
        world_size: How many ranks share an epoch.
        batch_format: ``"numpy"`` or ``"arrow"`` for tables.
        src_options: Options for the store (docs/stores.md).
        epoch: Of the first iteration.
    """

    @suggesting
    def __init__(
        self,
        src: str | os.PathLike[str],
        *,
        buffer: int | str = "auto",
        buffer_blocks: int | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        transform: Transform | None = None,
        picks: Picks = "even",
        tail: Tail = "drop",
        drop_last: bool = False,
        shuffle: bool = True,
        repeat: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        batch_format: BatchFormat = "numpy",
        src_options: Options | None = None,
        epoch: int = 0,
    ) -> None:
        super().__init__(
            src,
            buffer=buffer,
            buffer_blocks=buffer_blocks,
            batch_size=batch_size,
            seed=seed,
            transform=transform,
            picks=picks,
            tail=tail,
            drop_last=drop_last,
            shuffle=shuffle,
            repeat=repeat,
            rank=rank,
            world_size=world_size,
            batch_format=batch_format,
            src_options=src_options,
        )
        self._next = Place(whole_number("epoch", epoch, 0))
        self._cursor: Cursor | None = None

    def __repr__(self) -> str:
        return f"<Loader, next epoch {self._next.epoch}: {super().__repr__()[1:-1]}>"

    def __len__(self) -> int:
        """Batches, or samples, in an epoch."""
        return self.items()

    def __iter__(self) -> Items:
        self._cursor = Cursor(self._next)
        self._next = Place(self._next.epoch + 1)
        return self.read(self._cursor, 0, 1)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration gives this epoch, from its beginning, or from where a state was loaded that is in it."""
        if epoch != self._next.epoch:
            self._next = Place(whole_number("epoch", epoch, 0))

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iteration is, between two items."""
        return self.state(self._cursor.place if self._cursor is not None else self._next, 1)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration resumes there, whatever the number of ranks and workers was."""
        self._next, self._cursor = self.place_of(state), None
