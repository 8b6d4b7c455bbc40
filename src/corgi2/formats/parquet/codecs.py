"""The codecs that a footer names, read without Arrow: asked for one that it does not know, Arrow ends the process, and
the older of two kinds of LZ4 it calls unknown, though it reads it.

A footer is a struct in thrift's compact protocol, of which this reads the little that leads to the codecs.
"""

from collections.abc import Iterator

from corgi2.errors import ShardError
from corgi2.records import ShardFile

_NAMES = {0: "NONE", 1: "SNAPPY", 2: "GZIP", 4: "BROTLI", 5: "LZ4", 6: "ZSTD", 7: "LZ4"}
"""What Arrow reads, and what its writer calls it. 5 is LZ4 as Hadoop framed it, which nobody should write any more."""
_ROW_GROUPS, _COLUMNS, _ROWS, _CHUNK, _CODEC, _PATH = 4, 1, 3, 3, 4, 3
"""Numbers of fields, in the file, in a row group, in a column and in its chunk."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_LENGTHS = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}


def codecs_of(file: ShardFile, raw: bytes) -> dict[str, str]:
    """The codec of every column, by its path, in the first row group that has rows, from a footer as it is stored."""
    try:
        found = _Walk(raw).codecs()
    except (IndexError, RecursionError) as error:
        raise ShardError(file.name, file.size - len(raw), "the footer is damaged; restore the shard") from error
    for path, code in found:
        if code not in _NAMES:
            raise ShardError(
                file.name, 0, f"column {path!r} has codec {code}, which Arrow does not know; write it again with zstd"
            )
    return {path: _NAMES[code] for path, code in found}


class _Walk:
    """Goes through what was encoded."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def codecs(self) -> list[tuple[str, int]]:
        """The path and the codec of every column of the first row group that has rows."""
        for field, kind in self._fields():
            if field != _ROW_GROUPS:
                self._skip(kind)
                continue
            for _ in range(self._length()[1]):
                columns, rows = self._row_group()
                if rows:
                    return columns
        return []

    def _row_group(self) -> tuple[list[tuple[str, int]], int]:
        columns, rows = list[tuple[str, int]](), 0
        for field, kind in self._fields():
            if field == _COLUMNS:
                columns = [self._column() for _ in range(self._length()[1])]
            elif field == _ROWS:
                rows = self._number()
            else:
                self._skip(kind)
        return columns, rows

    def _column(self) -> tuple[str, int]:
        path, code = "", 0
        for outer, outer_kind in self._fields():
            if outer != _CHUNK:
                self._skip(outer_kind)
                continue
            for field, kind in self._fields():
                if field == _CODEC:
                    code = self._number()
                elif field == _PATH:
                    path = ".".join(self._text() for _ in range(self._length()[1]))
                else:
                    self._skip(kind)
        return path, code

    def _fields(self) -> Iterator[tuple[int, int]]:
        """The number and the type of each field of a struct; whoever asks reads its value before the next."""
        number = 0
        while (head := self._byte()) != _STOP:
            step, kind = divmod(head, 16)
            number = number + step if step else self._number()
            yield number, kind

    def _skip(self, kind: int) -> None:
        if kind in _LENGTHS:
            self._at += _LENGTHS[kind]
        elif kind == _BINARY:
            length = self._varint()
            self._at += length
        elif kind in (_LIST, _SET):
            element, count = self._length()
            for _ in range(count):
                self._skip(element if element not in (_TRUE, _FALSE) else _BYTE)
        elif kind == _MAP:
            count = self._varint()
            key, value = divmod(self._byte(), 16) if count else (0, 0)
            for _ in range(count):
                self._skip(key)
                self._skip(value)
        elif kind == _STRUCT:
            for _, inner in self._fields():
                self._skip(inner)
        else:
            self._varint()

    def _length(self) -> tuple[int, int]:
        """The type of a list's elements, and how many there are."""
        count, element = divmod(self._byte(), 16)
        return element, self._varint() if count == 15 else count

    def _text(self) -> str:
        length = self._varint()
        self._at += length
        return self._data[self._at - length : self._at].decode(errors="backslashreplace")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]
