"""JSON lines: a record is a line, its newline included, its bytes untouched.

- A last line without a newline gets one, so that it can be followed by another; it must be whole JSON, because a
  shard that was cut short looks the same.
- A blank line is not a record: it travels with the next line, or at the end of a shard with the last one.
- CRLF stays CRLF: the carriage return is the line's own.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from corgi2.errors import ShardError
from corgi2.formats.framed.format import FramedFormat
from corgi2.formats.framed.frames import Bytes, Frames, Lying, Where
from corgi2.formats.paths import is_asked
from corgi2.order import Indices

_NEWLINE = 10
_BLANK = np.zeros(256, bool)
_BLANK[list(b" \t\r\n")] = True
_STARTS_VALUE = np.zeros(256, bool)
_STARTS_VALUE[list(b'{["-0123456789tfnNI')] = True
_STEP = 1_000_000
_INDENT = 8
_MARK = b"\xef\xbb\xbf"


class JsonLines:
    name = "jsonl"
    terminator = b"\n"
    trailer = b""
    record_overhead = 0
    smallest_record = 2

    def split(self, data: Bytes, where: Where) -> Frames:
        if where.base == 0 and data[:3].tobytes() == _MARK:
            raise where.error(
                0, "starts with a byte-order mark, which would end up in the middle of a shard; remove it"
            )
        found, stop, count = [np.empty(0, np.int64)], 0, 0
        for ends in _line_ends(data):
            found.append(_solid(data, np.concatenate([[stop], ends[:-1]]), ends, where))
            stop, count = int(ends[-1]), count + len(ends)
        if where.last and stop < len(data):
            _check_last_line(data, stop, where)
            found.append(_solid(data, np.array([stop]), np.array([len(data)]), where))
            stop, count = len(data), count + 1
        elif not where.last and not _is_blank(data[stop:]):  # so that the line before it is known to be complete
            found.append(np.array([stop]))
            count += 1
        begin = np.concatenate(found)
        has_blank = len(begin) < count
        end = _ends_of(data, begin) if has_blank else np.append(begin[1:], stop)
        return Frames.of(begin, end, stop if where.last else None)

    def split_side_by_side(self, data: Bytes, cuts: Indices, where: Where) -> list[Frames] | None:
        """One by one, since that is cheap."""
        spans = pairwise(cuts.tolist())
        pieces = [data[start : stop - len(self.terminator)] for start, stop in spans]
        try:
            return [self.split(piece, replace(where, base=0, limit=len(piece))) for piece in pieces]
        except ShardError:
            return None

    def begins_record(self, data: Bytes, where: Where) -> bool:  # noqa: ARG002
        return not _is_blank(data)

    def items(self, loose: Bytes) -> Iterator[Indices]:
        """Line by line."""
        start = 0
        for ends in _line_ends(loose):
            yield np.concatenate([[start], ends])
            start = int(ends[-1])

    def check(self, name: str, frames: Sequence[tuple[int, Frames]]) -> None:
        """Lines do not depend on each other."""

    def decoder(self, lying: Lying) -> "_Lines":
        return _Lines(lying)


@dataclass(frozen=True, slots=True)
class _Lines:
    lying: Lying

    def samples(self, records: Indices) -> Iterator[Any]:
        lying = self.lying
        for start, stop in zip(lying.starts(records).tolist(), lying.stops(records).tolist(), strict=True):
            line = lying.memory[start:stop]
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                problem = f"{line[:80]!r} is not JSON ({error}); correct the line, or leave it out"
                raise ShardError(*lying.where(start), problem) from error

    def columns(self, records: Indices, only: Collection[str] | None = None) -> dict[str, list[Any]]:
        """Columns by the keys of objects; a line that is not an object has the key ``value``."""
        samples = [sample if isinstance(sample, dict) else {"value": sample} for sample in self.samples(records)]
        names = dict.fromkeys(name for sample in samples for name in sample if is_asked(name, only))
        return {name: [sample.get(name) for sample in samples] for name in names}


def _line_ends(data: Bytes) -> Iterator[Indices]:
    """The offsets after newlines, a few MB at a time: processing them takes several times the memory of the lines."""
    for at in range(0, len(data), _STEP):
        ends = np.flatnonzero(data[at : at + _STEP] == _NEWLINE) + (at + 1)
        if len(ends):
            yield ends


def _solid(data: Bytes, starts: Indices, ends: Indices, where: Where) -> Indices:
    """Where the lines begin that are not blank."""
    blank = _blank_lines(data, starts, ends, where)
    return starts[~blank] if blank.any() else starts


def _is_blank(text: Bytes) -> bool:
    return bool(_BLANK[text[:_INDENT]].all() and _BLANK[text].all())


def _ends_of(data: Bytes, begin: Indices) -> Indices:
    """Where lines that begin there end: after the next newline, or with the data."""
    end, done = np.full(len(begin), len(data), np.int64), 0
    for ends in _line_ends(data):
        last = int(np.searchsorted(begin, ends[-1]))
        end[done:last] = ends[np.searchsorted(ends, begin[done:last], "right")]
        done = last
    return end


def _blank_lines(data: Bytes, starts: Indices, ends: Indices, where: Where) -> Any:
    """Which lines are blank; a line that begins no JSON value is refused."""
    at = starts.copy()
    for _ in range(_INDENT):
        unsure = np.flatnonzero((at < ends) & _BLANK[data[np.minimum(at, len(data) - 1)]])
        if not len(unsure):
            break
        at[unsure] += 1
    blank = at >= ends
    if (~blank & _BLANK[data[np.minimum(at, len(data) - 1)]]).any():  # lines are contiguous, so one sum will do
        filled = (~_BLANK[data[starts[0] : ends[-1]]]).view(np.uint8)
        blank = np.add.reduceat(filled, starts - starts[0], dtype=np.int64) == 0
    for line in np.flatnonzero(~blank & ~_STARTS_VALUE[data[np.minimum(at, len(data) - 1)]]).tolist():
        text = data[at[line] : ends[line]]
        solid = np.flatnonzero(~_BLANK[text])
        blank[line] = not len(solid)
        if len(solid) and not _STARTS_VALUE[text[solid[0]]]:
            raise where.error(
                int(starts[line]),
                f"line begins with {text[solid[0] :][:20].tobytes()!r}, which is no JSON value; one record per line "
                "is expected (pretty-printed JSON can be converted with: jq -c)",
            )
    return blank


def _check_last_line(data: Bytes, start: int, where: Where) -> None:
    text = data[start:].tobytes()
    if not text.strip():
        return
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise where.error(
            start, f"the last line has no newline and is not whole JSON ({error}): the shard was cut short"
        ) from error


_JSONL = JsonLines()
FORMATS = {
    suffix + extra: FramedFormat(_JSONL, suffix + extra, codec)
    for suffix in (".jsonl", ".ndjson")
    for extra, codec in (("", None), (".gz", "gzip"), (".zst", "zstd"))
}
