"""A shard read from front to back, one part of it in memory at a time, and cut into records step by step.

Memory: the caller says how much may be used. It holds one part of the shard, or the largest record if that is larger,
and a little after it; a record that does not fit is refused, by its headers if they tell, wherever it lies. Between
two records there may be as much as fits besides the first. Bytes are split a few MB at a time, because offsets of the
smallest records take many times what the records do.
"""

from collections.abc import Iterator

import numpy as np

from corgi2.formats.compression import Stream
from corgi2.formats.framed.cutter import check_end, check_padding, part_bytes
from corgi2.formats.framed.frames import ENDLESS, Bytes, Frames, Framing, Where
from corgi2.order import Indices
from corgi2.records import ShardFile, reserve

TINY_RECORD = 256


STEP_BYTES, _TINY_STEP_BYTES = 1 << 22, 1 << 20
"""Bytes split at a time; the second if records may be tiny, which then take up to 20 times as much meanwhile."""


_PEEK_BYTES = 1 << 16
"""Bytes read after the largest record that fits: it is complete once the next one is seen to begin."""


def windows(
    framing: Framing, stream: Stream, file: ShardFile, plain: bool, memory: int
) -> Iterator[tuple[int, Bytes, Frames]]:
    """The records of a shard, one part of it after another: where they lie in it, memory that they begin, and where
    they are cut. A record that a part cuts is carried to the next; the longer it is, the more is read then, so that
    no byte is looked at more than a few times."""
    room = min(memory + _PEEK_BYTES, file.size) if plain else memory + _PEEK_BYTES
    buffer, have, base, least = reserve(room + len(framing.terminator)), 0, 0, part_bytes(memory)
    while True:
        wanted = min(room - have, max(least, have))
        have += (got := stream.fill(buffer[have : have + wanted]))
        last = got < wanted or (plain and base + have == file.size)
        where = Where(file.name, base, file.size - base if plain else ENDLESS, last, most=memory)
        data, done = np.frombuffer(buffer, np.uint8, have), 0
        for at, frames in steps(framing, data, where):
            _check_fits(data[at:], frames.offsets, framing.terminator, where.from_(at, last))
            yield base + at, np.frombuffer(buffer, np.uint8, offset=at), frames
            done = at + int(frames.offsets[-1])
        if frames.ended or last:
            check_end(framing, data[done:], frames.ended, where.from_(done, last), whole=True)
            if not last:
                check_padding(stream, where, have)
            return
        if not done and have == room:
            raise where.too_large(0, have, "at least ")
        buffer[: have - done] = buffer[done:have]
        have, base = have - done, base + done


def steps(framing: Framing, data: Bytes, where: Where) -> Iterator[tuple[int, Frames]]:
    """The complete records at the front of the data, some of it at a time: where each part begins, and its frames. The
    last part, which may be empty, knows whether an end mark follows. A longer record takes as much as it needs."""
    least = STEP_BYTES if framing.smallest_record > TINY_RECORD else _TINY_STEP_BYTES
    at, step = 0, least
    while True:
        last = at + step >= len(data)
        frames = framing.split(data[at : at + step], where.from_(at, last))
        done, is_end = int(frames.offsets[-1]), frames.ended or last
        if done or is_end:
            yield at, frames
        if is_end:
            return
        at, step = at + done, least if done else 2 * step


def _check_fits(data: Bytes, offsets: Indices, terminator: bytes, where: Where) -> None:
    """Refuse a too large record that could be read only because little follows it."""
    if offsets[-1] + len(terminator) <= where.most:
        return
    spans = np.diff(offsets)
    spans[-1:] += len(terminator) if lacks(data[: offsets[-1]], terminator) else 0
    for record in np.flatnonzero(spans > where.most)[:1].tolist():
        raise where.too_large(int(offsets[record]), int(spans[record]))


def lacks(data: Bytes, terminator: bytes) -> bool:
    """Whether the last line, which may be blank, has no end."""
    return bool(len(terminator) and len(data) and data[-len(terminator) :].tobytes() != terminator)
