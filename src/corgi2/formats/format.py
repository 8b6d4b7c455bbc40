"""What the rest of corgi2 asks of a format."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from corgi2.order import Indices
from corgi2.records import (
    READING_BYTES,
    Arena,
    Block,
    Decoder,
    Digest,
    Group,
    Lanes,
    Mapper,
    Piece,
    Scan,
    See,
    ShardFile,
    Taste,
    Writing,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What others have to know about a format, by what it means for them."""

    has_cheap_scan: bool
    """A scan reads only a few KB of a shard: finding out blocks and records costs next to nothing."""
    has_ranges: bool
    """A part of a shard can be read by itself."""
    has_record_ranges: bool
    """So can a single record: blocks may be cut between any two of them."""
    cuts_blocks: bool
    """A scan cuts blocks of about the size that it is given; otherwise shards say what a block is."""
    has_columns: bool
    """All shards of a data set share a schema of columns, and each record has all of them."""
    is_decoded: bool
    """Records lie decoded in memory, and a writer holds a whole block while it encodes it."""
    is_tasted_whole: bool
    """A taste of a block is all of it, in parts; otherwise it is the front."""
    packs_by_order: bool
    """The size of a shard depends on the order of its records."""


@dataclass(frozen=True, slots=True)
class Described:
    """A shard, as files beside it describe it."""

    path: str
    size: int
    records: int
    checksum: bytes


class SideFiles(Protocol):
    """Files that lie beside shards and say which these are, for other readers; new shards need new ones."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all of them, in the order in which they are written: the last makes the folder readable."""

    def problem(self, old: Mapping[str, bytes], shards: Collection[str] | None) -> str | None:
        """Why these files cannot be written anew in place of those that describe these shards (or any, if None).
        ``old`` holds those that are there, by name."""

    def rebuilt(self, old: Mapping[str, bytes], shards: Sequence[Described]) -> dict[str, bytes]:
        """The files for new shards."""


class Format(Protocol):
    """Reads and writes shards with one suffix."""

    @property
    def name(self) -> str: ...
    @property
    def suffix(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    @property
    def side_files(self) -> SideFiles | None:
        """The files beside shards that a shuffle writes anew, if the format has any."""

    def decoding_bytes(self, length: Indices, records: Indices, footprint: Indices) -> Indices:
        """Memory that it takes to read and decode each of some blocks, besides its final place."""

    def scan(self, file: ShardFile, block_bytes: int, memory: int = READING_BYTES) -> Scan:
        """The blocks of a shard, found within this memory; damaged shards and records that do not fit are refused."""

    def sketch(self, size: int) -> Block:
        """A whole shard as one block, as far as its size alone tells: its records are not counted."""

    def shows_record(self, file: ShardFile) -> bool:
        """Whether one small read of a shard is enough to know that it holds a record."""

    def taste(self, piece: Piece) -> Iterable[Taste]:
        """Some records of a piece, for estimates, in one read; in parts, one of which is in memory at a time."""

    def read(
        self,
        pieces: Sequence[Piece],
        arena: Arena,
        mapper: Mapper = map,
        see: See | None = None,
        decoding: bool = False,
        only: Collection[str] | None = None,
        decoders: int | None = None,
    ) -> Group:
        """Blocks, or whole shards, side by side in memory. ``see`` is shown records as soon as they lie there;
        ``decoding`` tells that they will be decoded, ``only`` that nothing else is wanted than what some paths lead
        to. Of the mapper's threads, ``decoders`` decode at the same time, while the others fetch; all of them, if
        None."""

    def stream(self, file: ShardFile, memory: int = READING_BYTES) -> Iterator[Any]:
        """All records of a shard as tables, front to back, a part of it in memory at a time."""

    def scan_together(self, files: Sequence[ShardFile], block_bytes: int, memory: int) -> list[Scan] | None:
        """The scans of several small shards at once; None if they must be scanned one by one."""

    def stream_together(self, files: Sequence[ShardFile], memory: int) -> Any | None:
        """All records of several small shards as one table; None if they must be streamed one by one."""

    def digest(self, table: Any, key: int) -> Digest:
        """The digest of the records of a table, and of what travels with them and belongs to none."""

    def hash_records(self, table: Any, key: int) -> Lanes:
        """The hash of each record of a table."""

    def profile(self, file: ShardFile) -> str:
        """What a new shard must keep of an old one besides the records: schema, codec, metadata. As text."""

    def compare(self, one: ShardFile, other: ShardFile) -> tuple[list[str], list[str]]:
        """What differs in another shard, besides the records, of all that a new shard keeps, by name: what means
        something else, and what is only stored differently."""

    def write(self, blocks: Iterable[Iterable[Any]], profile: str) -> Writing:
        """The bytes of a shard, as they become ready, and at the end its blocks. A block is given as its tables."""

    def decoder(self, group: Group, url: str) -> Decoder:
        """Decodes records of a group that was read to be decoded and whose memory stays. Nothing is ever unpickled."""


@runtime_checkable
class Columnar(Format, Protocol):
    """A format whose blocks may be read with some of their columns alone."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Those that are read; None if all are."""

    def wanting(self, file: ShardFile, columns: Sequence[str] | None, fill: Mapping[str, Any]) -> "Columnar":
        """The same format, of which only some columns are read, with other values where they are missing. A shard shows
        which there are."""

    def has_strict(self, schema: str) -> bool:
        """Whether a scan's schema has columns that become arrays, and that nulls would spoil."""

    def unfit(self, file: ShardFile) -> dict[str, str]:
        """Such columns, with their types, of which a shard has nulls, as far as it tells without being read."""

    def problem_of(self, unfit: Mapping[str, str]) -> str | None:
        """What is wrong with the first of these that is read as it is, and the way out."""
