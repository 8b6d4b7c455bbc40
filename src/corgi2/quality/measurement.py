"""What was measured about a data set's blocks, and what it means, as far as it means anything."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from corgi2.sizes import plural
from corgi2.theory import Blocks

Floats = npt.NDArray[np.float64]

MIXED, VISIBLE = 2.0, 5.0
"""h_D of blocks that count as mixed, and below which networks saw no difference (docs/results.md)."""


OTHERS = "other labels may show more"
_ASK = "corgi2 plan tells what yours needs"


def named_by(names: Sequence[str]) -> str:
    """``by 'cls'``, ``by 'cls' and 'lang' together``."""
    shown = [repr(name) for name in names]
    if len(shown) < 2:
        return f"by {shown[0]}" if shown else ""
    return f"by {', '.join(shown[:-1])} and {shown[-1]} together"


def is_mixed(h: float, most: float) -> bool:
    """Whether h tells that blocks are mixed, if no order has more than ``most``: nearer to 1 than to that. Blocks of
    hardly more than one record look the same in any order."""
    return most >= 2 and h <= min(MIXED, (1 + most) / 2)


@dataclass(frozen=True, slots=True)
class Heat:
    """How many records of each class lie in each sampled block; if there are very many classes, of the largest."""

    classes: tuple[str, ...]
    blocks: tuple[int, ...]
    counts: Floats


@dataclass(frozen=True, slots=True)
class Reach:
    """How much a label can tell at all: ``shared`` records, at most b, share a value on average, so that h_D is above
    ``h_D_max`` in no order of the records."""

    label: str
    shared: float
    h_D_max: float  # noqa: N815 - the paper's name

    def tells(self, block_records: float) -> bool:
        """Whether a bad order would look clearly worse than a full shuffle, by as much as blocks of this size allow."""
        return self.h_D_max >= min(VISIBLE, (1 + block_records) / 2) - 1e-9

    def as_text(self) -> str:
        records = "hardly any two records" if self.shared < 1.2 else f"only about {self.shared:.2g} records"
        return (
            f"{self.label!r} does not tell how well blocks are mixed: {records} share a value, so h_D is "
            f"at most {self.h_D_max:.2g} even if everything is sorted by it"
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement of a data set's blocks."""

    sigma2: float
    h_D: float  # noqa: N815 - the paper's name
    h_D_low: float  # noqa: N815
    h_D_high: float  # noqa: N815
    h_D_max: float  # noqa: N815
    """No order of the same records has a larger h_D: if it is about 1, h_D says nothing."""
    homogeneity: float
    """h_D/b: 1 if every block is of one kind."""
    classes: int
    """Classes of labels among the sampled records; 0 if there are none."""
    blocks: int
    sampled: int
    block_records: float
    """b, the mean number of records in a block."""
    directions: float = 1.0
    """In how many ways blocks differ: the effective rank of the covariance of their means."""
    silent: tuple[Reach, ...] = ()
    """The labels that do not tell."""
    better: tuple[str, ...] = ()
    """Labels that were seen in the data and would tell, if these do not; that in which blocks differ most is first."""
    by: tuple[str, ...] = ()
    """The labels and features; h_D is of all of them together."""
    heat: Heat | None = field(default=None, repr=False, compare=False)
    """The classes of blocks, if there are labels."""

    @property
    def data(self) -> Blocks:
        """As the theory takes it."""
        return Blocks(self.blocks, self.block_records, min(self.h_D, self.block_records))

    @property
    def tells(self) -> bool:
        """Whether h_D says anything: if not, no order of the records would look bad, and there is no all-clear."""
        return not self.silent

    def as_json(self) -> dict[str, Any]:
        """To stand next to the keys of a description, whose keys for blocks these do not replace."""
        hidden = ("blocks", "block_records", "directions", "silent", "better", "heat")
        shown = {name: value for name, value in asdict(self).items() if name not in hidden}
        return shown | {"tells": self.tells, "better_labels": list(self.better)}

    def as_text(self) -> str:
        return f"{self.h_text}\n  mixing   {self.verdict}"

    @property
    def h_text(self) -> str:
        interval = f"95 % between {self.h_D_low:,.3g} and {self.h_D_high:,.3g}"
        if self.sampled == self.blocks:
            interval = "all blocks were read"
        return (
            f"  h_D      {self.h_D:,.4g} {self.by_text}, of at most b = {self.block_records:,.4g} ({interval}; "
            f"{self.sampled:,} of {plural(self.blocks, 'block')})"
        )

    @property
    def by_text(self) -> str:
        return named_by(self.by) or "by the given function"

    @property
    def verdict(self) -> str:
        """One plain sentence, about what was measured by alone."""
        if self.blocks == 1:
            return "there is one block, and no other to mix it with: a loader that holds it shuffles everything"
        if self.silent:
            return f"{'; '.join(reach.as_text() for reach in self.silent)}; {self._way_out}"
        if self.h_D <= VISIBLE < self.h_D_high:
            return "so few blocks do not tell whether they are mixed: give a larger sample"
        return f"{self.by_text}, {self._finding}"

    @property
    def _finding(self) -> str:
        """Whether a buffer is enough depends on how many blocks it holds, which is not known here."""
        if is_mixed(self.h_D, self.h_D_max):
            return f"the blocks are mixed about as well as a full shuffle would: there is nothing to gain; {OTHERS}"
        if self.h_D <= VISIBLE and self.homogeneity > 0.5:
            return (
                f"blocks of b = {self.block_records:.3g} are too small to tell sorted from shuffled data: a loader "
                "that draws them at random will do, but one that reads them in order may meet them sorted"
            )
        if self.h_D <= VISIBLE:
            return f"blocks differ little from each other: a shuffle buffer will do; {OTHERS}"
        if self.homogeneity > 0.5:
            return f"each block holds nearly one kind: a shuffle buffer that holds few blocks will suffer; {_ASK}"
        if self.homogeneity > 0.05:
            return f"blocks differ much from each other: an offline pass will help where a buffer is small; {_ASK}"
        return f"blocks differ somewhat from each other: a large buffer may do, an offline pass is safe; {_ASK}"

    @property
    def _way_out(self) -> str:
        if self.better:
            first, *others = self.better
            more = f" (or {', '.join(repr(name) for name in others)})" if others else ""
            return f"measure by label='{first}'{more}, which many records share"
        return "measure by a label that many records share, by numbers (feature=), or by gradients (docs/measuring.md)"
