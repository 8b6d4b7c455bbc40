"""Labelled examples of real data as arrays, ordered by class, and as tar shards of so many of them each.

Decoded once, and kept in ``.data``. A record of a shard is an example's number (its key), its pixels and its class.
"""

import gzip
import io
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments import data
from experiments.data import SHARDS, Origin

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Images:
    """Images (example, channel, row, column) and their classes, for training and for testing."""

    x: Pixels
    y: Labels
    test_x: Pixels
    test_y: Labels

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Images of one origin, and how they are read."""

    name: str
    origin: Origin
    read: Callable[[Path], Images]

    def load(self, data: Path) -> Images:
        """All of it, class by class."""
        kept = SHARDS / f"{self.name}.npz"
        if not kept.exists():
            images = _by_class(self.read(self.origin.find(self.name, data)))
            kept.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=kept.parent, suffix=".npz", delete=False) as partial:
                np.savez(partial, x=images.x, y=images.y, test_x=images.test_x, test_y=images.test_y)
            Path(partial.name).replace(kept)
        with np.load(kept) as arrays:
            return Images(arrays["x"], arrays["y"], arrays["test_x"], arrays["test_y"])


def made_up(classes: int, each: int, shape: tuple[int, int, int], seed: int = 0) -> Images:
    """Images of the right shape that can be told apart: one pattern a class, and noise."""
    random = np.random.default_rng(seed)
    patterns = random.integers(64, 192, (classes, *shape))
    labels = np.repeat(np.arange(classes), each)

    def draw() -> Pixels:
        return np.clip(patterns[labels] + random.normal(0, 30, (len(labels), *shape)), 0, 255).astype(np.uint8)

    return Images(draw(), labels, draw(), labels)


def write_shards(images: Images, folder: Path, each: int) -> None:
    """Examples in their order, so many a shard."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard, start in enumerate(range(0, len(images.y), each)):
        with tarfile.open(folder / f"train-{shard:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as out:
            for number in range(start, min(start + each, len(images.y))):
                for part, body in (("img", images.x[number].tobytes()), ("cls", b"%d" % images.y[number])):
                    member = tarfile.TarInfo(f"{number:07d}.{part}")
                    member.size = len(body)
                    out.addfile(member, io.BytesIO(body))


def record_bytes(images: Images) -> int:
    """Of an example in a shard: a header and a body each for its pixels and its class, padded."""
    return 3 * 512 + -(-int(images.x[0].nbytes) // 512) * 512


def _by_class(images: Images) -> Images:
    order = np.argsort(images.y, kind="stable")
    return Images(images.x[order], images.y[order], images.test_x, images.test_y)


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as stream:
        for member in stream:
            body = stream.extractfile(member)
            if body is not None:
                yield member.name, body.read()


def _decoded(image: bytes) -> Pixels:
    from PIL import Image

    with Image.open(io.BytesIO(image)) as picture:
        return np.asarray(picture.convert("RGB")).transpose(2, 0, 1)


def _cifar10(archive: Path) -> Images:
    found: dict[str, list[tuple[str, Pixels]]] = {"train": [], "test": []}
    for name, body in _members(archive):
        part, label, _ = name.split("/")
        found[part].append((label, _decoded(body)))
    names = sorted({label for label, _ in found["train"]})
    return Images(*_split(found["train"], names), *_split(found["test"], names))


def _tiny_imagenet(archive: Path) -> Images:
    train, test, notes = [], {}, b""
    for name, body in _members(archive):
        parts = name.split("/")
        if name.endswith("val_annotations.txt"):
            notes = body
        elif parts[0] == "train" and name.endswith(".JPEG"):
            train.append((parts[1], _decoded(body)))
        elif parts[0] == "val" and name.endswith(".JPEG"):
            test[parts[-1]] = _decoded(body)
    names = sorted({label for label, _ in train})
    labelled = [line.split("\t")[:2] for line in notes.decode().splitlines()]
    return Images(*_split(train, names), *_split([(label, test[file]) for file, label in labelled], names))


def _split(found: list[tuple[str, Pixels]], names: list[str]) -> tuple[Pixels, Labels]:
    return np.stack([image for _, image in found]), np.array([names.index(label) for label, _ in found])


def _fashion_mnist(folder: Path) -> Images:
    def read(name: str, head: int) -> Pixels:
        with gzip.open(folder / f"{name}.gz") as stream:
            return np.frombuffer(stream.read(), np.uint8, offset=head)

    def part(name: str) -> tuple[Pixels, Labels]:
        pixels = read(f"{name}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
        return pixels, read(f"{name}-labels-idx1-ubyte", 8).astype(np.int64)

    return Images(*part("train"), *part("t10k"))


CIFAR10 = ImageSet("cifar10-pixels", data.CIFAR10, _cifar10)
TINY_IMAGENET = ImageSet(
    "tiny-imagenet-pixels",
    Origin("tinyimagenet32-jpeg/tinyimagenet32.tar.xz", "https://www.image-net.org (Tiny ImageNet, at 32 × 32)"),
    _tiny_imagenet,
)
FASHION_MNIST = ImageSet(
    "fashion-mnist-pixels",
    Origin("fashion-mnist", "https://github.com/zalandoresearch/fashion-mnist"),
    _fashion_mnist,
)
