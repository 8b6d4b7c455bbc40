"""Blocks as they are stored, made whole streams in memory: the schema and the dictionaries that hold go before them.

Every message is checked before Arrow sees it: where its buffers lie, and what they take once decompressed. Decoded
batches are checked by Arrow in full, so that a false offset is an error and not a crash.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from corgi2.errors import NoRecordError, ShardError
from corgi2.formats.arrow.flatbuffer import DamagedError
from corgi2.formats.arrow.kinds import check_dictionaries
from corgi2.formats.arrow.layout import (
    FILE,
    FILE_FRONT,
    Front,
    cached_front,
    dictionaries_before,
    front_of,
    lying,
    walk,
)
from corgi2.formats.arrow.messages import BATCH, Message, check_body, messages
from corgi2.formats.columnar.schema import widen
from corgi2.formats.columnar.tables import RESTORE, table_of
from corgi2.records import NO_RECORD, Checksum, Piece

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Fetched:
    """A piece of a shard as a stream in memory."""

    piece: Piece
    front: Front
    data: memoryview
    rows: int

    def tables(self, columns: Sequence[int] | None = None) -> Iterator[pa.Table]:
        """A table per record batch that has rows, over the same memory; of some columns, if these are named."""
        with clear_errors(self.piece):
            options = pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
            reader, found = pa.ipc.open_stream(pa.py_buffer(self.data), options=options), 0
            schema = self.front.schema
            if columns is not None:
                schema = pa.schema([schema.field(number) for number in sorted(columns)], schema.metadata)
            for batch in reader:
                if len(batch):
                    batch.validate(full=True)
                    if self.front.has_dictionaries:
                        check_dictionaries(batch)
                    found += len(batch)
                    yield widen(table_of(batch), schema).cast(schema)  # no value is missing that must not be
            if found != self.rows:
                raise ValueError(f"{found} rows where headers say {self.rows}")


def fetch(piece: Piece, most: int, memory: Callable[[int], memoryview]) -> Fetched:
    """Read a piece, whose batches must not take more than so much once they are decoded."""
    if piece.is_whole:
        data = memory(piece.length)
        _fill(piece, data)
        front = front_of(piece.file, lying(data))
        first = FILE_FRONT if front.kind == FILE else 0
        found = walk(piece.file, front, lying(data))
        rows, stop = _checked(piece, found, lying(data), most)
        return Fetched(piece, front, data[first : max(stop, front.start)], rows)
    front = cached_front(piece.file)
    before = [front.message, *(_dictionaries(piece, most) if front.has_dictionaries else ())]
    ahead = sum(map(len, before))
    data = memory(ahead + piece.length + _ALIGNMENT)[-ahead % _ALIGNMENT :][: ahead + piece.length]
    data[:ahead] = b"".join(before)
    _fill(piece, data[ahead:])
    peek, stop = lying(data[ahead:], piece.start), piece.start + piece.length
    rows, end = _checked(piece, messages(piece.file, peek, piece.start, stop), peek, most)
    if end != stop:
        raise ShardError(piece.file.name, end, f"a block ends before {stop}: it is not what was indexed; {RESTORE}")
    return Fetched(piece, front, data, rows)


def _fill(piece: Piece, data: memoryview) -> None:
    if piece.length:
        piece.file.readinto(piece.start, data)
    if piece.checksum:
        piece.check(Checksum.like(piece.checksum, data))


def _dictionaries(piece: Piece, most: int) -> Iterator[bytes]:
    """The dictionaries that hold where a piece begins, as they are stored."""
    for message in dictionaries_before(piece.file, piece.start):
        data = bytearray(message.stop - message.start)
        piece.file.readinto(message.start, memoryview(data))
        _check(piece, message, memoryview(data), most)
        yield bytes(data)


def _checked(piece: Piece, found: Iterator[Message], peek: Callable[[int, int], object], most: int) -> tuple[int, int]:
    """The rows of some messages, and where the last of them ends."""
    rows, stop = 0, 0
    for message in found:
        _check(piece, message, memoryview(peek(message.start, message.stop - message.start)), most)  # type: ignore[arg-type]
        rows, stop = rows + (message.rows if message.kind == BATCH else 0), message.stop
    return rows, stop


def _check(piece: Piece, message: Message, data: memoryview, most: int) -> None:
    with clear_errors(piece):
        check_body(piece.file, message, data, most)


@contextmanager
def clear_errors(piece: Piece) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, DamagedError) as error:
        if isinstance(error, ShardError):
            raise
        raise ShardError(piece.file.name, piece.start, f"a record batch is damaged ({error}); {RESTORE}") from error


def check_count(piece: Piece, found: int) -> None:
    if not found:
        raise NoRecordError(piece.file.name, piece.start, NO_RECORD)
    if piece.records and found != piece.records:
        raise ShardError(piece.file.name, piece.start, f"{found} rows, but {piece.records} were indexed")
