"""From what the user types to the shards of one data set.

A source is a folder, one file, a glob (``train-*.tar``) or a brace range (``train-{000000..000146}.tar``), in any
store. Anything that would silently give a wrong data set is refused: several splits together, Hive folders, several
formats, a range with a missing shard. Files that are not shards are listed in ``others``, never dropped silently.
"""

import contextlib
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from corgi2.dataset.folder import CORGI_FOLDER, DONE_NAME, run_folder, runs
from corgi2.dataset.patterns import SPECIAL, expand, glob_pattern, levels_of
from corgi2.dataset.recognition import recognised
from corgi2.dataset.splits import check_splits, example_of
from corgi2.errors import SourceError
from corgi2.formats import Format, foreign_of, format_of, suffix_of, suffixes
from corgi2.sizes import are, plural
from corgi2.stores import (
    Entry,
    File,
    Options,
    Store,
    StoredShard,
    Url,
    open_store,
    parse_url,
    ranges_for,
    without_secrets,
)

_OF_A_RUN = re.compile(rf"{re.escape(CORGI_FOLDER)}/c(\d+)/")

_HIVE = re.compile(r"[^/=]+=[^/]*")


@dataclass(frozen=True, slots=True)
class Source:
    """The shards of one data set, by path, and the other files that lie between them."""

    store: Store
    entries: tuple[Entry, ...]
    format: Format
    others: tuple[str, ...] = ()
    patterns: tuple[str, ...] | None = None
    """The patterns of the shards' paths; None if a folder was named, and everything in it belongs."""
    named: str = ""
    """The address as typed, from a folder to a brace range, in a form that works from any working directory."""
    options: Options = field(default_factory=dict)
    """The options of its store, without secrets."""

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def levels(self) -> int | None:
        """How deep the shards may lie; None if there is no limit."""
        return None if self.patterns is None else levels_of(self.patterns)

    def shard(self, number: int, at_once: int | None = None) -> StoredShard:
        """``at_once`` says how many shards or blocks are read at the same time; these share the store's connections."""
        ranges = 1 if at_once is None else ranges_for(self.store.ranges, at_once)
        return StoredShard(self.store, self.entries[number], ranges)


def find_source(uri: str | os.PathLike[str], options: Options | None = None, function: str = "Loader") -> Source:
    """The source at a URI. ``function`` is what was called with it, for errors that show a way out."""
    url = parse_url(os.fspath(uri))
    found = _find_pattern(url, options) or _find_file(url, options) or _find_folder(url, options)
    store, listed, others, patterns = found
    entries, unlike = recognised(store, listed)
    others = [*others, *unlike]
    _check(entries, others, str(url), store.url, function)
    suffix = suffix_of(entries[0].path)
    about = str(url), without_secrets(options or {})
    return Source(store, tuple(entries), format_of(suffix or ""), tuple(others), patterns, *about)


def look(uri: str | os.PathLike[str], options: Options | None = None) -> tuple[Store, tuple[str, ...] | None]:
    """The folder that a URI refers to, whatever lies in it, and what its shards' paths must match."""
    url = parse_url(os.fspath(uri))
    pattern = _pattern(url)
    if pattern is None:
        return open_store(url, options), None
    root, wanted = pattern
    return open_store(url.at(root), options), tuple(wanted)


def is_matched(source: Source, path: str) -> bool:
    """Whether the address as typed would also find a shard of this path."""
    return source.patterns is None or any(re.fullmatch(glob_pattern(pattern), path) for pattern in source.patterns)


Found = tuple[Store, list[Entry], list[str], tuple[str, ...] | None]
"""The store, the shards in it, the files that are not shards, and what their paths must match."""


def _find_pattern(url: Url, options: Options | None) -> Found | None:
    pattern = _pattern(url)
    if pattern is None:
        return None
    root, wanted = pattern
    store = open_store(url.at(root), options)
    found = _matching(store, wanted, str(url))
    _check_finished((entry.path for entry in store.list(CORGI_FOLDER, levels=2)), store.url)
    shards = [entry for entry in found if suffix_of(entry.path)]
    return store, shards, [entry.path for entry in found if not suffix_of(entry.path)], tuple(wanted)


def _find_file(url: Url, options: Options | None) -> Found | None:
    """One file; None for a folder, which in an object store may be named like a shard, as Spark does."""
    if not _is_file(url):
        return None
    root, name = posixpath.split(url.path)
    store = open_store(url.at(root), options)
    entry = store.head(name)
    if entry is None:
        return None
    _check_finished((entry.path for entry in store.list(CORGI_FOLDER, levels=2)), store.url)
    return (store, [entry], [], (name,)) if suffix_of(name) else (store, [], [name], (name,))


def _find_folder(url: Url, options: Options | None) -> Found:
    store = open_store(url, options)
    listing = store.list()
    if not listing and suffix_of(url.path):
        raise SourceError(f"{url}: there is no such file or folder")
    _check_finished((entry.path for entry in listing), store.url)
    return store, *_shards_of(listing), None


def _pattern(url: Url) -> tuple[str, list[str]] | None:
    """The folder above the first special character, and the patterns below it."""
    special = SPECIAL.search(url.path)
    if special is None or (url.scheme == "file" and os.path.lexists(url.path)):
        return None
    root, slash, rest = url.path[: special.start()].rpartition("/")
    return root + (slash if not root else ""), [*expand(rest + url.path[special.start() :])]


def _is_file(url: Url) -> bool:
    if url.scheme != "file":
        return suffix_of(url.path) is not None
    if not os.path.lexists(url.path):
        raise SourceError(f"{url}: there is no such file or folder", hint=_near(url.path))
    return not os.path.isdir(url.path)  # noqa: PTH112


