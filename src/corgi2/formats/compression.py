"""gzip and zstd around a framed shard. Streams both ways; memory is one part of the shard."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Protocol

import pyarrow as pa

from corgi2.errors import ShardError
from corgi2.formats.pipe import Pipe, piped
from corgi2.records import Buffer, Checksum, ShardFile, reserve

READ_BYTES = 64_000_000
"""A shard is read in requests of this size."""

_FRONT_BYTES = 64_000
_GZIP_LEVEL = 6
_GZIP_STEP = 1 << 18
_GZIP_WINDOW = 31  # the largest window, with a gzip header, which zlib fills with no name and no time


class Stream(Protocol):
    """A shard's bytes, decompressed, from front to back."""

    def fill(self, buffer: memoryview) -> int:
        """Fill the buffer; fewer bytes than it holds mean that the shard has ended."""


class PlainStream:
    def __init__(self, file: ShardFile) -> None:
        self._file, self._at = file, 0

    def fill(self, buffer: memoryview) -> int:
        part = buffer[: self._file.size - self._at]
        if part:
            self._file.readinto(self._at, part)
        self._at += len(part)
        return len(part)


class CompressedStream:
    """Decompresses as it goes, and keeps a checksum of what it read."""

    def __init__(self, file: ShardFile, codec: str, part_bytes: int) -> None:
        self._file, self._codec = file, codec
        self._raw = _RawFile(file, part_bytes)
        self._stream = pa.CompressedInputStream(pa.PythonFile(self._raw, mode="r"), codec)
        self.produced = 0

    @property
    def checksum(self) -> bytes:
        return self._raw.checksum.digest()

    def fill(self, buffer: memoryview) -> int:
        done = 0
        try:
            while done < len(buffer):
                got = self._stream.readinto(buffer[done:])
                if not got:
                    break
                done += got
        except (OSError, pa.ArrowException) as error:
            raise _damaged(self._file, self._raw.tell(), self._codec, error) from error
        self.produced += done
        return done


def open_stream(file: ShardFile, codec: str | None, part_bytes: int) -> PlainStream | CompressedStream:
    """Compressed shards are fetched in parts of this size; for others, the caller's buffer decides."""
    return CompressedStream(file, codec, part_bytes) if codec else PlainStream(file)


def decompress_front(file: ShardFile, codec: str, whole: bool, most_bytes: int) -> tuple[bytes, int]:
    """The front of a stream, decompressed as far as possible, and how many stored bytes that took; a broken end is an
    error only if the stream is ``whole``."""
    raw = _RawFile(file, READ_BYTES)
    stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)
    chunks: list[bytes] = []
    try:
        while sum(map(len, chunks)) < most_bytes and (chunk := stream.read(_FRONT_BYTES)):
            chunks.append(chunk)
    except (OSError, pa.ArrowException) as error:
        if whole or not chunks:
            raise _damaged(file, file.size, codec, error) from error
    return b"".join(chunks), raw.tell()


def _damaged(file: ShardFile, offset: int, codec: str, error: Exception) -> ShardError:
    return ShardError(
        file.name,
        offset,
        f"the {codec} stream is damaged ({error}); restore the shard from its source, or leave it out",
    )


class _RawFile:
    """A shard as a Python file for Arrow to read from, in requests of this many bytes."""

    closed = False

    def __init__(self, file: ShardFile, part_bytes: int) -> None:
        self._file, self._at, self._part_bytes = file, 0, part_bytes
        self._part, self._part_start = memoryview(b""), 0
        self.checksum = Checksum()

    def read(self, size: int = -1) -> bytes:
        if self._at >= self._file.size:
            return b""
        if self._at >= self._part_start + len(self._part):
            self._part = memoryview(b"")  # before the next one is there
            part = reserve(min(self._part_bytes, self._file.size - self._at))
            self._file.readinto(self._at, part)
            self._part, self._part_start = part, self._at
            self.checksum.update(part)
        start = self._at - self._part_start
        chunk = bytes(self._part[start : start + size] if size >= 0 else self._part[start:])
        self._at += len(chunk)
        return chunk

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self.closed = True


def compressed(pieces: Iterable[Buffer], codec: str | None) -> Iterator[Buffer]:
    """One gzip member or one zstd frame, because tarfile's streams stop after the first."""
    if codec is None:
        return iter(pieces)
    return _gzipped(pieces) if codec == "gzip" else _streamed(pieces, codec)


def _gzipped(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    for piece in pieces:
        view = memoryview(piece).cast("B")
        for at in range(0, len(view), _GZIP_STEP):  # zlib takes several times what it is given
            yield compressor.compress(view[at : at + _GZIP_STEP])
    yield compressor.flush()


def _streamed(pieces: Iterable[Buffer], codec: str) -> Iterator[Buffer]:
    def compress(pipe: Pipe) -> None:
        with pa.CompressedOutputStream(pa.PythonFile(pipe, mode="w"), codec) as stream:
            for piece in takewhile(lambda _: pipe.is_used, pieces):
                stream.write(piece)

    yield from piped(compress)
