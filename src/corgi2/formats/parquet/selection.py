"""Some columns of a row group: only their bytes are fetched, and for a struct only the fields that are asked for."""

from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.errors import TooLargeError
from corgi2.formats.parquet.chunks import Fetched, chunk_numbers, chunks_of, fetch_chunks
from corgi2.formats.parquet.footer import cached_footer
from corgi2.formats.parquet.reading import check_count, clear_errors, groups_within
from corgi2.formats.parquet.schema import arrow_schema
from corgi2.formats.paths import split_path
from corgi2.records import Piece
from corgi2.sizes import format_size

_ROWS = 16_384
"""Decoded at a time."""


def read_selected(piece: Piece, paths: Collection[str], memory: int) -> pa.Table | None:
    """The columns that paths lead into; None if no path leads into any."""
    footer, spans = cached_footer(piece.file)
    schema = arrow_schema(piece.file, footer)
    wanted = sorted({found for path in paths if (found := _column(path, schema))})
    if not wanted:
        return None
    groups = groups_within(piece, spans)
    fetched = _fetch(piece, footer, groups, wanted, memory)
    with clear_errors(piece, schema):
        reader = pq.ParquetFile(pa.PythonFile(fetched, mode="r"), metadata=footer)
        try:
            batches = list(reader.iter_batches(_ROWS, row_groups=groups, columns=wanted, use_threads=False))
        finally:
            reader.close(force=True)
        table = pa.Table.from_batches(batches)
    check_count(piece, table.num_rows, sum(footer.row_group(group).num_rows for group in groups))
    return table


def _column(path: str, schema: pa.Schema) -> str | None:
    """As Parquet names it: down to the struct's field that a path leads to, or to the list on its way."""
    split = split_path(path, schema.names)
    if split is None or schema.get_field_index(split[0]) < 0:
        return None
    name, keys = split
    kind = schema.field(name).type
    for key in keys:
        if not pa.types.is_struct(kind) or kind.get_field_index(key) < 0:
            break
        name, kind = f"{name}.{key}", kind.field(kind.get_field_index(key)).type
    return name


def _fetch(piece: Piece, footer: pq.FileMetaData, groups: list[int], wanted: list[str], memory: int) -> Fetched:
    columns = chunks_of(footer, groups, chunk_numbers(footer, wanted))
    taken = sum(column.total_compressed_size + column.total_uncompressed_size for column in columns)
    if taken > memory:
        problem = f"{', '.join(wanted)} of a row group take {format_size(taken)}, more than the {format_size(memory)}"
        raise TooLargeError(piece.file.name, piece.start, f"{problem} available; shuffle it into smaller ones")
    return fetch_chunks(piece.file, columns, lambda size: memoryview(bytearray(size)))
