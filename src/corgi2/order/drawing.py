"""All that is drawn at random in one offline pass: its groups, and the order of the records of each.

The shuffle, the advice and the simulation ask here, so that all of them draw the same. Pure.
"""

from dataclasses import dataclass

from corgi2.order.groups import make_groups
from corgi2.order.permutations import GROUPS, MIXTURES, Indices, draws, permutation
from corgi2.order.rounds import cut_rounds, rounds_of


@dataclass(frozen=True, slots=True)
class Drawing:
    """The draws of one pass, which depend on nothing else."""

    seed: int
    number: int
    """Of the pass, from 1."""
    with_replacement: bool = False

    def groups(
        self, footprints: Indices, capacity: int, most: int | None = None, lineage: Indices | None = None
    ) -> list[Indices]:
        """The blocks of each group: as many as fit the capacity, and no more than ``most``. ``lineage`` has one row per
        block, if an earlier pass has written them."""
        return make_groups(footprints, capacity, self._key, most, lineage, self.with_replacement)

    def groups_in_rounds(
        self, footprints: Indices, block: Indices, capacity: int, most: int | None = None
    ) -> tuple[list[Indices], Indices]:
        """The ranges of each group, and the round of each; ``block`` says which block each range is part of."""
        return cut_rounds(footprints, rounds_of(block, self._key), capacity, self._key, most)

    def rows(self, count: int, group: int, at: int = 0) -> Indices:
        """Which of the records of a group are written, in this order; ``at`` is the first block of those that are mixed
        together, if all of them do not fit."""
        key = (self.seed, self.number, MIXTURES, group, at)
        return draws(count, count, key) if self.with_replacement else permutation(count, key)

    @property
    def _key(self) -> tuple[int, int, int]:
        return self.seed, self.number, GROUPS
