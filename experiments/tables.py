"""Tables and texts in the order of time, of people or of classes: how far SGD is from the best loss, by every method.

``python -m experiments.tables flights --data FOLDER``

Logistic regression with a little weight decay, so that there is one best loss, which L-BFGS finds. Blocks are the
shards as the data comes; a buffer holds √N of them. Three learning rates are trained at once on the same batches; for
each method the best of them after the last epoch is shown. CorgiPile and Corgi² read shards by the real loader, after
the real command; it gives the numbers of rows, whose features lie in memory.
"""

import argparse
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq
from scipy.optimize import minimize

import corgi2
from corgi2.online import Picks
from corgi2.order.simulate import ORDERS, Layout, h_of_labels
from experiments.data import DEFAULT, SETS, SHARDS
from experiments.quality import h_of_products
from experiments.runs import Run, once

METHODS = ("random access", "shuffle once", "sliding window", "CorgiPile", "Corgi², random picks", "Corgi², even picks")
EPOCHS, SEEDS, DECAY = 5, 10, 1e-4
MEASURED = 3
"""Seeds for which H is measured by gradients, too."""
_WORDS = 1024
_PART = 100_000

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Problem:
    """Rows in the order in which they lie, and what to train on them."""

    name: str
    x: Floats
    y: Ints
    classes: int
    blocks: int
    batch: int
    rates: tuple[float, ...]

    @property
    def n(self) -> int:
        return math.isqrt(self.blocks - 1) + 1

    @property
    def window(self) -> int:
        """Rows in a buffer, on average."""
        return self.n * len(self.y) // self.blocks

    def loss(self, weights: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        """Of all rows, and its slope."""
        total, slope = 0.0, np.zeros_like(weights)
        for start in range(0, len(self.y), _PART):
            x, y = self.x[start : start + _PART], self.y[start : start + _PART]
            chances = _chances((x @ weights.astype(np.float32))[:, None, :])[:, 0]
            rows = np.arange(len(y))
            total -= float(np.log(np.maximum(chances[rows, y], 1e-30)).sum())
            chances[rows, y] -= 1
            slope += x.T @ chances
        count = len(self.y)
        return total / count + DECAY / 2 * float((weights**2).sum()), slope / count + DECAY * weights

    def best(self) -> "Best":
        """The least loss."""
        shape = (self.x.shape[1], self.classes)

        def flat(weights: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
            value, slope = self.loss(weights.reshape(shape))
            return value, slope.ravel()

        found = minimize(flat, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500})
        if not found.success:
            raise ValueError(f"{self.name}: the best loss was not found: {found.message}")
        return Best(float(found.fun), found.x.reshape(shape))

    def errors(self, weights: npt.NDArray[np.float64]) -> Floats:
        """What is wrong with every row's prediction: a row's gradient is the product of its features and this."""
        wrong = _chances(self.x @ weights.astype(np.float32))
        wrong[np.arange(len(self.y)), self.y] -= 1
        return wrong


class Best(NamedTuple):
    """The least loss, and where it is."""

    loss: float
    weights: npt.NDArray[np.float64]


def _chances(scores: Floats) -> Floats:
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def _scaled(x: npt.NDArray[np.float64]) -> Floats:
    """Of mean 0 and variance 1, and a column of ones."""
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return np.hstack([x, np.ones((len(x), 1))]).astype(np.float32)


def _numbers(table: pa.Table) -> npt.NDArray[np.float64]:
    names = [name for name in table.column_names if name not in ("label", "row")]
    return np.stack([table[name].to_numpy().astype(np.float64) for name in names], axis=1)


def _har(table: pa.Table) -> tuple[Floats, Ints]:
    """Accelerations, turns, and their sizes."""
    x = _numbers(table)
    sizes = [np.linalg.norm(x[:, start : start + 3], axis=1) for start in (0, 3, 6)]
    return _scaled(np.column_stack([x, *sizes])), table["label"].combine_chunks().dictionary_encode().indices.to_numpy()


def _flights(table: pa.Table) -> tuple[Floats, Ints]:
    """Hour, weekday and distance."""
    hour, day = (np.eye(count)[values] for count, values in ((24, _hour(table)), (7, _weekday(table))))
    distance = np.log1p(table["distance"].to_numpy())[:, None]
    return _scaled(np.hstack([hour, day, distance])), table["label"].to_numpy().astype(np.int64)


def _hour(table: pa.Table) -> Ints:
    return pc.hour(table["date"]).to_numpy()  # type: ignore[no-any-return]


def _weekday(table: pa.Table) -> Ints:
    return pc.day_of_week(table["date"]).to_numpy()  # type: ignore[no-any-return]


def _covtype(table: pa.Table) -> tuple[Floats, Ints]:
    """Class 2 against the rest."""
    return _scaled(_numbers(table)), (table["label"].to_numpy() == 2).astype(np.int64)


def _imdb(table: pa.Table) -> tuple[Floats, Ints]:
    """Which words a review has, in so many buckets."""
    x = np.zeros((len(table), _WORDS + 1), np.float32)
    for row, text in enumerate(table["text"].to_pylist()):
        buckets = np.unique([crc32(word.encode()) % _WORDS for word in text.lower().split()])
        x[row, buckets] = 8 / np.sqrt(len(buckets))
    x[:, _WORDS] = 1
    return x, (np.array(table["label"].to_pylist()) == "pos").astype(np.int64)


PROBLEMS: dict[str, tuple[Callable[[pa.Table], tuple[Floats, Ints]], int, tuple[float, ...]]] = {
    "har": (_har, 128, (0.01, 0.03, 0.1)),
    "flights": (_flights, 256, (0.01, 0.03, 0.1)),
    "covtype": (_covtype, 128, (0.01, 0.03, 0.1)),
    "imdb": (_imdb, 32, (0.03, 0.1, 0.3)),
}
"""Features, the batch, and the learning rates."""


def key(name: str) -> str:
    """What the runs of a problem have in common."""
    _, batch, rates = PROBLEMS[name]
    return f"{name}, {EPOCHS} epochs, batch {batch}, rates {' '.join(map(str, rates))}"


def load(name: str, data: Path) -> tuple[Problem, Path]:
    """The problem, and the shards that its rows lie in."""
    (found,) = (one for one in SETS if one.name == name)
    shards = found.shards(data)
    files = sorted(file for file in shards.iterdir() if file.is_file())
    read = pyarrow.json.read_json if files[0].suffix == ".jsonl" else pq.read_table
    table = pa.concat_tables([read(file) for file in files])
    features, batch, rates = PROBLEMS[name]
    x, y = features(table)
    return Problem(name, x, y, int(y.max()) + 1, len(files), batch, rates), shards


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of every epoch, by one method with one seed."""

    problem: Problem
    method: str
    seed: int
    folder: Path

    def epoch(self, number: int) -> Ints:
        return np.concatenate(list(self._parts(number)))

    def _parts(self, number: int) -> Iterator[Ints]:
        if not self.method.startswith("Corgi"):
            total = len(self.problem.y)
            yield ORDERS[self.method](Layout(total, 1, self.problem.window), self.seed, number)
            return
        picks: Picks = "random" if "random picks" in self.method else "even"
        loader = corgi2.Loader(
            self.folder, buffer_blocks=self.problem.n, batch_size=10_000, seed=self.seed, epoch=number, picks=picks
        )
        for batch in loader:
            yield np.asarray(batch["row"], np.int64)


@contextmanager
def rows_of(problem: Problem, shards: Path, method: str, seed: int) -> Iterator[Rows]:
    """While they are used: what a method has to mix first is mixed."""
    place = Path(tempfile.mkdtemp(dir=SHARDS))
    try:
        folder = shards
        if method.startswith("Corgi²"):
            folder = place / "mixed"
            corgi2.shuffle(shards, folder, buffer="4GB", buffer_blocks=problem.n, seed=seed)
        yield Rows(problem, method, seed, folder)
    finally:
        shutil.rmtree(place)


def measure(problem: Problem, shards: Path, method: str, seed: int, best: Best) -> Run:
    """H by the gradients of all rows at the best weights, in the order of the first epoch."""
    with rows_of(problem, shards, method, seed) as rows:
        order = rows.epoch(0)
    h = h_of_products(problem.x[order], problem.errors(best.weights)[order], problem.window)
    return {"method": method, "seed": seed, "H_gradients": h}


def run(problem: Problem, shards: Path, method: str, seed: int, best: Best, epochs: int = EPOCHS) -> Run:
    """The gap to the best loss after every epoch, for every rate."""
    with rows_of(problem, shards, method, seed) as rows:
        return _train(rows, best.loss, epochs)


def _train(rows: Rows, best: float, epochs: int) -> Run:
    problem = rows.problem
    rates = np.array(problem.rates, np.float32)[:, None]
    features = problem.x.shape[1]
    weights = np.zeros((features, len(rates), problem.classes), np.float32)
    steps = -(-len(problem.y) // problem.batch)
    gaps, found, step = [], [], 0
    for epoch in range(epochs):
        order = rows.epoch(epoch)
        found.append(h_of_labels(problem.y[order], problem.classes, problem.window))
        for start in range(0, len(order), problem.batch):
            some = order[start : start + problem.batch]
            x, y = problem.x[some], problem.y[some]
            wrong = _chances((x @ weights.reshape(features, -1)).reshape(len(y), *weights.shape[1:]))
            wrong[np.arange(len(y)), :, y] -= 1
            slope = (x.T @ wrong.reshape(len(y), -1)).reshape(weights.shape) / len(y) + DECAY * weights
            weights -= rates / math.sqrt(1 + step / steps) * slope
            step += 1
        gaps.append([problem.loss(weights[:, rate].astype(np.float64))[0] - best for rate in range(len(rates))])
    head = {"method": rows.method, "seed": rows.seed, "n": problem.n, "blocks": problem.blocks}
    return head | {"rates": list(problem.rates), "best": best, "gaps": gaps, "H_labels": float(np.mean(found))}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PROBLEMS)
    parser.add_argument("--data", type=Path, default=DEFAULT, help="the folder with the data sets")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    asked = parser.parse_args(arguments)
    problem, shards = load(asked.name, asked.data)
    best = problem.best()
    print(f"{asked.name}: {len(problem.y):,} rows, {problem.blocks} blocks, n = {problem.n}, best loss {best.loss:.5f}")
    for seed in range(min(asked.seeds, MEASURED)):
        for method in METHODS:
            name = f"H of {method}, seed {seed}"
            found = once(key(asked.name), name, partial(measure, problem, shards, method, seed, best))
            if found is not None:
                print(f"{name}: {found['H_gradients']:.3g} by gradients", flush=True)
    for seed in range(asked.seeds):
        for method in METHODS:
            found = once(key(asked.name), f"{method}, seed {seed}", partial(run, problem, shards, method, seed, best))
            if found is not None:
                print(f"{method}, seed {seed}: {min(found['gaps'][-1]):.5f}, H {found['H_labels']:.3g}", flush=True)


if __name__ == "__main__":
    main()
