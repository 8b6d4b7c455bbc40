"""Arrow messages, one after another: where each lies, and what its header says, before Arrow sees any of it.

A message is a length, a header (a flatbuffer) and a body. Lengths that lead out of the shard are refused, and so are
bodies whose buffers claim more than there is, as stored or decompressed.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from corgi2.errors import ShardError, TooLargeError
from corgi2.formats.arrow.flatbuffer import DamagedError, Table, root
from corgi2.formats.columnar.tables import RESTORE
from corgi2.records import PLACE_BYTES, Buffer, ShardFile
from corgi2.sizes import format_size

SCHEMA, DICTIONARY, BATCH = 1, 2, 3
"""Kinds of messages."""
CODECS = {-1: None, 0: "lz4", 1: "zstd"}

_PREFIX = struct.Struct("<II")
_CONTINUATION = 0xFFFFFFFF
LARGEST_HEADER = 64_000_000
"""The longest header that is read: one of a million columns."""
_STORED = -1
"""What a compressed body says of a buffer that is not."""

Peek = Callable[[int, int], Buffer]
"""Bytes of a shard: from a place on, so many, or fewer at its end."""


@dataclass(frozen=True, slots=True)
class Message:
    """Where a message lies, and what it is."""

    start: int
    head: int
    """Bytes before its body: the length, the header, and padding."""
    body: int
    kind: int
    rows: int = 0
    dictionary: int = 0
    """The number of the dictionary, if it is one."""
    is_delta: bool = False
    codec: int = -1

    @property
    def stop(self) -> int:
        return self.start + self.head + self.body


def messages(file: ShardFile, peek: Peek, start: int, stop: int) -> Iterator[Message]:
    """All messages from a place on, up to an end mark, or to ``stop``. Returns where they end."""
    while start < stop:
        message = message_at(file, peek, start, stop)
        if message is None:
            return
        yield message
        start = message.stop


def message_at(file: ShardFile, peek: Peek, start: int, stop: int) -> Message | None:
    """The message that begins at a place; None if that is an end mark."""
    prefix, length = header_span(file, peek, start, stop)
    if not length:
        return None
    try:
        message = _parse(peek(start + prefix, length), start, prefix + length)
    except DamagedError as error:
        raise ShardError(file.name, start, f"the header of a message is damaged ({error}); {RESTORE}") from error
    if message.body < 0 or message.stop > stop or message.rows < 0:
        claimed = f"{message.body} bytes and {message.rows} rows"
        raise ShardError(
            file.name, start, f"a message claims {claimed}, where {stop - start} bytes are left: cut short; {RESTORE}"
        )
    return message


def header_span(file: ShardFile, peek: Peek, start: int, stop: int) -> tuple[int, int]:
    """The bytes of a message's length, and the length of its header; the latter is 0 at an end mark."""
    raw = bytes(peek(start, min(_PREFIX.size, stop - start))).ljust(_PREFIX.size, b"\0")
    first, second = _PREFIX.unpack(raw)
    prefix, length = (8, second) if first == _CONTINUATION else (4, first)
    if length > min(LARGEST_HEADER, stop - start - prefix):
        raise ShardError(
            file.name, start, f"no message, or one whose header claims {length} bytes, is cut short; {RESTORE}"
        )
    return prefix, length


def _parse(header: Buffer, start: int, head: int) -> Message:
    message = root(header)
    kind, body, content = message.number(1, 1), message.number(3, 8), message.table(2)
    if content is None:
        raise DamagedError("nothing is in it")
    if kind == SCHEMA:
        return Message(start, head, body, kind)
    dictionary, is_delta, batch = 0, False, content
    if kind == DICTIONARY:
        dictionary, is_delta = content.number(0, 8), bool(content.number(2, 1))
        batch = content.table(1) or batch
    elif kind != BATCH:
        raise DamagedError(f"it is of kind {kind}, which holds no rows")
    return Message(start, head, body, kind, batch.number(0, 8), dictionary, is_delta, _codec(batch))


def _codec(batch: Table) -> int:
    compression = batch.table(3)
    if compression is None:
        return -1
    codec = compression.number(0, 1)
    if codec not in CODECS or compression.number(1, 1):
        raise DamagedError(f"its codec {codec} is unknown")
    return codec


def check_body(file: ShardFile, message: Message, data: memoryview, most: int) -> int:
    """Bytes that a body will take once decompressed; it is refused before it takes more memory than there is. ``data``
    is the whole message."""
    if message.rows * PLACE_BYTES > most and message.kind == BATCH:
        raise _too_large(file, message, message.rows * PLACE_BYTES, most)
    body, (offsets, lengths) = data[message.head :], _buffers(data[: message.head])
    if len(offsets) and (min(offsets.min(), lengths.min()) < 0 or _stops(offsets, lengths) > message.body):
        raise ShardError(file.name, message.start, f"a buffer lies outside of its message; {RESTORE}")
    if message.codec < 0:
        return message.body
    sizes = _sizes(body, offsets[lengths > 0], lengths[lengths > 0])
    if len(sizes) and sizes.min() < 0:
        raise ShardError(file.name, message.start, f"a buffer claims {sizes.min()} bytes; {RESTORE}")
    needed = int(sum(sizes.tolist()))
    if needed > most:
        raise _too_large(file, message, needed, most)
    return needed


def _too_large(file: ShardFile, message: Message, needed: int, most: int) -> TooLargeError:
    problem = f"a record batch that takes {format_size(needed)} does not fit the {format_size(most)} available"
    return TooLargeError(file.name, message.start, f"{problem}; give a larger buffer", needed)


def _stops(offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> int:
    """Where the last buffer ends; in Python's numbers, which do not wrap."""
    return int(max(map(sum, zip(offsets.tolist(), lengths.tolist(), strict=True))))


def _buffers(head: memoryview) -> tuple[Any, Any]:
    """Where the buffers of a batch lie in its body, and how long they are."""
    prefix = 8 if _PREFIX.unpack_from(head)[0] == _CONTINUATION else 4
    message = root(head[prefix:])
    batch = message.table(2)
    if batch is not None and message.number(1, 1) == DICTIONARY:
        batch = batch.table(1)
    buffers = batch.structs(2, "<i8,<i8") if batch is not None else np.empty(0, "<i8,<i8")
    return buffers["f0"], buffers["f1"]


def _sizes(body: memoryview, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Any:
    """What each compressed buffer says that it holds: its first eight bytes."""
    if len(lengths) and lengths.min() < 8:
        return np.array([-2])
    raw = np.frombuffer(body, np.uint8)
    sizes = raw[offsets[:, None] + np.arange(8)].view("<i8").reshape(-1)
    return np.where(sizes == _STORED, lengths - 8, sizes)
