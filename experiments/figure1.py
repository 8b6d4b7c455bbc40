"""Figure 1: where the indices 1 … 1000 land in an epoch, by every method, and how uniformly.

``python -m experiments.figure1``

50 blocks of 20 lie one after another; a buffer holds 5 of them. Drawn is the second epoch of one seed. The measure is
χ² over its degrees of freedom, on a grid of 10 × 10 of (where it lies, when it is used), the mean of many seeds: 1 for
a full shuffle, more the more an example's place says about its time.
"""

import numpy as np
from matplotlib.figure import Figure

from corgi2.order.permutations import Indices
from corgi2.order.simulate import ORDERS, Layout
from experiments.results import COLORS, parser, publish

LAYOUT = Layout(blocks=50, examples=20, buffer=5)
EPOCH, CELLS, COLUMNS = 1, 10, 5


def uniformity(order: Indices, total: int) -> float:
    """χ² of independence over its degrees of freedom: that some are used more often than others does not count."""
    when = np.arange(len(order)) * CELLS // len(order)
    where = order * CELLS // total
    counts = np.bincount(when * CELLS + where, minlength=CELLS**2).reshape(CELLS, CELLS)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / len(order)
    apart = np.divide((counts - expected) ** 2, expected, out=np.zeros_like(expected), where=expected > 0)
    return float(apart.sum() / (CELLS - 1) ** 2)


def measure(seeds: int) -> dict[str, float]:
    return {
        name: float(np.mean([uniformity(order(LAYOUT, seed, EPOCH), LAYOUT.total) for seed in range(seeds)]))
        for name, order in ORDERS.items()
    }


def draw(found: dict[str, float]) -> Figure:
    rows = -(-len(ORDERS) // COLUMNS)
    figure = Figure(figsize=(12, 2.7 * rows), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False)
    for axes in grid.ravel()[len(ORDERS) :]:
        axes.axis("off")
    for axes, (name, order) in zip(grid.ravel(), ORDERS.items(), strict=False):
        landed = order(LAYOUT, 0, EPOCH)
        axes.plot(np.arange(len(landed)), landed, ".", markersize=2, color=COLORS[0], rasterized=True)
        axes.set_title(f"{name}\nχ²/df = {found[name]:.3g}", fontsize=9)
        axes.set_xlabel("when it is used", fontsize=8)
        axes.set_ylabel("where it lies", fontsize=8)
        axes.tick_params(labelsize=7)
    return figure


def main(arguments: list[str] | None = None) -> None:
    asks = parser(__doc__, 200)
    asked = asks.parse_args(arguments)
    found = measure(asked.seeds)
    numbers = {"blocks": LAYOUT.blocks, "examples": LAYOUT.examples, "buffer": LAYOUT.buffer, "epoch": EPOCH}
    publish(
        "figure1",
        f"python -m experiments.figure1 --seeds {asked.seeds}",
        {**numbers, "seeds": asked.seeds, "uniformity": found},
        lambda: draw(found),
        asked.out,
    )


if __name__ == "__main__":
    main()
