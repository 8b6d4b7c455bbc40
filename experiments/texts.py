"""Eight kinds of text that differ, each cut to one size: what a byte-level language model is trained on.

Three come from data sets, five from packages that the experiments install. What exactly was read is written down with
every result: the version of the package, the number of bytes and a checksum of the text that was used.
"""

import ast
import gzip
import hashlib
import importlib.metadata
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from experiments.data import DEFAULT, SETS, Origin

_ORIGINS: dict[str, Origin] = {data.name: data.origin for data in SETS}


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of text."""

    name: str
    what: str
    package: str | None
    """The package that it comes from; otherwise it comes from the data folder."""
    read: Callable[[Path], Iterable[bytes]]
    """The text in parts, as long as it lasts; given the data folder."""

    def text(self, size: int, data: Path = DEFAULT) -> bytes:
        """The first bytes of it."""
        parts, have = [], 0
        for part in self.read(data):
            parts.append(part)
            have += len(part)
            if have >= size:
                return b"".join(parts)[:size]
        raise SystemExit(f"{self.name}: {self.what} have {have:,} bytes, and {size:,} are needed")

    def described(self, text: bytes) -> dict[str, Any]:
        """What was read, such that somebody else can tell whether they have the same."""
        version = importlib.metadata.version(self.package) if self.package else None
        what = f"{self.what} ({self.package} {version})" if self.package else self.what
        return {"name": self.name, "what": what, "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}


def _reviews(data: Path) -> Iterator[bytes]:
    with tarfile.open(_ORIGINS["imdb"].find("imdb", data)) as archive:
        for member in archive:
            if member.name.endswith(".txt") and (body := archive.extractfile(member)) is not None:
                yield body.read() + b"\n"


def _sensors(data: Path) -> Iterator[bytes]:
    with tarfile.open(_ORIGINS["har"].find("har", data)) as archive:
        for member in archive:
            if member.name.endswith(".csv") and (body := archive.extractfile(member)) is not None:
                yield body.read()


def _flights(data: Path) -> Iterator[bytes]:
    with pq.ParquetFile(_ORIGINS["flights"].find("flights", data)) as file:
        for batch in file.iter_batches(10_000):
            yield "".join(",".join(map(str, row.values())) + "\n" for row in batch.to_pylist()).encode()


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed; pip install '.[test]' brings it")
    return Path(spec.submodule_search_locations[0])


def _files(package: str, pattern: str) -> Iterator[bytes]:
    for path in sorted(_folder(package).glob(pattern)):
        yield path.read_bytes() + b"\n"


def _docstrings(package: str) -> Iterator[bytes]:
    for text in _files(package, "**/*.py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (found := ast.get_docstring(node)):
                yield found.encode() + b"\n\n"


def _services() -> Iterator[bytes]:
    for path in sorted(_folder("botocore").glob("data/*/*/service-2.json.gz")):
        yield gzip.GzipFile(fileobj=io.BytesIO(path.read_bytes())).read() + b"\n"


def _licences() -> Iterator[bytes]:
    """Each text once, however many packages have it."""
    folder, seen = _folder("numpy").parent, set[bytes]()
    for path in sorted(folder.glob("*.dist-info/**/LICEN*")):
        text = path.read_bytes() if path.is_file() else b""
        if text not in seen:
            seen.add(text)
            yield text + b"\n"


SOURCES = (
    Source("reviews", "IMDB's reviews of films", None, _reviews),
    Source("flights", "rows of flights-3m as CSV", None, _flights),
    Source("sensors", "UCI HAR's raw signals as CSV", None, _sensors),
    Source("Python", "modules of torch.nn", "torch", lambda _: _files("torch", "nn/**/*.py")),
    Source("C++", "headers of ATen", "torch", lambda _: _files("torch", "include/ATen/*.h")),
    Source("docstrings", "docstrings of SciPy", "scipy", lambda _: _docstrings("scipy")),
    Source("JSON", "descriptions of services", "botocore", lambda _: _services()),
    Source("licences", "licences of all installed packages", None, lambda _: _licences()),
)
