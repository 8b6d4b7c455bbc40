"""Accuracy against H, and Figure 4: small networks on images in the order of their classes, all methods, several seeds.

``python -m experiments.images cifar10 --data FOLDER`` trains what is not yet trained. Each run is a file of its own in
``.data/runs``: what was cut off continues, and several processes may share the work.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.data import DEFAULT, SHARDS
from experiments.examples import CIFAR10, FASHION_MNIST, TINY_IMAGENET, ImageSet
from experiments.training import Arm, train

RUNS = SHARDS / "runs"
PILE, RANDOM, EVEN = "CorgiPile", "Corgi², random picks", "Corgi², even picks"


@dataclass(frozen=True, slots=True)
class Protocol:
    """What is trained, how, and how often. The first arm is what the others are compared with."""

    images: ImageSet
    arms: Sequence[Arm]
    epochs: int
    seeds: int
    batch: int
    rate: float = 0.1


CIFAR = [
    Arm("random access", 50, 10),
    Arm("shuffle once", 50, 10),
    Arm("sliding window", 50, 10),
    Arm("block-only", 50, 10),
    Arm(PILE, 50, 10),
    Arm(RANDOM, 50, 10),
    Arm(EVEN, 50, 10),
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
    "cifar10": Protocol(CIFAR10, CIFAR, epochs=8, seeds=8, batch=125),
    "tiny-imagenet": Protocol(TINY_IMAGENET, _four(100, 10), epochs=10, seeds=5, batch=250),
    "fashion-mnist": Protocol(FASHION_MNIST, _four(60, 10), epochs=6, seeds=5, batch=125),
}


def run(name: str, data: Path, seeds: range) -> None:
    """Train what is missing, all arms of one seed before the next."""
    protocol = PROTOCOLS[name]
    images = protocol.images.load(data)
    for seed in seeds:
        for arm in protocol.arms:
            file = RUNS / name / f"{arm.name}, seed {seed}.json"
            claim = file.with_suffix(".running")
            if file.exists():
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            if not _claimed(claim):
                continue
            try:
                found = train(images, protocol.images.name, arm, seed, protocol.epochs, protocol.batch, protocol.rate)
                claim.write_text(json.dumps(found, indent=1))
                claim.rename(file)
            finally:
                claim.unlink(missing_ok=True)
            print(f"{name}, {arm.name}, seed {seed}: {found['accuracy']:.2f} %, H {found['H_labels']:.3g}", flush=True)


def _claimed(claim: Path) -> bool:
    """Whether this run is ours: nobody who is alive has it."""
    try:
        with claim.open("x") as file:
            file.write(str(os.getpid()))
        return True
    except FileExistsError:
        owner = claim.read_text()
        if owner.isdigit() and Path(f"/proc/{owner}").exists():
            return False
        claim.unlink(missing_ok=True)
        return _claimed(claim)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=PROTOCOLS)
    parser.add_argument("--data", type=Path, default=DEFAULT, help="the folder with the data sets")
    parser.add_argument("--seeds", type=int, help="how many; as the protocol says, if it is not given")
    asked = parser.parse_args()
    run(asked.name, asked.data, range(asked.seeds or PROTOCOLS[asked.name].seeds))


if __name__ == "__main__":
    main()
