"""The demo's page: shards before and after, the curves, and accuracy against H."""

from collections.abc import Sequence

from corgi2.demo.digits import LAYOUT
from corgi2.demo.race import EPOCHS, Result
from corgi2.pages import Labels, Section, Series, Table, Text, heat_section, line_chart, page, scatter
from corgi2.quality import Measurement

_HEAD = ["order", "accuracy", "± between seeds", "H", "H predicted", "requests"]


def rows(results: Sequence[Result], predicted: dict[str, float]) -> tuple[list[str], list[list[str]]]:
    """A head, and one row per way to train."""
    return _HEAD, [
        [
            one.name,
            f"{one.mean:.1f} %",
            f"{one.deviation:.1f}",
            f"{one.H:.2f}",
            f"{predicted[one.name]:.2f}" if one.name in predicted else "",
            f"{one.requests.total:,}",
        ]
        for one in results
    ]


def report(
    lines: Sequence[str],
    before: Measurement,
    after: Measurement,
    results: Sequence[Result],
    predicted: dict[str, float],
) -> str:
    """The whole report, as one page."""
    table = Table(*rows(results, predicted), marked=_ours(results))
    return page(
        "corgi2 demo: handwritten digits, class by class",
        lines,
        [
            *(_heat(name, measured) for name, measured in (("Before", before), ("After", after)) if measured.heat),
            _curves(results),
            _accuracy_and_h(results, table),
        ],
    )


def _heat(name: str, measured: Measurement) -> Section:
    heat = measured.heat
    if heat is None:
        raise ValueError("a heat map needs classes")
    text = (
        "A row is a shard, a column a digit; the stronger the colour, the more of the shard's images show it. "
        f"h_D = {measured.h_D:.3g} of at most {measured.block_records:.3g}."
    )
    return heat_section(f"{name}: what each shard holds", text, heat.classes, heat.blocks, heat.counts)


def _curves(results: Sequence[Result]) -> Section:
    series = [
        Series(
            one.name, [(float(epoch), float(value)) for epoch, value in enumerate(one.curves.mean(axis=0), 1)], number
        )
        for number, one in enumerate(results)
    ]
    seeds = len(results[0].curves)
    text = (
        f"The same network, from the same images. A buffer holds {LAYOUT.buffer} of {LAYOUT.blocks} shards; the mean "
        f"of {seeds} seeds."
    )
    table = Table(
        ["order", *(f"epoch {epoch}" for epoch in range(1, EPOCHS + 1))],
        [[one.name, *(f"{y:.1f}" for _, y in one.points)] for one in series],
    )
    chart = line_chart(series, Labels("epoch", "accuracy, %", Text()), is_log=False, marked=_ours(results))
    return Section("Accuracy, epoch by epoch", text, chart, table)


def _accuracy_and_h(results: Sequence[Result], table: Table) -> Section:
    labels = Labels("H: how unlike each other buffers are", "wrong answers, %", Text())
    points = [(one.H, max(0.1, 100 - one.mean)) for one in results]
    picture = scatter([one.name for one in results], points, _ours(results), labels)
    text = (
        "Down and to the left is better; H is about 1 for a full shuffle. The ring marks Corgi². "
        "Requests are those of a store, for all epochs."
    )
    return Section("What it costs, what it buys", text, picture, table)


def _ours(results: Sequence[Result]) -> int:
    return [one.name for one in results].index("Corgi²")
