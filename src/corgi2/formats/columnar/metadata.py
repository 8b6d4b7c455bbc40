"""What shards of columns say besides their rows, by name: the metadata of the schema and of its fields."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from corgi2.formats.columnar.schema import fields_of


def metadata_of(schema: pa.Schema) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        f"the metadata {_text(name)!r}": value for name, value in (schema.metadata or {}).items()
    }
    for path, field in all_fields(schema):
        held = field.metadata or {}
        metadata |= {f"the metadata {_text(name)!r} of field {path!r}": value for name, value in held.items()}
    return metadata


def index_types(schema: pa.Schema) -> dict[str, Any]:
    """The types of the indices of dictionaries."""
    return {
        f"the type of the indices of {path!r}": field.type.index_type
        for path, field in all_fields(schema)
        if pa.types.is_dictionary(field.type)
    }


def all_fields(parent: Any, path: str = "") -> Iterator[tuple[str, pa.Field]]:
    """All fields, each followed by those nested in it."""
    for field in parent if isinstance(parent, pa.Schema) else fields_of(parent):
        yield path + field.name, field
        yield from all_fields(field.type, f"{path}{field.name}.")


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def changes(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return [name for name in dict.fromkeys([*ours, *theirs]) if ours.get(name) != theirs.get(name)]
