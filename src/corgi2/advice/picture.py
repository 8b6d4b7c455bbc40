"""The pages that ``inspect`` and ``plan`` write: which pictures there are, of which numbers."""

from dataclasses import replace

from corgi2.advice.methods import Method
from corgi2.advice.recommendation import Advice, advise
from corgi2.pages import Labels, Section, Series, Table, Text, line_chart, page, scatter
from corgi2.sizes import format_number, format_size, plural

_STEPS = 33

_OCTAVES = 8
"""On either side of the buffer that is asked about."""

_LEAST = 1e-2
"""A logarithmic axis has no zero."""


def plan_page(advice: Advice) -> str:
    """H against the online buffer, and cost against quality."""
    shape, means = advice.shape, advice.means
    prices = f"{means.prices.what} {means.prices.date}".strip()
    lines = [
        f"{shape.records:,} records, {format_size(shape.bytes)} in {shape.blocks:,} blocks of "
        f"{format_number(shape.block_records)} records; h_D {advice.h_text}.",
        f"Offline buffer {format_size(means.buffer)}, online buffer {format_size(means.online_buffer)}, "
        f"{plural(means.nodes, 'node')}, {plural(means.epochs, 'epoch')}; {prices}.",
        *advice.notes,
    ]
    return page(
        f"A plan for {shape.url}",
        lines,
        [_quality_by_buffer(advice), _cost_and_quality(advice)],
        f"{advice.recommended.name}: {advice.why}.",
        "\n".join([*([advice.recommended.command] if advice.recommended.command else []), *advice.then]),
    )


def _quality_by_buffer(advice: Advice) -> Section:
    sizes = [
        max(1, int(advice.means.online_buffer * 2 ** (_OCTAVES * (2 * step / (_STEPS - 1) - 1))))
        for step in range(_STEPS)
    ]
    lines: dict[str, list[tuple[float, float]]] = {}
    rows = []
    for size in sizes:
        found = advise(advice.shape, replace(advice.means, online_buffer=size), advice.one, advice.two)
        values = {method.name: method for method in found.methods if _is_drawn(method)}
        for name, method in values.items():
            lines.setdefault(name, []).append((size, max(_LEAST, method.H)))
        full = next(iter(values.values()), None)
        if full is not None:
            lines.setdefault("full shuffle", []).append((size, max(_LEAST, full.H_full)))
        rows.append((size, {name: format_number(method.H) for name, method in values.items()}))
    names = [name for name in lines if name != "full shuffle"]
    table = Table(
        ["online buffer", *names], [[format_size(size), *(row.get(name, "") for name in names)] for size, row in rows]
    )
    text = (
        "Lower is better: H is the variance of what is in the buffers at one time, in units of a random draw's. Below "
        "about 5 networks did not suffer in experiments. The offline buffer stays as it is."
    )
    chart = line_chart(
        [Series(name, points) for name, points in lines.items()], "online buffer of a node", "H", Text("", is_size=True)
    )
    return Section("What a buffer buys", text, chart, table)


def _is_drawn(method: Method) -> bool:
    return not method.way.kind.is_reference and method.way.cut_bytes is None


def _cost_and_quality(advice: Advice) -> Section:
    methods, free = advice.methods, all(method.cost_usd == 0 for method in advice.methods)
    cost = [float(method.offline_requests + method.online_requests) if free else method.cost_usd for method in methods]
    points = [(max(_LEAST, price), max(_LEAST, method.relative)) for price, method in zip(cost, methods, strict=True)]
    labels = Labels(
        "requests in all" if free else "dollars: requests, and a month of what is stored twice",
        "H over a full shuffle's",
        Text("" if free else "$"),
    )
    marked = methods.index(advice.recommended)
    picture = scatter([method.name for method in methods], points, marked, labels, "recommended")
    text = "Down and to the left is better. The ring marks what is recommended."
    return Section("Cost against quality", text, picture, Table(*advice.rows(), marked=marked))
