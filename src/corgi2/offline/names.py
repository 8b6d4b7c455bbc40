"""The names of new shards."""

import posixpath
import re
from collections.abc import Iterable

from corgi2.dataset import CORGI_FOLDER, Source, runs, unnumbered
from corgi2.formats import without_total
from corgi2.offline.plan import Plan
from corgi2.stores import Entry

_DISCARDED = re.compile(rf"{re.escape(CORGI_FOLDER)}/c(\d+)/fate")


def prefix_of(source: Source) -> str:
    """What the names of all shards begin with, up to their number: ``train-``."""
    return _common([posixpath.basename(entry.path) for entry in source.entries], source) or "shard-"


def _common(names: Iterable[str], source: Source) -> str:
    common = posixpath.commonprefix([without_total(name) for name in names])
    return unnumbered(common.removesuffix(source.format.suffix))


def next_names(source: Source, listing: Iterable[Entry]) -> tuple[int, str]:
    """The next generation, and what its shards' paths begin with: a prefix that is not in use yet."""
    paths = [entry.path for entry in listing]
    prefix = _common([entry.path for entry in source.entries], source)
    discarded = [int(match[1]) for path in paths if (match := _DISCARDED.fullmatch(path))]
    generation = max([*runs(paths), *discarded], default=0) + 1
    while any(path.startswith(f"{prefix}c{generation}-") for path in paths):
        generation += 1
    return generation, f"{prefix}c{generation}-"


def new_shards(plan: Plan, paths: Iterable[str], most: int | None = None) -> set[str]:
    """The paths that are named like the shuffle's new shards, numbered below ``most``."""
    shard = re.compile(rf"{re.escape(plan.prefix)}(\d{{6,}}){re.escape(plan.suffix)}")
    found = ((path, shard.fullmatch(path)) for path in paths)
    return {path for path, match in found if match and (most is None or int(match[1]) < most)}
