"""CRC-32C (Castagnoli's) of many ranges of bytes at once, on arrays: no compiled package is needed.

If google-crc32c is installed, it is used for ranges that are long enough for its calls to pay.

Bytes are a polynomial over GF(2), and their checksum is the remainder modulo a polynomial P. Some multiples M of P have
few terms, such as x^8192 + x^4052 + x^2155 + x^66. With M(x), all of M(x^2), M(x^4), … are multiples, since squaring is
linear. So what lies 8192 units of 1, 2, 4, … bytes before the end may be added (by XOR) in three other places, and be
taken away: half of the bytes are gone after three XORs of arrays. The last 256 bytes are looked up one by one.

Ranges are cut into lanes of one width from their ends, because zeros in front of a message change nothing. Memory:
about three times `_STEP_BYTES`, and a few bytes per lane.
"""

from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from corgi2.order import Indices

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

_POLYNOMIAL = np.uint32(0x82F63B78)
"""P without its highest term. The highest bit of a word is the coefficient of x^0."""
_X8, _ONE_BIT, _ALL = np.uint32(1 << 23), np.uint32(1), np.uint32(0xFFFFFFFF)

FOLDS = ((8192, (66, 2155, 4052)), (512, (2, 69, 158, 198, 253)), (256, (0, 1, 13, 27, 54, 80, 118)))
"""Multiples of P: the highest exponent, and the others, none of which is above half of it."""

_LEFT = 256
"""Bytes of a lane that are looked up."""
_LONG = 500
"""Bytes from which on a range is given to a compiled function by itself."""
_NARROWEST, _WIDEST = 8, 1 << 15
_STEP_BYTES = 1 << 20
"""Lanes that are folded at a time: they stay in a core's cache."""
_MASK_DELTA = np.uint32(0xA282EAD8)


def masked_crc32c(data: Bytes, start: Indices, stop: Indices) -> Words:
    """The checksum of each range, at least 8 bytes of data in all, as TFRecord stores it."""
    crc = crc32c(data, start, stop)
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + _MASK_DELTA


def crc32c(data: Bytes, start: Indices, stop: Indices) -> Words:
    """The checksum of each range."""
    if not len(start):
        return np.empty(0, np.uint32)
    compiled = _compiled() if int((stop - start).mean()) >= _LONG else None
    if compiled is None:
        return crc32c_of_lanes(data, start, stop)
    ranges = zip(start.tolist(), stop.tolist(), strict=True)
    return np.fromiter((compiled(data[first:last]) for first, last in ranges), np.uint32, len(start))


@cache
def _compiled() -> Callable[[Bytes], int] | None:
    try:
        import google_crc32c
    except ImportError:
        return None
    return google_crc32c.value if google_crc32c.implementation == "c" else None


