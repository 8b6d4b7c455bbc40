"""Schemas of columns, as rows have them in memory, and as text: two texts are equal only if the schemas are.

A text has one line per column, and one per field of a struct, after that of the struct itself. Indices of dictionaries
have at least 32 bits, here and in new shards, whatever they had before: many shards hold more values than one.
"""

import json
import operator
from collections.abc import Iterator

import pyarrow as pa

from corgi2.errors import ShardError
from corgi2.records import ShardFile


def check_mixable(file: ShardFile, schema: pa.Schema) -> None:
    """Refuse a column whose rows Arrow cannot put in another order."""
    for name, kind in zip(schema.names, schema.types, strict=True):
        if not _can_be_mixed(kind):
            problem = (
                f"Arrow cannot put the column {name!r} of {kind} in another order; store it as plain strings or lists"
            )
            raise ShardError(file.name, file.size, problem)


_UNMIXABLE = {
    kind.id for kind in (pa.string_view(), pa.binary_view(), pa.list_view(pa.null()), pa.large_list_view(pa.null()))
}


def _can_be_mixed(kind: pa.DataType) -> bool:
    """Arrow cannot take rows of views, or of lists of nothing but nulls."""
    if kind.id in _UNMIXABLE:
        return False
    inner = [field.type for field in fields_of(kind)]
    holds_nulls = not pa.types.is_struct(kind) and any(pa.types.is_null(each) for each in inner)
    return not holds_nulls and all(map(_can_be_mixed, inner))


def fields_of(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(number) for number in range(kind.num_fields)]


def widened(schema: pa.Schema) -> pa.Schema:
    """The same schema, with room for the values of many shards in its dictionaries."""
    return pa.schema([_wide_field(field) for field in schema], schema.metadata)


def widen(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table as it is in memory: with the widened schema."""
    for number, (kind, field) in enumerate(zip(table.schema.types, schema, strict=True)):
        if not kind.equals(field.type):
            table = table.set_column(number, field, table.column(number).cast(field.type))
    return table


def _wide_field(field: pa.Field) -> pa.Field:
    kind = field.type
    wide = _wide(kind)
    return field if wide is kind else field.with_type(wide)


def _wide(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        is_wide = kind.index_type.bit_width >= _INDEX.bit_width
        return kind if is_wide else pa.dictionary(_INDEX, kind.value_type, kind.ordered)
    before = fields_of(kind)
    inner = [_wide_field(field) for field in before]
    if all(map(operator.is_, before, inner)) or isinstance(kind, pa.BaseExtensionType):
        return kind
    if types.is_struct(kind):
        return pa.struct(inner)
    if types.is_map(kind):
        return pa.map_(_wide_field(kind.key_field), _wide_field(kind.item_field), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(inner[0], kind.list_size)
    return pa.large_list(inner[0]) if types.is_large_list(kind) else pa.list_(inner[0])


_INDEX = pa.int32()


def schema_text(schema: pa.Schema) -> str:
    """One line per field. Arrow's own rendering truncates long schemas, and does not separate names from the
    punctuation around them, which hides differences."""
    return "\n".join(line for field in schema for line in _lines(field, ""))


def _lines(field: pa.Field, prefix: str) -> Iterator[str]:
    if not pa.types.is_struct(field.type):
        yield prefix + _field_text(field)
        return
    name = prefix + _name_text(field.name)
    yield f"{name}: struct{_null_text(field)}"
    for inner in fields_of(field.type):
        yield from _lines(inner, f"{name}.")


def _field_text(field: pa.Field) -> str:
    return f"{_name_text(field.name)}: {_type_text(field.type)}{_null_text(field)}"


def _null_text(field: pa.Field) -> str:
    return "" if field.nullable else " not null"


def _name_text(name: str) -> str:
    """A name, in quotes if it could be mistaken for more than a name."""
    is_plain = name.isprintable() and name.strip() == name != "" and not {*name} & {*'.:,<>"\\'}
    return name if is_plain else json.dumps(name)


def _type_text(kind: pa.DataType) -> str:
    """A type as Arrow writes it; plus, for a map, whether values may be missing, and for an extension, its storage."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        own = repr(kind.__arrow_ext_serialize__()) if isinstance(kind, pa.ExtensionType) else ""
        return f"{kind}{own} of {_type_text(kind.storage_type)}"
    if types.is_map(kind):
        item = _type_text(kind.item_type) + _null_text(kind.item_field)
        return f"map<{_type_text(kind.key_type)}, {item}{', keys_sorted' if kind.keys_sorted else ''}>"
    if not kind.num_fields:
        return str(kind)
    head, tail = str(kind).partition("<")[0], str(kind).rpartition(">")[2]
    return f"{head}<{', '.join(map(_field_text, fields_of(kind)))}>{tail}"
