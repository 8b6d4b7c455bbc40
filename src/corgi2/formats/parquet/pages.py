"""How large the pages of a Parquet column are, by their headers: decoding a page needs memory for all of it.

A header is a structure in Thrift's compact protocol: {1: kind, 2: bytes once decompressed, 3: bytes as stored, …}.
"""

_STRUCT, _LIST, _SET, _TEXT, _DOUBLE = 12, 9, 10, 8, 7
_DEEPEST = 16


class _DamagedError(ValueError):
    """There is no valid header."""


def largest_page(data: memoryview) -> int:
    """Bytes of the largest page, once decompressed, of a column whose pages follow each other. Damage ends the search:
    decoding will report it."""
    largest, at = 0, 0
    while at < len(data):
        header = _Reader(data, at)
        try:
            fields = header.struct()
            decompressed, stored = fields[2], fields[3]
        except (_DamagedError, IndexError, KeyError):
            return largest
        if stored < 0 or decompressed < 0:
            return largest
        largest, at = max(largest, decompressed), header.at + stored
    return largest


class _Reader:
    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self.at = data, at

    def struct(self, depth: int = 0) -> dict[int, int]:
        """The whole numbers of a structure, by the number of their field; everything else is skipped."""
        if depth > _DEEPEST:
            raise _DamagedError("too deep")
        fields, number = dict[int, int](), 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._number()
            kind = head & 15
            if kind in (3, 4, 5, 6):
                fields[number] = self._number() if kind > 3 else self._byte()
            elif kind > 2:  # a boolean's value is its kind
                self._skip(kind, depth)
        return fields

    def _skip(self, kind: int, depth: int) -> None:
        if kind == _DOUBLE:
            self.at += 8
        elif kind == _TEXT:
            length = self._varint()
            self.at += length
        elif kind in (_LIST, _SET):
            head = self._byte()
            for _ in range(head >> 4 if head >> 4 < 15 else self._varint()):
                self._element(head & 15, depth)
        elif kind == _STRUCT:
            self.struct(depth + 1)
        else:
            raise _DamagedError(f"no kind {kind} is in a header")

    def _element(self, kind: int, depth: int) -> None:
        if kind <= 3:
            self.at += 1
        elif kind <= 6:
            self._varint()
        else:
            self._skip(kind, depth + 1)

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise _DamagedError("a number without an end")
