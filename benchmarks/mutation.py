"""Damage, made from a number: the same number makes the same damage."""

import random
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise

import pyarrow as pa

from benchmarks.corpus import Field, Seed, masked_crc

_EXTREMES = (
    *(0, 1, 2, 7, 127, 255, 511, 512, 65_535, 1 << 20, 10**7),
    *(2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -1, -2, -(2**31), -(2**63)),
)
_RUNS = (b"\0", b"\xff", b"7", b"\n", b"[", b'"', b"9", b"ustar\0" + b"00", b"\x80")
_BOMB_BYTES = 80_000_000
Span = tuple[int, int]


def damaged(kind: str, pool: Sequence[Seed], rng: random.Random) -> bytes:
    """A sound shard of the pool with one to four faults, and at times with what would give them away repaired."""
    seed = rng.choice(pool)
    data = bytearray(seed.data)
    if seed.fields and rng.random() < 0.5:
        _set_extremes(kind, data, seed.fields, rng)
    inside = kind in _INSIDE and rng.random() < 0.5
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3)) or (data == seed.data)):
        fault = rng.choice(_FAULTS)
        if inside:
            _INSIDE[kind](data, fault, pool, rng)
        else:
            fault(data, pool, rng)
    if rng.random() < 0.7:
        _REPAIRS.get(kind, _leave)(data, seed)
    return bytes(data)


