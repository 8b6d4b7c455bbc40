"""WebDataset: a record is the run of members with one key, the path up to the first dot of its base name.

Which members make a sample is WebDataset's rule: regular files whose name has such a dot, ``__meta__`` apart. All
others (directories, links, devices, names without a dot) belong to no sample and travel with the sample before
them, or with the first one: nothing is lost. Refused, because moving a record would change what they mean: a hard
link to another record, a global header other than a comment, sparse and multi-volume members.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from corgi2.block import Indices
from corgi2.errors import ShardError
from corgi2.formats.framed import Bytes, FramedFormat, Frames, Hashes, Members, Where
from corgi2.formats.ustar import REPACK, Archive, read_archive

_IS_REGULAR = np.isin(np.arange(256), np.frombuffer(b"0\x007", np.uint8))
_KEY_AND_PART = re.compile(rb"((?:[^\n]*/)?[^.]+)\.([^/]*)")
_META = re.compile(rb"__[^/]*__(?:/|$)")
_DOT, _SLASH, _NEWLINE, _UNDERSCORE = b"./\n_"

_NAME_BYTES = 1 << 20

Mask = npt.NDArray[np.bool_]
Keys = npt.NDArray[Any]
"""Texts, as bytes."""


class Tar:
    name = "tar"
    terminator = b""
    trailer = bytes(1024)
    gathered_below = 1 << 14
    record_overhead = 8
    smallest_record = 512

    def split(self, data: Bytes, where: Where) -> Frames:
        archive = read_archive(data, where)
        names = _hash_names(archive, where)
        first = _first_of_record(names)
        whole = where.last or archive.ended
        if whole and not len(first) and len(archive.start):
            raise where.error(
                int(archive.start[0]),
                f"no member belongs to a sample: {archive.name(0).decode()[:80]!r} is no regular file KEY.EXTENSION",
            )
        offsets = archive.start[first]
        offsets[:1] = 0
        if whole and len(first):
            offsets = np.append(offsets, archive.stop)
        if not len(offsets):
            return Frames(np.zeros(1, np.int64), archive.ended)
        keys = names.key[first][: len(offsets) - 1]
        if where.known:
            return Frames(offsets, archive.ended, keys)
        _check_links(archive, offsets, where)
        return Frames(offsets, archive.ended, keys, _members(archive, names, offsets, where))

    def check(self, name: str, frames: Sequence[tuple[int, Frames]]) -> None:
        """A key that comes back with other parts is one sample torn apart: WebDataset would make two of it."""
        keys = np.concatenate([part.keys for _, part in frames if part.keys is not None] or [np.empty(0, np.uint64)])
        _, place, counts = np.unique(keys, return_inverse=True, return_counts=True)
        repeated = counts[place] > 1
        if not repeated.any():
            return
        seen: dict[int, set[int]] = {}
        for at, key, parts in _parts_of(frames, repeated):
            if key in seen and not seen[key] & parts:
                raise ShardError(
                    name,
                    at,
                    f"members of one sample do not lie together: its key came before with other parts; {REPACK}",
                )
            seen[key] = parts

    def decoder(self, data: Bytes, starts: Indices, stops: Indices, url: str) -> "_Samples":
        return _Samples(data, starts, stops, url)


class _Samples:
    """Where the parts of each sample lie, so that each is copied once, from there to its object."""

    def __init__(self, data: Bytes, starts: Indices, stops: Indices, url: str) -> None:
        self._data, self._url = data.data, url
        self._names: dict[str, int] = {}
        breaks = np.flatnonzero(starts[1:] != stops[:-1]) + 1
        ends = [0, *breaks.tolist(), len(starts)]
        runs = [self._run(data, starts[first:last], int(stops[last - 1])) for first, last in pairwise(ends)]
        keys, counts, part, begin, end = (np.concatenate(arrays) for arrays in zip(*runs, strict=True))
        self._keys, self._counts, self._first = keys, counts, np.cumsum(counts) - counts
        self._part, self._begin, self._end = part, begin, end

    def _run(self, data: Bytes, starts: Indices, stop: int) -> tuple[Keys, Indices, Indices, Indices, Indices]:
        """Samples that lie together: their keys and how many parts each has; of each part its name, begin and end."""
        base = int(starts[0])
        where = Where(self._url, 0, stop - base, last=True, known=True)
        archive = read_archive(data[base:stop], where, starts - base)
        plain = _is_plain(archive)
        dotted = (archive.names == _DOT).any(axis=1) & _IS_REGULAR[archive.kind]
        keyed = np.flatnonzero(dotted if plain else _hash_names(archive, where).has_key)
        keys, parts, names = (_cut_plain if plain else _cut_any)(archive, keyed)
        numbers = [self._names.setdefault(name.decode().lower(), len(self._names)) for name in names]
        bounds = np.append(np.searchsorted(archive.start[keyed] + base, starts), len(keyed))
        begin = archive.body[keyed] + base
        return keys[bounds[:-1]], np.diff(bounds), np.array(numbers)[parts], begin, begin + archive.size[keyed]

    def samples(self, records: Indices) -> Iterator[dict[str, Any]]:
        columns = self.columns(records)
        names = ("__key__", "__url__", *(name for name in columns if name != "__key__"))
        parts = [values for name, values in columns.items() if name != "__key__"]
        whole = not any(None in values for values in parts)
        for row in zip(columns["__key__"], repeat(self._url), *parts):
            pairs = zip(names, row, strict=True)
            yield dict(pairs) if whole else {name: value for name, value in pairs if value is not None}

    def columns(self, records: Indices, only: Collection[str] | None = None) -> dict[str, list[Any]]:
        """As in WebDataset, the last of equal parts counts."""
        counts = self._counts[records]
        members = np.arange(counts.sum()) + np.repeat(self._first[records] - np.cumsum(counts) + counts, counts)
        if only is not None:
            wanted = np.array([name in only for name in self._names])[self._part[members]]
            counts = np.bincount(np.repeat(np.arange(len(records)), counts)[wanted], minlength=len(records))
            members = members[wanted]
        data, spans = self._data, zip(self._begin[members].tolist(), self._end[members].tolist(), strict=True)
        values = [bytes(data[begin:end]) for begin, end in spans]
        parts, names = self._part[members], list(self._names)
        columns: dict[str, list[Any]] = {"__key__": [key.decode() for key in self._keys[records].tolist()]}
        each = int(counts[0]) if len(records) else 0
        first = parts[:each].tolist()
        if each and (counts == each).all() and (parts.reshape(-1, each) == first).all() and len(set(first)) == each:
            return columns | {names[part]: values[number::each] for number, part in enumerate(first)}
        rows = np.repeat(np.arange(len(records)), counts).tolist()
        for part, row, value in zip(parts.tolist(), rows, values, strict=True):
            columns.setdefault(names[part], [None] * len(records))[row] = value
        return columns


def _cut_plain(archive: Archive, members: Indices) -> tuple[Keys, Indices, list[bytes]]:
    """Keys, which part each is, and the parts' names, where the first dot is what cuts."""
    names = archive.names[members]
    dots, columns = np.argmax(names == _DOT, axis=1), np.arange(names.shape[1])
    parts, found = np.empty(len(names), np.int64), dict[bytes, int]()
    for dot in np.unique(dots).tolist():
        rows = np.flatnonzero(dots == dot)
        texts, which = np.unique(_texts(names[rows, dot + 1 :]), return_inverse=True)
        codes = [found.setdefault(text, len(found)) for text in texts.tolist()]
        parts[rows] = np.array(codes)[which]
    return _texts(names * (columns < dots[:, None])), parts, list(found)


