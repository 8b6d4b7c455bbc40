"""How much memory rows take whose texts are stored once and repeated: in a dictionary, or as a long prefix.

A footer tells what is stored. The dictionary tells how long its values are, and the indices, which take 4 bytes each,
how often a row repeats them: both are read, if it matters, before any text is made of them.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corgi2.order import Indices
from corgi2.records import numpy_of

LEAST_ROWS = 64
"""Decoded at a time, at the least: one row in so many is none."""
_SURE_BYTES = 8_000_000
"""No more are decoded at a time, though all rows held the largest value of their dictionaries."""
_COUNTED_ROWS = 4096
"""Whose indices are read at a time."""
_PREFIXES = "DELTA_BYTE_ARRAY"
_REPEATING = {_PREFIXES, "RLE_DICTIONARY", "PLAIN_DICTIONARY"}


class Sure(NamedTuple):
    """How many rows may be decoded at a time, and what the largest one takes, if that was measured."""

    rows: int
    largest: int = 0


class _Column(NamedTuple):
    path: str
    values: int
    stored: int
    has_prefixes: bool
    in_lists: bool
    longest: int = 0

    def at_most(self, rows: int, of: int) -> int:
        """Values that some rows hold, if all others hold as few as they can."""
        return self.values - of + min(rows, of) if self.in_lists else rows


def sure_rows(
    data: pa.PythonFile, footer: pq.FileMetaData, group: int, numbers: Iterable[int], usual: int, most: int
) -> Sure:
    """``usual`` rows of some columns of a row group, or as many fewer as are sure to take little when decoded. How
    often each row repeats its values is read if some could take more than ``most`` bytes."""
    rows, columns = footer.row_group(group).num_rows, _columns(footer, group, numbers)
    if sum(column.stored * column.at_most(usual, rows) for column in columns) <= _SURE_BYTES:
        return Sure(usual)
    with_prefixes = {column.path for column in columns if column.has_prefixes}
    paths = sorted({column.path for column in columns} - with_prefixes)
    reader = pq.ParquetFile(data, metadata=footer, read_dictionary=paths)
    longest = {path: size for path in paths if (size := _longest(reader, group, path)) is not None}
    columns = [column._replace(longest=longest.get(column.path, column.stored)) for column in columns]
    widest = sum(column.longest * max(1.0, column.values / rows) for column in columns)
    sure = max(LEAST_ROWS if with_prefixes else 1, min(usual, int(_SURE_BYTES / max(1.0, widest))))
    listed = [column for column in columns if column.in_lists and column.path in paths]
    if sum(column.longest * column.at_most(sure, rows) for column in listed) <= most:
        return Sure(sure)
    texts = [_row_bytes(reader, group, path) for path in sorted({column.path for column in listed})]
    return _narrowed(np.sum(texts, axis=0), sure)


def _columns(footer: pq.FileMetaData, group: int, numbers: Iterable[int]) -> list[_Column]:
    """The columns that repeat texts."""
    found = []
    for number in numbers:
        place, chunk = footer.schema.column(number), footer.row_group(group).column(number)
        if chunk.physical_type == "BYTE_ARRAY" and _REPEATING & {*chunk.encodings}:
            prefixes, in_lists = _PREFIXES in chunk.encodings, place.max_repetition_level > 0
            found.append(_Column(place.path, chunk.num_values, chunk.total_uncompressed_size, prefixes, in_lists))
    return found


def _narrowed(sizes: Indices, rows: int) -> Sure:
    """A number of rows so small that no run of them takes much, if no single row does."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    while rows > 1 and (ends[min(rows, len(sizes)) :] - ends[: -min(rows, len(sizes))]).max() > _SURE_BYTES:
        rows //= 2
    return Sure(rows, int(sizes.max()))


def _longest(reader: pq.ParquetFile, group: int, path: str) -> int | None:
    """The length of the longest value in the dictionary of a column. Whatever else it holds is stored as it is."""
    found = None
    for array in next(reader.iter_batches(1, row_groups=[group], columns=[path], use_threads=False)).columns:
        while array.type.num_fields and not pa.types.is_dictionary(array.type):
            array, _ = _inner(array)
        if pa.types.is_dictionary(array.type) and len(array.dictionary):
            found = max(found or 0, pc.max(pc.binary_length(array.dictionary)).as_py() or 0)
    return found


def _row_bytes(reader: pq.ParquetFile, group: int, path: str) -> Indices:
    """Bytes of the texts in each row."""
    batches = reader.iter_batches(_COUNTED_ROWS, row_groups=[group], columns=[path], use_threads=False)
    return np.concatenate([sum((_text_bytes(array) for array in batch.columns), np.int64(0)) for batch in batches])


def _text_bytes(array: Any) -> Indices:
    """Of each value of a nested array, in which texts are numbers of a dictionary."""
    bounds = np.arange(len(array) + 1)
    while array.type.num_fields and not pa.types.is_dictionary(array.type):
        array, offsets = _inner(array)
        bounds = bounds if offsets is None else offsets[bounds]
    if not pa.types.is_dictionary(array.type):
        return np.zeros(len(bounds) - 1, np.int64)
    lengths = pc.binary_length(array.dictionary).cast(pa.int64()).fill_null(0)
    sizes = numpy_of(pc.take(lengths, array.indices).fill_null(0))
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return np.asarray(ends[bounds[1:]] - ends[bounds[:-1]])


def _inner(array: Any) -> tuple[Any, Indices | None]:
    """The only values that a nested array of one column holds, and where each of its own begins among them."""
    if pa.types.is_struct(array.type):
        return array.field(0), None
    if pa.types.is_fixed_size_list(array.type):
        return array.values, (np.arange(len(array) + 1) + array.offset) * array.type.list_size
    return array.values, numpy_of(array.offsets).astype(np.int64)  # a part of a map is a list
