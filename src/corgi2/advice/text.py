"""The advice as text for people: what every way costs, how well it mixes, and what to run."""

from collections.abc import Sequence

from corgi2.advice.command import exact_size, index_command, reader_of
from corgi2.advice.methods import Kind, Method
from corgi2.advice.recommendation import Advice
from corgi2.sizes import format_number, format_seconds, format_size, plural

Rows = tuple[list[str], list[list[str]]]


def cost_rows(advice: Advice) -> Rows:
    """A head, and one row per method."""
    head = ["method", "reads", "writes", "in epochs", "objects", "time off", "epochs"]
    return head + _money_head(advice), [
        [
            method.name,
            short(method.offline_reads),
            short(method.offline_writes),
            short(method.online_requests),
            f"{short(method.objects)} × {format_size(method.object_bytes)}",
            format_seconds(3600 * method.offline_hours),
            format_seconds(3600 * method.online_hours),
            *_money(advice, method),
        ]
        for method in advice.methods
    ]


def _is_free(advice: Advice) -> bool:
    return not any(method.cost_usd for method in advice.methods)


def _money_head(advice: Advice) -> list[str]:
    """Costs that are not counted have no column; a note says so."""
    if _is_free(advice):
        return []
    traffic = ["traffic"] if advice.means.traffic_price else []
    machines = ["machines"] if advice.means.node_price is not None else []
    return ["$ requests", "month", *traffic, *machines, "total", "per TB"]


def _money(advice: Advice, method: Method) -> list[str]:
    money = method.money
    values = {
        "$ requests": money.requests,
        "month": money.storage,
        "traffic": money.traffic,
        "machines": money.machines or 0.0,
        "total": money.total,
        "per TB": method.usd_per_tb,
    }
    return [dollars(values[name]) for name in _money_head(advice)]


def quality_rows(advice: Advice) -> Rows:
    """A head, and one row per method."""
    head = ["method", "block", "in window", "h", "H", "/ full", "R", "/ full"]
    return head, [
        [
            method.name,
            format_size(method.block_bytes),
            f"{method.window:,}",
            *(_about(method) + format_number(value) for value in (method.h, method.H)),
            format_number(method.relative),
            _about(method) + format_number(method.R),
            format_number(method.felt),
        ]
        for method in advice.methods
    ]


def _about(method: Method) -> str:
    return "" if method.is_exact else "~"


def then(advice: Advice) -> list[str]:
    """What to do when the command has run."""
    method, shape, means = advice.recommended, advice.shape, advice.means
    if shape.sibling:
        return [f"validate from {reader_of(shape.url, means, shuffle=False, tail='keep')}, each record once"]
    if method.way.kind.is_reference:
        return []
    is_mixed = method.way.kind is Kind.CORGI2
    first = [f"first, once: {index_command(shape.url, means)}"] if shape.needs_index and method.command is None else []
    picks, buffer = method.way.picks if is_mixed else "even", exact_size(means.online_buffer)
    reader = reader_of(method.target or shape.url, means, buffer=buffer, picks=picks)
    train = "then train" if first or method.command is not None else "train"
    return [*first, f"{train} from {reader}; even is the default"]


def as_text(advice: Advice) -> str:
    costs, quality = (_table(advice, rows) for rows in (cost_rows(advice), quality_rows(advice)))
    lines = [*_situation(advice), "", "cost", *costs, "", "quality", *quality, ""]
    lines += [f"note: {note}" for note in advice.notes]
    lines.append(f"recommended: {advice.recommended.name}: {advice.why}")
    if advice.recommended.command is not None:
        lines.append(f"  {advice.recommended.command}")
    return "\n".join(lines + [f"  {line}" for line in then(advice)])


def _situation(advice: Advice) -> list[str]:
    shape, means = advice.shape, advice.means
    prices = f"{means.prices.what} {means.prices.date}".rstrip()
    if means.node_price is not None:
        prices += f"; machines ${means.node_price:g} per hour ({means.machine})"
    return [
        f"{shape.url}: {shape.records_text}, {format_size(shape.bytes)}, {plural(shape.blocks, 'block')} "
        f"in {plural(shape.shards, 'shard')}; h_D {advice.h_text}",
        f"buffer {format_size(means.buffer)} offline ({plural(advice.groups, 'group')} of n = {advice.one.n:,}), "
        f"{format_size(means.online_buffer)} online, {plural(means.nodes, 'node')}, {plural(means.epochs, 'epoch')}",
        f"per node {format_size(int(means.bandwidth))}/s and {means.latency * 1000:.3g} ms ({means.how}); "
        f"prices: {prices}",
        f"R: what SGD feels if it remembers τ = {advice.tau:,.0f} examples, as many as a window has",
    ]


def _table(advice: Advice, rows: Rows) -> list[str]:
    head, body = rows
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    return [_line(head, widths, " "), *(_line(row, widths, _mark(advice, row)) for row in body)]


def _mark(advice: Advice, row: Sequence[str]) -> str:
    return ">" if row[0] == advice.recommended.name else " "


def _line(row: Sequence[str], widths: Sequence[int], mark: str) -> str:
    cells = [f"{row[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]
    return f"{mark} {'  '.join(cells)}"


def dollars(value: float) -> str:
    """``1,158``, ``15.55``, ``0.0031``, ``0``."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 0.1 else format_number(value, digits=2) if value else "0"


def short(count: float) -> str:
    """``1.80M``."""
    for unit in ("", "K", "M", "G", "T"):
        if count < 999.5:
            return f"{count:.0f}" if not unit else f"{count:.3g}{unit}"
        count /= 1000
    return f"{count:,.0f}P"
