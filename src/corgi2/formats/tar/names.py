"""WebDataset's rule on names: which members have a key, what it is, and which part of its sample each is.

A key is the path up to the first dot of its base name, and the part's name is what follows. Keys and parts are hashes
of rows of a matrix; only names of a special form take a regular expression.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby

import numpy as np
import numpy.typing as npt

from corgi2.formats.framed.frames import Bytes, Hashes, Where
from corgi2.formats.tar.archive import Archive
from corgi2.order import Indices

_IS_REGULAR = np.isin(np.arange(256), np.frombuffer(b"0\x007", np.uint8))

_KEY_AND_PART = re.compile(rb"((?:[^\n]*/)?[^.]+)\.([^/]*)")

_META = re.compile(rb"__[^/]*__(?:/|$)")

_DOT, _SLASH, _NEWLINE, _UNDERSCORE = b"./\n_"

_LONG_NAMES = 1 << 20
"""Bytes of names too long for a header that are processed at a time."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Names:
    """For each member: whether it has a key, hashes of its key and of its part, and where its name is cut into them.
    Parts of equal keys compare."""

    has_key: Mask
    key: Hashes
    part: Hashes
    cut: Indices


def hash_names(archive: Archive, where: Where) -> Names:
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


def _by_length(texts: dict[int, bytes]) -> Iterator[list[int]]:
    """Members whose names have similar lengths, shortest first, at most a few MB at a time."""
    ordered = sorted(texts, key=lambda member: len(texts[member]))
    for bits, members in groupby(ordered, key=lambda member: len(texts[member]).bit_length()):
        waiting = list(members)
        step = max(1, _LONG_NAMES >> bits)
        yield from (waiting[at : at + step] for at in range(0, len(waiting), step))


def _names_of(names: Bytes, known: bool) -> Names:
    """WebDataset's rule on rows of bytes. The few names with a special form take the regular expression. Parts
    serve a check only, and are skipped for names that were checked before."""
    count, width = names.shape
    if not width:
        no_hashes = np.zeros(count, np.uint64)
        return Names(np.zeros(count, bool), no_hashes, no_hashes.copy(), np.zeros(count, np.int64))
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
        return Names(has_key, key, np.zeros(count, np.uint64), dot)
    lower = names + np.where((names >= ord("A")) & (names <= ord("Z")), 32, 0).astype(np.uint8)
    return Names(has_key, key, _hash_rows(lower * ~in_key), dot)


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
