"""Whether a source, a target and a folder for what is held out are places that a shuffle may use."""

import glob
import os
import posixpath
from collections.abc import Iterable

from corgi2.dataset import Source, is_matched, runs, same_files
from corgi2.errors import SourceError
from corgi2.offline.journal import Journal
from corgi2.offline.planned import Shuffle
from corgi2.offline.resume import check_empty
from corgi2.offline.side_files import check_described
from corgi2.sizes import format_size
from corgi2.stores import Entry, Store

_FOREIGN_NAMES = ("index.json", "dataset_info.json", "state.json", "_metadata", "_common_metadata")

_FOREIGN_SUFFIXES = (".idx", ".index", ".crc")


def check_apart(source: Source, target: Store) -> None:
    if source.store.holds(target, source.levels) or target.holds(source.store):
        raise SourceError(
            f"{target.url}: lies in the source {source.url}, or around it; name another folder, or give in_place=True"
        )


def check_aside_apart(source: Source, target: Store, aside: Store | None) -> None:
    if aside is None:
        return
    for other, name, levels in ((source.store, "the source", source.levels), (target, "the target", None)):
        if other.holds(aside, levels) or aside.holds(other) or _is_within(aside, other) or _is_within(other, aside):
            raise SourceError(f"{aside.url}: lies in {name} {other.url}, or around it; name another for holdout_to=")


def _is_within(one: Store, other: Store) -> bool:
    """By their addresses, with links followed: a folder that does not exist yet has a place, too."""
    inner, outer = (os.path.realpath(store.url) if store.is_local else store.url for store in (one, other))
    return f"{inner}/".startswith(f"{outer}/")


def check_aside_empty(aside: Store | None) -> None:
    if aside is None:
        return
    listing = aside.list()
    if runs(entry.path for entry in listing):
        raise SourceError(
            f"{aside.url}: holds what an earlier shuffle has written there or held out; name an empty folder for "
            "holdout_to="
        )
    check_empty(Journal(aside, 0), listing)


def check_runs(listing: Iterable[Entry], target: Store) -> None:
    later = [run for run in runs(entry.path for entry in listing) if run]
    if later:
        raise SourceError(f"{target.url}: has been shuffled in place since; name an empty folder")


def check_in_place(source: Source, prefix: str) -> None:
    example = f"{prefix}000000{source.format.suffix}"
    if not is_matched(source, example):
        raise SourceError(
            f"{source.url}: a new shard would be {example}, which does not match what you named "
            f"({', '.join(source.patterns or ())[:80]}); name the folder, or a glob that does: "
            f"{glob.escape(source.url)}/{glob.escape(prefix[: prefix.rindex('c')])}*{source.format.suffix}"
        )
    described = check_described(source)
    stale = [path for path in _foreign_indexes(source) if path not in described]
    if stale:
        raise SourceError(
            f"{source.url}/{stale[0]}: looks like an index of the shards, which would go stale (files of the kind: "
            f"{len(stale)}); move it away, or shuffle into another folder"
        )


def check_links(source: Source, listing: Iterable[Entry]) -> None:
    """Refuse links: deleting a link to a shard would free nothing, and deleting its target would leave a dead link."""
    linked = next((entry for entry in source.entries if entry.file is not None and entry.file.is_linked), None)
    if linked is not None:
        raise SourceError(
            f"{source.url}/{linked.path}: is reached by a link, and in place deletes what it has shuffled; put the "
            "file itself there, or shuffle into another folder"
        )
    paths = {entry.path for entry in source.entries}
    for first, second in same_files(listing):
        if first.path in paths or second.path in paths:
            raise SourceError(
                f"{source.url}/{second.path}: is the same file as {first.path}, and in place deletes what it has "
                "shuffled; remove one of the names, or shuffle into another folder"
            )


def _foreign_indexes(source: Source) -> list[str]:
    """Files that describe shards: known names, and names that begin like a shard's."""
    stems = {entry.path.removesuffix(source.format.suffix) for entry in source.entries}
    return [
        path
        for path in source.others
        if posixpath.basename(path) in _FOREIGN_NAMES
        or path.endswith(_FOREIGN_SUFFIXES)
        or any(path[:end] in stems for end in range(len(path)))
    ]


def check_space(shuffle: Shuffle, store: Store, needed_bytes: int, freed_bytes: int) -> None:
    free = store.free_bytes()
    if free is not None and needed_bytes > free + freed_bytes:
        raise SourceError(
            f"{store.url}: {format_size(free)} are free, but {format_size(needed_bytes)} are needed",
            hint="make room"
            + ("" if shuffle.plan.settings.in_place else ", name another disk, or shuffle with in_place=True"),
            kind="space",
        )
