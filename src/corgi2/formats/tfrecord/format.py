"""TFRecord: a record is a frame, kept bit for bit: a length (8 bytes), its checksum (4), the bytes, theirs (4).

Both checksums of every record are checked when a shard is first read. Blocks of an index have a checksum of their own,
which proves that they are what was checked. A length that its checksum confirms is compared with what the shard still
holds, and with the memory, before any of it is taken.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from corgi2.errors import ShardError
from corgi2.formats.framed.format import FramedFormat
from corgi2.formats.framed.frames import Bytes, Frames, Lying, Where
from corgi2.formats.tfrecord.crc32c import Words, masked_crc32c
from corgi2.formats.tfrecord.example import Records
from corgi2.formats.tfrecord.frame import FOOT_BYTES, FRAME_BYTES, HEAD_BYTES, LENGTH_BYTES
from corgi2.order import Indices

_LENGTH = struct.Struct("<Q")
_CUT_SHORT = "the shard was cut short; restore it from its source, or leave it out"
_GZIP = b"\x1f\x8b"


class TFRecord:
    name = "tfrecord"
    terminator = b""
    trailer = b""
    record_overhead = 0
    smallest_record = FRAME_BYTES

    def split(self, data: Bytes, where: Where) -> Frames:
        starts, reach = _walk(data, 0, len(data))
        if not where.known:
            _check_lengths(data, starts, where)
        if reach > len(data):
            _check_rest(int(starts[-1]), reach, len(data), where)
            reach, starts = int(starts[-1]), starts[:-1]
        elif where.last and reach < len(data):
            raise where.error(
                reach, f"{len(data) - reach} bytes, which are no whole frame, end the shard: {_CUT_SHORT}"
            )
        offsets = np.append(starts, reach)
        if not where.known:
            _check_contents(data, offsets, where)
        return Frames(offsets)

    def split_side_by_side(self, data: Bytes, cuts: Indices, where: Where) -> list[Frames] | None:
        """All frames are walked and checked together."""
        walks = [_walk(data, start, stop) for start, stop in pairwise(cuts.tolist())]
        if any(reach != stop for (_, reach), stop in zip(walks, cuts[1:].tolist(), strict=True)):
            return None
        try:
            if not where.known:
                starts = np.concatenate([starts for starts, _ in walks])
                _check_lengths(data, starts, where)
                _check_contents(data, np.append(starts, cuts[-1]), where)
        except ShardError:
            return None
        return [
            Frames(np.append(starts, stop) - start)
            for (starts, _), (start, stop) in zip(walks, pairwise(cuts.tolist()), strict=True)
        ]

    def begins_record(self, data: Bytes, where: Where) -> bool:  # noqa: ARG002
        return len(data) >= HEAD_BYTES and not len(_wrong_lengths(data, np.zeros(1, np.int64)))

    def items(self, loose: Bytes) -> Iterator[Indices]:
        """Nothing lies between frames."""
        yield np.array([0, len(loose)])

    def check(self, name: str, frames: Sequence[tuple[int, Frames]]) -> None:
        """Records do not depend on each other."""

    def decoder(self, lying: Lying) -> Records:
        return Records(lying)


def _walk(data: Bytes, start: int, stop: int) -> tuple[Indices, int]:
    """Where frames begin whose length can be read, and where the last one ends, which may be anywhere."""
    view, length_at, starts, at = data.data, _LENGTH.unpack_from, list[int](), start
    while at + HEAD_BYTES <= stop:
        starts.append(at)
        at += FRAME_BYTES + length_at(view, at)[0]
    return np.array(starts, np.int64), at


def _check_rest(start: int, reach: int, have: int, where: Where) -> None:
    """Refuse a frame that leads beyond the shard, or beyond the memory."""
    if where.last or reach > where.limit:
        left = min(have, where.limit) - start
        problem = f"a record of {reach - start:,} bytes, of which {left:,} are there: {_CUT_SHORT}"
        raise where.error(start, problem)
    if reach - start > where.most:
        raise where.too_large(start, reach - start)


def _check_lengths(data: Bytes, starts: Indices, where: Where) -> None:
    for start in starts[_wrong_lengths(data, starts)][:1].tolist():
        if start == where.base == 0:
            is_packed = data[: len(_GZIP)].tobytes() == _GZIP
            way = "it is compressed with gzip, so name it .tfrecord.gz" if is_packed else "is the file's name right?"
            raise where.error(0, f"not a TFRecord file: the length of the first frame fails its checksum; {way}")
        problem = "the length of a record fails its checksum; restore the shard from its source, or leave it out"
        raise where.error(start, problem)


def _wrong_lengths(data: Bytes, starts: Indices) -> Indices:
    stops = starts + LENGTH_BYTES
    return np.flatnonzero(masked_crc32c(data, starts, stops) != _words(data, stops))


def _check_contents(data: Bytes, offsets: Indices, where: Where) -> None:
    begin, end = offsets[:-1] + HEAD_BYTES, offsets[1:] - FOOT_BYTES
    for record in np.flatnonzero(masked_crc32c(data, begin, end) != _words(data, end))[:1].tolist():
        size = int(end[record] - begin[record])
        problem = f"a record of {size:,} bytes fails its checksum; restore the shard from its source, or leave it out"
        raise where.error(int(offsets[record]), problem)


def _words(data: Bytes, at: Indices) -> Words:
    """The stored checksums that begin there."""
    if not len(at):
        return np.empty(0, np.uint32)
    return np.ndarray((len(data) - 3,), "V4", data, strides=(1,))[at].view("<u4")


_TFRECORD = TFRecord()

FORMATS = {
    suffix + extra: FramedFormat(_TFRECORD, suffix + extra, codec)
    for suffix in (".tfrecord", ".tfrecords")
    for extra, codec in (("", None), (".gz", "gzip"))
}
