"""``corgi2 demo``: homogeneous shards in, mixed shards out, every record accounted for."""

import io
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from corgi2.block import Arena
from corgi2.errors import SourceError
from corgi2.index import index_source
from corgi2.offline import shuffle
from corgi2.source import Source, find_source
from corgi2.verdict import verify

CLASSES, RECORDS, SIZE = 10, 400, 2_000
GROUP = 5
_MARK = ".made-by-corgi2-demo"
_SHADES = " ░▒▓█"


def run(folder: str) -> None:
    """Write a data set with one class a shard, mix groups of shards, check, and draw both."""
    root = Path(folder)
    _make_room(root)
    _write_shards(root / "before")
    before = find_source(root / "before")
    report = shuffle(root / "before", root / "after", buffer_blocks=GROUP)
    click.echo(f"{CLASSES} tar shards of {RECORDS} samples, one class each; mixed {report.n} at a time.\n")
    click.echo(_picture(before, find_source(root / "after")))
    verdict = verify(root / "before", root / "after")
    if not verdict.same:
        raise SourceError(f"{root}: {verdict.as_text()}")
    click.echo(f"\nVerified: {verdict.as_text()}.")
    click.echo(f"The mixed shards are WebDataset tars as before: {root / 'after'}")


def _make_room(root: Path) -> None:
    if root.exists() and not (root / _MARK).exists():
        raise SourceError(f"{root}: is not a folder that the demo made; name another one, which it may overwrite")
    shutil.rmtree(root, ignore_errors=True)
    (root / "before").mkdir(parents=True)
    (root / _MARK).touch()


def _write_shards(folder: Path) -> None:
    noise = np.random.Generator(np.random.Philox(7))
    for label in range(CLASSES):
        with tarfile.open(folder / f"data-{label:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for number in range(RECORDS):
                for extension, body in (("bin", noise.bytes(SIZE)), ("cls", b"%d" % label)):
                    member = tarfile.TarInfo(f"{number:06d}.{extension}")
                    member.size = len(body)
                    archive.addfile(member, io.BytesIO(body))


def _labels(source: Source) -> npt.NDArray[np.int64]:
    """How many samples of each class lie in each shard."""
    counts = np.zeros((len(source.entries), CLASSES), np.int64)
    for number, samples in enumerate(_samples(source)):
        for sample in samples:
            counts[number, int(sample["cls"])] += 1
    return counts


def _samples(source: Source) -> Iterator[list[dict[str, Any]]]:
    """The samples of each shard, decoded."""
    index = index_source(source)
    for piece in index.pieces(source, range(index.blocks.num_rows)):
        group = source.format.read([piece], Arena(piece.length))
        yield list(source.format.decoder(group, piece.file.name).samples(np.arange(group.records)))


def _picture(before: Source, after: Source) -> str:
    """Shards as rows, classes as columns, darker for more samples."""
    left, right = _labels(before), _labels(after)
    rows = [
        f"  shard {number:2d}  |{_shades(a)}|      |{_shades(b)}|"
        for number, (a, b) in enumerate(zip(left, right, strict=True))
    ]
    width = 2 * CLASSES + 8
    return "\n".join(["            before: its classes".ljust(12 + width) + "after: its classes", *rows])


def _shades(counts: npt.NDArray[np.int64]) -> str:
    levels = np.ceil(counts / counts.sum() * (len(_SHADES) - 1)).astype(int)
    return "".join(_SHADES[min(level, len(_SHADES) - 1)] * 2 for level in levels)
