"""WebDataset: a record is the run of members with one key, the path up to the first dot of its base name.

Which members make a sample is WebDataset's rule: regular files whose name has such a dot, ``__meta__`` apart. All
others (directories, links, devices, names without a dot) belong to no sample and travel with the next one, at the end
of a shard with the last one: nothing is lost. A hard link to a member of the sample before it is part of that sample.
Refused, because moving a record would change what they mean: a hard link to another record, a global header other
than a comment, sparse and multi-volume members.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from corgi2.errors import NoRecordError, ShardError
from corgi2.formats.framed.format import FramedFormat
from corgi2.formats.framed.frames import Bytes, Frames, Hashes, Lying, Members, Parts, Where
from corgi2.formats.tar.ustar import NAME_BYTES, REPACK, UNIT, Archive, read_archive
from corgi2.order import Indices

_IS_REGULAR = np.isin(np.arange(256), np.frombuffer(b"0\x007", np.uint8))
_KEY_AND_PART = re.compile(rb"((?:[^\n]*/)?[^.]+)\.([^/]*)")
_META = re.compile(rb"__[^/]*__(?:/|$)")
_DOT, _SLASH, _NEWLINE, _UNDERSCORE = b"./\n_"

_LONG_NAMES = 1 << 20
"""Bytes of names that do not fit a header, looked at at a time."""
_RESERVED = {"__key__", "__url__"}
_WORD = 16
"""Bytes of a part's name that are compared at once, the zero behind it included."""
_KINDS = (np.uint8, np.uint16, np.uint32)

Mask = npt.NDArray[np.bool_]


class Tar:
    name = "tar"
    terminator = b""
    trailer = bytes(1024)
    record_overhead = 8
    smallest_record = 512

    def split(self, data: Bytes, where: Where) -> Frames:
        archive = read_archive(data, where)
        names = _hash_names(archive, where)
        first = _first_of_record(names)
        whole = where.last or archive.ended
        if whole and not len(first) and len(archive.start):
            problem = (
                f"no member belongs to a sample: {archive.name(0).decode()[:80]!r} is no regular file KEY.EXTENSION"
            )
            raise NoRecordError(where.name, where.base + int(archive.start[0]), problem)
        after = np.append(archive.start[1:], archive.stop)
        sources = _link_sources(archive)
        end = after[_last_of_record(names, first, sources)]
        frames = Frames.of(archive.start[first], end, archive.stop if whole else None, ended=archive.ended)
        if not whole:
            _check_fits(int(frames.offsets[-1]), int(end[-1]) if len(first) else archive.reach, where)
        count = len(frames.offsets) - 1
        if not count:
            return frames
        keys = names.key[first][:count]
        parts = _parts(archive, names, first, count) if where.decoding else None
        if where.known:
            return replace(frames, keys=keys, parts=parts)
        _check_links(archive, sources, frames, where)
        return replace(frames, keys=keys, members=_members(archive, names, frames.offsets, where), parts=parts)

    def begins_record(self, data: Bytes, where: Where) -> bool:
        return bool(_hash_names(read_archive(data, where), where).has_key.any())

    def items(self, loose: Bytes) -> Iterator[Indices]:
        """Member by member."""
        archive = read_archive(loose, Where("", 0, len(loose), last=True, known=True))
        yield np.append(archive.start, archive.stop)

    def check(self, name: str, frames: Sequence[tuple[int, Frames]]) -> None:
        """A key that comes back with other parts is one sample torn apart: WebDataset would make two of it."""
        keys = np.concatenate([part.keys for _, part in frames if part.keys is not None] or [np.empty(0, np.uint64)])
        ordered = np.sort(keys)
        if not (ordered[1:] == ordered[:-1]).any():
            return
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

    def decoder(self, lying: Lying) -> "_Samples":
        return _Samples(lying, lying.parts or _NO_PARTS)