def _flip(data: bytearray, pool: Sequence[Seed], rng: random.Random) -> None:  # noqa: ARG001
    for _ in range(rng.choice((1, 1, 1, 2, 8)) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _scribble(data: bytearray, pool: Sequence[Seed], rng: random.Random) -> None:  # noqa: ARG001
    first, last = _span(data, rng)
    data[first:last] = rng.randbytes(last - first)


def _fill(data: bytearray, pool: Sequence[Seed], rng: random.Random) -> None:  # noqa: ARG001
    first, last = _span(data, rng)
    data[first:last] = (rng.choice(_RUNS) * (last - first))[: last - first]


def _truncate(data: bytearray, pool: Sequence[Seed], rng: random.Random) -> None:  # noqa: ARG001
    keep = rng.randrange(len(data) + 1)
    del data[keep // 512 * 512 if rng.random() < 0.3 else keep :]


def _insert(data: bytearray, pool: Sequence[Seed], rng: random.Random) -> None:  # noqa: ARG001
    at, length = rng.randrange(len(data) + 1), rng.choice((1, 2, 16, 512, 1024, 3000))
    data[at:at] = rng.randbytes(length) if rng.random() < 0.5 else (rng.choice(_RUNS) * length)[:length]


def _delete(data: bytearray, pool: Sequence[Seed], rng: random.Random) -> None:  # noqa: ARG001
    first, last = _span(data, rng)
    del data[first:last]


def _splice(data: bytearray, pool: Sequence[Seed], rng: random.Random) -> None:
    """The front of one shard and the back of another; half of the time at a tar's stride."""
    other = rng.choice(pool).data
    stride = rng.choice((1, 512))
    here, there = (rng.randrange(len(text) + 1) // stride * stride for text in (data, other))
    data[here:] = other[there:]


def _move(data: bytearray, pool: Sequence[Seed], rng: random.Random) -> None:  # noqa: ARG001
    """A copy of some bytes, at a tar's stride, somewhere else."""
    units = len(data) // 512
    if units:
        first, at = rng.randrange(units) * 512, rng.randrange(units) * 512
        data[at:at] = data[first : first + rng.randrange(1, 4) * 512]


Fault = Callable[[bytearray, Sequence[Seed], random.Random], None]
_FAULTS: tuple[Fault, ...] = (_flip, _flip, _flip, _scribble, _fill, _truncate, _insert, _delete, _splice, _move)


def _damage_pages(data: bytearray, fault: Fault, pool: Sequence[Seed], rng: random.Random) -> None:
    """A fault in the pages of a Parquet file, in place: most others never get past the footer."""
    stop = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    pages = data[4:stop]
    fault(pages, pool, rng)
    data[4:stop] = pages[: stop - 4].ljust(stop - 4, b"\0")


def _damage_bodies(data: bytearray, fault: Fault, pool: Sequence[Seed], rng: random.Random) -> None:
    """A fault in the body of an Arrow message, in place: most others never get past the headers."""
    heads = [match.start() for match in re.finditer(b"\xff\xff\xff\xff", data) if match.start() % 8 == 0]
    spans = [(at + 8 + int.from_bytes(data[at + 4 : at + 8], "little"), after) for at, after in pairwise(heads)]
    spans = [(first, last) for first, last in spans if first < last]
    if spans:
        first, last = rng.choice(spans)
        body = data[first:last]
        fault(body, pool, rng)
        data[first:last] = body[: last - first].ljust(last - first, b"\0")


_INSIDE: dict[str, Callable[[bytearray, Fault, Sequence[Seed], random.Random], None]] = {
    "parquet": _damage_pages,
    "arrow": _damage_bodies,
    "feather": _damage_bodies,
}


def _span(data: bytearray, rng: random.Random) -> Span:
    first = rng.randrange(len(data) + 1)
    return first, min(len(data), first + rng.choice((1, 2, 4, 8, 16, 64, 512)))


def _set_extremes(kind: str, data: bytearray, fields: Sequence[Field], rng: random.Random) -> None:
    """Some integers, or all that say the same (a consistent lie), become an extreme one."""
    value = rng.choice(_EXTREMES) if rng.random() < 0.8 else rng.getrandbits(rng.randrange(1, 64))
    chosen = rng.choice(fields)
    if rng.random() < 0.5:
        targets = [field for field in fields if field.value == chosen.value]
    else:
        targets = [*{chosen, *rng.choices(fields, k=rng.randrange(3))}]
    for field in sorted(targets, key=lambda field: field.start, reverse=True):
        _SETTERS[kind](data, field, value)


def _set_octal(data: bytearray, field: Field, value: int) -> None:
    width = field.stop - field.start
    text = b"%0*o" % (width - 1, value) if value >= 0 and width > 1 else b"%d" % value
    if len(text) > width:  # GNU's base 256
        text = (value % (1 << 8 * width) | 0x80 << 8 * (width - 1)).to_bytes(width, "big")
    data[field.start : field.stop] = text.ljust(width, b"\0")


def _set_decimal(data: bytearray, field: Field, value: int) -> None:
    data[field.start : field.stop] = b"%d" % value


def _set_varint(data: bytearray, field: Field, value: int) -> None:
    """In a page's header the page gives way, so that all offsets stay true; in the footer its length changes."""
    rest = ((value << 1) ^ (value >> 63)) % (1 << 64)
    text = bytearray()
    while rest > 127:
        text.append(rest & 127 | 128)
        rest >>= 7
    text.append(rest)
    grown = len(text) - (field.stop - field.start)
    if field.header_end and grown > 0:
        del data[field.header_end : field.header_end + grown]
    elif field.header_end:
        data[field.header_end : field.header_end] = bytes(-grown)
    else:
        data[-8:-4] = struct.pack("<I", struct.unpack("<I", data[-8:-4])[0] + grown)
    data[field.start : field.stop] = text


def _set_word(data: bytearray, field: Field, value: int) -> None:
    width = field.stop - field.start
    data[field.start : field.stop] = (value % (1 << 8 * width)).to_bytes(width, "little")


_SETTERS: dict[str, Callable[[bytearray, Field, int], None]] = {
    "tar": _set_octal,
    "jsonl": _set_decimal,
    "parquet": _set_varint,
    "tfrecord": _set_word,
    "arrow": _set_word,
    "feather": _set_word,
}


def _sum_headers(data: bytearray, seed: Seed) -> None:  # noqa: ARG001
    """Right checksums for all headers of a tar, so that what is wrong in them is not hidden by a wrong sum."""
    for at in range(0, len(data) - 511, 512):
        if data[at + 257 : at + 262] == b"ustar":
            total = sum(data[at : at + 148]) + 256 + sum(data[at + 156 : at + 512])
            data[at + 148 : at + 156] = b"%06o\0 " % total


def _measure_footer(data: bytearray, seed: Seed) -> None:
    """The length that makes a Parquet footer begin where it began."""
    stop = len(seed.data) - 8
    start = stop - struct.unpack("<I", seed.data[-8:-4])[0]
    if len(data) >= start + 8 and len(data) != len(seed.data):
        data[-8:] = struct.pack("<I4s", len(data) - 8 - start, b"PAR1")


def _sum_frames(data: bytearray, seed: Seed) -> None:  # noqa: ARG001
    """Right checksums for all frames of a TFRecord that lengths lead to, so that lies about them are believed."""
    at = 0
    while at + 12 <= len(data):
        stop = at + 12 + int.from_bytes(data[at : at + 8], "little")
        data[at + 8 : at + 12] = masked_crc(data[at : at + 8])
        if stop + 4 <= len(data):
            data[stop : stop + 4] = masked_crc(data[at + 12 : stop])
        at = stop + 4


def _leave(data: bytearray, seed: Seed) -> None:
    """Lines have nothing to repair."""


_REPAIRS: dict[str, Callable[[bytearray, Seed], None]] = {
    "tar": _sum_headers,
    "parquet": _measure_footer,
    "tfrecord": _sum_frames,
}


def compress(data: bytes, codec: str) -> bytes:
    if codec == "gzip":
        packer = zlib.compressobj(1, wbits=31)
        return packer.compress(data) + packer.flush()
    return bytes(pa.Codec(codec).compress(data, asbytes=True))


def bomb(seed: Seed, codec: str) -> Seed:
    """A few KB that expand to more than the arena holds."""
    return Seed(compress(seed.data + bytes(_BOMB_BYTES), codec), ())
