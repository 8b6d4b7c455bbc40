"""Theorem 2: on a strongly convex problem, with the paper's step size, gaps relate as the leading terms do.

``python -m experiments.theorem2``

The problem is the mean of vectors, of which each block has a centre of its own: ½ Σ ‖x − v‖² / m, with μ = L = 1 and a
best point that is known. One example is a step, a buffer t has one step size, 6/(b·n·μ·(t+a)), and the result is the
mean of the iterates at the beginning of the buffers, weighted by (t+a)³, as in the theorem. It starts at the best
point, so that the gap is what the noise of the order makes. Shown is each method's gap over that of a full shuffle,
against the ratio of their leading terms, which is that of H: once with every buffer drawn for itself, as the theorem
has it, and once in epochs, as everybody trains.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from corgi2 import theory
from corgi2.order.permutations import Indices
from corgi2.order.simulate import Layout, as_stored, offline, online, random_access
from corgi2.theory import Blocks
from experiments.results import parser, publish, style

LAYOUTS = (Layout(64, 16, 8), Layout(100, 8, 10), Layout(120, 12, 6))
SPREADS = (4.0, 1.0, 0.3)
"""How far the centres of blocks lie apart, against the noise around them."""
METHODS = {"CorgiPile": (0, "even"), "Corgi², random picks": (1, "random"), "Corgi², even picks": (1, "even")}
"""Passes offline, and picks online."""
DIMENSIONS = 4
BUFFERS, SEEDS = 200, 60
DRAWN, EPOCHS = "every buffer drawn for itself", "in epochs"

Floats = npt.NDArray[np.float64]
Epoch = Callable[[int], Indices]


def vectors(layout: Layout, spread: float) -> Floats:
    random = np.random.default_rng(1)
    centres = np.repeat(random.normal(0, spread, (layout.blocks, DIMENSIONS)), layout.examples, axis=0)
    return centres + random.normal(size=centres.shape)


def blocks(layout: Layout, values: Floats) -> Blocks:
    means = values.reshape(layout.blocks, layout.examples, -1).mean(axis=1) - values.mean(axis=0)
    sigma2 = float(values.var(axis=0).sum())
    return Blocks(layout.blocks, layout.examples, float(layout.examples * (means**2).sum(axis=1).mean() / sigma2))


def epochs_of(method: str | None, layout: Layout, seed: int) -> Epoch:
    """What gives the order of an epoch; of a full shuffle, if there is no method."""
    if method is None:
        return lambda epoch: random_access(layout, seed, epoch)
    passes, picks = METHODS[method]
    stored = as_stored(layout)
    for number in range(1, passes + 1):
        stored = offline(stored, layout.buffer, seed, number)
    return lambda epoch: online(stored, layout.buffer, seed, epoch, picks)


def windows(epoch: Epoch, layout: Layout, how: str, count: int) -> Iterator[Indices]:
    """Buffers, one after another."""
    if how == DRAWN:
        yield from (epoch(number)[: layout.window] for number in range(count))
        return
    done, number = 0, 0
    while done < count:
        order = epoch(number)
        for start in range(0, len(order) - layout.window + 1, layout.window):
            yield order[start : start + layout.window]
            done += 1
        number += 1


def gaps(values: Floats, layout: Layout, method: str | None, how: str, seeds: int, count: int) -> Floats:
    """One a seed."""
    best, data = values.mean(axis=0), blocks(layout, values)
    steepest = float(np.linalg.norm(values - best, axis=1).max())
    delay = theory.least_delay(1.0, steepest, 0.0, 1.0)
    x = np.repeat(best[None], seeds, axis=0)
    total, weights = np.zeros_like(x), 0.0
    readers = [windows(epochs_of(method, layout, seed), layout, how, count) for seed in range(seeds)]
    for step in range(count):
        weight = (step + delay) ** 3
        total, weights = total + weight * x, weights + weight
        rate = theory.step_size(step, data, layout.buffer, 1.0, delay)
        for some in np.stack([next(reader) for reader in readers]).T:
            x = x - rate * (x - values[some])
    found: Floats = 0.5 * ((total / weights - best) ** 2).sum(axis=1)
    return found


def ratio_of(above: Floats, below: Floats) -> dict[str, float]:
    """Of two means, with its standard error."""
    ratio = float(above.mean() / below.mean())
    relative = [some.var(ddof=1) / len(some) / some.mean() ** 2 for some in (above, below)]
    return {"gap_ratio": ratio, "error": ratio * float(np.sqrt(sum(relative)))}


def leading(data: Blocks, n: int, method: str) -> float:
    """H, the coefficient of the leading term."""
    if method == "CorgiPile":
        return theory.window_random(data, n)
    if method == "Corgi², even picks":
        return theory.window_even(data, n, n)
    return theory.window_after_pass(data, n, n)


def compare(seeds: int, count: int) -> list[dict[str, Any]]:
    found = []
    for how in (DRAWN, EPOCHS):
        for layout in LAYOUTS:
            for spread in SPREADS:
                values = vectors(layout, spread)
                data = blocks(layout, values)
                full = gaps(values, layout, None, how, seeds, count)
                for method in METHODS:
                    ratio = leading(data, layout.buffer, method) / theory.window_full(data, layout.buffer)
                    measured = ratio_of(gaps(values, layout, method, how, seeds, count), full)
                    shape = {"N": layout.blocks, "b": layout.examples, "n": layout.buffer, "h_D": data.h}
                    head: dict[str, Any] = {"method": method, "how": how}
                    found.append(head | shape | {"leading_ratio": ratio} | measured)
    return found


def draw(found: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    ends = [0.5, max(point["leading_ratio"] for point in found) * 1.3]
    for axes, how in zip(figure.subplots(1, 2, sharey=True), (DRAWN, EPOCHS), strict=True):
        for number, method in enumerate(METHODS):
            some = [point for point in found if point["how"] == how and point["method"] == method]
            x, y = [point["leading_ratio"] for point in some], [point["gap_ratio"] for point in some]
            look = style(number) | {"linestyle": "none"}
            axes.errorbar(x, y, yerr=[2 * point["error"] for point in some], capsize=2, label=method, **look)
        axes.plot(ends, ends, color="#999999", linewidth=1, zorder=0)
        axes.set(xscale="log", yscale="log", xlabel="leading term over a full shuffle's")
        axes.set_title(how, fontsize=10)
    figure.axes[0].set_ylabel("gap over a full shuffle's")
    figure.axes[0].legend(fontsize=8)
    return figure


def main(arguments: list[str] | None = None) -> None:
    asks = parser(__doc__, SEEDS)
    asks.add_argument("--buffers", type=int, default=BUFFERS)
    asked = asks.parse_args(arguments)
    found = compare(asked.seeds, asked.buffers)
    command = f"python -m experiments.theorem2 --seeds {asked.seeds} --buffers {asked.buffers}"
    publish("theorem2", command, {"seeds": asked.seeds, "points": found}, lambda: draw(found), asked.out)


if __name__ == "__main__":
    main()
