"""Encoding of row groups."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.formats.columnar.tables import empty_table, in_memory
from corgi2.formats.parquet.profile import BATCH_OPTION, Profile
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
