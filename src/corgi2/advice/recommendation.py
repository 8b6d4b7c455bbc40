"""Which way of shuffling to take, and why."""

from dataclasses import asdict, dataclass, field
from typing import Any

from corgi2.advice.methods import Kind, Means, Method, Offline, Shape, Table, guess_offline
from corgi2.advice.prices import NOTHING
from corgi2.sizes import format_number, format_seconds, format_size, plural

ENOUGH, VISIBLE = 2.0, 5.0
"""Times a full shuffle's H that count as one; the H below which networks saw no difference (docs/results.md)."""

_MIXED = 2.0

_CLOSE, _TENTH = 1.2, 1.1
"""What counts as equally fast, and as equally cheap."""


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """All methods, and the one to take."""

    shape: Shape
    means: Means
    methods: tuple[Method, ...]
    recommended: Method
    why: str
    notes: tuple[str, ...]
    one: Offline = field(repr=False)
    two: Offline = field(repr=False)
    """What one offline pass and two passes write."""

    @property
    def groups(self) -> int:
        """Of one offline pass."""
        return self.one.groups

    def as_json(self) -> dict[str, Any]:
        shape = asdict(self.shape)
        return {
            **{name: shape[name] for name in ("url", "records", "bytes", "shards", "blocks", "h_D", "growth")},
            "block_records": self.shape.block_records,
            "means": asdict(self.means),
            "methods": [method.as_json() for method in self.methods],
            "recommended": self.recommended.name,
            "command": self.recommended.command,
            "why": self.why,
            "groups": self.groups,
            "notes": list(self.notes),
        }

    def as_page(self) -> str:
        """A page of HTML with pictures, which loads nothing."""
        from corgi2.advice.picture import plan_page

        return plan_page(self)

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return f"<Advice for {self.shape.url}: {self.recommended.name}: {self.why}>"

    @property
    def h_text(self) -> str:
        if self.shape.h_D is None:
            return f"not known, taken as b = {format_number(self.shape.block_records)}"
        return f"{format_number(self.shape.h_D)} of at most b = {format_number(self.shape.block_records)}"

    @property
    def then(self) -> list[str]:
        """What to do when the command has run."""
        way, buffer = self.recommended.way, format_size(self.means.online_buffer).replace(" ", "")
        if way.kind is Kind.RANDOM_ACCESS:
            return ["a data set of your own that reads record by record, with a random sampler"]
        if way.kind.is_reference:
            return []
        place, picks = self.recommended.target or self.shape.url, way.picks if way.kind is Kind.CORGI2 else "even"
        return [f'then train from CorgiDataset("{place}", buffer="{buffer}", picks="{picks}"); even is the default']

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """A head, and a row a method."""
        head = ["method", "req. off", "on", "moved", "extra", "$", "time off", "on", "h", "H", "/ full"]
        return head, [
            [
                method.name,
                _short(method.offline_requests),
                _short(method.online_requests),
                format_size(method.offline_bytes + method.online_bytes),
                format_size(method.extra_bytes) if method.extra_bytes else "-",
                f"{method.cost_usd:,.2f}",
                format_seconds(3600 * method.offline_hours),
                format_seconds(3600 * method.online_hours),
                format_number(method.h),
                format_number(method.H),
                format_number(method.relative),
            ]
            for method in self.methods
        ]

    def as_text(self) -> str:
        shape, means = self.shape, self.means
        head, rows = self.rows()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            f"{shape.url}: {shape.records:,} records, {format_size(shape.bytes)}, {plural(shape.blocks, 'block')}; h_D "
            f"{self.h_text}",
            f"buffer {format_size(means.buffer)} offline ({plural(self.groups, 'group')} of n = "
            f"{round(shape.blocks / self.groups):,}), {format_size(means.online_buffer)} online, "
            f"{plural(means.nodes, 'node')}, {plural(means.epochs, 'epoch')}; {format_size(int(means.bandwidth))}/s "
            f"and {means.latency * 1000:.3g} ms per node; prices: {means.prices.what} {means.prices.date}".rstrip(),
            "",
        ]
        for row in [head, *rows]:
            mark = ">" if row[0] == self.recommended.name else " "
            cells = [
                f"{row[0]:<{widths[0]}}",
                *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
            lines.append(f"{mark} {'  '.join(cells)}")
        lines += ["", *(f"note: {note}" for note in self.notes)]
        lines.append(f"recommended: {self.recommended.name}: {self.why}")
        if self.recommended.command is not None:
            lines.append(f"  {self.recommended.command}")
        lines += [f"  {line}" for line in self.then]
        return "\n".join(lines)


def _short(count: float) -> str:
    """``1.80M``."""
    for unit in ("", "K", "M", "G", "T"):
        if count < 999.5:
            return f"{count:.0f}" if not unit else f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:,.0f}P"


