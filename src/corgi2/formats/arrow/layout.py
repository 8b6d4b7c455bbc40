"""A shard of Arrow messages: its kind and its schema, from its front; its blocks, from the headers of all messages.

A stream begins with its schema, and ends with a mark. A file is a stream between two magic words, with a footer behind
it; the batches that the footer names must be those that lie there. Bodies are not read.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgi2.errors import ShardError
from corgi2.formats.arrow.flatbuffer import DamagedError, root
from corgi2.formats.arrow.kinds import check_types
from corgi2.formats.arrow.messages import (
    BATCH,
    DICTIONARY,
    LARGEST_HEADER,
    SCHEMA,
    Message,
    Peek,
    header_span,
    message_at,
    messages,
)
from corgi2.formats.columnar.metadata import all_fields
from corgi2.formats.columnar.schema import schema_text, widened
from corgi2.formats.columnar.tables import RESTORE
from corgi2.formats.columnar.versions import Recent
from corgi2.records import Buffer, ShardFile

STREAM, FILE = "stream", "file"
_MAGIC, _FEATHER = b"ARROW1", b"FEA1"
FILE_FRONT = 8
"""Bytes before the first message of a file."""
_FRONT = 65_536
"""Bytes that hold most schemas, fetched at once."""
_TAIL = struct.Struct("<i6s")
_HEADER_BYTES, _SMALL_BODY, _WINDOW = 2_048, 65_536, 262_144
"""Bytes fetched to see the next header; behind small bodies, so many that they hold several."""
_MOST_DICTIONARIES = 100_000
_AGAIN = "read it and write it again with pyarrow.ipc, or restore it"


@dataclass(frozen=True, slots=True)
class Front:
    """What the front of a shard tells."""

    kind: str
    schema: pa.Schema
    """As rows have it in memory."""
    stored: pa.Schema
    message: bytes
    """The message of the schema, as stored."""
    start: int
    """Where the first message behind it begins."""
    has_dictionaries: bool


def reading(file: ShardFile) -> Peek:
    """A view of a shard that reads what is asked for, and a little more, if that saves a request."""
    held, first = bytearray(), 0

    def peek(start: int, size: int) -> Buffer:
        nonlocal held, first
        if not first <= start <= start + size <= first + len(held):
            near = held and 0 <= start - first - len(held) < _SMALL_BODY
            held = bytearray(min(file.size - start, max(size, _WINDOW if near else _HEADER_BYTES)))
            first = start
            file.readinto(start, memoryview(held))
        return memoryview(held)[start - first : start - first + size]

    return peek


def lying(data: memoryview, first: int = 0) -> Peek:
    """A view of a shard of which a part lies in memory."""
    return lambda start, size: data[start - first : start - first + size]


def read_front(file: ShardFile) -> Front:
    head = bytearray(min(file.size, _FRONT))
    file.readinto(0, memoryview(head))
    longer = reading(file)

    def peek(start: int, size: int) -> Buffer:
        return memoryview(head)[start : start + size] if start + size <= len(head) else longer(start, size)

    return front_of(file, peek)


def front_of(file: ShardFile, peek: Peek) -> Front:
    """The front of a shard, which is seen through ``peek``."""
    magic = bytes(peek(0, min(8, file.size)))
    if magic.startswith(_FEATHER):
        way = "write it again by pyarrow.feather.write_feather(pyarrow.feather.read_table(path), path)"
        raise ShardError(file.name, 0, f"a Feather file of version 1, which holds no Arrow messages; {way}")
    kind, start = (FILE, FILE_FRONT) if magic.startswith(_MAGIC) else (STREAM, 0)
    if file.size < start + 8:
        raise ShardError(file.name, 0, f"{file.size} bytes are not an Arrow {kind}; {RESTORE}")
    message = message_at(file, peek, start, file.size)
    if message is None or message.kind != SCHEMA or message.body:
        raise ShardError(file.name, start, f"not an Arrow file or stream: it does not begin with a schema; {RESTORE}")
    raw = bytes(peek(start, message.head))
    stored = _schema(file, raw, start, header_span(file, peek, start, file.size)[0])
    schema = widened(stored)
    return Front(kind, schema, stored, raw, message.stop, has_dictionaries(schema))


def has_dictionaries(schema: pa.Schema) -> bool:
    return any(pa.types.is_dictionary(field.type) for _, field in all_fields(schema))


def _schema(file: ShardFile, raw: bytes, start: int, prefix: int) -> pa.Schema:
    try:
        found = root(memoryview(raw)[prefix:]).table(2)
        if found is not None and found.number(0, 2):
            raise ShardError(
                file.name, start, "the byte order is big-endian; write it again on a little-endian machine"
            )
        schema = pa.ipc.read_schema(pa.py_buffer(raw))
        schema_text(schema)  # all names can be decoded
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        if isinstance(error, ShardError):
            raise
        raise ShardError(file.name, start, f"the schema cannot be read ({error}); {RESTORE}") from error
    check_types(file, schema)
    return schema


_fronts = Recent(read_front, lambda front: len(front.message), 2_000_000)


def cached_front(file: ShardFile) -> Front:
    return _fronts.of(file)


def walk(file: ShardFile, front: Front, peek: Peek) -> Iterator[Message]:
    """All messages behind the schema. The end mark is checked, or the footer, by which other readers find batches."""
    stop = _footer_start(file, peek) if front.kind == FILE else file.size
    named = _named(file, peek, stop) if front.kind == FILE else None
    at, batches = front.start, 0
    for message in messages(file, peek, front.start, stop):
        if message.kind == SCHEMA:
            raise ShardError(file.name, message.start, f"a second schema: two streams in one file; {RESTORE}")
        if named is not None and message.kind == BATCH and (batches >= len(named) or named[batches] != message.start):
            raise ShardError(file.name, message.start, f"a record batch that the footer does not name there; {_AGAIN}")
        yield message
        at, batches = message.stop, batches + (message.kind == BATCH)
    if named is None:
        _check_end(file, peek, at)
    elif batches != len(named):
        raise ShardError(file.name, at, f"the footer names {len(named)} record batches of {batches}; {_AGAIN}")


def _check_end(file: ShardFile, peek: Peek, at: int) -> None:
    if at == file.size:
        problem = "no end mark: it was cut short, or its writer was not closed"
        raise ShardError(file.name, at, f"{problem}; make it again, or read and write what is there with pyarrow.ipc")
    prefix, _ = header_span(file, peek, at, file.size)
    if at + prefix != file.size:
        left = file.size - at - prefix
        raise ShardError(file.name, at, f"{left} bytes behind the end mark, which other readers do not see; {RESTORE}")


def _footer_start(file: ShardFile, peek: Peek) -> int:
    length, magic = _TAIL.unpack(peek(file.size - _TAIL.size, _TAIL.size))
    if magic != _MAGIC:
        raise ShardError(file.name, file.size - 6, f"cut short (it ends in {magic!r}); {RESTORE}")
    if not 0 < length <= min(LARGEST_HEADER, file.size - _TAIL.size - 8):
        raise ShardError(
            file.name, file.size - _TAIL.size, f"the footer claims {length} bytes of {file.size}; {RESTORE}"
        )
    return int(file.size - _TAIL.size - length)


def _named(file: ShardFile, peek: Peek, start: int) -> npt.NDArray[np.int64]:
    """Where record batches begin, as the footer says."""
    try:
        footer = root(bytes(peek(start, file.size - _TAIL.size - start)))
        return np.array(footer.structs(3, "<i8,<i4,<i4,<i8")["f0"])
    except DamagedError as error:
        raise ShardError(file.name, start, f"the footer is damaged ({error}); {RESTORE}") from error


def _learn_dictionaries(file: ShardFile) -> list[Message]:
    found = list[Message]()
    for message in walk(file, cached_front(file), reading(file)):
        if message.kind == DICTIONARY:
            found.append(message)
            if len(found) > _MOST_DICTIONARIES:
                raise ShardError(
                    file.name, message.start, f"more than {_MOST_DICTIONARIES} dictionaries; write it again with fewer"
                )
    return found


_dictionaries = Recent(_learn_dictionaries, lambda found: 100 * (len(found) + 1), 2_000_000)


def dictionaries_before(file: ShardFile, place: int) -> list[Message]:
    """The dictionaries that hold for a batch at a place: the last of each number, and what was added to it since."""
    held: dict[int, list[Message]] = {}
    for message in _dictionaries.of(file):
        if message.start >= place:
            break
        if not message.is_delta:
            held[message.dictionary] = []
        held.setdefault(message.dictionary, []).append(message)
    return sorted((message for several in held.values() for message in several), key=lambda message: message.start)
