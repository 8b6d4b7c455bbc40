"""The headers of a tar archive as arrays: ustar, GNU and PAX.

Headers are found by their magic at strides of 512 bytes, and kept where the chain of sizes from the first header
leads to them, so that an archive within an archive is not taken for members: whatever bodies hold, it says nothing of
names, sizes or links. No Python runs a member, except for names and sizes that do not fit a header. Checksums of all
headers are checked, and what Python's tarfile and GNU tar read in different ways is refused.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corgi2.formats.framed.frames import Bytes, Where
from corgi2.order import Indices

UNIT, NAME_BYTES = 512, 100
_ROWS = 1 << 13
"""Headers that are looked at as a whole at a time: 4 MB."""
_BAND = 64
"""Names that are looked at as one row: numpy is slow at many short ones."""
REPACK = "pack the archive again, for example with: tar --sort=name --hard-dereference -cf NEW.tar FOLDER"

_NAME, _SHORT_NAME, _SIZE, _SUM, _KIND, _LINK, _MAGIC, _PREFIX = (
    slice(0, NAME_BYTES),
    slice(0, 32),
    slice(124, 136),
    slice(148, 156),
    156,
    slice(157, 257),
    slice(257, 263),
    slice(345, 500),
)
_HUGE, _HUGE_DIGITS = 1 << 62, 19
_REFUSED = {
    ord("S"): "a sparse member; pack the archive again without --sparse",
    ord("M"): "a member of a multi-volume archive; join its volumes first",
    ord("V"): "a volume header; pack the archive again without --label",
    ord("D"): "an incremental dump; pack the archive again without --incremental",
}


def _kinds(characters: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(characters)] = True
    return table


_EXTENDS = _kinds(b"xgLK")
_WITHOUT_BODY = _kinds(b"123456")


@dataclass(frozen=True, slots=True)
class Headers:
    """Headers on the chain, extended ones too: offset, kind, size of the body."""

    at: Indices
    kind: Bytes
    size: Indices

    def of(self, which: Indices | slice) -> "Headers":
        return Headers(self.at[which], self.kind[which], self.size[which])


@dataclass(frozen=True, slots=True)
class Archive:
    """Members of an archive: ``start`` is the offset of their first header, the extended ones before them included."""

    start: Indices
    body: Indices
    size: Indices
    kind: Bytes
    names: Bytes
    """A row a member, filled up with zeros; empty where the name is in ``long_names``."""
    long_names: dict[int, bytes]
    links: dict[int, bytes]
    """Targets of hard links."""
    stop: int
    """The offset behind the last member. Of that one no more than its headers may lie in the data."""
    reach: int
    """The same behind extended headers that follow it and whose own member does not lie in the data."""
    ended: bool
    """An end mark lies there."""

    def name(self, member: int) -> bytes:
        long = self.long_names.get(member)
        return self.names[member].tobytes().rstrip(b"\0") if long is None else long


def read_archive(data: Bytes, where: Where) -> Archive:
    """The members whose headers lie at the front of the data, which starts at a header."""
    headers, stop, ended = _chain(data, where)
    real = np.flatnonzero(~_EXTENDS[headers.kind])
    complete = int(real[-1]) + 1 if len(real) else 0
    if complete < len(headers.at) and (ended or where.last):
        raise where.error(int(headers.at[complete]), f"an extended header without a member behind it; {REPACK}")
    firsts = np.concatenate([[0], real[:-1] + 1]) if len(real) else real
    at = headers.at[real]
    if not where.known:
        _check_extended(data, headers, where)
    long_names, links = _extended_names(data, headers, real, where)
    grid = _grid(data)
    names = [_names(grid, at[start : start + _ROWS] // UNIT) for start in range(0, len(at), _ROWS)]
    return Archive(
        headers.at[firsts],
        at + UNIT,
        headers.size[real],
        headers.kind[real],
        _stacked(names),
        long_names,
        links,
        int(_follows(at[-1:] // UNIT, headers.size[real[-1:]])[0]) * UNIT if len(at) else 0,
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


def _grid(data: Bytes) -> Bytes:
    """A row a unit."""
    return data[: len(data) // UNIT * UNIT].reshape(-1, UNIT)


def _names(grid: Bytes, at: Indices) -> Bytes:
    """The names in the headers of these units. Most are short, which a zero behind them tells."""
    short = _field(grid, _SHORT_NAME, at)
    return _terminated(_field(grid, _NAME, at) if short[:, -1].any() else short)


def _field(grid: Bytes, place: slice, at: Indices) -> Bytes:
    """A field of the headers of these units: a row each. Rows are copied as one item, not byte by byte."""
    width = place.stop - place.start
    return grid[:, place].view(f"V{width}")[:, 0][at].view(np.uint8).reshape(-1, width)


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


def _chain(data: Bytes, where: Where) -> tuple[Headers, int, bool]:
    """The headers, from the first on; where the last one leads, and whether an end mark lies there."""
    grid = _grid(data)
    front, rest = slice(_MAGIC.start, _MAGIC.start + 4), _MAGIC.start + 4  # four bytes compare as one number
    at = np.flatnonzero(grid[:, front].view("<u4") == int.from_bytes(b"usta", "little"))
    at = at[grid[at, rest] == ord("r")]
    kind = grid[at, _KIND]
    kind[kind == ord("X")] = ord("x")  # as Solaris had it first
    found = Headers(at * UNIT, kind, np.where(_WITHOUT_BODY[kind], 0, _numbers(_field(grid, _SIZE, at))))
    taken = _follow(at, _follows(at, found.size))
    headers = found.of(taken)
    if _with_field(b" size=", data, headers):
        headers = _follow_resized(data, found)
        _check_sizes(data, headers, where)
    for start in range(0, 0 if where.known else len(headers.at), _ROWS):
        part = headers.of(slice(start, start + _ROWS))
        _check_headers(grid[part.at // UNIT], part, where)
    stop = int(_follows(headers.at[-1:] // UNIT, headers.size[-1:])[0]) if len(headers.at) else 0
    if stop >= len(grid):
        return _cut_short(data, headers, stop * UNIT, where)
    if not grid[stop].any():
        return headers, stop * UNIT, True
    if stop == 0 and where.base == 0:
        raise where.error(0, "not a tar archive (no ustar header); is the file's name right, is it compressed?")
    _check_extended(data, headers, where)  # what is refused there may be why
    raise where.error(stop * UNIT, f"no member header where one must be: the archive is damaged; {REPACK}")


def _cut_short(data: Bytes, headers: Headers, stop: int, where: Where) -> tuple[Headers, int, bool]:
    """The chain leads to the end of the data, or behind it."""
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
    if stop > len(data) and _EXTENDS[headers.kind[-1]]:  # what it says cannot be known yet
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
    """The same where a size in an extended header replaces that of the member behind it. Whether such a header counts
    is known when the chain comes to it: those that may hold a size are breaks, too."""
    at, size = found.at // UNIT, found.size.copy()
    place = _places(at, _follows(at, size))
    breaks = np.union1d(np.flatnonzero(place != np.arange(1, len(at) + 1)), _may_resize(data, found))
    runs, current = [], 0
    while current < len(at):
        runs.append(_run(current, breaks, len(at)))
        current, value = int(place[runs[-1][-1]]), _pax_size(data, found, int(runs[-1][-1]))
        while value is not None and current < len(at):
            runs.append(np.array([current]))
            if not _EXTENDS[found.kind[current]]:
                size[current] = 0 if _WITHOUT_BODY[found.kind[current]] else value
                place[current] = _places(at, _follows(at[current : current + 1], size[current : current + 1]))[0]
                value = None
            current = int(place[current])
    return Headers(found.at, found.kind, size).of(np.concatenate(runs))


def _follows(at: Indices, size: Indices) -> Indices:
    """The unit behind a member whose header lies in this one."""
    return at + 1 + (size + UNIT - 1) // UNIT


def _places(at: Indices, follows: Indices) -> Indices:
    """Which candidate lies at each of some units; one more than there are where none does."""
    place = np.searchsorted(at, follows)
    known = place < len(at)
    known[known] = at[place[known]] == follows[known]
    place[~known] = len(at)
    return place


def _run(current: int, breaks: Indices, count: int) -> Indices:
    """The candidates from one to the next break."""
    nearest = int(np.searchsorted(breaks, current))
    return np.arange(current, int(breaks[nearest]) + 1 if nearest < len(breaks) else count)


def _numbers(fields: Bytes) -> Indices:
    """Octal numbers, or GNU's base 256 for large ones; what is neither is as large as can be."""
    digit = (fields & 0xF8) == ord("0")
    usual = fields.shape[1] - 1  # digits, then a zero or a space
    if digit[:, :usual].all() and ((fields[:, usual] == 0) | (fields[:, usual] == ord(" "))).all():
        return _octal(fields) >> 3
    value = np.zeros(len(fields), np.int64)
    for column in range(fields.shape[1]):
        value = np.where(digit[:, column], value * 8 + (fields[:, column] & 7), value)
    value[~(digit | (fields == 0) | (fields == ord(" "))).all(axis=1)] = _HUGE
    for row in np.flatnonzero(fields[:, 0] == 0x80).tolist():
        value[row] = min(int.from_bytes(fields[row, 1:].tobytes(), "big"), _HUGE)
    return value


