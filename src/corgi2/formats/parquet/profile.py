"""What a new shard keeps of an old one besides the rows: schema, metadata, codecs, dictionary columns."""

import base64
import json
from itertools import product
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.formats.columnar.metadata import index_types, metadata_of
from corgi2.formats.columnar.tables import empty_table
from corgi2.formats.parquet.codecs import codecs_of
from corgi2.formats.parquet.footer import decode_footer, raw_footer
from corgi2.formats.parquet.schema import arrow_schema
from corgi2.records import ShardFile

PAGE, LARGE_PAGE = 1 << 20, 10 << 20

BATCH_OPTION, PAGE_VALUES = "write_batch_size", 1024
"""A writer checks the size of a page after this many values, unless it is told to check more often."""


class Profile(NamedTuple):
    """What a new shard keeps of an old one: the schema, and options for a writer whose files look like it."""

    schema: pa.Schema
    options: dict[str, Any]

    def encode(self) -> str:
        schema = base64.b64encode(self.schema.serialize()).decode()
        return json.dumps({"schema": schema, "options": self.options})

    @staticmethod
    def decode(text: str) -> "Profile":
        fields = json.loads(text)
        return Profile(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fields["schema"]))), fields["options"])


def profile_of(file: ShardFile) -> Profile:
    raw = raw_footer(file)
    footer = decode_footer(file, raw)
    schema = arrow_schema(file, footer)
    return Profile(schema, writer_options(footer, schema, codecs_of(file, raw)))


def writer_options(footer: pq.FileMetaData, schema: pa.Schema, codecs: dict[str, str]) -> dict[str, Any]:
    """Options for a writer whose files look like this one."""
    group = _first_filled(footer)
    columns = {footer.schema.column(n).path: group.column(n) for n in range(group.num_columns)} if group else {}
    options: dict[str, Any] = {
        "compression": codecs or "snappy",
        "use_dictionary": [path for path, column in columns.items() if _has_dictionary(column)],
        "write_statistics": [path for path, column in columns.items() if column.is_stats_set],
        "write_page_index": any(column.has_offset_index for column in columns.values()),
        "store_schema": b"ARROW:schema" in (footer.metadata or {}),
    }
    widths = (column.total_uncompressed_size // max(1, column.num_values) for column in columns.values())
    if (widest := max(widths, default=0)) * PAGE_VALUES > LARGE_PAGE:  # reading a page needs memory for all of it
        options[BATCH_OPTION] = max(1, PAGE // widest)
    return options | _layout(footer, schema, options["store_schema"])


def _first_filled(footer: pq.FileMetaData) -> pq.RowGroupMetaData | None:
    """The first row group that has rows."""
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    return next((group for group in groups if group.num_rows), None)


class _Form(NamedTuple):
    """What a shard is besides its records, by name: what it means, and how it is stored."""

    metadata: dict[str, Any]
    stored: dict[str, Any]


def form_of(file: ShardFile) -> _Form:
    raw = raw_footer(file)
    footer = decode_footer(file, raw)
    schema = arrow_schema(file, footer)
    stored: dict[str, Any] = {"the Parquet schema": str(footer.schema).partition("\n")[2]}
    stored |= index_types(footer.schema.to_arrow_schema())
    group, codecs = _first_filled(footer), codecs_of(file, raw)
    for column in (group.column(number) for number in range(group.num_columns)) if group else ():
        stored |= {
            f"the codec of {column.path_in_schema!r}": codecs[column.path_in_schema],
            f"whether {column.path_in_schema!r} has statistics": column.is_stats_set,
            f"whether {column.path_in_schema!r} has a page index": column.has_offset_index,
        }
    return _Form(metadata_of(schema), stored)


def _has_dictionary(column: pq.ColumnChunkMetaData) -> bool:
    """Whether a dictionary saves anything: writers try one for every column, and leave its page where it did not. Then
    a number takes more than it does plainly, and texts overflow into the data's pages, where else indices of a few
    bytes lie."""
    if not column.has_dictionary_page:
        return False
    plain = _PLAIN_BYTES.get(column.physical_type, 0) * column.num_values
    if 0 < plain <= column.total_uncompressed_size:
        return False
    page_bytes = column.data_page_offset - column.dictionary_page_offset
    if not 0 < page_bytes < column.data_page_offset:
        return True
    data_bytes = column.total_compressed_size - page_bytes
    return bool(data_bytes <= _HEADER_BYTES + _INDEX_BYTES * column.num_values)


_PLAIN_BYTES = {"INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}

_INDEX_BYTES, _HEADER_BYTES = 8, 16_384
"""Of a value in a page, with its levels, at the most; and of the pages' headers."""


def _layout(footer: pq.FileMetaData, schema: pa.Schema, store_schema: bool) -> dict[str, Any]:
    """The options, among those that decide how Arrow types are stored, that give the same Parquet schema again."""
    choices = {
        "version": ("2.6", "1.0", "2.4"),
        "use_compliant_nested_type": (True, False),
        "use_deprecated_int96_timestamps": (False, True),
        "store_decimal_as_integer": (False, True),
    }
    layouts = [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]
    for layout in layouts:
        sink = pa.BufferOutputStream()
        try:
            pq.write_table(empty_table(schema), sink, store_schema=store_schema, **layout)
        except pa.ArrowException:
            continue
        if pq.read_metadata(pa.BufferReader(sink.getvalue())).schema.equals(footer.schema):
            return layout
    return {"use_deprecated_int96_timestamps": "INT96" in {c.physical_type for c in footer.schema}}
