"""The names of new shards."""

import posixpath
import re
from collections.abc import Iterable

from corgi2.dataset import CORGI_FOLDER, Source, runs
from corgi2.stores import Entry

_GENERATION = re.compile(r"c\d+-$")

_DISCARDED = re.compile(rf"{re.escape(CORGI_FOLDER)}/c(\d+)/fate")


def prefix_of(source: Source) -> str:
    """What the names of all shards begin with, up to their number: ``train-``."""
    return _common([posixpath.basename(entry.path) for entry in source.entries], source) or "shard-"


def _common(names: Iterable[str], source: Source) -> str:
    common = posixpath.commonprefix(list(names)).removesuffix(source.format.suffix).rstrip("0123456789")
    return _GENERATION.sub("", common)


def next_names(source: Source, listing: Iterable[Entry]) -> tuple[int, str]:
    """The next generation, and what its shards' paths begin with: a prefix that nothing has yet."""
    paths = [entry.path for entry in listing]
    prefix = _common([entry.path for entry in source.entries], source)
    discarded = [int(match[1]) for path in paths if (match := _DISCARDED.fullmatch(path))]
    generation = max([*runs(paths), *discarded], default=0) + 1
    while any(path.startswith(f"{prefix}c{generation}-") for path in paths):
        generation += 1
    return generation, f"{prefix}c{generation}-"
