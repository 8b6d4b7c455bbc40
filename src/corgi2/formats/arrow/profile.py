"""What a new shard keeps of an old one besides the rows: schema, codec, stream or file, the size of batches."""

import base64
import json
from typing import Any, NamedTuple

import pyarrow as pa

from corgi2.formats.arrow.layout import cached_front, reading, walk
from corgi2.formats.arrow.messages import BATCH, CODECS
from corgi2.formats.columnar.metadata import index_types, metadata_of
from corgi2.records import ShardFile

LEAST_BATCH, LARGEST_BATCH = 1_000_000, 16_000_000
"""Bytes of a record batch: a new one has as many rows as those of the old shard, if that takes about so much."""


class Profile(NamedTuple):
    schema: pa.Schema
    kind: str
    codec: str | None
    rows: int
    """The most rows of a record batch."""

    def encode(self) -> str:
        return json.dumps(self._asdict() | {"schema": base64.b64encode(self.schema.serialize()).decode()})

    @staticmethod
    def decode(text: str) -> "Profile":
        fields = json.loads(text)
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fields.pop("schema"))))
        return Profile(schema, **fields)


def profile_of(file: ShardFile) -> Profile:
    """By the first record batch that has rows."""
    front = cached_front(file)
    for message in walk(file, front, reading(file)):
        if message.kind == BATCH and message.rows:
            a_row = max(1, message.body // message.rows)
            rows = min(max(message.rows, LEAST_BATCH // a_row), LARGEST_BATCH // a_row)
            return Profile(front.schema, front.kind, CODECS[message.codec], max(1, rows))
    return Profile(front.schema, front.kind, None, 1)


def form_of(file: ShardFile) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a shard is besides its records, by name: what it means, and how it is stored."""
    profile = profile_of(file)
    stored: dict[str, Any] = {"the codec": profile.codec, "whether it is a stream or a file": profile.kind}
    return metadata_of(profile.schema), stored | index_types(cached_front(file).stored)
