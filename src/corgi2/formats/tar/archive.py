"""The members of a tar archive as arrays, in ustar, GNU or PAX form, with their names as rows of a matrix."""

from dataclasses import dataclass

import numpy as np

from corgi2.formats.framed.frames import Bytes, Where
from corgi2.formats.tar.chain import chain, chains
from corgi2.formats.tar.extended import check_extended, extended_names
from corgi2.formats.tar.headers import (
    EXTENDS,
    NAME,
    RESTORE,
    ROWS,
    SHORT_NAME,
    UNIT,
    Headers,
    field_of,
    units,
    units_behind,
)
from corgi2.order import Indices

_BAND = 64
"""Names that are processed as one row: numpy is slow with many short ones."""


@dataclass(frozen=True, slots=True)
class Archive:
    """Members of an archive: ``start`` is the offset of their first header, including the extended ones before them."""

    start: Indices
    body: Indices
    size: Indices
    kind: Bytes
    names: Bytes
    """One row per member, padded with zeros; empty if the name is in ``long_names``."""
    long_names: dict[int, bytes]
    links: dict[int, bytes]
    """Targets of hard links."""
    stop: int
    """The offset after the last member, of which only the headers need lie in the data."""
    reach: int
    """The same, but after extended headers that follow it and whose own member does not lie in the data."""
    ended: bool
    """An end mark lies there."""

    def name(self, member: int) -> bytes:
        long = self.long_names.get(member)
        return self.names[member].tobytes().rstrip(b"\0") if long is None else long


def read_archive(data: Bytes, where: Where) -> Archive:
    """The members whose headers lie at the front of the data, which starts at a header."""
    headers, stop, ended = chain(data, where)
    real = np.flatnonzero(~EXTENDS[headers.kind])
    complete = int(real[-1]) + 1 if len(real) else 0
    if complete < len(headers.at) and (ended or where.last):
        raise where.error(
            int(headers.at[complete]),
            f"an extended header without a member behind it: the archive is damaged; {RESTORE}",
        )
    return _archive(data, headers, real, stop, ended, where)


def read_archives(data: Bytes, cuts: Indices, where: Where) -> tuple[Archive, Indices] | None:
    """The members of several pieces that lie side by side, and where those of each piece end. None if a piece has to be
    looked at alone."""
    found = chains(data, cuts, where)
    if found is None:
        return None
    headers, stops = found
    real = np.flatnonzero(~EXTENDS[headers.kind])
    return _archive(data, headers, real, len(data), True, where), stops


def _archive(data: Bytes, headers: Headers, real: Indices, stop: int, ended: bool, where: Where) -> Archive:
    firsts = np.concatenate([[0], real[:-1] + 1]) if len(real) else real
    at = headers.at[real]
    if not where.known:
        check_extended(data, headers, where)
    long_names, links = extended_names(data, headers, real, where)
    grid = units(data)
    names = [_names(grid, at[start : start + ROWS] // UNIT) for start in range(0, len(at), ROWS)]
    return Archive(
        headers.at[firsts],
        at + UNIT,
        headers.size[real],
        headers.kind[real],
        _stacked(names),
        long_names,
        links,
        int(units_behind(at[-1:] // UNIT, headers.size[real[-1:]])[0]) * UNIT if len(at) else 0,
        stop,
        ended,
    )


def _stacked(names: list[Bytes]) -> Bytes:
    """Rows of several widths as rows of the largest."""
    stack = np.zeros((sum(map(len, names)), max((rows.shape[1] for rows in names), default=0)), np.uint8)
    at = 0
    for rows in names:
        stack[at : at + len(rows), : rows.shape[1]] = rows
        at += len(rows)
    return stack


def _names(grid: Bytes, at: Indices) -> Bytes:
    """The names in the headers of these units. Most are short, as the zero after them shows."""
    short = field_of(grid, SHORT_NAME, at)
    return _terminated(field_of(grid, NAME, at) if short[:, -1].any() else short)


def _terminated(names: Bytes) -> Bytes:
    """Zero whatever follows a name's first zero, and cut the columns that no name reaches."""
    names = np.ascontiguousarray(_cut_columns(names))
    filled = names != 0
    if (filled[:, 1:] > filled[:, :-1]).any():
        names[~np.logical_and.accumulate(filled, axis=1)] = 0
    return _cut_columns(names)


def _cut_columns(names: Bytes) -> Bytes:
    height, width = len(names) // _BAND, names.shape[1]
    bands = names[: height * _BAND].reshape(height, _BAND * width)
    total = np.bitwise_or.reduce(bands, axis=0).reshape(_BAND, width)
    used = np.flatnonzero(np.concatenate([total, names[height * _BAND :]]).any(axis=0))
    return names[:, : int(used[-1]) + 1 if len(used) else 0]
