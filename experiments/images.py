"""Accuracy against H, and Figure 4: small networks on images in the order of their classes, all methods, several seeds.

``python -m experiments.images cifar10 --data FOLDER`` trains what is not yet trained. Each run is a file of its own in
``.data/runs``: what was cut off continues, and several processes may share the work.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from experiments.data import DEFAULT
from experiments.examples import CIFAR10, FASHION_MNIST, TINY_IMAGENET, Images, ImageSet
from experiments.runs import Run, once
from experiments.training import Arm, train

PILE, RANDOM, EVEN = "CorgiPile", "Corgi², random picks", "Corgi², even picks"
TWICE, ROUNDS = "Corgi², 2 passes, even picks", "Corgi², ranges of 1/10 in rounds"
"""Ten ranges of a block: with 1,000 blocks, ten of which fit a buffer, the fewest that reach the full shuffle's H."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What is trained, how, and how often. The first arm is what the others are compared with."""

    images: ImageSet
    arms: Sequence[Arm]
    epochs: int
    seeds: int
    batch: int
    rate: float = 0.1

    @property
    def key(self) -> str:
        """What its runs have in common."""
        return f"{self.images.name}, {self.epochs} epochs, batch {self.batch}, rate {self.rate:g}"

    def train(self, images: Images, arm: Arm, seed: int) -> Run:
        return train(images, self.images.name, arm, seed, self.epochs, self.batch, self.rate)


CIFAR = [
    Arm("random access", 50, 10),
    Arm("shuffle once", 50, 10),
    Arm("sliding window", 50, 10),
    Arm("block-only", 50, 10),
    Arm(PILE, 50, 10),
    Arm(RANDOM, 50, 10),
    Arm(EVEN, 50, 10),
    Arm(ROUNDS, 50, 10),
    Arm(TWICE, 50, 10),
    Arm(PILE, 100, 5),
    Arm(RANDOM, 100, 5),
    Arm(PILE, 250, 2),
    Arm(RANDOM, 250, 2),
    Arm("random access", 50, 10, "group"),
    Arm(PILE, 50, 10, "group"),
    Arm(PILE, 5, 100),
    Arm(EVEN, 5, 100),
]


def _four(b: int, n: int) -> list[Arm]:
    return [Arm(method, b, n) for method in ("random access", PILE, RANDOM, EVEN)]


PROTOCOLS = {
    "cifar10": Protocol(CIFAR10, CIFAR, epochs=8, seeds=10, batch=125),
    "tiny-imagenet": Protocol(
        TINY_IMAGENET, [*_four(100, 10), Arm(ROUNDS, 100, 10), Arm(TWICE, 100, 10)], epochs=10, seeds=10, batch=250
    ),
    "fashion-mnist": Protocol(FASHION_MNIST, _four(60, 10), epochs=6, seeds=5, batch=125),
}


def run(name: str, data: Path, seeds: int, arms: Sequence[str] | None = None) -> None:
    """Train what is missing, all arms of one seed before the next, or those that are named."""
    protocol = PROTOCOLS[name]
    chosen = protocol.arms if arms is None else [_named(protocol, arm) for arm in arms]
    images = protocol.images.load(data)
    for seed in range(seeds):
        for arm in chosen:
            found = once(protocol.key, f"{arm.name}, seed {seed}", partial(protocol.train, images, arm, seed))
            if found is not None:
                shown = f"{found['accuracy']:.2f} %, H {found['H_labels']:.3g}"
                print(f"{name}, {arm.name}, seed {seed}: {shown}", flush=True)


def _named(protocol: Protocol, name: str) -> Arm:
    found = {arm.name: arm for arm in protocol.arms}
    if name not in found:
        raise SystemExit(f"there is no arm {name!r}; there are: {'; '.join(found)}")
    return found[name]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PROTOCOLS)
    parser.add_argument("--data", type=Path, default=DEFAULT, help="the folder with the data sets")
    parser.add_argument("--seeds", type=int, help="how many; as the protocol says, if it is not given")
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="only these, as docs/results.md names them")
    asked = parser.parse_args(arguments)
    run(asked.name, asked.data, asked.seeds or PROTOCOLS[asked.name].seeds, asked.arms)


if __name__ == "__main__":
    main()
