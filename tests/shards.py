"""Shards in memory, and ways to make and read them in tests."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corgi2.dataset.sealing import unseal
from corgi2.formats.format import Format
from corgi2.formats.registry import format_of
from corgi2.records.arena import Arena
from corgi2.records.group import Group, gather
from corgi2.records.shard import Piece

ARROW = int(pa.__version__.partition(".")[0])
TAR, PARQUET, JSONL, ARROW_FORMAT = (format_of(suffix) for suffix in (".tar", ".parquet", ".jsonl", ".arrow"))
TFRECORD = format_of(".tfrecord")


@dataclass(frozen=True)
class MemoryShard:
    """A shard that is just bytes."""

    data: bytes
    name: str = "shard"

    @property
    def version(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def size(self) -> int:
        return len(self.data)

    def readinto(self, start: int, buffer: memoryview) -> None:
        assert start + len(buffer) <= len(self.data), "read behind the end of the shard"
        buffer[:] = self.data[start : start + len(buffer)]

    def piece(self) -> Piece:
        return Piece(self, 0, len(self.data))


def opened(path: Path) -> Any:
    """What a file of ours holds, that is JSON under a seal."""
    return json.loads(bytes(unseal(path.read_bytes(), str(path), "")))


def tar_of(members: Iterable[tuple[str, bytes]], format: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar of regular files, by the standard library."""
    return tar_of_infos([(tarfile.TarInfo(name), body) for name, body in members], format)


def tar_of_infos(members: Iterable[tuple[tarfile.TarInfo, bytes]], format: int = tarfile.USTAR_FORMAT) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=format) as archive:
        for member, body in members:
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return sink.getvalue()


def parquet_of(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def arrow_of(table: pa.Table, kind: str = "stream", rows: int | None = None, **options: Any) -> bytes:
    """A stream, or a file, of record batches of at most so many rows."""
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, rows)
    return bytes(sink.getvalue())


def compressed(data: bytes, suffix: str) -> bytes:
    """Data as the suffix says: .gz, .tgz, .zst or none."""
    if suffix.endswith((".gz", ".tgz")):
        return gzip.compress(data)
    return bytes(pa.Codec("zstd").compress(data)) if suffix.endswith(".zst") else data


def read_shards(format: Format, shards: Sequence[bytes], capacity: int = 1 << 28) -> Group:
    pieces = [MemoryShard(data, f"shard-{n}").piece() for n, data in enumerate(shards)]
    return format.read(pieces, Arena(capacity), decoding=True)


def records_of(group: Group, order: Any = None, slice_bytes: int = 1000) -> list[Any]:
    """The records of a group in an order: bytes of framed formats, with what travels with them; rows of Parquet."""
    order = np.arange(group.records) if order is None else np.asarray(order, np.int64)
    tables = list(gather(group, order, slice_bytes))
    rows = [row for table in tables for row in table.to_pylist()]
    return [row["record"] for row in rows] if group.table.column_names[0] == "record" else rows


def rewritten(format: Format, group: Group, order: Any, like: bytes) -> bytes:
    """A shard with a group's records in an order."""
    profile = format.profile(MemoryShard(like))
    tables = gather(group, np.asarray(order, np.int64), 1000)
    return b"".join(bytes(piece) for piece in format.write([tables], profile))


def samples_of(format: Format, data: bytes) -> list[dict[str, Any]]:
    group = read_shards(format, [data])
    return list(format.decoder(group, "shard").samples(np.arange(group.records)))
