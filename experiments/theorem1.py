"""Theorem 1 and beyond: h' after an offline pass and H of a window, measured on real permutations against the formulas.

``python -m experiments.theorem1``

Every point is one data set of N blocks of b examples, of which a share is of the block's own class, and one method; the
mean of many seeds, with its standard error. The orders are those of the command and the loader
(tests/order/test_simulate.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from corgi2 import theory
from corgi2.order import simulate as orders
from corgi2.order.permutations import Indices
from corgi2.order.simulate import Layout, Stored
from corgi2.theory import Blocks
from experiments.results import parser, publish, style

LAYOUTS = (Layout(64, 16, 8), Layout(100, 20, 10), Layout(240, 10, 12), Layout(256, 32, 16), Layout(400, 8, 10))
OWN = (1.0, 0.6, 0.3)
"""The share of a block's examples that are of its own class."""
CLASSES = 10


@dataclass(frozen=True, slots=True)
class Case:
    """A data set: a label an example, in the order in which they lie."""

    layout: Layout
    labels: Indices

    @property
    def shares(self) -> Any:
        return np.bincount(self.labels, minlength=CLASSES) / len(self.labels)

    def h(self, stored: Stored) -> float:
        """Of blocks, by their distance from the mean of all examples as they were."""
        counts = np.stack([np.bincount(self.labels[block], minlength=CLASSES) for block in stored.blocks])
        apart = counts / counts.sum(axis=1, keepdims=True) - self.shares
        sigma2 = 1 - float((self.shares**2).sum())
        return float(self.layout.examples * (apart**2).sum(axis=1).mean() / sigma2)

    def window(self, order: Indices) -> float:
        return orders.h_of_labels(self.labels[order], CLASSES, self.layout.window)


def make_case(layout: Layout, own: float) -> Case:
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(layout.blocks) * CLASSES // layout.blocks, layout.examples)
    other = random.random(len(labels)) >= own
    labels[other] = random.integers(0, CLASSES, int(other.sum()))
    return Case(layout, labels)


def _passes(case: Case, seed: int, passes: int = 1, with_replacement: bool = False) -> Stored:
    stored = orders.as_stored(case.layout)
    for number in range(1, passes + 1):
        stored = orders.offline(stored, case.layout.buffer, seed, number, with_replacement)
    return stored


def _ranges(layout: Layout) -> int:
    """Of a block, where it is read in rounds: the formulas are exact if this divides b, and n times this divides N."""
    fits = (k for k in (4, 5, 2) if layout.examples % k == 0 and layout.blocks % (k * layout.buffer) == 0)
    return next(fits)


def _rounds(case: Case, seed: int) -> Stored:
    """The examples within a block lie in random order, as the formulas take it."""
    random = np.random.default_rng(seed)
    blocks = [random.permutation(block) for block in orders.as_stored(case.layout).blocks]
    return orders.offline_in_rounds(Stored(blocks), case.layout.buffer, _ranges(case.layout), seed)


def _in_rounds(data: Blocks, n: int) -> theory.Rounds:
    return theory.Rounds(data, n, _ranges(Layout(data.count, round(data.examples), n)))


Measure = Callable[[Case, int], float]
Predict = Callable[[Blocks, int], float]
METHODS: dict[str, tuple[Measure, Predict]] = {
    "h', with replacement (Theorem 1)": (
        lambda case, seed: case.h(_passes(case, seed, with_replacement=True)),
        theory.h_with_replacement,
    ),
    "h', without replacement": (lambda case, seed: case.h(_passes(case, seed)), theory.h_after_pass),
    "h', two passes": (lambda case, seed: case.h(_passes(case, seed, 2)), theory.h_butterfly),
    "h', ranges in rounds": (lambda case, seed: case.h(_rounds(case, seed)), lambda data, n: _in_rounds(data, n).h),
    "H, CorgiPile": (lambda case, seed: case.window(orders.corgipile(case.layout, seed, 0)), theory.window_random),
    "H, Corgi², random picks": (
        lambda case, seed: case.window(orders.corgi2(case.layout, seed, 0, picks="random")),
        lambda data, n: theory.window_after_pass(data, n, n),
    ),
    "H, Corgi², even picks": (
        lambda case, seed: case.window(orders.corgi2(case.layout, seed, 0)),
        lambda data, n: theory.window_even(data, n, n),
    ),
    "H, Corgi², ranges in rounds": (
        lambda case, seed: case.window(orders.online(_rounds(case, seed), case.layout.buffer, seed, 0)),
        lambda data, n: _in_rounds(data, n).window(n),
    ),
    "H, full shuffle": (
        lambda case, seed: case.window(orders.random_access(case.layout, seed, 0)),
        theory.window_full,
    ),
}


def compare(seeds: int) -> list[dict[str, Any]]:
    found = []
    for layout in LAYOUTS:
        for own in OWN:
            case = make_case(layout, own)
            before = min(case.h(orders.as_stored(layout)), layout.examples)  # but for rounding
            data = Blocks(layout.blocks, layout.examples, before)
            for name, (measured, predicted) in METHODS.items():
                values = [measured(case, seed) for seed in range(seeds)]
                error = float(np.std(values, ddof=1) / np.sqrt(seeds))
                shape: dict[str, Any] = {"N": layout.blocks, "b": layout.examples, "n": layout.buffer, "h_D": data.h}
                value = {
                    "measured": float(np.mean(values)),
                    "error": error,
                    "predicted": predicted(data, layout.buffer),
                }
                found.append({"method": name} | shape | value)
    return found


def draw(found: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(7, 5.5), layout="constrained")
    axes = figure.subplots()
    for number, name in enumerate(METHODS):
        some = [point for point in found if point["method"] == name]
        axes.errorbar(
            [point["predicted"] for point in some],
            [point["measured"] for point in some],
            yerr=[2 * point["error"] for point in some],
            linestyle="none",
            markersize=5,
            alpha=0.8,
            label=name,
            **style(number),
        )
    ends = [min(point["predicted"] for point in found) / 1.3, max(point["predicted"] for point in found) * 1.3]
    axes.plot(ends, ends, color="#999999", linewidth=1, zorder=0)
    axes.set(xscale="log", yscale="log", xlabel="predicted", ylabel="measured, ± 2 standard errors")
    axes.legend(fontsize=8)
    return figure


def main(arguments: list[str] | None = None) -> None:
    asks = parser(__doc__, 200)
    asked = asks.parse_args(arguments)
    found = compare(asked.seeds)
    command = f"python -m experiments.theorem1 --seeds {asked.seeds}"
    publish("theorem1", command, {"seeds": asked.seeds, "points": found}, lambda: draw(found), asked.out)
    far = max(abs(point["measured"] - point["predicted"]) / point["error"] for point in found)
    ratio = max(abs(np.log(point["measured"] / point["predicted"])) for point in found)
    print(
        f"{len(found)} points; at most {far:.1f} standard errors, or {100 * (np.exp(ratio) - 1):.1f} %, from predicted"
    )


if __name__ == "__main__":
    main()
