"""Online: read random blocks into a buffer, shuffle it, give it out (CorgiPile), for plain Python and for torch.

`Feed` is what both share: a data set's blocks, how epochs are ordered, where a reader is. Its state is a few integers,
from which any reader of any later world works out what all others have consumed (`deal`).
"""

import os
from collections.abc import Mapping
from typing import Any

from corgi2.online.feed import Feed, Items
from corgi2.online.place import Cursor, Place, whole_number


class Loader(Feed):
    """Batches, or samples, of one data set, epoch after epoch: every iteration is one, beginning with ``epoch``.

    ``buffer`` is the memory that the data may take; without ``batch_size`` single samples come out. All other arguments
    are as in `corgi2.torch.CorgiDataset`. One reader a rank: threads read ahead, and decoding is in the caller's.
    """

    def __init__(self, uri: str | os.PathLike[str], *, epoch: int = 0, **settings: Any) -> None:
        super().__init__(uri, **settings)
        self._next = Place(whole_number("epoch", epoch, 0))
        self._cursor: Cursor | None = None

    def __len__(self) -> int:
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
        """The next iteration goes on from there, whatever the number of ranks and workers was."""
        self._next, self._cursor = self.place_of(state), None