class _Samples:
    """Looks up where the parts of samples lie, and copies each once, from there to its object."""

    def __init__(self, lying: Lying, parts: Parts) -> None:
        self._lying, self._parts = lying, parts
        counts = parts.counts
        self._each = int(counts[0]) if len(counts) and (counts == counts[0]).all() else 0
        self._first = None if self._each else np.cumsum(counts, dtype=np.int64) - counts

    def samples(self, records: Indices) -> Iterator[dict[str, Any]]:
        columns = self.columns(records)
        names = ("__key__", "__url__", *(name for name in columns if name != "__key__"))
        parts = [values for name, values in columns.items() if name != "__key__"]
        whole = not any(None in values for values in parts)
        for row in zip(columns["__key__"], self._lying.shards(records), *parts, strict=True):
            pairs = zip(names, row, strict=True)
            yield dict(pairs) if whole else {name: value for name, value in pairs if value is not None}

    def columns(self, records: Indices, only: Collection[str] | None = None) -> dict[str, list[Any]]:
        each = 0 if self._parts.names or not len(records) else self._each
        return (self._alike(records, each, only) if each else None) or self._various(records, only)

    def _alike(self, records: Indices, each: int, only: Collection[str] | None) -> dict[str, list[Any]] | None:
        """Of samples whose parts have the same names in the same order; None where some have not."""
        memory, place = self._lying.memory, (records * each)[:, None] + np.arange(each)
        cut = self._parts.cut[place].astype(np.int64)
        begin = self._lying.starts(records)[:, None] + self._parts.begin[place]
        header = begin - UNIT
        if int(cut.max()) + 1 + _WORD > NAME_BYTES:
            return None
        words = np.ndarray(len(memory) - _WORD + 1, f"V{_WORD}", memory, strides=(1,))[header + cut + 1]
        texts = [word.partition(b"\0") for word in words[0].tolist()]
        names = [name.decode().lower() for name, end, _ in texts if end]
        if len(set(names) - _RESERVED) < each or (words.view(np.uint64) != words[:1].view(np.uint64)).any():
            return None
        keys = zip(header[:, 0].tolist(), (header + cut)[:, 0].tolist(), strict=True)
        columns: dict[str, list[Any]] = {"__key__": [memory[start:stop].decode() for start, stop in keys]}
        end = begin + self._parts.size[place]
        for number, name in enumerate(names):
            if only is None or name in only:
                spans = zip(begin[:, number].tolist(), end[:, number].tolist(), strict=True)
                columns[name] = [memory[start:stop] for start, stop in spans]
        return columns

    def _various(self, records: Indices, only: Collection[str] | None) -> dict[str, list[Any]]:
        """Of any samples. As in WebDataset, the last of equal parts counts."""
        parts, memory, count = self._parts, self._lying.memory, len(records)
        counts = parts.counts[records].astype(np.int64)
        first = records * self._each if self._first is None else self._first[records]
        place = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
        begin = np.repeat(self._lying.starts(records), counts) + parts.begin[place]
        row = np.repeat(np.arange(count), counts)
        columns: dict[str, list[Any]] = {"__key__": [None] * count}
        numbers = (place, row, parts.cut[place], begin, begin + parts.size[place])
        for part, sample, cut, start, stop in zip(*(array.tolist() for array in numbers), strict=True):
            text = parts.names.get(part) or memory[start - UNIT : start - UNIT + NAME_BYTES].partition(b"\0")[0]
            name = text[cut + 1 :].decode().lower()
            if name in _RESERVED:
                problem = f"a member {text.decode()!r}, a name that WebDataset keeps for itself"
                raise ShardError(*self._lying.where(start - UNIT), problem)
            columns["__key__"][sample] = text[:cut].decode()
            if only is None or name in only:
                columns.setdefault(name, [None] * count)[sample] = memory[start:stop]
        return columns


@dataclass(frozen=True, slots=True)
class _Names:
    """Of each member: whether it has a key, hashes of its key and of its part, and where its name is cut into them.
    Parts of equal keys compare."""

    has_key: Mask
    key: Hashes
    part: Hashes
    cut: Indices


def _hash_names(archive: Archive, where: Where) -> _Names:
    if not where.known:
        _check_text(archive, where)
    names = _names_of(archive.names, where.known)
    for members in _by_length(archive.long_names):
        width = len(archive.long_names[members[-1]])
        rows = b"".join(archive.long_names[member].ljust(width, b"\0") for member in members)
        long = _names_of(np.frombuffer(rows, np.uint8).reshape(len(members), width), where.known)
        names.has_key[members], names.key[members] = long.has_key, long.key
        names.part[members], names.cut[members] = long.part, long.cut
    return replace(names, has_key=names.has_key & _IS_REGULAR[archive.kind])


