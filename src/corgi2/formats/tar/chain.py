"""Which headers of a tar archive are its members: those on the chain of sizes.

Headers are found by their magic at strides of 512 bytes, and kept if the chain of sizes from the first header leads to
them, so that an archive within an archive is not mistaken for members: the content of bodies never counts as names,
sizes or links. No Python runs per member, except for sizes that do not fit in a header.
"""

import numpy as np
import numpy.typing as npt

from corgi2.formats.framed.frames import Bytes, Where
from corgi2.formats.tar.extended import check_extended, check_sizes, may_resize, pax_size, with_field
from corgi2.formats.tar.headers import (
    EXTENDS,
    KIND,
    MAGIC,
    RESTORE,
    ROWS,
    SIZE,
    UNIT,
    WITHOUT_BODY,
    Headers,
    check_headers,
    field_of,
    numbers,
    units,
    units_behind,
)
from corgi2.order import Indices


def chain(data: Bytes, where: Where) -> tuple[Headers, int, bool]:
    """The headers from the first on, where the last one leads, and whether an end mark lies there."""
    grid = units(data)
    at, found = _candidates(grid)
    taken = _follow(at, units_behind(at, found.size))
    headers = found.of(taken)
    if with_field(b" size=", data, headers):
        headers = _follow_resized(data, found)
        check_sizes(data, headers, where)
    _check(grid, headers, where)
    stop = int(units_behind(headers.at[-1:] // UNIT, headers.size[-1:])[0]) if len(headers.at) else 0
    if stop >= len(grid):
        return _cut_short(data, headers, stop * UNIT, where)
    if not grid[stop].any():
        return headers, stop * UNIT, True
    if stop == 0 and where.base == 0:
        raise where.error(0, "not a tar archive (no ustar header); is the file's name right, is it compressed?")
    check_extended(data, headers, where)  # what is refused there may be why
    raise where.error(stop * UNIT, f"no member header where one must be: the archive is damaged; {RESTORE}")


def chains(data: Bytes, cuts: Indices, where: Where) -> tuple[Headers, Indices] | None:
    """The headers of several whole pieces that lie side by side, piece i from ``cuts[i]`` to ``cuts[i + 1]``, and where
    the last one of each piece leads. None if a piece has to be looked at alone: for its error, or for its sizes."""
    if (cuts % UNIT).any():
        return None
    grid, cuts = units(data), cuts // UNIT
    at, found = _candidates(grid)
    behind = units_behind(at, found.size)
    limit = cuts[np.searchsorted(cuts, at, "right")]
    target = np.where(_is_end(grid, at, behind, limit), limit, behind)
    taken = _follow(at, target)
    headers, last = found.of(taken), np.flatnonzero(target[taken] == limit[taken])
    is_whole = len(last) == len(cuts) - 1 and bool((target[taken] <= limit[taken]).all())
    if not is_whole or EXTENDS[headers.kind[last]].any() or with_field(b" size=", data, headers):
        return None
    _check(grid, headers, where)
    return headers, behind[taken[last]] * UNIT


def _is_end(grid: Bytes, at: Indices, behind: Indices, limit: Indices) -> npt.NDArray[np.bool_]:
    """Whether an end mark, and no header, lies behind each candidate, within its piece."""
    ends = behind < limit
    ends[:-1] &= behind[:-1] != at[1:]
    there = np.flatnonzero(ends)
    ends[there] = ~grid[behind[there]].any(axis=1)
    return ends


def _candidates(grid: Bytes) -> tuple[Indices, Headers]:
    """Units that look like headers."""
    front, rest = slice(MAGIC.start, MAGIC.start + 4), MAGIC.start + 4  # four bytes compare as one number
    at = np.flatnonzero(grid[:, front].view("<u4") == int.from_bytes(b"usta", "little"))
    at = at[grid[at, rest] == ord("r")]
    kind = grid[at, KIND]
    kind[kind == ord("X")] = ord("x")  # an early form of Solaris
    return at, Headers(at * UNIT, kind, np.where(WITHOUT_BODY[kind], 0, numbers(field_of(grid, SIZE, at))))


def _check(grid: Bytes, headers: Headers, where: Where) -> None:
    for start in range(0, 0 if where.known else len(headers.at), ROWS):
        part = headers.of(slice(start, start + ROWS))
        check_headers(grid[part.at // UNIT], part, where)


def _cut_short(data: Bytes, headers: Headers, stop: int, where: Where) -> tuple[Headers, int, bool]:
    """The chain leads to the end of the data, or beyond it."""
    last = int(headers.at[-1]) if len(headers.at) else 0
    limit = len(data) if where.last else where.limit
    if stop > limit:
        raise where.error(
            last,
            f"member claims {int(headers.size[-1])} bytes, but at most {limit - last - UNIT} can follow: "
            "the shard was cut short, or the header is damaged; restore it from its source",
        )
    if where.last and len(data) % UNIT:
        raise where.error(len(data), "the archive ends in the middle of a header: it was cut short; restore it")
    if where.last and not len(data) and where.base == 0:
        raise where.error(0, "the shard is empty (zero bytes); restore it from its source, or remove it")
    if stop > len(data) and EXTENDS[headers.kind[-1]]:  # its content is not known yet
        return headers.of(slice(-1)), stop, False
    return headers, stop, False


def _follow(at: Indices, follows: Indices) -> Indices:
    """Which candidates lie on the chain from unit 0. Steps from break to break, not from member to member."""
    if not len(at) or at[0] != 0:
        return np.empty(0, np.int64)
    if (follows[:-1] == at[1:]).all():
        return np.arange(len(at))
    place = _places(at, follows)
    breaks = np.flatnonzero(place != np.arange(1, len(at) + 1))
    runs, current = [], 0
    while current < len(at):
        runs.append(_run(current, breaks, len(at)))
        current = int(place[runs[-1][-1]])
    return np.concatenate(runs)


def _follow_resized(data: Bytes, found: Headers) -> Headers:
    """The same if a size in an extended header replaces that of the member after it. Whether such a header counts is
    known when the chain reaches it, so headers that may hold a size are breaks, too."""
    at, size = found.at // UNIT, found.size.copy()
    place = _places(at, units_behind(at, size))
    breaks = np.union1d(np.flatnonzero(place != np.arange(1, len(at) + 1)), may_resize(data, found))
    runs, current = [], 0
    while current < len(at):
        runs.append(_run(current, breaks, len(at)))
        current, value = int(place[runs[-1][-1]]), pax_size(data, found, int(runs[-1][-1]))
        while value is not None and current < len(at):
            runs.append(np.array([current]))
            if not EXTENDS[found.kind[current]]:
                size[current] = 0 if WITHOUT_BODY[found.kind[current]] else value
                place[current] = _places(at, units_behind(at[current : current + 1], size[current : current + 1]))[0]
                value = None
            current = int(place[current])
    return Headers(found.at, found.kind, size).of(np.concatenate(runs))


def _places(at: Indices, follows: Indices) -> Indices:
    """The number of the candidate at each of some units; the number of candidates if there is none."""
    place = np.searchsorted(at, follows)
    known = place < len(at)
    known[known] = at[place[known]] == follows[known]
    place[~known] = len(at)
    return place


def _run(current: int, breaks: Indices, count: int) -> Indices:
    """The candidates from one to the next break."""
    nearest = int(np.searchsorted(breaks, current))
    return np.arange(current, int(breaks[nearest]) + 1 if nearest < len(breaks) else count)
