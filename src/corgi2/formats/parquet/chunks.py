"""The parts of a row group that hold some of its columns: only their bytes are fetched."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise

import pyarrow.parquet as pq

from corgi2.formats.parquet.footer import Part, column_span
from corgi2.records import ShardFile

_NEAR_BYTES = 16_384
"""Bytes between two columns that are fetched along, because one request costs more."""


def chunk_numbers(footer: pq.FileMetaData, names: Collection[str]) -> list[int]:
    """What Arrow reads for some columns: it takes all that lie below a name, too."""
    return [
        number
        for number in range(footer.num_columns)
        if any(f"{footer.schema.column(number).path}.".startswith(f"{name}.") for name in names)
    ]


def chunks_of(footer: pq.FileMetaData, groups: Iterable[int], numbers: Collection[int]) -> list[pq.ColumnChunkMetaData]:
    return [footer.row_group(group).column(number) for group in groups for number in numbers]


def fetch_chunks(
    file: ShardFile, chunks: Iterable[pq.ColumnChunkMetaData], memory: Callable[[int], memoryview]
) -> "Fetched":
    """The bytes of some columns, in memory that is asked for once."""
    spans = list(_joined(sorted(map(column_span, chunks))))
    room, parts, at = memory(sum(last - first for first, last in spans)), dict[int, memoryview](), 0
    for first, last in spans:
        parts[first] = room[at : at + last - first]
        file.readinto(first, parts[first])
        at += last - first
    return Fetched(file.size, parts)


def _joined(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Where parts begin and end, of which neighbours are one."""
    if not spans:
        return
    begin = spans[0][0]
    for (start, length), (after, _) in pairwise(spans):
        if after > start + length + _NEAR_BYTES:
            yield begin, start + length
            begin = after
    yield begin, sum(spans[-1])


class Fetched(Part):
    """A file of which some parts lie in memory. Arrow reads neighbouring parts at once, and ignores what lies between
    them."""

    def __init__(self, size: int, parts: dict[int, memoryview]) -> None:
        super().__init__(size)
        self._parts = parts

    def view(self, first: int, length: int) -> memoryview:
        for start, part in self._parts.items():
            if start <= first and first + length <= start + len(part):
                return part[first - start : first - start + length]
        return memoryview(b"")

    def read(self, size: int = -1) -> bytes | memoryview:
        first, self._at = self._at, self._at + size
        if len(found := self.view(first, size)) == size:
            return found
        filled = bytearray(size)
        for start, part in self._parts.items():
            begin, end = max(start, first), min(start + len(part), first + size)
            if begin < end:
                filled[begin - first : end - first] = part[begin - start : end - start]
        return memoryview(filled)

    def close(self) -> None:
        super().close()
        self._parts = {}
