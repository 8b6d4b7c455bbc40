"""Which columns of a row are wanted, and what stands for their missing values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corgi2.formats.parquet.chunks import chunk_numbers
from corgi2.records import number_array, numpy_of


@dataclass(frozen=True, slots=True)
class Wanted:
    """All columns as they are, unless told otherwise."""

    names: tuple[str, ...] | None = None
    """In the order of the schema."""
    fills: tuple[tuple[str, Any], ...] = ()

    @property
    def columns(self) -> list[str] | None:
        """As Arrow is asked for them."""
        return None if self.names is None else list(self.names)

    def schema(self, schema: pa.Schema) -> pa.Schema:
        if self.names is None:
            return schema
        return pa.schema([schema.field(name) for name in self.names], schema.metadata)

    def numbers(self, footer: pq.FileMetaData) -> Sequence[int]:
        """Of the columns as Parquet stores them."""
        return range(footer.num_columns) if self.names is None else chunk_numbers(footer, self.names)

    def of(self, batch: Any) -> Any:
        """A table, or a part of one, as it is wanted."""
        if self.names is not None and batch.schema.names != list(self.names):
            batch = batch.select(list(self.names))  # Arrow gives 'a.b' with 'a'
        for name, value in self.fills:
            number = batch.schema.get_field_index(name)
            column = batch.column(number)
            if column.null_count or pa.types.is_fixed_size_list(column.type):
                batch = batch.set_column(number, batch.schema.field(number), _filled(column, value))
        return batch


ALL = Wanted()


def wanted(schema: pa.Schema, columns: Sequence[str] | None, fill: Mapping[str, Any]) -> Wanted:
    """Checked against a schema: every name must be that of one column, and what is filled in must be of its type."""
    for option, names in (("columns", columns or ()), ("fill", fill)):
        for name in names:
            _check_name(option, name, schema)
    chosen = None if columns is None else tuple(name for name in schema.names if name in columns)
    for name, value in fill.items():
        if chosen is not None and name not in chosen:
            raise ValueError(f"fill={{{name!r}: …}}: the column is not among columns={list(chosen)}; leave it out")
        _check_fill(schema.field(name), value)
    return Wanted(None if chosen == tuple(schema.names) else chosen, tuple(fill.items()))


def _check_name(option: str, name: str, schema: pa.Schema) -> None:
    count = schema.names.count(name)
    if count > 1:
        raise ValueError(f"{option}: there are {count} columns {name!r}; rename them")
    if not count:
        near = get_close_matches(str(name), schema.names, 1)
        there = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, schema.names))}"
        raise ValueError(f"{option}: there is no column {name!r}; {there}")


def _check_fill(field: pa.Field, value: Any) -> None:
    try:
        missing = _filled(pa.nulls(1, field.type), value).null_count
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = f"fill={{{field.name!r}: {value!r}}}: the column of {field.type} cannot hold this"
        raise ValueError(f"{problem} ({str(error).splitlines()[0]}); give a value of its type") from error
    if missing:
        raise ValueError(f"fill={{{field.name!r}: {value!r}}}: give a value that is not missing itself")


def _filled(array: Any, value: Any) -> Any:
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_filled(chunk, value) for chunk in array.chunks], array.type)
    if pa.types.is_fixed_size_list(array.type):
        return _filled_lists(array, value)
    if pa.types.is_nested(array.type) or pa.types.is_dictionary(array.type) or pa.types.is_null(array.type):
        raise TypeError("only numbers, booleans, times, texts, bytes and lists of one length can be filled in")
    return pc.fill_null(array, pa.scalar(value, array.type))


def _filled_lists(array: Any, value: Any) -> Any:
    """Missing lists, and missing values in lists."""
    width = array.type.list_size
    values = _filled(array.values.slice(array.offset * width, len(array) * width), value)
    if array.null_count:
        chosen = np.flatnonzero(np.repeat(numpy_of(array.is_null()), width))
        places = np.arange(len(values))
        places[chosen] = len(values)
        values = pc.take(pa.concat_arrays([values, pa.array([value], values.type)]), number_array(places))
    return pa.FixedSizeListArray.from_arrays(values, type=array.type)
