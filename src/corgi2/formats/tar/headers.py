"""The headers of a tar archive as arrays: their fields, their numbers and their checksums.

A header is one unit of 512 bytes. The checksums of all headers are checked, and sparse, multi-volume and incremental
members are refused.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from corgi2.formats.framed.frames import Bytes, Where
from corgi2.order import Indices

UNIT, NAME_BYTES = 512, 100

ROWS = 1 << 13
"""Headers whose bytes are all read at a time: 4 MB."""

RESTORE = "restore it from a copy, or from what it was made of"
"""For what is damaged: whoever packs what is left of it loses records."""

REPACK = "pack the archive again, for example with: tar --sort=name --hard-dereference -cf NEW.tar FOLDER"

NAME, SHORT_NAME, SIZE, _SUM, KIND, LINK, MAGIC, PREFIX = (
    slice(0, NAME_BYTES),
    slice(0, 32),
    slice(124, 136),
    slice(148, 156),
    156,
    slice(157, 257),
    slice(257, 263),
    slice(345, 500),
)

HUGE = 1 << 62

REFUSED = {
    ord("S"): "a sparse member; pack the archive again without --sparse",
    ord("M"): "a member of a multi-volume archive; join its volumes first",
    ord("V"): "a volume header; pack the archive again without --label",
    ord("D"): "an incremental dump; pack the archive again without --incremental",
}


def _kinds(characters: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(characters)] = True
    return table


EXTENDS = _kinds(b"xgLK")

WITHOUT_BODY = _kinds(b"123456")


@dataclass(frozen=True, slots=True)
class Headers:
    """Headers on the chain, including extended ones: offset, kind, size of the body."""

    at: Indices
    kind: Bytes
    size: Indices

    def of(self, which: Indices | slice) -> "Headers":
        return Headers(self.at[which], self.kind[which], self.size[which])


def units(data: Bytes) -> Bytes:
    """One row per unit."""
    return data[: len(data) // UNIT * UNIT].reshape(-1, UNIT)


def field_of(grid: Bytes, place: slice, at: Indices) -> Bytes:
    """A field of the headers of these units: one row per header. Rows are copied as one item, not byte by byte."""
    width = place.stop - place.start
    return grid[:, place].view(f"V{width}")[:, 0][at].view(np.uint8).reshape(-1, width)


def units_behind(at: Indices, size: Indices) -> Indices:
    """The unit after a member whose header lies in this one."""
    return at + 1 + (size + UNIT - 1) // UNIT


def numbers(fields: Bytes) -> Indices:
    """Octal numbers, or GNU's base 256 for large ones; anything else counts as the largest number."""
    digit = (fields & 0xF8) == ord("0")
    usual = fields.shape[1] - 1  # digits, then a zero or a space
    if digit[:, :usual].all() and ((fields[:, usual] == 0) | (fields[:, usual] == ord(" "))).all():
        return _octal(fields) >> 3
    value = np.zeros(len(fields), np.int64)
    for column in range(fields.shape[1]):
        value = np.where(digit[:, column], value * 8 + (fields[:, column] & 7), value)
    value[~(digit | (fields == 0) | (fields == ord(" "))).all(axis=1)] = HUGE
    for row in np.flatnonzero(fields[:, 0] == 0x80).tolist():
        value[row] = min(int.from_bytes(fields[row, 1:].tobytes(), "big"), HUGE)
    return value


def _octal(fields: Bytes) -> Indices:
    """Numbers of as many digits as there are columns: the digits of four columns at once, then pairs of them."""
    value = np.zeros(len(fields), np.int64)
    for four in (fields & 7).view("<u4").T:
        twos = (four << 3 | four >> 8) & 0x003F003F
        value = value << 12 | (twos << 6 | twos >> 16) & 0xFFF
    return value


def check_headers(rows: Bytes, headers: Headers, where: Where) -> None:
    stated = numbers(rows[:, _SUM])
    total = rows.sum(axis=1, dtype=np.uint32).astype(np.int64) - rows[:, _SUM].sum(axis=1) + 8 * ord(" ")
    for row in np.flatnonzero(stated != total).tolist():
        high = np.delete(rows[row], range(_SUM.start, _SUM.stop)) >= 0x80  # a few old writers summed signed bytes
        if stated[row] != total[row] - 256 * int(high.sum()):
            raise where.error(int(headers.at[row]), f"the header's checksum is wrong: it is damaged; {RESTORE}")
    for row in np.flatnonzero(np.isin(headers.kind, list(REFUSED))).tolist():
        raise where.error(int(headers.at[row]), REFUSED[int(headers.kind[row])])
