"""The page that ``plan`` writes: its pictures, and the numbers in them."""

from dataclasses import replace

from corgi2.advice.methods import Kind, Method
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
        f"{shape.records_text}, {format_size(shape.bytes)} in {plural(shape.blocks, 'block')} of "
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
    """A curve for each method that corgi2 runs, and always for the recommended one, numbered as in the table."""
    drawn = {
        method.way: number
        for number, method in enumerate(advice.methods)
        if method == advice.recommended or not method.way.kind.is_reference
    }
    found = [(size, _at(advice, size)) for size in _sizes(advice.means.online_buffer)]
    lines: dict[int | None, list[tuple[float, float]]] = {number: [] for number in (*drawn.values(), None)}
    rows = []
    for size, methods in found:
        values = {drawn[method.way]: method for method in methods if method.way in drawn}
        for number, method in values.items():
            lines[number].append((size, max(_LEAST, method.H)))
        lines[None] += [(size, max(_LEAST, method.H_full)) for method in [*values.values()][:1]]
        rows.append([format_size(size), *(format_number(values[n].H) if n in values else "" for n in drawn.values())])
    names: dict[int | None, str] = {None: "full shuffle", **{number: way.name for way, number in drawn.items()}}
    here = advice.means.online_buffer
    labels = Labels("online buffer of a node", "H", Text("", is_size=True), (here, f"yours: {format_size(here)}"))
    chart = line_chart(
        [Series(names[number], points, number) for number, points in lines.items() if points],
        labels,
        marked=drawn[advice.recommended.way],
        mark="recommended",
    )
    text = (
        "Lower is better: H is the variance of what is in the buffers at one time, in units of a random draw's. In "
        "experiments, networks did not suffer below about 5. The offline buffer stays as it is."
    )
    table = Table(["online buffer", *(names[number] for number in drawn.values())], rows)
    return Section("What a buffer buys", text, chart, table)


def _sizes(middle: int) -> list[int]:
    steps = (2 ** (_OCTAVES * (2 * step / (_STEPS - 1) - 1)) for step in range(_STEPS))
    return [max(1, int(middle * step)) for step in steps]


def _at(advice: Advice, online_buffer: int) -> tuple[Method, ...]:
    """The methods with another online buffer, with the block sizes of the advice."""
    cuts = {each.way.cut_bytes for each in advice.methods if each.way.kind is Kind.CORGI2} - {None}
    means = replace(advice.means, online_buffer=online_buffer)
    sizes = tuple(size for size in cuts if size)
    return advise(advice.shape, means, advice.one, advice.two, sizes, advice.ranged).methods


def _cost_and_quality(advice: Advice) -> Section:
    methods, free = advice.methods, all(method.cost_usd == 0 for method in advice.methods)
    cost = [float(method.offline_requests + method.online_requests) if free else method.cost_usd for method in methods]
    least = min((price for price in cost if price > 0), default=_LEAST)
    points = [(max(least, price), max(_LEAST, method.relative)) for price, method in zip(cost, methods, strict=True)]
    labels = Labels(
        "requests in all" if free else "dollars: requests, and a month of what is stored twice",
        "H over a full shuffle's",
        Text("" if free else "$"),
    )
    marked = methods.index(advice.recommended)
    picture = scatter([method.name for method in methods], points, marked, labels, "recommended")
    text = "Down and to the left is better. The ring marks what is recommended."
    return Section("Cost against quality", text, picture, Table(*advice.rows(), marked=marked))
