"""Online: read random blocks into a buffer, shuffle it, yield its records (CorgiPile), for plain Python and for torch.

`Feed` is what both share: a data set's blocks, how epochs are ordered, where a reader is. Its state is a few integers,
from which any reader of any later world works out what all others have consumed (`corgi2.order`).
"""

from collections.abc import Mapping
from typing import Any

from corgi2.online.feed import Feed, Items
from corgi2.online.place import Cursor, Place, whole_number


class Loader(Feed):
    """Batches, or samples, of one data set, epoch after epoch: every iteration is one epoch, beginning with ``epoch``.

    There is one reader per rank: threads read ahead, and decoding happens in the caller's thread.
    """

    def _prepare(self, epoch: int) -> None:
        self._next = Place(epoch)
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
        """The next iteration yields this epoch, from its beginning, or from a loaded state that lies in it."""
        if epoch != self._next.epoch:
            self._next = Place(whole_number("epoch", epoch, 0))

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iteration is, between two items."""
        return self.state(self._cursor.place if self._cursor is not None else self._next, 1)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration resumes there, whatever the number of ranks and workers was."""
        self._next, self._cursor = self.place_of(state), None
