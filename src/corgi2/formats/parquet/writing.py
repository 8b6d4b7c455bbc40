"""Encoding of row groups."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.formats.parquet.columns import ROW_BYTES, is_flat, table_bytes
from corgi2.formats.parquet.profile import BATCH_OPTION, Profile, empty_table
from corgi2.formats.pipe import Pipe
from corgi2.host import give_back
from corgi2.records import PLACE_BYTES, Block

KEPT_BYTES = 24 << 20
"""Bytes written before memory kept by allocators is returned. Pages of wide values have many sizes, and seldom fit
where others were."""


def encode_blocks(blocks: Iterable[Iterable[pa.Table]], profile: Profile, pipe: Pipe) -> Iterator[Block]:
    schema, released = profile.schema, 0
    with pq.ParquetWriter(pa.PythonFile(pipe, mode="w"), schema, **profile.options) as writer:
        pipe.cut()
        for tables in blocks:
            start = pipe.tell()
            group = pa.concat_tables([empty_table(schema), *(table.cast(schema) for table in tables)])
            writer.write_table(group, row_group_size=max(1, group.num_rows))
            footprint, rows = in_memory(group) + PLACE_BYTES * group.num_rows, group.num_rows
            del group
            if BATCH_OPTION in profile.options and pipe.tell() > released + KEPT_BYTES:
                give_back()
                released = pipe.tell()
            yield Block(start, pipe.tell() - start, rows, footprint, checksum=pipe.cut())


def in_memory(table: pa.Table) -> int:
    """Bytes of a decoded row group in a group: if its columns become single arrays, its rows are listed."""
    return table_bytes(table) + (ROW_BYTES * table.num_rows if is_flat(table.schema) else 0)


def write_stream(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
