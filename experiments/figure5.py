"""Figure 5: at a fixed buffer, few large blocks or many small ones? H and accuracy against the block's size.

``python -m experiments.figure5 --data FOLDER``

Fashion-MNIST, class by class; buffers of 0.25 % and of 1 % of all examples. H is predicted (lines) and measured by
labels (points). Accuracy is that of softmax regression after three epochs, the mean of several seeds; the orders are
those of the command and the loader (tests/order/test_simulate.py). Requests fall as blocks grow: m/b an epoch.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from corgi2 import theory
from corgi2.order.permutations import Indices
from corgi2.order.simulate import ORDERS, Layout, h_of_labels, in_rounds
from corgi2.theory import Blocks
from experiments.data import DEFAULT
from experiments.examples import FASHION_MNIST, Images
from experiments.results import parser, publish, style

SHAPES = {0.0025: ((5, 30), (15, 10), (30, 5), (75, 2)), 0.01: ((5, 120), (20, 30), (60, 10), (120, 5), (300, 2))}
"""By the buffer's share of all examples: (b, n)."""
FULL = "random access"
EPOCHS, BATCH, RATE, SEEDS = 3, 25, 0.05, 5

RANGES = 5
"""Of a block, where it is read in rounds: divides all sizes of blocks."""
ROUNDS = f"Corgi², ranges of 1/{RANGES} in rounds"
Predict = Callable[[Blocks, int], float]
METHODS: dict[str, Predict] = {
    "CorgiPile": theory.window_random,
    "Corgi², random picks": lambda data, n: theory.window_after_pass(data, n, n),
    "Corgi², even picks": lambda data, n: theory.window_even(data, n, n),
    ROUNDS: lambda data, n: theory.Rounds(data, n, RANGES).window(n),
    "Corgi², 2 passes, even picks": lambda data, n: theory.window_butterfly(data, n, n),
}


class Regression:
    """Softmax regression on pixels."""

    def __init__(self, images: Images) -> None:
        self._x, self._test = _inputs(images.x), _inputs(images.test_x)
        self._images = images
        self._full: dict[str, float] = {}

    def test(self, is_full: bool, orders: list[list[Indices]]) -> dict[str, float]:
        """Accuracy, and its deviation between seeds. The full shuffle is the same whatever the blocks."""
        if is_full and self._full:
            return self._full
        found = [self.accuracy(some) for some in orders]
        result = {
            "accuracy": float(np.mean(found)),
            "deviation": float(np.std(found, ddof=1)) if len(found) > 1 else 0.0,
        }
        if is_full:
            self._full = result
        return result

    def accuracy(self, orders: list[Indices]) -> float:
        """After so many epochs, with a rate that falls to 0."""
        weights = np.zeros((self._x.shape[1], self._images.classes), np.float32)
        steps, step = sum(-(-len(order) // BATCH) for order in orders), 0
        for order in orders:
            for start in range(0, len(order), BATCH):
                some = order[start : start + BATCH]
                x, y = self._x[some], self._images.y[some]
                scores = x @ weights
                wrong = np.exp(scores - scores.max(axis=1, keepdims=True))
                wrong /= wrong.sum(axis=1, keepdims=True)
                wrong[np.arange(len(y)), y] -= 1
                weights -= RATE * (1 - step / steps) / len(y) * (x.T @ wrong)
                step += 1
        return float(100 * ((self._test @ weights).argmax(axis=1) == self._images.test_y).mean())


def _inputs(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    flat = pixels.reshape(len(pixels), -1).astype(np.float32) / 128 - 0.5
    return np.hstack([flat, np.ones((len(flat), 1), np.float32)])


def compare(images: Images, shapes: dict[float, Any], seeds: int) -> list[dict[str, Any]]:
    model, found = Regression(images), []
    total, labels, classes = len(images.y), images.y, images.classes
    for share, pairs in shapes.items():
        for b, n in pairs:
            layout = Layout(total // b, b, n)
            h = min(float(b), h_of_labels(labels, classes, b))
            data = Blocks(layout.blocks, b, h)
            for method in [FULL, *METHODS]:
                order = partial(in_rounds, ranges=RANGES) if method == ROUNDS else ORDERS[method]
                orders = [[order(layout, seed, epoch) for epoch in range(EPOCHS)] for seed in range(seeds)]
                point = {"buffer": share, "b": b, "n": n, "method": method, "requests": total // b}
                predict = METHODS.get(method, theory.window_full)
                found.append(
                    point
                    | {
                        "H_predicted": predict(data, n),
                        "H": float(
                            np.mean([h_of_labels(labels[one], classes, b * n) for some in orders for one in some])
                        ),
                        **model.test(method == FULL, orders),
                    }
                )
                print(
                    f"{share:.2%}, b = {b}, {method}: {found[-1]['accuracy']:.2f} %, H {found[-1]['H']:.3g}", flush=True
                )
    return found


def draw(found: list[dict[str, Any]]) -> Figure:
    shares = sorted({point["buffer"] for point in found})
    figure = Figure(figsize=(5 * len(shares), 7.5), layout="constrained")
    grid = figure.subplots(2, len(shares), sharex="col", sharey="row", squeeze=False)
    for column, share in enumerate(shares):
        for number, method in enumerate([FULL, *METHODS]):
            some = [point for point in found if point["buffer"] == share and point["method"] == method]
            x, look = [point["b"] for point in some], style(number)
            grid[0][column].plot(x, [point["H"] for point in some], linestyle="none", label=method, **look)
            grid[0][column].plot(x, [point["H_predicted"] for point in some], color=look["color"], linewidth=1)
            grid[1][column].plot(x, [point["accuracy"] for point in some], label=method, linewidth=1, **look)
        grid[0][column].set(xscale="log", yscale="log")
        grid[0][column].set_title(f"buffer of {share:.2%} of the examples", fontsize=10)
        sizes = sorted({point["b"] for point in found if point["buffer"] == share})
        grid[1][column].set_xticks(sizes, [str(size) for size in sizes])
        grid[1][column].set_xticks([], minor=True)
        grid[1][column].set_xlabel("b, examples in a block (n = buffer / b)")
    grid[0][0].set_ylabel("H: measured (points), predicted (lines)")
    grid[1][0].set_ylabel("test accuracy, %")
    grid[1][0].legend(fontsize=8)
    return figure


def main(arguments: list[str] | None = None) -> None:
    asks = parser(__doc__, SEEDS)
    asks.add_argument("--data", type=Path, default=DEFAULT, help="the folder with the data sets")
    asked = asks.parse_args(arguments)
    found = compare(FASHION_MNIST.load(asked.data), SHAPES, asked.seeds)
    command = f"python -m experiments.figure5 --seeds {asked.seeds}"
    publish("figure5", command, {"seeds": asked.seeds, "points": found}, lambda: draw(found), asked.out)


if __name__ == "__main__":
    main()