def _octal(fields: Bytes) -> Indices:
    """Numbers of as many digits as there are columns: the digits of four columns at once, then pairs of them."""
    value = np.zeros(len(fields), np.int64)
    for four in (fields & 7).view("<u4").T:
        twos = (four << 3 | four >> 8) & 0x003F003F
        value = value << 12 | (twos << 6 | twos >> 16) & 0xFFF
    return value


def _check_headers(rows: Bytes, headers: Headers, where: Where) -> None:
    stated = _numbers(rows[:, _SUM])
    total = rows.sum(axis=1, dtype=np.uint32).astype(np.int64) - rows[:, _SUM].sum(axis=1) + 8 * ord(" ")
    for row in np.flatnonzero(stated != total).tolist():
        high = np.delete(rows[row], range(_SUM.start, _SUM.stop)) >= 0x80  # a few old writers summed signed bytes
        if stated[row] != total[row] - 256 * int(high.sum()):
            raise where.error(int(headers.at[row]), f"the header's checksum is wrong: it is damaged; {REPACK}")
    for row in np.flatnonzero(np.isin(headers.kind, list(_REFUSED))).tolist():
        raise where.error(int(headers.at[row]), _REFUSED[int(headers.kind[row])])


def _pax_size(data: Bytes, headers: Headers, header: int) -> int | None:
    """The size that an extended header gives to the member behind it, if it does."""
    value = _pax(data, headers, header)[0].get(b"size", b"") if headers.kind[header] == ord("x") else b""
    if not value.isdigit():
        return None
    return int(value) if len(value) < _HUGE_DIGITS else _HUGE


