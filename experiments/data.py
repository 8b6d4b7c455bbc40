"""Real data sets as shards, cut as they come: clip by clip, class by class, in the order of time.

Shards are made once, in ``.data``. Nothing of the data is part of this repository: a set that is missing says where it
is to be had.
"""

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

SHARDS = Path(".data")
DEFAULT = Path("../shared/data")


@dataclass(frozen=True, slots=True)
class Origin:
    """A file or folder below the data folder, and where it is to be had."""

    file: str
    home: str

    def find(self, name: str, data: Path) -> Path:
        source = data / self.file
        if not source.exists():
            raise SystemExit(f"{name}: {source} is not there; get it from {self.home}, and give --data FOLDER")
        return source


def make_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """A folder that appears when all of it is there; several processes may try."""
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        partial = Path(place) / folder.name
        partial.mkdir()
        make(partial)
        if not folder.exists():
            with suppress(OSError):  # another process was faster, by a hair
                partial.rename(folder)
    return folder


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set: where it comes from, and how it becomes shards."""

    name: str
    origin: Origin
    what: str
    label: str
    make: Callable[[Path, Path], None]

    def shards(self, data: Path) -> Path:
        """The folder with its shards, made if it is not there."""
        folder = SHARDS / self.name
        if folder.exists():
            return folder
        source = self.origin.find(self.name, data)
        return make_once(folder, lambda place: self.make(source, place))


def _body(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    body = archive.extractfile(member)
    return b"" if body is None else body.read()


def _har(source: Path, folder: Path) -> None:
    """A clip (one person, one activity) a shard."""
    with tarfile.open(source) as archive:
        start = 0
        clips = sorted((member for member in archive if member.name.endswith(".csv")), key=lambda member: member.name)
        for number, member in enumerate(clips):
            table = csv.read_csv(io.BytesIO(_body(archive, member)))
            label = pa.array([member.name.split("/")[-2]] * len(table))
            table = _numbered(table.append_column("label", label), start)
            pq.write_table(table, folder / f"clip-{number:06d}.parquet")
            start += len(table)


def _cifar10(source: Path, folder: Path) -> None:
    """500 images of one class a shard."""
    images: dict[str, list[tuple[str, bytes]]] = {}
    with tarfile.open(source) as archive:
        for member in archive:
            parts = member.name.split("/")
            if parts[0] == "train" and member.isfile():
                images.setdefault(parts[1], []).append((parts[2].removesuffix(".jpg"), _body(archive, member)))
    ordered = [(name, number, image) for name in sorted(images) for number, image in sorted(images[name])]
    for shard, start in enumerate(range(0, len(ordered), 500)):
        with tarfile.open(folder / f"train-{shard:06d}.tar", "w") as out:
            for name, number, image in ordered[start : start + 500]:
                for part, data in (("jpg", image), ("cls", name.encode())):
                    member = tarfile.TarInfo(f"{name}{number}.{part}")
                    member.size = len(data)
                    out.addfile(member, io.BytesIO(data))


def _covtype(source: Path, folder: Path) -> None:
    with gzip.open(source) as stream:
        table = csv.read_csv(io.BytesIO(stream.read()))
    names = [*table.column_names[:-1], "label"]
    _cut(table.rename_columns(names), 5_000, folder)


def _flights(source: Path, folder: Path) -> None:
    table = pq.read_table(source)
    late = pc.fill_null(pc.greater(table["delay"], 15), False)
    _cut(table.append_column("label", late), 10_000, folder)


def _imdb(source: Path, folder: Path) -> None:
    """100 reviews of one kind a shard, as JSON lines."""
    with tarfile.open(source) as archive:
        found = sorted(
            (parts[3], member.name, _body(archive, member).decode())
            for member in archive
            if len(parts := member.name.split("/")) == 5 and parts[2] != "test" and member.name.endswith(".txt")
        )
    for shard, start in enumerate(_starts(len(found), 100)):
        lines = [
            json.dumps({"row": row, "label": kind, "text": text}) + "\n"
            for row, (kind, _, text) in enumerate(found[start : start + 100], start)
        ]
        (folder / f"part-{shard:06d}.jsonl").write_text("".join(lines))


def _cut(table: pa.Table, rows: int, folder: Path) -> None:
    table = _numbered(table, 0)
    for shard, start in enumerate(_starts(len(table), rows)):
        pq.write_table(table.slice(start, rows), folder / f"part-{shard:06d}.parquet")


def _numbered(table: pa.Table, start: int) -> pa.Table:
    """With the number of each row among all."""
    return table.append_column("row", pa.array(np.arange(start, start + len(table))))


def _starts(count: int, rows: int) -> Iterator[int]:
    yield from np.arange(0, count, rows).tolist()


CIFAR10 = Origin("cifar10-jpeg/cifar10-jpeg.tar.xz", "https://www.cs.toronto.edu/~kriz/cifar.html (as JPEG)")
_UCI = "https://archive.ics.uci.edu"
SETS = (
    DataSet(
        "har",
        Origin("har-raw/Combined.tar.xz", f"{_UCI}/dataset/240"),
        "clips of people who move",
        "label",
        _har,
    ),
    DataSet(
        "cifar10",
        CIFAR10,
        "images, class by class",
        "cls",
        _cifar10,
    ),
    DataSet(
        "flights",
        Origin("flights-3m/flights-3m.parquet", "https://github.com/vega/vega-datasets"),
        "flights in the order of time, late or not",
        "label",
        _flights,
    ),
    DataSet(
        "covtype",
        Origin("covtype/covtype.csv.gz", f"{_UCI}/dataset/31"),
        "kinds of forest, as published",
        "label",
        _covtype,
    ),
    DataSet(
        "imdb",
        Origin("imdb/aclImdb-labelled.tar.xz", "https://ai.stanford.edu/~amaas/data/sentiment"),
        "reviews of films, bad ones first",
        "label",
        _imdb,
    ),
)