def crc32c_of_lanes(data: Bytes, start: Indices, stop: Indices) -> Words:
    """The same, by NumPy alone."""
    sizes = stop - start
    width = _width_for(int(sizes.mean()))
    if width > len(data):
        width //= 2
    lanes = np.maximum(1, -(-sizes // width))
    first = np.cumsum(lanes) - lanes
    behind = np.repeat(first + lanes, lanes) - np.arange(1, int(lanes.sum()) + 1)
    begin = np.repeat(stop, lanes) - width * (behind + 1)
    sums = _lane_sums(data, begin, np.repeat(start, lanes) - begin, width)
    sums[first] ^= _starts()[sizes - width * (lanes - 1)]
    sums = _times(sums, _powers(width, 1 << int(lanes.max()).bit_length())[behind])
    return np.bitwise_xor.reduceat(sums, first) ^ _ALL


def _width_for(size: int) -> int:
    """A power of two, not much above most ranges, so that lanes hold little more than twice as much."""
    return int(min(_WIDEST, max(_NARROWEST, 1 << max(0, (size + size // 8).bit_length() - 1))))


def _lane_sums(data: Bytes, begin: Indices, gap: Indices, width: int) -> Words:
    """The remainder of each lane, of which the first ``gap`` bytes are not its own."""
    lying = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    sums, step = np.empty(len(begin), np.uint32), max(1, _STEP_BYTES // width)
    for at in range(0, len(begin), step):
        begins = begin[at : at + step]
        lanes = lying[np.maximum(begins, 0)].view(np.uint8).reshape(-1, width)
        for lane in np.flatnonzero(begins < 0).tolist():  # of ranges at the very front
            lanes[lane, -int(begins[lane]) :] = data[: width + int(begins[lane])]
        _clear(lanes.view(np.uint64), gap[at : at + step])
        sums[at : at + step] = _looked_up(_folded(lanes))
    return sums


def _clear(lanes: npt.NDArray[np.uint64], gap: Indices) -> None:
    """Set the first bytes of lanes to zero."""
    rows = np.flatnonzero(gap > 0)
    if not len(rows):
        return
    words, rest = gap[rows] // 8, gap[rows] % 8
    lanes[rows] *= np.arange(lanes.shape[1]) >= words[:, None]
    partly = np.flatnonzero(rest)
    lanes[rows[partly], words[partly]] &= np.uint64(2**64 - 1) << (8 * rest[partly]).astype(np.uint64)


def _folded(lanes: Bytes) -> Bytes:
    """Lanes of at most 256 bytes with the same remainders. The lanes are used up."""
    while (width := lanes.shape[1]) > _LEFT:
        degree, others = next(fold for fold in FOLDS if 2 * fold[0] <= width)
        unit, quarter = width // (2 * degree), width // 4
        for at in (0, quarter):
            top = lanes[:, at : at + quarter].copy()
            for exponent in others:
                place = at + (degree - exponent) * unit
                target = lanes[:, place : place + quarter]
                np.bitwise_xor(target, top, out=target)
        lanes = lanes[:, width // 2 :]
    return lanes


def _looked_up(lanes: Bytes) -> Words:
    table, places = _table()
    sums: Words = np.bitwise_xor.reduce(table.take(lanes + places[-lanes.shape[1] :]), axis=1)
    return sums


@cache
def _table() -> tuple[Words, Indices]:
    """The remainder of each byte at each of the last 256 places, and where those of a place begin."""
    rows = [np.arange(256, dtype=np.uint32)]
    for _ in range(8):
        rows[0] = (rows[0] >> _ONE_BIT) ^ (_POLYNOMIAL * (rows[0] & _ONE_BIT))
    while len(rows) < _LEFT:
        rows.append(rows[0][rows[-1] & np.uint32(255)] ^ (rows[-1] >> np.uint32(8)))
    return np.concatenate(rows[::-1]), 256 * np.arange(_LEFT)


@cache
def _starts() -> Words:
    """A checksum starts with all bits set: what is left of them after so many bytes of a lane."""
    return _series(_ALL, _X8, _WIDEST + 1)


@lru_cache(maxsize=32)
def _powers(width: int, count: int) -> Words:
    """The factors of lanes that so many lanes follow."""
    ratio = np.array([_X8])
    for _ in range(width.bit_length() - 1):
        ratio = _times(ratio, ratio)
    return _series(np.uint32(1 << 31), ratio[0], count)


def _series(first: np.uint32, ratio: np.uint32, count: int) -> Words:
    """A geometric series."""
    series, factor = np.array([first]), np.array([ratio])
    while len(series) < count:
        series, factor = np.concatenate([series, _times(series, factor)]), _times(factor, factor)
    return series[:count]


def _times(one: Words, other: Words) -> Words:
    """Products modulo P."""
    product = np.zeros(np.broadcast_shapes(one.shape, other.shape), np.uint32)
    for bit in range(31, -1, -1):
        product ^= one * ((other >> np.uint32(bit)) & _ONE_BIT)
        one = (one >> _ONE_BIT) ^ (_POLYNOMIAL * (one & _ONE_BIT))
    return product
