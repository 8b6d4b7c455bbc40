"""Handwritten digits as shards of one class each: the worst case of a data set."""

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corgi2.extras import needing
from corgi2.order import Layout, permutation

LAYOUT = Layout(blocks=64, examples=24, buffer=8)
"""64 shards of 24 images; a buffer holds an eighth of them."""
CLASSES = 10
_WHITE = 16.0

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Digits:
    """Images of 8 × 8 and what they show: for training, class by class, and for testing."""

    x: Floats
    y: Labels
    test_x: Floats
    test_y: Labels


def load_digits() -> Digits:
    """The digits that come with scikit-learn."""
    with needing("demo", "the demo, whose images come with scikit-learn,"):
        from sklearn import datasets
    images, labels = datasets.load_digits(return_X_y=True)
    order = permutation(len(labels), (0,))
    train, test = order[: LAYOUT.total], order[LAYOUT.total :]
    train = train[np.argsort(labels[train], kind="stable")]
    return Digits(images[train] / _WHITE, labels[train], images[test] / _WHITE, labels[test])


def write_shards(digits: Digits, folder: Path) -> None:
    """Write WebDataset tars: an image's 64 pixels, and its class."""
    folder.mkdir(parents=True)
    pixels = (digits.x * _WHITE).astype(np.uint8)
    for shard, numbers in enumerate(np.split(np.arange(LAYOUT.total), LAYOUT.blocks)):
        with tarfile.open(folder / f"digits-{shard:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for number in numbers.tolist():
                for part, body in (("img", pixels[number].tobytes()), ("cls", b"%d" % digits.y[number])):
                    member = tarfile.TarInfo(f"{number:06d}.{part}")
                    member.size = len(body)
                    archive.addfile(member, io.BytesIO(body))


def decode(batch: Mapping[str, Any]) -> tuple[Floats, Labels]:
    """A loader's batch as arrays."""
    pixels = np.frombuffer(b"".join(batch["img"]), np.uint8).reshape(-1, 64)
    return pixels / _WHITE, np.array(batch["cls"]).astype(np.int64)
