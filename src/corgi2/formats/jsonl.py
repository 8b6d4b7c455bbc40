"""JSON lines: a record is a line, its newline included, its bytes untouched.

- A last line without a newline gets one, so that it can be followed by another; it must be whole JSON then,
  because that is how a shard that was cut short looks.
- A blank line is no record: it travels with the line before it, or with the first one.
- CRLF stays CRLF: the carriage return is the line's own.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from corgi2.block import Indices
from corgi2.errors import ShardError
from corgi2.formats.framed import Bytes, FramedFormat, Frames, Where

_NEWLINE = 10
_BLANK = np.zeros(256, bool)
_BLANK[list(b" \t\r\n")] = True
_STARTS_VALUE = np.zeros(256, bool)
_STARTS_VALUE[list(b'{["-0123456789tfnNI')] = True
_STEP = 4_000_000
_INDENT = 8
_MARK = b"\xef\xbb\xbf"


class JsonLines:
    name = "jsonl"
    terminator = b"\n"
    trailer = b""
    record_overhead = 0

    def split(self, data: Bytes, where: Where) -> Frames:
        if where.base == 0 and data[:3].tobytes() == _MARK:
            raise where.error(
                0, "starts with a byte-order mark, which would end up in the middle of a shard; remove it"
            )
        ends = _line_ends(data)
        if where.last and len(data) and data[-1] != _NEWLINE:
            _check_last_line(data, int(ends[-1]) if len(ends) else 0, where)
            ends = np.append(ends, len(data))
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else np.empty(0, np.int64)
        starts = starts[~_blank_lines(data, starts, ends, where)]
        if not len(starts):
            return Frames(np.zeros(1, np.int64))
        starts[0] = 0
        if not where.last:
            return Frames(starts)
        return Frames(np.append(starts, ends[-1]))

    def check(self, name: str, frames: Sequence[tuple[int, Frames]]) -> None:
        """Lines do not depend on each other."""

    def samples(self, data: Bytes, offsets: Indices, url: str) -> Iterator[dict[str, Any]]:
        for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            try:
                yield json.loads(data[start:stop].tobytes())
            except (ValueError, RecursionError) as error:
                raise ShardError(url, start, f"not JSON ({error}); correct the line, or leave it out") from error


def _line_ends(data: Bytes) -> Indices:
    """The offset behind each newline; a few MB at a time, for the comparison makes a byte a byte."""
    steps = [np.flatnonzero(data[at : at + _STEP] == _NEWLINE) + (at + 1) for at in range(0, len(data), _STEP)]
    return np.concatenate(steps).astype(np.int64) if steps else np.empty(0, np.int64)


def _blank_lines(data: Bytes, starts: Indices, ends: Indices, where: Where) -> Any:
    """Which lines are blank; a line that begins no JSON value is refused."""
    at = starts.copy()
    for _ in range(_INDENT):
        unsure = np.flatnonzero((at < ends) & _BLANK[data[np.minimum(at, len(data) - 1)]])
        if not len(unsure):
            break
        at[unsure] += 1
    blank = at >= ends
    for line in np.flatnonzero(~blank & ~_STARTS_VALUE[data[np.minimum(at, len(data) - 1)]]).tolist():
        text = data[at[line] : ends[line]]
        solid = np.flatnonzero(~_BLANK[text])
        blank[line] = not len(solid)
        if len(solid) and not _STARTS_VALUE[text[solid[0]]]:
            raise where.error(
                int(starts[line]),
                f"line begins with {text[solid[0] :][:20].tobytes()!r}, which is no JSON value; one record a line is "
                "expected (pretty-printed JSON can be converted with: jq -c)",
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
