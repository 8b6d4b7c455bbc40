"""WebDataset: a record is the run of members with one key, the path up to the first dot of its base name.

WebDataset's rule says which members make a sample: regular files whose name has such a dot, except ``__meta__``. All
others (directories, links, devices, names without a dot) belong to no sample and travel with the next one, or at the
end of a shard with the last one: nothing is lost. A hard link to a member of the sample before it is part of that
sample. Refused, because moving a record would change what they mean: a hard link to another record, a global header
other than a comment, sparse and multi-volume members.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from corgi2.errors import NoRecordError, ShardError
from corgi2.formats.framed.format import FramedFormat
from corgi2.formats.framed.frames import Bytes, Frames, Lying, Members, Parts, Where
from corgi2.formats.tar.archive import Archive, read_archive
from corgi2.formats.tar.headers import REPACK
from corgi2.formats.tar.names import Mask, Names, hash_names
from corgi2.formats.tar.parts import parts_of, second_members
from corgi2.formats.tar.samples import Samples
from corgi2.formats.tar.several import split_side_by_side
from corgi2.order import Indices


class Tar:
    name = "tar"
    terminator = b""
    trailer = bytes(1024)
    record_overhead = 8
    smallest_record = 512

    def split(self, data: Bytes, where: Where) -> Frames:
        archive = read_archive(data, where)
        names = hash_names(archive, where)
        first = _first_of_record(names)
        whole = where.last or archive.ended
        if whole and not len(first) and len(archive.start):
            problem = (
                f"no member belongs to a sample: {archive.name(0).decode()[:80]!r} is not a regular file KEY.EXTENSION"
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

    def split_side_by_side(self, data: Bytes, cuts: Indices, where: Where) -> list[Frames] | None:
        return split_side_by_side(data, cuts, where)

    def begins_record(self, data: Bytes, where: Where) -> bool:
        return bool(hash_names(read_archive(data, where), where).has_key.any())

    def items(self, loose: Bytes) -> Iterator[Indices]:
        """Member by member."""
        archive = read_archive(loose, Where("", 0, len(loose), last=True, known=True))
        yield np.append(archive.start, archive.stop)

    def check(self, name: str, frames: Sequence[tuple[int, Frames]]) -> None:
        """A key that returns with other parts means that a sample was torn apart: WebDataset would make two of it."""
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

    def decoder(self, lying: Lying) -> Samples:
        return Samples(lying, lying.parts or _NO_PARTS)


def _first_of_record(names: Names) -> Indices:
    """Members that begin a record: those whose key differs from that of the last keyed member before them."""
    keyed = np.flatnonzero(names.has_key)
    keys = names.key[keyed]
    return keyed[np.append(True, keys[1:] != keys[:-1])] if len(keyed) else keyed


def _last_of_record(names: Names, first: Indices, sources: dict[int, int]) -> Indices:
    """Members that end a record: the last with its key, or a hard link after it to a member of the record."""
    keyed = np.flatnonzero(names.has_key)
    last = keyed[np.append(np.searchsorted(keyed, first[1:]) - 1, len(keyed) - 1)] if len(first) else keyed
    for member, source in sources.items():
        record = int(np.searchsorted(first, member)) - 1
        if record >= 0 and first[record] <= source <= last[record] < member:
            last[record] = member
    return last


def _link_sources(archive: Archive) -> dict[int, int]:
    """For each hard link: the nearest member before it with the name it points to, or -1."""
    sources: dict[int, int] = {}
    seen: dict[bytes, int] = {}
    for member in range(max(archive.links, default=-1) + 1):
        if member in archive.links:
            sources[member] = seen.get(archive.links[member], -1)
        seen[archive.name(member)] = member
    return sources


def _parts(archive: Archive, names: Names, first: Indices, count: int) -> Parts:
    keyed = np.flatnonzero(names.has_key)
    begins = np.zeros(len(names.has_key), np.int64)
    begins[first] = 1
    records = np.cumsum(begins[keyed]) - 1
    complete = records < count
    return parts_of(archive, names, keyed[complete], records[complete], first[:count])


def _members(archive: Archive, names: Names, offsets: Indices, where: Where) -> Members:
    keyed = np.flatnonzero(names.has_key)
    records = np.searchsorted(offsets, archive.start[keyed], "right") - 1
    complete = records < len(offsets) - 1
    keyed, records = keyed[complete], records[complete]
    parts = names.part[keyed]
    twice = second_members(records, parts)
    if len(twice):
        member = int(keyed[twice[0]])
        raise where.error(
            int(archive.start[member]),
            f"a second member {archive.name(member).decode()!r} in one sample, which WebDataset refuses; "
            "give each sample of a shard its own key",
        )
    return Members(records, parts)


def _check_fits(start: int, stop: int, where: Where) -> None:
    """Refuse a record as soon as its headers so far show that it is too large. More of it may follow."""
    if stop - start > where.most:
        raise where.too_large(start, stop - start, "at least ")


def _check_links(archive: Archive, sources: dict[int, int], frames: Frames, where: Where) -> None:
    """The target of a hard link must lie before it in the same span; at the end of a shard, the two could part."""
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
