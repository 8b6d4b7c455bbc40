"""The schema of a Parquet file, as its rows have it in memory."""

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.errors import ShardError
from corgi2.formats.columnar.schema import check_mixable, widened
from corgi2.records import ShardFile


def arrow_schema(file: ShardFile, footer: pq.FileMetaData) -> pa.Schema:
    """The schema that rows have in memory, with the metadata of the file."""
    try:
        schema = widened(footer.schema.to_arrow_schema()).with_metadata(_metadata(footer))
    except (pa.ArrowException, ValueError) as error:
        raise ShardError(file.name, file.size, f"the schema cannot be read ({error})") from error
    check_mixable(file, schema)
    return schema


def _metadata(footer: pq.FileMetaData) -> dict[bytes, bytes] | None:
    return {key: value for key, value in (footer.metadata or {}).items() if key != b"ARROW:schema"} or None
