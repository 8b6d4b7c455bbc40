"""Missing lists of a fixed size: Arrow before 26 cannot read them, and reports their shards as damaged.

Such shards are refused before anything is written if their footers tell, and otherwise when they are read.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.errors import ShardError
from corgi2.formats.columnar.schema import fields_of
from corgi2.records import ShardFile

_SYMPTOM = "Expected all lists to be of size"


_FIRST_THAT_READS = 26


def reads_missing_lists() -> bool:
    """Judged by Arrow's version: 25.0.1 cannot, 26.0.0 can. Trying it would cost every process 20 MB."""
    return int(pa.__version__.partition(".")[0]) >= _FIRST_THAT_READS


def check_missing_lists(file: ShardFile, footer: pq.FileMetaData, schema: pa.Schema) -> None:
    """Refuse a shard that this Arrow cannot read, and name the column."""
    places = [place for field in schema for place in _places(field)]
    is_odd = any(place.may_lack for place in places) and len(places) == footer.num_columns
    if not is_odd or reads_missing_lists():
        return
    for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
        for number, place in enumerate(places):
            if place.may_lack and _lacks(group.column(number), place, group.num_rows):
                raise ShardError(file.name, file.size, _problem(f"the column {place.column!r} has lists"))


def missing_lists(error: Exception, schema: pa.Schema | None) -> str | None:
    """What to say about an error of Arrow's, if missing lists are its cause."""
    if _SYMPTOM not in str(error) or reads_missing_lists() or schema is None:
        return None
    names = dict.fromkeys(place.column for field in schema for place in _places(field) if place.may_lack)
    return _problem(f"one of the columns {', '.join(map(repr, names))} has lists")


def _problem(where: str) -> str:
    return f"{where} of a fixed size that are missing, which pyarrow {pa.__version__} cannot read; install 26 or later"


class _Place(NamedTuple):
    """A column as Parquet stores it."""

    column: str
    """The top-level column that it is part of."""
    may_lack: bool
    """Whether it lies in a list of a fixed size that may be missing."""
    values: int
    """Values per row if no list is missing, and one less for each that is; 0 if that does not hold."""


def _places(field: pa.Field) -> Iterator[_Place]:
    return _within([field], _Place(field.name, may_lack=False, values=1), may_miss=False)


def _within(fields: Iterable[pa.Field], place: _Place, may_miss: bool) -> Iterator[_Place]:
    for field in fields:
        kind, missing, here = field.type, may_miss or field.nullable, place
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if pa.types.is_fixed_size_list(kind):
            values = place.values * kind.list_size if kind.list_size > 1 else 0
            here = place._replace(may_lack=place.may_lack or missing, values=values)
        elif kind.num_fields and not pa.types.is_struct(kind):
            here = place._replace(values=0)
        inner = fields_of(kind.field(0).type) if pa.types.is_map(kind) else fields_of(kind)
        if inner:
            yield from _within(inner, here, missing)
        else:
            yield here


def _lacks(column: pq.ColumnChunkMetaData, place: _Place, rows: int) -> bool:
    """A missing list is stored as one value. If that does not tell, it is at least a null."""
    if place.values:
        return bool(column.num_values < rows * place.values)
    statistics = column.statistics
    return bool(statistics is not None and statistics.has_null_count and statistics.null_count)
