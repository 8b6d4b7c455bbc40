"""The plan of an offline shuffle: what to read, how to group it, where to write; kept in the target, written once.

Planning writes nothing. `commit_plan` does: the source's blocks first, then, conditionally, the plan that names their
hash. An unfinished target gives its own plan back, and refuses every other.
"""

import hashlib
import json
import os
import posixpath
from dataclasses import asdict, dataclass, field

from corgi2.block import Indices
from corgi2.errors import SourceError
from corgi2.index import Index, calibrate, decode_index, encode_index, index_source, open_index
from corgi2.memory import usable_memory
from corgi2.plan import cut_groups
from corgi2.sizes import format_size, parse_size
from corgi2.source import CORGI_FOLDER, PLAN_PATH, Source, find_source
from corgi2.stores import Entry, Options, Store, open_store, read_object

BLOCKS_PATH = f"{CORGI_FOLDER}/source"

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that the output's bytes depend on, beside the records themselves."""

    version: int
    source: str
    suffix: str
    seed: int
    buffer_bytes: int
    shards_per_group: int
    groups: int
    prefix: str
    blocks_sha256: str
    """Of the source's shards and blocks as planned, in `BLOCKS_PATH`."""


@dataclass(frozen=True, slots=True)
class Job:
    """A planned shuffle: what to read, how to group it, where to write."""

    source: Source
    target: Store
    index: Index
    recipe: Recipe
    groups: list[Indices] = field(repr=False)

    @property
    def n(self) -> int:
        return max(map(len, self.groups))

    def describe(self) -> str:
        shards = len(self.groups) * self.recipe.shards_per_group
        return (
            f"{self.index.blocks.num_rows:,} blocks of {format_size(self.index.bytes)} in {len(self.groups):,} groups "
            f"of n = {self.n:,} blocks (buffer {format_size(self.recipe.buffer_bytes)}), written as {shards:,} "
            f"{self.recipe.suffix} shards to {self.target.url}"
        )


def plan_shuffle(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    buffer: int | str | None = None,
    seed: int = 0,
    storage_options: Options | None = None,
    target_options: Options | None = None,
) -> Job:
    """The job that a shuffle would do. Nothing is written; an unfinished target gives its own plan back."""
    source = find_source(src, storage_options, "shuffle")
    target = open_store(os.fspath(dst), target_options)
    _check_apart(source.store, target)
    wanted = None if buffer is None else parse_size(buffer)
    planned = _load_plan(target)
    if planned is not None:
        recipe, index = planned
        _check_same(source, target, index, recipe, seed, wanted)
    else:
        _check_empty(target)
        index = outline(source)
        recipe = _new_recipe(source, index, seed, wanted or usable_memory() // 2)
    return Job(source, target, index, recipe, _groups(index, recipe))


def outline(source: Source) -> Index:
    """The blocks to plan with: from the index where there is one, else from Parquet's footers or a scan."""
    return calibrate(source, open_index(source) or index_source(source))


def _groups(index: Index, recipe: Recipe) -> list[Indices]:
    return cut_groups(index.column("footprint"), recipe.buffer_bytes, (recipe.seed, 0, 0))


def _new_recipe(source: Source, index: Index, seed: int, buffer_bytes: int) -> Recipe:
    try:
        groups = len(cut_groups(index.column("footprint"), buffer_bytes, (seed, 0, 0)))
    except ValueError as error:
        enough = int(index.column("footprint").max())
        raise SourceError(f"{source.url}: {error}; --buffer {-(-enough // 1_000_000)}MB would do") from error
    return Recipe(
        version=_VERSION,
        source=source.url,
        suffix=source.format.suffix,
        seed=seed,
        buffer_bytes=buffer_bytes,
        shards_per_group=max(1, round(len(source.entries) / groups)),
        groups=groups,
        prefix=_prefix(source),
        blocks_sha256=hashlib.sha256(encode_index(index)).hexdigest(),
    )


def _prefix(source: Source) -> str:
    """What the names of all shards begin with, up to their number: ``train-``."""
    names = [posixpath.basename(entry.path) for entry in source.entries]
    common = posixpath.commonprefix(names).removesuffix(source.format.suffix).rstrip("0123456789")
    return common or "shard-"


def _check_apart(source: Store, target: Store) -> None:
    here, there = source.url.rstrip("/") + "/", target.url.rstrip("/") + "/"
    if here.startswith(there) or there.startswith(here):
        raise SourceError(f"{target.url}: lies in the source {source.url}, or around it; name a folder of its own")


def _check_empty(target: Store) -> None:
    foreign = [entry.path for entry in target.list() if entry.path != BLOCKS_PATH]
    if foreign:
        raise SourceError(
            f"{target.url}: is not empty ({len(foreign)} files, such as {foreign[0]}), and no shuffle of ours; "
            "name an empty folder"
        )


def _load_plan(target: Store) -> tuple[Recipe, Index] | None:
    entry = target.head(PLAN_PATH)
    if entry is None:
        return None
    name = f"{target.url}/{PLAN_PATH}"
    try:
        recipe = Recipe(**json.loads(read_object(target, entry)))
    except (ValueError, TypeError) as error:
        raise SourceError(f"{name}: the plan is damaged, or of another version ({error})") from error
    blocks = target.head(BLOCKS_PATH)
    data = read_object(target, blocks) if blocks else bytearray()
    if hashlib.sha256(data).hexdigest() != recipe.blocks_sha256:
        raise SourceError(
            f"{target.url}/{BLOCKS_PATH}: is not what the plan was made for; empty the folder and start again"
        )
    return recipe, decode_index(data, name)


def _check_same(source: Source, target: Store, index: Index, recipe: Recipe, seed: int, buffer: int | None) -> None:
    """An unfinished target goes on with its own plan, and with no other."""
    asked = {"source": source.url, "seed": seed, "buffer_bytes": buffer or recipe.buffer_bytes}
    for name, value in asked.items():
        if getattr(recipe, name) != value:
            raise SourceError(
                f"{target.url}: holds a shuffle with {name} {getattr(recipe, name)}, not {value}; give the same "
                "command again to go on, or name an empty folder"
            )
    planned = zip(*(index.shards.column(name).to_pylist() for name in ("path", "size", "etag")), strict=True)
    now = {entry.path: entry for entry in source.entries}
    for path, size, etag in planned:
        if now.pop(path, None) != Entry(path, size, etag):
            raise SourceError(
                f"{source.url}/{path}: has changed since the shuffle to {target.url} began; start a new one"
            )
    if now:
        raise SourceError(f"{source.url}/{min(now)}: is new since the shuffle to {target.url} began; start a new one")


def commit_plan(job: Job) -> None:
    """Whoever creates the plan first has made it; everybody else must have made the same."""
    if job.target.head(PLAN_PATH) is not None:
        return
    job.target.publish(BLOCKS_PATH, [encode_index(job.index)])
    job.target.create(PLAN_PATH, json.dumps(asdict(job.recipe), indent=2).encode())
    planned = _load_plan(job.target)
    if planned is None or planned[0] != job.recipe:
        raise SourceError(f"{job.target.url}: another shuffle has just begun there; name an empty folder")
