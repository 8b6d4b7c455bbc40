"""Rows as Python values and as columns of NumPy arrays."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from corgi2.errors import ShardError, SourceError
from corgi2.formats.columnar.nulls import is_number, nulls_problem
from corgi2.formats.columnar.tables import RESTORE
from corgi2.formats.paths import is_asked
from corgi2.order import Indices
from corgi2.records import Group, numpy_of, taker


@dataclass(frozen=True, slots=True)
class Rows:
    group: Group
    take: Callable[[Indices], pa.Table]
    url: str

    def samples(self, records: Indices) -> Iterator[dict[str, Any]]:
        for batch in self.take(records).to_batches(max_chunksize=1024):
            try:
                rows = batch.to_pylist()
            except (pa.ArrowException, ValueError, ArithmeticError) as error:
                raise ShardError(self.url, 0, f"a value cannot be decoded ({error}); {RESTORE}") from error
            yield from rows

    def columns(self, records: Indices, only: Collection[str] | None = None) -> dict[str, Any]:
        """Numbers, and lists of numbers of one length, become arrays of their own, which may be written to."""
        take = self.take
        if only is not None:
            names = [name for name in self.group.table.column_names if is_asked(name, only)]
            schema = self.group.schema and pa.schema([self.group.schema.field(name) for name in names])
            take = taker(replace(self.group, table=self.group.table.select(names), schema=schema))
        table = take(records)
        named = zip(table.column_names, table.columns, strict=True)
        if only is not None:  # the caller that looks for a value reports it missing
            return {
                name: _as_list(column, name, self.url) if column.null_count else _values(column, name, self.url)
                for name, column in named
            }
        return {name: _values(column, name, self.url) for name, column in named}


def _values(column: pa.ChunkedArray, name: str, url: str) -> Any:
    """The same kind of value for a column, whatever else its rows hold."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) and is_number(kind.value_type):
        return _matrix(column, name, url)
    if not is_number(kind):
        return _as_list(column, name, url)
    _check_nulls(column, kind, name, url)
    return np.array(column.to_numpy() if column.null_count else numpy_of(_as_number(column)))


def _as_number(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as whole numbers of 64 bits, which count the unit that their type names."""
    if not pa.types.is_temporal(column.type):
        return column
    narrow = column.type.bit_width < _COUNTER.bit_width
    return (column.cast(pa.int32()) if narrow else column).cast(_COUNTER)


_COUNTER = pa.int64()


def _as_list(column: pa.ChunkedArray, name: str, url: str) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (pa.ArrowException, ValueError, ArithmeticError) as error:
        raise ShardError(url, 0, f"a value of {name!r} cannot be decoded ({error}); {RESTORE}") from error


def _matrix(column: pa.ChunkedArray, name: str, url: str) -> Any:
    """One row per list; a missing list becomes NaN."""
    width, lists = column.type.list_size, column.combine_chunks()
    _check_nulls(column, column.type.value_type, name, url)
    values = lists.values.slice(lists.offset * width, len(lists) * width)
    matrix = _values(pa.chunked_array([values]), name, url).reshape(-1, width)
    if lists.null_count:
        matrix[~numpy_of(lists.is_valid())] = np.nan
    return matrix


def _check_nulls(column: pa.ChunkedArray, kind: pa.DataType, name: str, url: str) -> None:
    if column.null_count and not pa.types.is_floating(kind):
        raise SourceError(f"{url}: {nulls_problem(name, str(column.type))}")
