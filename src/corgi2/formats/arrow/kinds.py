"""The types of columns that can be mixed: those that Parquet has, too. Others are refused by their column."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from corgi2.errors import ShardError
from corgi2.formats.columnar.schema import check_mixable, fields_of
from corgi2.records import ShardFile

_DEEPEST = 60


def check_types(file: ShardFile, schema: pa.Schema) -> None:
    if not len(schema):
        raise ShardError(file.name, 0, "the schema has no column: its rows hold nothing; leave the shard out")
    check_mixable(file, schema)
    for name, kind in zip(schema.names, schema.types, strict=True):
        if not _is_known(kind, _DEEPEST):
            problem = f"the column {name!r} of {kind} is of a type that corgi2 cannot mix; store it as a plain type"
            raise ShardError(file.name, 0, problem)


def _is_known(kind: pa.DataType, depth: int) -> bool:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _is_known(kind.storage_type, depth)
    if types.is_dictionary(kind):
        return bool(_is_known(kind.value_type, depth) and not _is_compound(kind.value_type))
    if types.is_union(kind) or types.is_run_end_encoded(kind) or types.is_interval(kind) or not depth:
        return False
    return all(_is_known(field.type, depth - 1) for field in fields_of(kind))


def _is_compound(kind: pa.DataType) -> bool:
    """Of dictionaries of such values, Arrow cannot join two."""
    types = pa.types
    return bool(
        types.is_nested(kind)
        or types.is_dictionary(kind)
        or types.is_null(kind)
        or isinstance(kind, pa.BaseExtensionType)
    )


def check_dictionaries(batch: pa.RecordBatch) -> None:
    """Refuse a dictionary that holds a missing value: Arrow cannot join it with others."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if any(found.dictionary.null_count for found in _dictionaries(column)):
            raise ValueError(
                f"the dictionary of {name!r} holds a missing value; encode the column again by dictionary_encode"
            )


def _dictionaries(array: Any) -> Iterator[pa.DictionaryArray]:
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        yield from _dictionaries(array.storage)
    elif types.is_dictionary(kind):
        yield array
    elif types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _dictionaries(array.field(number))
    elif types.is_map(kind):
        yield from _dictionaries(array.keys)
        yield from _dictionaries(array.items)
    elif types.is_nested(kind):
        yield from _dictionaries(array.values)
