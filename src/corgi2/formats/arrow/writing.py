"""Encoding of record batches.

How rows are cut into batches depends on the rows and on the profile alone, not on how they arrive. A dictionary only
grows from batch to batch: what is new in it is written as a delta, which files allow, too.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from corgi2.formats.arrow.layout import FILE, FILE_FRONT, has_dictionaries
from corgi2.formats.arrow.profile import LARGEST_BATCH, Profile
from corgi2.formats.columnar.columns import ROW_BYTES, fixed_bytes, is_fixed, is_flat, narrow_texts
from corgi2.formats.columnar.tables import empty_table
from corgi2.formats.pipe import Pipe
from corgi2.order import Indices
from corgi2.records import PLACE_BYTES, Block, Buffer, Widths


def encode_blocks(blocks: Iterable[Iterable[pa.Table]], profile: Profile, pipe: Pipe) -> Iterator[Block]:
    schema, is_file = profile.schema, profile.kind == FILE
    front = schema.serialize().size + (FILE_FRONT if is_file else 0)
    options = pa.ipc.IpcWriteOptions(compression=profile.codec, emit_dictionary_deltas=True, use_threads=False)
    new = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with new(pa.PythonFile(_BehindFront(pipe, front), mode="w"), schema, options=options) as writer:
        dictionaries = _Dictionaries(schema)
        for tables in blocks:
            start, rows, size = max(front, pipe.tell()), 0, 0
            for batch in map(dictionaries.grown, _cut(tables, profile)):
                writer.write_batch(batch)
                rows, size = rows + len(batch), size + pa.ipc.get_record_batch_size(batch)
            footprint = footprint_of(schema, rows, size + dictionaries.nbytes)
            yield Block(start, pipe.tell() - start, rows, footprint, checksum=pipe.cut())


def footprint_of(schema: pa.Schema, rows: int, message_bytes: int) -> int:
    """What rows take in a group, with their places, given the bytes of their messages if nothing is compressed."""
    size = message_bytes
    if is_fixed(schema):
        size = fixed_bytes(schema, rows)
    elif is_flat(schema):
        size += 4 * rows * narrow_texts(schema)
    return size + (PLACE_BYTES + (ROW_BYTES if is_flat(schema) else 0)) * rows


class _BehindFront:
    """A pipe, as Arrow wants a file. The schema is written with the first batch, and belongs to no block."""

    closed = False

    def __init__(self, pipe: Pipe, front: int) -> None:
        self._pipe, self._front = pipe, front

    def write(self, data: Buffer) -> int:
        size = self._pipe.write(data)
        if self._pipe.tell() == self._front:
            self._pipe.cut()
        return size

    def tell(self) -> int:
        return self._pipe.tell()

    def flush(self) -> None:
        """Nothing to do: what was written is used soon enough."""

    def close(self) -> None:
        self.closed = True


def _cut(tables: Iterable[pa.Table], profile: Profile) -> Iterator[pa.Table]:
    """The rows of a block as tables of one batch each: as many as there should be, unless they take too much."""
    widths, waiting, rows, room = Widths.of(profile.schema), list[pa.RecordBatch](), 0, LARGEST_BATCH
    for batch in (batch for table in tables for batch in table.cast(profile.schema).to_batches()):
        ends = np.cumsum(_sizes(widths, batch))
        at = 0
        while at < len(batch):
            done = int(ends[at - 1]) if at else 0
            stop = min(int(np.searchsorted(ends, done + room, "right")), at + profile.rows - rows)
            if stop > at or not rows:
                stop = max(stop, at + 1)
                waiting.append(batch.slice(at, stop - at))
                rows, room = rows + stop - at, room - (int(ends[stop - 1]) - done)
            if stop < len(batch) or rows == profile.rows:
                yield _one(waiting)
                waiting, rows, room = [], 0, LARGEST_BATCH
            at = stop
    if waiting:
        yield _one(waiting)


def _sizes(widths: Widths, batch: pa.RecordBatch) -> Indices:
    if widths.others:
        return widths.row_bytes(batch, np.arange(len(batch)))
    return np.full(len(batch), -(-widths.fixed // 8), np.int64)


def _one(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return table if len(batches) == 1 else table.combine_chunks()


class _Dictionaries:
    """Makes the dictionaries of each batch begin with those of the batch before."""

    def __init__(self, schema: pa.Schema) -> None:
        self._are_there = has_dictionaries(schema)
        self._seen = empty_table(schema)
        self.nbytes = 0
        """Of the dictionaries so far."""

    def grown(self, table: pa.Table) -> pa.RecordBatch:
        if not self._are_there:
            return table.to_batches()[0]
        batch = pa.concat_tables([self._seen, table]).unify_dictionaries().to_batches()[-1]
        self._seen = pa.Table.from_batches([batch.slice(0, 0)])
        self.nbytes = batch.nbytes - batch.slice(0, 0).nbytes + self._seen.nbytes
        return batch