def advise(shape: Shape, means: Means, one: Offline | None = None, two: Offline | None = None) -> Advice:
    """All methods for a data set, and the one to take. The passes are guessed where they are not planned."""
    one = one or guess_offline(shape, means.buffer)
    two = two or guess_offline(shape, means.buffer, passes=2)
    table = Table(shape, means, one, two)
    methods = tuple(table.methods())
    recommended, why = _recommend(shape, methods)
    notes = (*shape.notes, *table.left_out)
    if shape.h_D is None:
        how = "h_d= says what it is" if shape.url == "SRC" else "label= measures it"
        notes = (f"h_D is not known, and the worst is assumed: every block of one kind; {how}", *notes)
    if shape.h_D_high is not None and shape.h_D_high > VISIBLE >= (shape.h_D or 0):
        notes = (*notes, "so few blocks do not tell whether they are mixed: give a larger sample")
    if means.prices == NOTHING:
        notes = (*notes, "requests to this machine cost nothing; prices='aws' shows what a bucket would take")
    return Advice(shape, means, methods, recommended, why, notes, one, two)


def _recommend(shape: Shape, methods: tuple[Method, ...]) -> tuple[Method, str]:
    of_kind = {method.way.kind: method for method in methods}
    pile, access, order = of_kind.get(Kind.CORGIPILE), of_kind[Kind.RANDOM_ACCESS], of_kind[Kind.SEQUENTIAL]
    sure = shape.h_D_high is None or shape.h_D_high <= VISIBLE
    if pile is not None and shape.is_shuffled and (shape.h_D is None or shape.h_D <= VISIBLE):
        return pile, "your data was mixed by corgi2 already: do nothing but train, with even picks"
    if pile is not None and sure and shape.h_D is not None and shape.h_D <= _MIXED:
        return pile, f"your data is mixed already (h_D = {shape.h_D:.3g}): do nothing; any loader will do"
    if pile is not None and pile.window * pile.block_bytes >= shape.bytes:
        return pile, "the online buffer holds all of it: the loader alone shuffles fully"
    if shape.is_local and shape.reads_records and access.online_hours <= _CLOSE * order.online_hours:
        return access, "on this local disk random access is fast enough: no pass is needed"
    choices = [method for method in methods if not method.way.kind.is_reference]
    for bound in ("full", "visible"):
        good = [method for method in choices if (method.relative <= ENOUGH if bound == "full" else method.H <= VISIBLE)]
        if good:
            limit = _TENTH * min(method.cost_usd for method in good)
            cheap = [method for method in good if method.cost_usd <= limit]
            best = min(
                cheap, key=lambda each: (round(each.offline_hours + each.online_hours, 3), each.cost_usd, each.relative)
            )
            return best, _reason(best, bound)
    if not choices:
        return order, "no block fits the online buffer: make it larger, or cut smaller blocks"
    best = min(choices, key=lambda method: method.H)
    return best, (
        f"nothing here reaches a full shuffle; this comes nearest (H = {best.H:,.3g}). A larger buffer, or smaller "
        "blocks, would help more"
    )


def _reason(method: Method, bound: str) -> str:
    times = f"H is {method.relative:.2f} times that of a full shuffle"
    if bound == "visible":
        times = f"H = {method.H:.2g}, below the {VISIBLE:g} from which networks were seen to suffer"
    if method.way.kind is Kind.CORGIPILE:
        return f"the loader's buffer alone is enough: {times}"
    if method.way.cut_bytes is not None:
        return f"cut smaller blocks: {times}, with the least work among the cheapest"
    return f"{times}, with the least work among the cheapest"
