"""The advice: all ways of shuffling a data set, and the recommended one."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from corgi2.advice.choice import choose, notes_on
from corgi2.advice.methods import Method
from corgi2.advice.prices import NOTHING
from corgi2.advice.ranged import Ranged
from corgi2.advice.situation import Means, Offline, Shape, guess_offline
from corgi2.advice.table import Table
from corgi2.quality import named_by
from corgi2.sizes import format_number


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """All methods, and the recommended one."""

    shape: Shape
    means: Means
    methods: tuple[Method, ...]
    recommended: Method
    why: str
    notes: tuple[str, ...]
    tau: float
    """The memory of SGD, in examples, that R is stated for."""
    one: Offline = field(repr=False)
    two: Offline = field(repr=False)
    """What one offline pass and two passes do."""
    ranged: Ranged | None = field(default=None, repr=False)
    """What a pass of ranges in rounds does, if that is known."""

    @property
    def groups(self) -> int:
        """The number of groups in one offline pass."""
        return self.one.groups

    def worded(self, wording: Callable[[str], str]) -> "Advice":
        """With other words for its arguments, such as those of the command line."""
        return replace(self, why=wording(self.why), notes=tuple(map(wording, self.notes)))

    def as_json(self) -> dict[str, Any]:
        shape = ("url", "records", "bytes", "shards", "blocks", "h_D", "growth", "block_records")
        return {
            **{name: getattr(self.shape, name) for name in shape},
            "means": asdict(self.means),
            "tau": self.tau,
            "methods": [method.as_json() for method in self.methods],
            "recommended": self.recommended.name,
            "command": self.recommended.command,
            "why": self.why,
            "groups": self.groups,
            "n": self.one.n,
            "notes": list(self.notes),
        }

    def as_page(self) -> str:
        """A self-contained HTML page with pictures."""
        from corgi2.advice.picture import plan_page

        return plan_page(self)

    def as_text(self) -> str:
        """As the command line prints it."""
        from corgi2.advice.text import as_text

        return as_text(self)

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return f"<Advice for {self.shape.url}: {self.recommended.name}: {self.why}>"

    @property
    def h_text(self) -> str:
        if self.shape.h_D is None and self.shape.h_worst is not None:
            return f"not known; its shuffle left {format_number(self.shape.h_worst)} at the worst"
        if self.shape.h_D is None:
            return f"not known, taken as b = {format_number(self.shape.block_records)}"
        by = f" {named_by(self.shape.by)}," if self.shape.by else ""
        return f"{format_number(self.shape.h_D)}{by} of at most b = {format_number(self.shape.block_records)}"

    @property
    def then(self) -> list[str]:
        """What to do when the command has run."""
        from corgi2.advice.text import then

        return then(self)

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """A head, and one row per method: cost, then quality."""
        from corgi2.advice.text import cost_rows, quality_rows

        (head, costs), (more, quality) = cost_rows(self), quality_rows(self)
        return head + more[1:], [row + other[1:] for row, other in zip(costs, quality, strict=True)]


def advise(
    shape: Shape,
    means: Means,
    one: Offline | None = None,
    two: Offline | None = None,
    cuts: Sequence[int] = (),
    ranged: Ranged | None = None,
) -> Advice:
    """All methods for a data set, and the recommended one. The passes are guessed if they are not planned; ``cuts`` are
    wanted sizes of blocks, besides those that the means suggest."""
    one = one or guess_offline(shape, means)
    two = two or guess_offline(shape, means, passes=2)
    table = Table(shape, means, one, two, cuts, ranged)
    methods = tuple(table.methods())
    recommended, why = choose(shape, methods)
    notes = [*notes_on(shape, methods), *shape.notes, *table.left_out]
    if means.nodes > 1 and not means.knows_buffer:
        notes.append("buffer= is not given: half of the memory of this machine is taken, for each of the nodes")
    if means.prices == NOTHING:
        notes.append("requests to this machine cost nothing; prices='aws' shows what a bucket would cost")
    else:
        notes.append(_not_counted(means))
    return Advice(shape, means, methods, recommended, why, tuple(notes), table.tau, one, two, ranged)


def _not_counted(means: Means) -> str:
    missing = "" if means.node_price is not None else "the machines that shuffle (node_price=), "
    where = "" if means.traffic_price else "traffic beyond the region (traffic_price=), "
    return f"not counted: {missing}{where}the machines that train, storage of SRC itself, minimal storage times, taxes"
