"""Nulls in columns that become arrays: floats hold them as NaN, and all others cannot."""

import re

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.formats.columnar.nulls import is_number
from corgi2.formats.parquet.chunks import chunk_numbers, chunks_of

_STRICT = re.compile(r"^.*: (u?int|bool|date|time|duration|fixed_size_list)(?!.* not null$)", re.MULTILINE)
"""A line of a schema's text, of a column that may lack values."""


def has_strict(schema: str) -> bool:
    """Whether a schema, as text, has columns that nulls would spoil."""
    return _STRICT.search(schema) is not None


def unfit_columns(footer: pq.FileMetaData, schema: pa.Schema) -> dict[str, str]:
    """Those of which some values are missing, as far as statistics tell."""
    fields = [field for field in schema if field.nullable and _is_strict(field.type)]
    return {field.name: str(field.type) for field in fields if _lacks(footer, field.name)}


def _is_strict(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_fixed_size_list(kind) else kind
    return is_number(kind) and not pa.types.is_floating(kind)


def _lacks(footer: pq.FileMetaData, name: str) -> bool:
    groups = [group for group in range(footer.num_row_groups) if footer.row_group(group).num_rows]
    statistics = (chunk.statistics for chunk in chunks_of(footer, groups, chunk_numbers(footer, [name])))
    return any(each is not None and each.has_null_count and each.null_count for each in statistics)