def _cut_any(archive: Archive, members: Indices) -> tuple[Keys, Indices, list[bytes]]:
    cut = [_KEY_AND_PART.fullmatch(name) for name in archive.texts(members)]
    found = dict[bytes, int]()
    parts = [found.setdefault(match[2], len(found)) for match in cut if match is not None]
    keys = np.array([match[1] for match in cut if match is not None], object)
    return keys, np.array(parts, np.int64), list(found)


def _texts(rows: Bytes) -> Keys:
    """Rows of bytes, zeros at their end, as texts."""
    if not rows.shape[1]:
        return np.full(len(rows), b"", "S1")
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").ravel()


def _is_plain(archive: Archive) -> bool:
    """Whether no name has a folder, or any other form that the first dot does not cut."""
    names, first = archive.names, archive.names[:, :1]
    special = ((names == _SLASH) | (names == _NEWLINE)).any() or ((first == _DOT) | (first == _UNDERSCORE)).any()
    return not archive.long_names and not special


@dataclass(frozen=True, slots=True)
class _Names:
    """Of each member: whether it has a key, and hashes of its key and of its part. Parts of equal keys compare."""

    has_key: Mask
    key: Hashes
    part: Hashes


def _hash_names(archive: Archive, where: Where) -> _Names:
    if not where.known:
        _check_text(archive, where)
    names = _names_of(archive.names, where.known)
    for members in _by_length(archive.long_names):
        width = len(archive.long_names[members[-1]])
        rows = b"".join(archive.long_names[member].ljust(width, b"\0") for member in members)
        long = _names_of(np.frombuffer(rows, np.uint8).reshape(len(members), width), where.known)
        for column, value in ((names.has_key, long.has_key), (names.key, long.key), (names.part, long.part)):
            column[members] = value
    return _Names(names.has_key & _IS_REGULAR[archive.kind], names.key, names.part)


def _by_length(texts: dict[int, bytes]) -> Iterator[list[int]]:
    """Members whose names are of like length, shortest first, as many as fill a few MB at the most."""
    ordered = sorted(texts, key=lambda member: len(texts[member]))
    for bits, members in groupby(ordered, key=lambda member: len(texts[member]).bit_length()):
        waiting = list(members)
        step = max(1, _NAME_BYTES >> bits)
        yield from (waiting[at : at + step] for at in range(0, len(waiting), step))