def _with_field(word: bytes, data: Bytes, headers: Headers) -> list[int]:
    """Which extended headers on the chain hold a word."""
    extended = np.flatnonzero(headers.kind == ord("x"))
    if not len(extended):
        return []
    short, long = _by_size(data, headers, extended)
    found = _short_with(word, data, headers, short)
    return sorted(found + [header for header in long.tolist() if word in _body(data, headers, header)])


def _may_resize(data: Bytes, headers: Headers) -> Indices:
    """Which extended headers, on the chain or not, may hold a size. Long ones are not looked at: they may overlap."""
    short, long = _by_size(data, headers, np.flatnonzero(headers.kind == ord("x")))
    return np.append(long, np.array(_short_with(b" size=", data, headers, short), np.int64))


def _by_size(data: Bytes, headers: Headers, extended: Indices) -> tuple[Indices, Indices]:
    """Extended headers that are complete: those of the usual length, and longer ones."""
    at, size = headers.at[extended] + UNIT, headers.size[extended]
    is_short = size <= UNIT
    return extended[is_short & (at + UNIT <= len(data))], extended[~is_short & (size <= len(data) - at)]


def _short_with(word: bytes, data: Bytes, headers: Headers, short: Indices) -> list[int]:
    """Which of some short extended headers hold a word, by one search over all of them. What lies behind their text in
    their last unit may hold it by chance; whoever asks for the field finds out."""
    text = _grid(data)[headers.at[short] // UNIT + 1].tobytes()
    found, position = [], text.find(word)
    while position >= 0:
        found.append(int(short[position // UNIT]))
        position = text.find(word, (position // UNIT + 1) * UNIT)
    return found


def _checked_pax(data: Bytes, headers: Headers, header: int, where: Where) -> dict[bytes, bytes]:
    fields, read = _pax(data, headers, header)
    if _body(data, headers, header)[read:].strip(b"\0"):  # a few writers fill the unit up, and count that
        raise where.error(int(headers.at[header]) + UNIT + read, f"an extended header is damaged; {REPACK}")
    return fields


def _pax(data: Bytes, headers: Headers, header: int) -> tuple[dict[bytes, bytes], int]:
    """The fields of an extended header, ``<length> <key>=<value>\\n`` one after another, and how far they are sound."""
    text, fields, at = _body(data, headers, header), {}, 0
    while at < len(text):
        digits, space, _ = text[at : at + 20].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = text[at + len(digits) + 1 : at + length].partition(b"=")
        if not space or not equals or not value.endswith(b"\n") or at + length > len(text):
            break
        fields[key] = value[:-1]
        at += length
    return fields, at


def _body(data: Bytes, headers: Headers, header: int) -> bytes:
    start = int(headers.at[header]) + UNIT
    return data[start : start + int(headers.size[header])].tobytes()


def _extended_names(
    data: Bytes, headers: Headers, real: Indices, where: Where
) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Names that come from GNU's long names, from PAX, or from a prefix; and the targets of hard links."""
    names, links = _prefixed(data, headers, real), _link_fields(data, headers, real)
    if len(real) == len(headers.kind):
        return names, links
    gnu = _gnu_names(data, headers, real)
    pax = _pax_names(data, headers, real, where)
    for long, texts in zip(gnu, pax, strict=True):
        for member in long.keys() & texts.keys():
            if long[member] != texts[member] and member < len(real) and not where.known:
                raise where.error(
                    int(headers.at[real[member]]),
                    f"two names for one member, of which programs read the one or the other; {REPACK}",
                )
    names |= {member: name for member, name in (gnu[0] | pax[0]).items() if member < len(real)}
    return names, links | {member: link for member, link in (gnu[1] | pax[1]).items() if member in links}


def _gnu_names(data: Bytes, headers: Headers, real: Indices) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Names, and targets of links, of the members behind GNU's headers of either kind."""
    texts: tuple[dict[int, bytes], dict[int, bytes]] = {}, {}
    for place, kind in enumerate(b"LK"):
        for header in np.flatnonzero(headers.kind == kind).tolist():
            texts[place][int(np.searchsorted(real, header))] = _body(data, headers, header).partition(b"\0")[0]
    return texts


def _pax_names(data: Bytes, headers: Headers, real: Indices, where: Where) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """The same, of PAX."""
    texts: tuple[dict[int, bytes], dict[int, bytes]] = {}, {}
    for header in _with_field(b"path=", data, headers):  # in linkpath, too
        member, fields = int(np.searchsorted(real, header)), _checked_pax(data, headers, header, where)
        for place, key in enumerate((b"path", b"linkpath")):
            if key in fields:
                texts[place][member] = fields[key]
    return texts


def _check_extended(data: Bytes, headers: Headers, where: Where) -> None:
    """Refuse what an extended header may say and a member that moves cannot keep, or that readers do not agree on."""
    if not _EXTENDS[headers.kind].any():
        return
    _check_single(headers, where)
    for header in _with_field(b" GNU.sparse.", data, headers):
        if any(key.startswith(b"GNU.sparse.") for key in _checked_pax(data, headers, header, where)):
            raise where.error(int(headers.at[header]), _REFUSED[ord("S")])
    for header in np.flatnonzero(headers.kind == ord("g")).tolist():
        if foreign := _checked_pax(data, headers, header, where).keys() - {b"comment"}:
            raise where.error(
                int(headers.at[header]),
                f"a global header sets {b', '.join(sorted(foreign)).decode(errors='replace')} for all members behind, "
                f"which would be lost when they move; {REPACK}",
            )


def _check_sizes(data: Bytes, headers: Headers, where: Where) -> None:
    for header in [] if where.known else _with_field(b" size=", data, headers):
        if not (size := _checked_pax(data, headers, header, where).get(b"size", b"0")).isdigit():
            text = size[:20].decode(errors="replace")
            raise where.error(int(headers.at[header]), f"an extended header gives {text!r} as a size; {REPACK}")


def _check_single(headers: Headers, where: Where) -> None:
    """Of two headers that say the same of one member, Python's tarfile believes the first, and GNU tar the second."""
    real = np.flatnonzero(~_EXTENDS[headers.kind])
    for kind in b"xLK":
        extended = np.flatnonzero(headers.kind == kind)
        member = np.searchsorted(real, extended)
        for twice in extended[1:][member[1:] == member[:-1]].tolist():
            raise where.error(
                int(headers.at[twice]),
                f"a second extended header for one member, of which programs read the one or the other; {REPACK}",
            )


def _prefixed(data: Bytes, headers: Headers, real: Indices) -> dict[int, bytes]:
    """POSIX puts the front of a name of more than 100 bytes into a field of its own. GNU uses the field otherwise."""
    at = headers.at[real]
    posix = np.flatnonzero((data[at + _MAGIC.start + 5] == 0) & (data[at + _PREFIX.start] != 0))
    names = {}
    for member in posix.tolist():
        header = data[at[member] : at[member] + UNIT]
        prefix, name = (header[field].tobytes().partition(b"\0")[0] for field in (_PREFIX, _NAME))
        names[member] = prefix + b"/" + name
    return names


def _link_fields(data: Bytes, headers: Headers, real: Indices) -> dict[int, bytes]:
    return {
        member: data[headers.at[real[member]] :][_LINK].tobytes().partition(b"\0")[0]
        for member in np.flatnonzero(headers.kind[real] == ord("1")).tolist()
    }
