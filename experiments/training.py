"""Train one small network from one order of one data set, and write down what happened.

Orders come from the real thing wherever corgi2 has it: shards are written, ``corgi2.shuffle`` mixes them, and
``corgi2.Loader`` feeds the network. The others are index orders on the same examples in memory.
"""

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import corgi2
from corgi2 import theory
from corgi2.online import Picks
from corgi2.order.simulate import ORDERS, Layout, h_of_labels
from experiments.data import SHARDS, make_once
from experiments.examples import Images, Labels, Pixels, record_bytes, write_shards
from experiments.quality import h_of_products, spread_of_classes

BUFFER = "2GB"
"""Room enough: what a buffer holds is given in blocks."""
LAST = 5
"""Evaluations in the last epoch, whose mean is the result."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to order the examples, one network."""

    method: str
    """One of `ORDERS`, or ranges in rounds of another size."""
    b: int
    n: int
    norm: str = "batch"

    @property
    def name(self) -> str:
        shape = "" if self.method in ("random access", "shuffle once") else f" ({self.b}, {self.n})"
        return self.method + shape + ("" if self.norm == "batch" else f", {self.norm} norm")

    @property
    def is_real(self) -> bool:
        """Whether the order is made by corgi2's own command and loader."""
        return self.method.startswith("Corgi")

    @property
    def passes(self) -> int:
        """Offline passes."""
        return 2 if "2 passes" in self.method else int(self.method.startswith("Corgi²"))

    @property
    def ranges(self) -> int | None:
        """How many each block is read in, if it is read in rounds."""
        found = re.search(r"ranges of 1/(\d+) in rounds", self.method)
        return int(found[1]) if found else None

    def layout(self, total: int) -> Layout:
        return Layout(total // self.b, self.b, self.n)


class Batch(NamedTuple):
    number: Labels
    """Of each example, in the order in which they lie."""
    x: Pixels
    y: Labels


@dataclass(slots=True)
class Order:
    """The batches of one arm with one seed."""

    images: Images
    arm: Arm
    seed: int
    batch: int
    folder: Path = SHARDS

    def prepare(self, stored: Path) -> None:
        """Mix the shards, where the method does."""
        if self.arm.passes == 0:
            self.folder = stored
            return
        self.folder = Path(tempfile.mkdtemp(dir=SHARDS)) / "mixed"
        mix(self.images, self.arm, self.seed, stored, self.folder)

    def clean(self) -> None:
        if self.folder.name == "mixed":
            shutil.rmtree(self.folder.parent)

    def epoch(self, number: int) -> Iterator[Batch]:
        if not self.arm.is_real:
            order = ORDERS[self.arm.method](self.arm.layout(len(self.images.y)), self.seed, number)
            for start in range(0, len(order), self.batch):
                some = order[start : start + self.batch]
                yield Batch(some, self.images.x[some], self.images.y[some])
            return
        picks: Picks = "random" if "random picks" in self.arm.method else "even"
        shape = self.images.x.shape[1:]
        loader = corgi2.Loader(
            self.folder, buffer_blocks=self.arm.n, batch_size=self.batch, seed=self.seed, epoch=number, picks=picks
        )
        for found in loader:
            pixels = np.frombuffer(b"".join(found["img"]), np.uint8).reshape(-1, *shape)
            yield Batch(np.array(found["__key__"], np.int64), pixels, np.array(found["cls"]).astype(np.int64))

    def requests(self, epochs: int) -> theory.Requests:
        total, blocks = len(self.images.y), len(self.images.y) // self.arm.b
        if self.arm.method == "random access":
            return theory.requests_random_access(total, epochs)
        if self.arm.method == "shuffle once":
            return theory.requests_shuffle_once(total, blocks, epochs)
        if self.arm.ranges:
            return theory.requests_rounds(blocks, self.arm.ranges, blocks, epochs)
        if self.arm.passes:
            return theory.requests_corgi2(blocks, blocks, epochs, self.arm.passes)
        return theory.requests_corgipile(blocks, epochs)


def mix(images: Images, arm: Arm, seed: int, source: Path, target: Path) -> corgi2.Report:
    """The offline pass of an arm, or both. Nobody keeps an index: what ranges need is found by one more read."""
    return corgi2.shuffle(
        source,
        target,
        buffer=BUFFER,
        buffer_blocks=arm.n,
        seed=seed,
        passes=arm.passes,
        with_replacement="with replacement" in arm.method,
        range_size=arm.b // arm.ranges * record_bytes(images) if arm.ranges else None,
    )


def network(shape: tuple[int, ...], classes: int, norm: str) -> nn.Sequential:
    """Three convolutions on 2 × 2 patches; the last layer is a linear one."""
    widths = (16, 32, 48)

    def unit(before: int, after: int) -> list[nn.Module]:
        normal = nn.BatchNorm2d(after) if norm == "batch" else nn.GroupNorm(8, after)
        return [nn.Conv2d(before, after, 3, padding=1, bias=False), normal, nn.ReLU()]

    side = shape[1] // 2 // 2 // 2 // 2
    model = nn.Sequential(
        nn.PixelUnshuffle(2),
        *unit(4 * shape[0], widths[0]),
        nn.MaxPool2d(2),
        *unit(widths[0], widths[1]),
        nn.MaxPool2d(2),
        *unit(widths[1], widths[2]),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(widths[2] * side * side, classes),
    )
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


@dataclass(slots=True)
class Stopwatch:
    """Seconds, and those of the processor, which other processes do not change."""

    seconds: float = 0.0
    cpu: float = 0.0

    def start(self) -> None:
        self.seconds, self.cpu = self.seconds - time.perf_counter(), self.cpu - time.process_time()

    def stop(self) -> None:
        self.seconds, self.cpu = self.seconds + time.perf_counter(), self.cpu + time.process_time()


class Trainer:
    """One network, from its first step to its last evaluation."""

    def __init__(self, order: Order, epochs: int, rate: float) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(order.seed)
        images = order.images
        self.order, self.images, self.epochs = order, images, epochs
        self.model = network(images.x.shape[1:], images.classes, order.arm.norm)
        self.steps = -(-len(images.y) // order.batch)
        self.optimizer = torch.optim.SGD(self.model.parameters(), rate, momentum=0.9, weight_decay=5e-4)
        # which takes momentum from 0.95 to 0.85 and back, as it takes the rate up and down
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, rate, total_steps=self.steps * epochs + 1)
        some = images.x[:: max(1, len(images.y) // 5000)].astype(np.float32)
        self.mean = torch.tensor(some.mean(axis=(0, 2, 3)).reshape(-1, 1, 1))
        self.scale = torch.tensor(1 / some.std(axis=(0, 2, 3)).reshape(-1, 1, 1))
        self.numbers: list[Labels] = []

    def input(self, x: Pixels) -> torch.Tensor:
        floats = torch.tensor(x).contiguous(memory_format=torch.channels_last).float()
        return (floats - self.mean) * self.scale

    def run(self) -> dict[str, Any]:
        """Epoch by epoch: loss and accuracy on the test set, and seconds of training, evaluations not counted."""
        epochs, last, watch, labels = [], [], Stopwatch(), []
        quality: dict[str, float | None] = {}
        for epoch in range(self.epochs):
            losses, self.numbers = [], []
            watch.start()
            for step, batch in enumerate(self.order.epoch(epoch), 1):
                losses.append(self._step(batch))
                if epoch == self.epochs - 1 and step * LAST // self.steps > (step - 1) * LAST // self.steps:
                    watch.stop()
                    last.append(self.evaluate())
                    watch.start()
            watch.stop()
            numbers = np.concatenate(self.numbers)
            labels.append(self.images.y[numbers])
            if epoch == min(1, self.epochs - 1):
                quality = self._gradients(numbers)
            found = last[-1] if epoch == self.epochs - 1 else self.evaluate()
            epochs.append(
                {"seconds": watch.seconds, "cpu_seconds": watch.cpu, "train_loss": float(np.mean(losses)), **found}
            )
        window = self.order.arm.b * self.order.arm.n
        classes = self.images.classes
        quality["H_labels"] = float(np.mean([h_of_labels(order, classes, window) for order in labels]))
        quality |= spread_of_classes(np.concatenate(labels), classes, window)
        return {
            "epochs": epochs,
            "accuracy": float(np.mean([one["accuracy"] for one in last])),
            "loss": float(np.mean([one["loss"] for one in last])),
            "area": float(np.mean([one["accuracy"] for one in epochs])),
            **quality,
        }

    def _step(self, batch: Batch) -> float:
        self.model.train()
        loss = functional.cross_entropy(self.model(self.input(batch.x)), torch.from_numpy(batch.y))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.schedule.step()
        self.numbers.append(batch.number)
        return float(loss.detach())

    def evaluate(self) -> dict[str, float]:
        self.model.eval()
        losses, right = 0.0, 0
        with torch.no_grad():
            for start in range(0, len(self.images.test_y), 500):
                given = self.model(self.input(self.images.test_x[start : start + 500]))
                wanted = torch.from_numpy(self.images.test_y[start : start + 500])
                losses += float(functional.cross_entropy(given, wanted, reduction="sum"))
                right += int((given.argmax(1) == wanted).sum())
        count = len(self.images.test_y)
        return {"loss": losses / count, "accuracy": 100 * right / count}

    def _gradients(self, numbers: Labels) -> dict[str, float | None]:
        """H of an epoch by the gradients of the last layer, at the model as it is now."""
        self.model.eval()
        left, right = [], []
        with torch.no_grad():
            for start in range(0, len(self.images.y), 500):
                inner = self.model[:-1](self.input(self.images.x[start : start + 500]))
                wrong = self.model[-1](inner).softmax(1)
                wrong[torch.arange(len(wrong)), torch.from_numpy(self.images.y[start : start + 500])] -= 1
                left.append(wrong.numpy())
                right.append(inner.numpy())
        window = self.order.arm.b * self.order.arm.n
        return {"H_gradients": h_of_products(np.concatenate(left)[numbers], np.concatenate(right)[numbers], window)}


def stored(images: Images, name: str, b: int) -> Path:
    """The examples as shards of b each, written once."""
    folder = SHARDS / f"{name}-{b}"
    return folder if folder.exists() else make_once(folder, lambda place: write_shards(images, place, b))


def train(images: Images, name: str, arm: Arm, seed: int, epochs: int, batch: int, rate: float) -> dict[str, Any]:
    """One run, from shards to the last evaluation."""
    order = Order(images, arm, seed, batch)
    watch = Stopwatch()
    try:
        if arm.is_real:
            source = stored(images, name, arm.b)
            watch.start()
            order.prepare(source)
            watch.stop()
        requests = order.requests(epochs)
        result = Trainer(order, epochs, rate).run()
    finally:
        order.clean()
    head = {"arm": arm.name, "method": arm.method, "b": arm.b, "n": arm.n, "norm": arm.norm, "seed": seed}
    offline = {"offline_seconds": watch.seconds, "offline_cpu_seconds": watch.cpu}
    return head | offline | {"requests": requests.total} | result
