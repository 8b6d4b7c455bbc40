"""The same network, trained from the same images in five orders."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corgi2 import theory
from corgi2.demo.digits import CLASSES, LAYOUT, Digits, Floats, Labels, decode
from corgi2.demo.model import BATCH, Network
from corgi2.online import Loader
from corgi2.order import Order, h_of_labels, random_access, sequential, sliding_window
from corgi2.progress import progress
from corgi2.theory import Blocks, Requests

EPOCHS, SEEDS = 10, 5

Batches = Iterator[tuple[Floats, Labels]]


@dataclass(frozen=True, slots=True)
class Runner:
    """A way to train: where its batches come from, and how many requests it sends to a store."""

    name: str
    batches: Callable[[int, int], Batches]
    """Batches by seed and epoch."""
    requests: Requests


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one way to train, for all seeds."""

    name: str
    curves: Floats
    """Accuracy by seed and epoch."""
    H: float
    """H over all epochs and seeds, by the classes of a buffer."""
    requests: Requests

    @property
    def mean(self) -> float:
        return float(self.curves[:, -1].mean())

    @property
    def deviation(self) -> float:
        """The standard deviation between seeds."""
        return float(self.curves[:, -1].std(ddof=1))


def runners(digits: Digits, before: Path, mixed: Callable[[int], Path]) -> list[Runner]:
    """``before`` has the shards as they are, ``mixed`` gives those that were shuffled offline with a seed."""

    def memory(order: Order) -> Callable[[int, int], Batches]:
        def batches(seed: int, epoch: int) -> Batches:
            numbers = order(LAYOUT, seed, epoch)
            for start in range(0, len(numbers), BATCH):
                some = numbers[start : start + BATCH]
                yield digits.x[some], digits.y[some]

        return batches

    def loader(folder: Callable[[int], Path]) -> Callable[[int, int], Batches]:
        def batches(seed: int, epoch: int) -> Batches:
            given = Loader(folder(seed), buffer_blocks=LAYOUT.buffer, batch_size=BATCH, seed=seed, epoch=epoch)
            return map(decode, given)

        return batches

    blocks, shards = LAYOUT.blocks, theory.requests_corgipile(LAYOUT.blocks, EPOCHS)
    return [
        Runner("shards as they are", memory(sequential), shards),
        Runner("sliding window", memory(sliding_window), shards),
        Runner("CorgiPile", loader(lambda _: before), shards),
        Runner("Corgi²", loader(mixed), theory.requests_corgi2(blocks, blocks, EPOCHS)),
        Runner("full shuffle", memory(random_access), theory.requests_random_access(LAYOUT.total, EPOCHS)),
    ]


def race(digits: Digits, ways: list[Runner], seeds: int = SEEDS) -> list[Result]:
    """Train all of them, with every seed."""
    results = []
    with progress("training", len(ways) * seeds * EPOCHS, unit="epochs") as bar:
        for way in ways:
            curves, labels = np.empty((seeds, EPOCHS)), []
            for seed in range(seeds):
                network = Network(seed)
                for epoch in range(EPOCHS):
                    seen = list(way.batches(seed, epoch))
                    network.train(seen)
                    curves[seed, epoch] = network.accuracy(digits)
                    labels.append(np.concatenate([y for _, y in seen]))
                    bar.advance(1)
            results.append(Result(way.name, curves, _mean_h(labels), way.requests))
    return results


def _mean_h(labels: list[Labels]) -> float:
    return float(np.mean([h_of_labels(epoch, CLASSES, LAYOUT.window) for epoch in labels]))


def predicted(h: float) -> dict[str, float]:
    """H by the closed forms, for ways that have one."""
    data = Blocks(LAYOUT.blocks, LAYOUT.examples, min(h, LAYOUT.examples))
    return {
        "CorgiPile": theory.window_random(data, LAYOUT.buffer),
        "Corgi²": theory.window_even(data, LAYOUT.buffer, LAYOUT.buffer),
        "full shuffle": theory.window_full(data, LAYOUT.buffer),
    }
