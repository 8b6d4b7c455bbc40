"""What a shuffle asks of the engine that makes its groups."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from corgi2.offline.task import Made, Task


class Engine(Protocol):
    """Makes the groups of a pass: each is read, mixed and written, and then has its marker."""

    @property
    def is_here(self) -> bool:
        """Whether groups take memory in this process."""

    def running(self) -> AbstractContextManager[None]:
        """A context to hold while groups are made."""

    def make(
        self,
        task: Task,
        groups: Sequence[int],
        advance: Callable[[int], object],
        settle: Callable[[Made], object],
    ) -> None:
        """Make these groups, in any order. ``advance`` is called with the number of bytes read, ``settle`` with each
        group that has its marker, one at a time."""