def _near(path: str) -> str | None:
    """A hint at what exists, if a path leads nowhere."""
    folder, name = os.path.split(path)
    while not os.path.isdir(folder):  # noqa: PTH112
        folder, name = os.path.split(folder)
    with contextlib.suppress(OSError):
        found = get_close_matches(name, os.listdir(folder), 1)  # noqa: PTH208
        return f"did you mean {posixpath.join(folder, found[0])}?" if found else f"{folder} holds no {name}"
    return None


def _matching(store: Store, patterns: Sequence[str], typed: str) -> list[Entry]:
    """Entries that match; a pattern without a wildcard must exist."""
    entries = store.list(levels=levels_of(patterns))
    listing = {entry.path: entry for entry in entries if CORGI_FOLDER not in entry.path.split("/")}
    exact = [pattern for pattern in patterns if not re.search(r"[*?\[]", pattern)]
    missing = [path for path in exact if path not in listing]
    if missing:
        raise SourceError(
            f"{typed}: {len(missing)} of {plural(len(exact), 'shard')} {are(len(missing))} missing, the first is "
            f"{store.url}/{missing[0]}",
            hint="restore them, or correct the range",
        )
    found = set(exact)
    for pattern in set(patterns) - found:
        matcher = re.compile(glob_pattern(pattern))
        found.update(path for path in listing if matcher.fullmatch(path))
    return [listing[path] for path in sorted(found)]


def generations(paths: Iterable[str]) -> list[int]:
    """All shuffles that have left anything among these paths, whether a plan or something else."""
    return sorted({int(match[1]) for path in paths if (match := _OF_A_RUN.match(path))})


def _check_finished(paths: Iterable[str], root: str) -> None:
    left = [run for run, is_done in runs(paths).items() if not is_done]
    if left:
        raise SourceError(
            f"{root}: a shuffle into this folder is not finished",
            hint=f"run its command again to resume (if it was finished, restore {run_folder(left[0])}/{DONE_NAME})",
        )


def _shards_of(listing: Iterable[Entry]) -> tuple[list[Entry], list[str]]:
    """Shards, and everything else: other suffixes, and hidden files and folders (``.name``, ``_name``)."""
    entries, others = [], []
    for entry in listing:
        parts = entry.path.split("/")
        if CORGI_FOLDER in parts:
            continue
        if suffix_of(entry.path) and not any(part.startswith((".", "_")) for part in parts):
            entries.append(entry)
        else:
            others.append(entry.path)
    return entries, others


def _check(entries: Sequence[Entry], others: Sequence[str], typed: str, root: str, function: str) -> None:
    if not entries:
        raise _nothing(others, typed)
    _check_once(entries, root)
    hive = next((entry.path for entry in entries if any(map(_HIVE.fullmatch, entry.path.split("/")[:-1]))), None)
    if hive:
        raise SourceError(
            f"{root}/{hive}: Hive folders keep a column's values only in the path, and mixing would lose them; write "
            "the column into the files first, or name one folder"
        )
    check_splits(entries, others, typed, root, function)
    kinds = Counter(suffix_of(entry.path) for entry in entries)
    if len(kinds) > 1:
        counts = ", ".join(f"{count} {suffix}" for suffix, count in kinds.most_common())
        example = example_of(entries, others, root)
        raise SourceError(
            f"{typed}: shards of several formats lie together ({counts})",
            hint=f"name one kind, for example: {example!r} in corgi2.{function}(…)",
            instead=(typed, example),
        )


def _check_once(entries: Sequence[Entry], root: str) -> None:
    """Refuse a file that has two names: its records would count twice."""
    for first, second in same_files(entries):
        raise SourceError(
            f"{root}/{second.path}: is the same file as {first.path}, by a link, so its records would count twice; "
            "remove one of the names, exclude it by a glob, or, if that is intended, make it a copy"
        )


def same_files(entries: Iterable[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """Names of one file, each with the first of its names. Some file systems do not number files: nothing is found."""
    first: dict[tuple[File, Entry], Entry] = {}
    for entry in entries:
        if entry.file is not None and entry.file.inode:
            other = first.setdefault((entry.file, replace(entry, path="")), entry)
            if other is not entry:
                yield other, entry


def _nothing(others: Sequence[str], typed: str) -> SourceError:
    if not others:
        hint = f"name a folder or glob with files that end in one of {' '.join(suffixes())}"
        return SourceError(f"{typed}: there is no shard (nothing matches, or the folder is empty)", hint=hint)
    foreign = foreign_of(others)
    if foreign is not None:
        kind, paths = foreign
        files = plural(len(paths), f"{kind.name} file")
        which = "" if typed.endswith(paths[0]) else f", such as {paths[0]}" if len(paths) > 1 else f", {paths[0]}"
        return SourceError(f"{typed}: {files}{which}, which corgi2 does not read", hint=f"to convert: {kind.way}")
    return SourceError(
        f"{typed}: there is no shard; {plural(len(others), 'other file')}, such as {others[0]}, "
        f"{'ends' if len(others) == 1 else 'end'} in none of {' '.join(suffixes())}"
    )


def left_alone(others: tuple[str, ...]) -> str:
    """A line about files that are not shards."""
    shown = ", ".join(others[:5]) + (", …" if len(others) > 5 else "")
    what, where = ("is not a shard", "it is") if len(others) == 1 else ("are not shards", "they are")
    return f"{plural(len(others), 'file')} {what} and {are(len(others))} left where {where}: {shown}"
