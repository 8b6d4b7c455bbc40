"""Schemas of Parquet files: as Arrow has them, and as text, so that two texts are equal only if the schemas are.

A text has a line a column, and one a field of a struct, behind that of the struct itself.
"""

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.errors import ShardError
from corgi2.shard import ShardFile


def arrow_schema(file: ShardFile, footer: pq.FileMetaData) -> pa.Schema:
    try:
        schema = footer.schema.to_arrow_schema().with_metadata(_metadata(footer))
    except (pa.ArrowException, ValueError) as error:
        raise ShardError(file.name, file.size, f"the schema cannot be read ({error})") from error
    for name, kind in zip(schema.names, schema.types, strict=True):
        if not _can_be_mixed(kind):
            problem = (
                f"Arrow cannot put the column {name!r} of {kind} in another order; store it as plain strings or lists"
            )
            raise ShardError(file.name, file.size, problem)
    return schema


_UNMIXABLE = {
    kind.id for kind in (pa.string_view(), pa.binary_view(), pa.list_view(pa.null()), pa.large_list_view(pa.null()))
}


def _can_be_mixed(kind: pa.DataType) -> bool:
    """Of views, and of lists of nothing but nulls, Arrow cannot take rows."""
    if kind.id in _UNMIXABLE:
        return False
    inner = [field.type for field in fields_of(kind)]
    holds_nulls = not pa.types.is_struct(kind) and any(pa.types.is_null(each) for each in inner)
    return not holds_nulls and all(map(_can_be_mixed, inner))


def _metadata(footer: pq.FileMetaData) -> dict[bytes, bytes] | None:
    return {key: value for key, value in (footer.metadata or {}).items() if key != b"ARROW:schema"} or None


def fields_of(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(number) for number in range(kind.num_fields)]


def schema_text(schema: pa.Schema) -> str:
    """A line a field. Arrow's own rendering is cut short where it is long, and does not tell names from what stands
    between them, which hides differences."""
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
    """In quotes, where it could be taken for more than a name."""
    is_plain = name.isprintable() and name.strip() == name != "" and not {*name} & {*'.:,<>"\\'}
    return name if is_plain else json.dumps(name)


def _type_text(kind: pa.DataType) -> str:
    """As Arrow writes it; and of a map, whether values may be missing, of an extension, what it is made of."""
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
