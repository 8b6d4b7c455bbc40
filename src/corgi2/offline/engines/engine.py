"""What a shuffle asks of whoever makes its groups."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from corgi2.offline.task import Made, Task


class Engine(Protocol):
    """Makes the groups of a pass: each is read, mixed and written, and then has its marker."""

    @property
    def is_here(self) -> bool:
        """Whether groups take memory of this process."""

    def running(self) -> AbstractContextManager[None]:
        """As long as groups are made."""

    def make(
        self,
        task: Task,
        groups: Sequence[int],
        advance: Callable[[int], object],
        settle: Callable[[Made], object],
    ) -> None:
        """Make these groups, in any order. ``advance`` is told of bytes that were read, ``settle`` of each group whose
        marker is there, one at a time."""
