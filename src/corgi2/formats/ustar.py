"""The headers of a tar archive as arrays: ustar, GNU and PAX.

Headers are found by their magic at strides of 512 bytes, and kept where the chain of sizes from the first header
leads to them, so that an archive within an archive is not taken for members. No Python runs a member, except for
names that do not fit a header. Checksums of all headers are checked.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corgi2.block import Indices
from corgi2.formats.framed import Bytes, Where
from corgi2.sizes import format_size

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
_HUGE = 1 << 62
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
    """The offset behind the last complete member."""
    ended: bool
    """An end mark lies there."""

    def name(self, member: int) -> bytes:
        long = self.long_names.get(member)
        return self.names[member].tobytes().rstrip(b"\0") if long is None else long


def read_archive(data: Bytes, where: Where) -> Archive:
    """The complete members at the front of the data, which starts at a header."""
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
    """The headers, from the first on; the offset behind the last member, and whether an end mark lies there."""
    grid = _grid(data)
    front, rest = slice(_MAGIC.start, _MAGIC.start + 4), _MAGIC.start + 4  # four bytes compare as one number
    at = np.flatnonzero(grid[:, front].view("<u4") == int.from_bytes(b"usta", "little"))
    at = at[grid[at, rest] == ord("r")]
    kind = grid[at, _KIND]
    size = np.where(_WITHOUT_BODY[kind], 0, _numbers(_field(grid, _SIZE, at)))
    size = _pax_sizes(data, Headers(at * UNIT, kind, size))
    follows = at + 1 + (size + UNIT - 1) // UNIT
    taken = _follow(at, follows)
    headers = Headers(at[taken] * UNIT, kind[taken], size[taken])
    for start in range(0, 0 if where.known else len(taken), _ROWS):
        part = slice(start, start + _ROWS)
        _check_headers(grid[at[taken[part]]], Headers(headers.at[part], headers.kind[part], headers.size[part]), where)
    stop = int(follows[taken[-1]]) if len(taken) else 0
    if stop >= len(grid):
        return _cut_short(data, headers, stop * UNIT, where)
    if not grid[stop].any():
        return headers, stop * UNIT, True
    if stop == 0 and where.base == 0:
        raise where.error(0, "not a tar archive (no ustar header); is the file's name right, is it compressed?")
    raise where.error(stop * UNIT, f"no member header where one must be: the archive is damaged; {REPACK}")


def _cut_short(data: Bytes, headers: Headers, stop: int, where: Where) -> tuple[Headers, int, bool]:
    """The chain leads to the end of the data, or behind it."""
    last = int(headers.at[-1]) if len(headers.at) else 0
    if stop > where.limit:
        raise where.error(
            last,
            f"member claims {int(headers.size[-1])} bytes, but at most {where.limit - last - UNIT} can follow: "
            "the shard was cut short, or the header is damaged; restore it from its source",
        )
    if stop - last > where.most:
        raise where.too_large(last, format_size(int(headers.size[-1])))
    if where.last and len(data) % UNIT:
        raise where.error(len(data), "the archive ends in the middle of a header: it was cut short; restore it")
    if where.last and not len(data) and where.base == 0:
        raise where.error(0, "the shard is empty (zero bytes); restore it from its source, or remove it")
    if stop > len(data):
        return Headers(headers.at[:-1], headers.kind[:-1], headers.size[:-1]), last, False
    return headers, stop, False


def _follow(at: Indices, follows: Indices) -> Indices:
    """Which candidates lie on the chain from unit 0. Steps from break to break, not from member to member."""
    if not len(at) or at[0] != 0:
        return np.empty(0, np.int64)
    if (follows[:-1] == at[1:]).all():
        return np.arange(len(at))
    place = np.searchsorted(at, follows)
    known = place < len(at)
    known[known] = at[place[known]] == follows[known]
    place[~known] = len(at)
    breaks = np.flatnonzero(place != np.arange(1, len(at) + 1))
    runs, current = [], 0
    while current < len(at):
        nearest = int(np.searchsorted(breaks, current))
        stop = int(breaks[nearest]) if nearest < len(breaks) else len(at) - 1
        runs.append(np.arange(current, stop + 1))
        current = int(place[stop])
    return np.concatenate(runs)


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


def _pax_sizes(data: Bytes, headers: Headers) -> Indices:
    """A size in an extended header replaces that of the member that follows."""
    size = headers.size
    for header in _with_field(b" size=", data, headers):
        value = _pax(data, headers, header)[0].get(b"size", b"")
        target = header + 1
        while target < len(size) and _EXTENDS[headers.kind[target]]:
            target += 1
        if value.isdigit() and len(value) < 20 and target < len(size) and not _WITHOUT_BODY[headers.kind[target]]:
            size = size.copy()
            size[target] = min(int(value), _HUGE)
    return size


def _with_field(word: bytes, data: Bytes, headers: Headers) -> list[int]:
    """Which extended headers hold a word: one search over all bodies of the usual length, then the long ones."""
    extended = np.flatnonzero(headers.kind == ord("x"))
    if not len(extended):
        return []
    at, size = headers.at[extended] + UNIT, headers.size[extended]
    short = np.flatnonzero((size <= UNIT) & (at + UNIT <= len(data)))
    text = _grid(data)[at[short] // UNIT].tobytes()
    found, position = [], text.find(word)
    while position >= 0:
        found.append(int(extended[short[position // UNIT]]))
        position = text.find(word, (position // UNIT + 1) * UNIT)
    for long in np.flatnonzero((size > UNIT) & (at + size <= len(data))).tolist():
        if word in data[at[long] : at[long] + size[long]].tobytes():
            found.append(int(extended[long]))
    return sorted(found)


def _checked_pax(data: Bytes, headers: Headers, header: int, where: Where) -> dict[bytes, bytes]:
    fields, read = _pax(data, headers, header)
    if read < int(headers.size[header]):
        raise where.error(int(headers.at[header]) + UNIT + read, f"an extended header is damaged; {REPACK}")
    return fields


def _pax(data: Bytes, headers: Headers, header: int) -> tuple[dict[bytes, bytes], int]:
    """The fields of an extended header, ``<length> <key>=<value>\\n`` one after another, and how far they are sound."""
    text, fields, at = _body(data, headers, header), {}, 0
    while at < len(text):
        digits, space, _ = text[at : at + 20].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = text[at + len(digits) + 1 : at + length].partition(b"=")
        if not space or not equals or not value.endswith(b"\n"):
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
    for header in np.flatnonzero(np.isin(headers.kind, list(b"LK"))).tolist():
        member = int(np.searchsorted(real, header))
        text = _body(data, headers, header).partition(b"\0")[0]
        if headers.kind[header] == ord("L"):
            names[member] = text
        elif member in links:
            links[member] = text
    for header in _with_field(b"path=", data, headers):  # in linkpath, too
        member, fields = int(np.searchsorted(real, header)), _checked_pax(data, headers, header, where)
        if b"path" in fields:
            names[member] = fields[b"path"]
        if b"linkpath" in fields and member in links:
            links[member] = fields[b"linkpath"]
    return {member: name for member, name in names.items() if member < len(real)}, links


def _check_extended(data: Bytes, headers: Headers, where: Where) -> None:
    """Refuse what an extended header may say and a member that moves cannot keep."""
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
