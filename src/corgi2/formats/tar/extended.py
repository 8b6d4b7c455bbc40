"""What extended headers say about the members after them: names, targets of links and sizes, in GNU and PAX form.

Refused: anything that Python's tarfile and GNU tar read differently, and anything that a member loses when it moves.
"""

import numpy as np

from corgi2.formats.framed.frames import Bytes, Where
from corgi2.formats.tar.headers import (
    EXTENDS,
    HUGE,
    LINK,
    MAGIC,
    NAME,
    PREFIX,
    REFUSED,
    REPACK,
    RESTORE,
    UNIT,
    Headers,
    units,
)
from corgi2.order import Indices

_HUGE_DIGITS = 19


def pax_size(data: Bytes, headers: Headers, header: int) -> int | None:
    """The size that an extended header gives to the member after it, if any."""
    value = _pax(data, headers, header)[0].get(b"size", b"") if headers.kind[header] == ord("x") else b""
    if not value.isdigit():
        return None
    return int(value) if len(value) < _HUGE_DIGITS else HUGE


def with_field(word: bytes, data: Bytes, headers: Headers) -> list[int]:
    """Which extended headers on the chain hold a word."""
    extended = np.flatnonzero(headers.kind == ord("x"))
    if not len(extended):
        return []
    short, long = _by_size(data, headers, extended)
    found = _short_with(word, data, headers, short)
    return sorted(found + [header for header in long.tolist() if word in _body(data, headers, header)])


def may_resize(data: Bytes, headers: Headers) -> Indices:
    """Which extended headers, on the chain or not, may hold a size. Long ones are not looked at: they may overlap."""
    short, long = _by_size(data, headers, np.flatnonzero(headers.kind == ord("x")))
    return np.append(long, np.array(_short_with(b" size=", data, headers, short), np.int64))


def _by_size(data: Bytes, headers: Headers, extended: Indices) -> tuple[Indices, Indices]:
    """Extended headers that are complete: those of the usual length, and longer ones."""
    at, size = headers.at[extended] + UNIT, headers.size[extended]
    is_short = size <= UNIT
    return extended[is_short & (at + UNIT <= len(data))], extended[~is_short & (size <= len(data) - at)]


def _short_with(word: bytes, data: Bytes, headers: Headers, short: Indices) -> list[int]:
    """Which of some short extended headers hold a word, by one search over all of them. The rest of the last unit
    may hold it by chance; the caller that looks for the field finds out."""
    text = units(data)[headers.at[short] // UNIT + 1].tobytes()
    found, position = [], text.find(word)
    while position >= 0:
        found.append(int(short[position // UNIT]))
        position = text.find(word, (position // UNIT + 1) * UNIT)
    return found


def _checked_pax(data: Bytes, headers: Headers, header: int, where: Where) -> dict[bytes, bytes]:
    fields, read = _pax(data, headers, header)
    if _body(data, headers, header)[read:].strip(b"\0"):  # a few writers fill the unit up, and count that
        raise where.error(int(headers.at[header]) + UNIT + read, f"an extended header is damaged; {RESTORE}")
    return fields


def _pax(data: Bytes, headers: Headers, header: int) -> tuple[dict[bytes, bytes], int]:
    """The fields of an extended header, a sequence of ``<length> <key>=<value>\\n``, and where the sound ones end."""
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


def extended_names(
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
                    f"two names for one member, and programs differ in which one they read; {REPACK}",
                )
    names |= {member: name for member, name in (gnu[0] | pax[0]).items() if member < len(real)}
    return names, links | {member: link for member, link in (gnu[1] | pax[1]).items() if member in links}


def _gnu_names(data: Bytes, headers: Headers, real: Indices) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Names, and targets of links, of the members after GNU's headers of either kind."""
    texts: tuple[dict[int, bytes], dict[int, bytes]] = {}, {}
    for place, kind in enumerate(b"LK"):
        for header in np.flatnonzero(headers.kind == kind).tolist():
            texts[place][int(np.searchsorted(real, header))] = _body(data, headers, header).partition(b"\0")[0]
    return texts


def _pax_names(data: Bytes, headers: Headers, real: Indices, where: Where) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """The same for PAX headers."""
    texts: tuple[dict[int, bytes], dict[int, bytes]] = {}, {}
    for header in with_field(b"path=", data, headers):  # in linkpath, too
        member, fields = int(np.searchsorted(real, header)), _checked_pax(data, headers, header, where)
        for place, key in enumerate((b"path", b"linkpath")):
            if key in fields:
                texts[place][member] = fields[key]
    return texts


def check_extended(data: Bytes, headers: Headers, where: Where) -> None:
    """Refuse contents of extended headers that a member loses when it moves, or that readers do not agree on."""
    if not EXTENDS[headers.kind].any():
        return
    _check_single(headers, where)
    for header in with_field(b" GNU.sparse.", data, headers):
        if any(key.startswith(b"GNU.sparse.") for key in _checked_pax(data, headers, header, where)):
            raise where.error(int(headers.at[header]), REFUSED[ord("S")])
    for header in np.flatnonzero(headers.kind == ord("g")).tolist():
        if foreign := _checked_pax(data, headers, header, where).keys() - {b"comment"}:
            raise where.error(
                int(headers.at[header]),
                f"a global header sets {b', '.join(sorted(foreign)).decode(errors='replace')} for all later members, "
                f"which would be lost when they move; {REPACK}",
            )


def check_sizes(data: Bytes, headers: Headers, where: Where) -> None:
    for header in [] if where.known else with_field(b" size=", data, headers):
        if not (size := _checked_pax(data, headers, header, where).get(b"size", b"0")).isdigit():
            text = size[:20].decode(errors="replace")
            raise where.error(int(headers.at[header]), f"an extended header gives {text!r} as a size; {REPACK}")


def _check_single(headers: Headers, where: Where) -> None:
    """If two headers describe the same of one member, Python's tarfile believes the first, and GNU tar the second."""
    real = np.flatnonzero(~EXTENDS[headers.kind])
    for kind in b"xLK":
        extended = np.flatnonzero(headers.kind == kind)
        member = np.searchsorted(real, extended)
        for twice in extended[1:][member[1:] == member[:-1]].tolist():
            raise where.error(
                int(headers.at[twice]),
                f"a second extended header for one member, and programs differ in which one they read; {REPACK}",
            )


def _prefixed(data: Bytes, headers: Headers, real: Indices) -> dict[int, bytes]:
    """POSIX puts the front of a name of more than 100 bytes into a field of its own. GNU uses the field differently."""
    at = headers.at[real]
    posix = np.flatnonzero((data[at + MAGIC.start + 5] == 0) & (data[at + PREFIX.start] != 0))
    names = {}
    for member in posix.tolist():
        header = data[at[member] : at[member] + UNIT]
        prefix, name = (header[field].tobytes().partition(b"\0")[0] for field in (PREFIX, NAME))
        names[member] = prefix + b"/" + name
    return names


def _link_fields(data: Bytes, headers: Headers, real: Indices) -> dict[int, bytes]:
    return {
        member: data[headers.at[real[member]] :][LINK].tobytes().partition(b"\0")[0]
        for member in np.flatnonzero(headers.kind[real] == ord("1")).tolist()
    }