def _names_of(names: Bytes, known: bool) -> _Names:
    """WebDataset's rule on rows of bytes. The few names with a special form take the regular expression. Parts are for
    a check, and not looked at in names that are known."""
    count, width = names.shape
    if not width:
        return _Names(np.zeros(count, bool), np.zeros(count, np.uint64), np.zeros(count, np.uint64))
    columns = np.arange(width)
    slashes, dots, base = names == _SLASH, names == _DOT, np.zeros(count, np.int64)
    if slashes.any():
        base = np.where(slashes.any(axis=1), width - np.argmax(slashes[:, ::-1], axis=1), 0)
        dots &= columns >= base[:, None]
    dot = np.argmax(dots, axis=1)
    has_key, newlines = dots[np.arange(count), dot], names == _NEWLINE
    special = (has_key & (dot == base)) | (names[:, 0] == _UNDERSCORE)
    if newlines.any():
        special |= newlines.any(axis=1)
    for row in np.flatnonzero(special).tolist():
        text = names[row].tobytes().rstrip(b"\0")
        match = _KEY_AND_PART.fullmatch(text)
        has_key[row] = match is not None and not _META.match(text)
        dot[row] = match.end(1) if match else 0
    in_key = columns < dot[:, None]
    key = _hash_rows(names * in_key)
    if known:
        return _Names(has_key, key, np.zeros(count, np.uint64))
    lower = names + np.where((names >= ord("A")) & (names <= ord("Z")), 32, 0).astype(np.uint8)
    return _Names(has_key, key, _hash_rows(lower * ~in_key))


def _hash_rows(rows: Bytes) -> Hashes:
    """A hash of each row of bytes that does not depend on the zeros at its end."""
    words = -(-rows.shape[1] // 8)
    padded = np.zeros((len(rows), words * 8), np.uint8)
    padded[:, : rows.shape[1]] = rows
    total = (padded.view("<u8") * _factors(words)).sum(axis=1, dtype=np.uint64)
    return np.asarray((total ^ (total >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15), np.uint64)


@cache
def _factors(count: int) -> Hashes:
    return np.random.Philox(key=20).random_raw(count).astype(np.uint64) | np.uint64(1)


def _first_of_record(names: _Names) -> Indices:
    """Members that begin a record: those with another key than the member with a key before them."""
    keyed = np.flatnonzero(names.has_key)
    keys = names.key[keyed]
    return keyed[np.append(True, keys[1:] != keys[:-1])] if len(keyed) else keyed


def _members(archive: Archive, names: _Names, offsets: Indices, where: Where) -> Members:
    keyed = np.flatnonzero(names.has_key)
    records = np.searchsorted(offsets, archive.start[keyed], "right") - 1
    complete = records < len(offsets) - 1
    keyed, records = keyed[complete], records[complete]
    parts = names.part[keyed]
    order = np.lexsort((parts, records))
    twice = np.flatnonzero((np.diff(records[order]) == 0) & (np.diff(parts[order]) == 0))
    if len(twice):
        member = int(keyed[order[twice[0] + 1]])
        raise where.error(
            int(archive.start[member]),
            f"a second member {archive.name(member).decode()!r} in one sample, which WebDataset refuses; "
            "give each sample of a shard a key of its own",
        )
    return Members(records, parts)


def _check_text(archive: Archive, where: Where) -> None:
    foreign = set(np.flatnonzero((archive.names >= 0x80).any(axis=1)).tolist())
    for member in sorted(foreign | archive.long_names.keys()):
        try:
            archive.name(member).decode()
        except UnicodeDecodeError:
            raise where.error(
                int(archive.start[member]),
                f"the member's name {archive.name(member)[:80]!r} is not UTF-8; rename it, or pack the archive again",
            ) from None


def _check_links(archive: Archive, offsets: Indices, where: Where) -> None:
    for member, target in archive.links.items():
        record = np.searchsorted(offsets, archive.start[member], "right") - 1
        if record >= len(offsets) - 1:
            continue
        low, high = np.searchsorted(archive.start, [offsets[record], archive.start[member]])
        if target not in (archive.name(other) for other in range(low, high)):
            raise where.error(
                int(archive.start[member]),
                f"hard link to {target[:80].decode(errors='replace')!r}, which is not in the same sample: its content "
                f"would be lost when the sample moves; {REPACK}",
            )


def _parts_of(frames: Sequence[tuple[int, Frames]], wanted: Mask) -> Iterator[tuple[int, int, set[int]]]:
    """Offset, key and parts of the wanted records."""
    before = 0
    for base, part in frames:
        if part.keys is None or part.members is None:
            continue
        bounds = np.searchsorted(part.members.records, np.arange(len(part.keys) + 1))
        for record in np.flatnonzero(wanted[before : before + len(part.keys)]).tolist():
            names = part.members.names[bounds[record] : bounds[record + 1]]
            yield base + int(part.offsets[record]), int(part.keys[record]), set(names.tolist())
        before += len(part.keys)


_TAR = Tar()
FORMATS = {
    suffix: FramedFormat(_TAR, suffix, codec)
    for suffix, codec in ((".tar", None), (".tar.gz", "gzip"), (".tgz", "gzip"), (".tar.zst", "zstd"))
}