def _by_length(texts: dict[int, bytes]) -> Iterator[list[int]]:
    """Members whose names are of like length, shortest first, as many as fill a few MB at the most."""
    ordered = sorted(texts, key=lambda member: len(texts[member]))
    for bits, members in groupby(ordered, key=lambda member: len(texts[member]).bit_length()):
        waiting = list(members)
        step = max(1, _LONG_NAMES >> bits)
        yield from (waiting[at : at + step] for at in range(0, len(waiting), step))


def _names_of(names: Bytes, known: bool) -> _Names:
    """WebDataset's rule on rows of bytes. The few names with a special form take the regular expression. Parts are for
    a check, and not looked at in names that are known."""
    count, width = names.shape
    if not width:
        no_hashes = np.zeros(count, np.uint64)
        return _Names(np.zeros(count, bool), no_hashes, no_hashes.copy(), np.zeros(count, np.int64))
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
        return _Names(has_key, key, np.zeros(count, np.uint64), dot)
    lower = names + np.where((names >= ord("A")) & (names <= ord("Z")), 32, 0).astype(np.uint8)
    return _Names(has_key, key, _hash_rows(lower * ~in_key), dot)


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


def _last_of_record(names: _Names, first: Indices, sources: dict[int, int]) -> Indices:
    """Members that end a record: the last with its key, or a hard link behind it to a member of the record."""
    keyed = np.flatnonzero(names.has_key)
    last = keyed[np.append(np.searchsorted(keyed, first[1:]) - 1, len(keyed) - 1)] if len(first) else keyed
    for member, source in sources.items():
        record = int(np.searchsorted(first, member)) - 1
        if record >= 0 and first[record] <= source <= last[record] < member:
            last[record] = member
    return last


def _link_sources(archive: Archive) -> dict[int, int]:
    """Of each hard link: the nearest member before it that has the name it points to, or -1."""
    sources: dict[int, int] = {}
    seen: dict[bytes, int] = {}
    for member in range(max(archive.links, default=-1) + 1):
        if member in archive.links:
            sources[member] = seen.get(archive.links[member], -1)
        seen[archive.name(member)] = member
    return sources


def _parts(archive: Archive, names: _Names, first: Indices, count: int) -> Parts:
    keyed = np.flatnonzero(names.has_key)
    begins = np.zeros(len(names.has_key), np.int64)
    begins[first] = 1
    records = np.cumsum(begins[keyed]) - 1
    complete = records < count
    keyed, records = keyed[complete], records[complete]
    counts, begin = np.bincount(records, minlength=count), archive.body[keyed] - archive.start[first[records]]
    long = archive.long_names
    texts = {n: long[member] for n, member in enumerate(keyed.tolist()) if member in long} if long else {}
    return Parts(_short(counts), _short(begin), _short(archive.size[keyed]), _short(names.cut[keyed]), texts)


def _short(values: Indices) -> npt.NDArray[Any]:
    largest = int(values.max(initial=0))
    return values.astype(next((kind for kind in _KINDS if largest <= np.iinfo(kind).max), np.int64))


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


def _check_fits(start: int, stop: int, where: Where) -> None:
    """Refuse a record by its headers, as soon as those that are known lead too far. More of it may follow."""
    if stop - start > where.most:
        raise where.too_large(start, stop - start, "at least ")


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


def _check_links(archive: Archive, sources: dict[int, int], frames: Frames, where: Where) -> None:
    """What a hard link means lies in the same span before it; but not where the two may part, at the end of a shard."""
    offsets, end = frames.offsets, frames.end
    for member, source in sources.items():
        at = int(archive.start[member])
        span = int(np.searchsorted(offsets, at, "right")) - 1
        least = offsets[span] if end is None or at < end else end
        if span < len(offsets) - 1 and (source < 0 or archive.start[source] < least):
            raise where.error(
                at,
                f"hard link to {archive.links[member][:80].decode(errors='replace')!r}, which is not in the same "
                f"sample: its content would be lost when the sample moves; {REPACK}",
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


_NONE = np.zeros(0, np.int64)
_NO_PARTS = Parts(_NONE, _NONE, _NONE, _NONE, {})
_TAR = Tar()
FORMATS = {
    suffix: FramedFormat(_TAR, suffix, codec)
    for suffix, codec in ((".tar", None), (".tar.gz", "gzip"), (".tgz", "gzip"), (".tar.zst", "zstd"))
}
