"""Records in memory: the arena that a group lies in, taking records from it in any order, and hashing them.

Everything here works on arrays, and knows neither stores nor formats. `shard` has the values that these exchange:
shard, block, piece. `arena` is memory that is reused; `group` has blocks side by side, and gathers their records;
`spans`, `arrays` and `widths` are records as Arrow tables, and what they take; `hashing` has the digests that prove a
shuffle, `checksum` those that find damage.
"""

from corgi2.records.arena import SLACK_BYTES, Arena, reserve
from corgi2.records.arrays import number_array, numpy_of, value_table
from corgi2.records.checksum import Checksum, checksum_of
from corgi2.records.group import PLACE_BYTES, SLICE_BYTES, Decoder, Group, Taste, gather, records_alone, taker
from corgi2.records.hashing import Digest, Lanes, digest, digest_framed, hash_framed, hash_records
from corgi2.records.neighbours import runs
from corgi2.records.shard import (
    BLOCK_BYTES,
    NO_RECORD,
    READING_BYTES,
    SLAB_BYTES,
    Block,
    Buffer,
    Mapper,
    Piece,
    Scan,
    See,
    ShardFile,
    WatchedShard,
    Writing,
    end,
)
from corgi2.records.spans import Loose, framed_table, record_bytes, record_offsets
from corgi2.records.widths import Widths

__all__ = [
    "BLOCK_BYTES",
    "NO_RECORD",
    "PLACE_BYTES",
    "READING_BYTES",
    "SLAB_BYTES",
    "SLACK_BYTES",
    "SLICE_BYTES",
    "Arena",
    "Block",
    "Buffer",
    "Checksum",
    "Decoder",
    "Digest",
    "Group",
    "Lanes",
    "Loose",
    "Mapper",
    "Piece",
    "Scan",
    "See",
    "ShardFile",
    "Taste",
    "WatchedShard",
    "Widths",
    "Writing",
    "checksum_of",
    "digest",
    "digest_framed",
    "end",
    "framed_table",
    "gather",
    "hash_framed",
    "hash_records",
    "number_array",
    "numpy_of",
    "record_bytes",
    "record_offsets",
    "records_alone",
    "reserve",
    "runs",
    "taker",
    "value_table",
]
