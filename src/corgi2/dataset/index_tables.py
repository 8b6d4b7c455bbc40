"""The blocks of a data set: where each lies, how many records it holds, what it takes in memory.

An index is two tables of columns, so that a million blocks load in a fraction of a second. It lies in ``.corgi2/``
beside the data, or in the user's cache. A shard whose size or etag has changed is scanned again, the others are not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corgi2.dataset.source import Source
from corgi2.records import Block, Checksum, Piece, Scan, number_array, numpy_of, value_table
from corgi2.stores import Entry

SHARD_FIELDS = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("etag", pa.string()),
        ("schema", pa.string()),
        ("checksum", pa.binary()),
    ]
)

BLOCK_FIELDS = pa.schema(
    [
        ("shard", pa.int32()),
        ("start", pa.int64()),
        ("length", pa.int64()),
        ("records", pa.int64()),
        ("footprint", pa.int64()),
        ("exact", pa.bool_()),
        ("checksum", pa.binary()),
        ("lineage", pa.list_(pa.int32())),
        ("round", pa.int32()),
    ]
)
BLOCK_VALUES = BLOCK_FIELDS.names[1:-2]
"""Those that a scan finds in a shard."""
NO_ROUND = -1


@dataclass(frozen=True, slots=True)
class Index:
    """Shards in the order of their paths, and their blocks in the order of shard and start.

    ``lineage`` holds, for blocks that corgi2 wrote, a number for every pass: in the last one the block's group, in an
    earlier one the set of groups that its records come from (blocks with equal numbers come from the same set).
    ``round`` is the round of ranges that a block was made in, or `NO_ROUND`.
    """

    suffix: str
    block_bytes: int
    shards: pa.Table
    blocks: pa.Table

    def column(self, name: str) -> npt.NDArray[np.int64]:
        return numpy_of(self.blocks.column(name))

    @property
    def records(self) -> int:
        return int(self.column("records").sum())

    @property
    def is_counted(self) -> bool:
        """Whether the records are known; a sketch from a listing does not know them."""
        return bool((self.column("records") > 0).all())

    @property
    def footprint(self) -> int:
        return int(self.column("footprint").sum())

    @property
    def entries(self) -> list[Entry]:
        columns = (self.shards.column(name).to_pylist() for name in ("path", "size", "etag"))
        return [Entry(*row) for row in zip(*columns, strict=True)]

    @property
    def bytes(self) -> int:
        return int(numpy_of(self.shards.column("size")).sum())

    def pieces(self, source: Source, numbers: Iterable[int], at_once: int | None = None) -> list[Piece]:
        """Blocks by number, ready to be read, this many of them at the same time. The source must be the one that was
        indexed."""
        names = ("shard", "start", "length", "records", "footprint")
        shard, start, length, records, footprint = (self.column(name) for name in names)
        checksum = self.blocks.column("checksum")
        return [
            Piece(
                source.shard(int(shard[n]), at_once),
                int(start[n]),
                int(length[n]),
                checksum[int(n)].as_py(),
                int(records[n]),
                int(footprint[n]),
            )
            for n in numbers
        ]

    def select(self, numbers: npt.NDArray[np.int64]) -> "Index":
        """Some blocks, in the given order, and their shards, renumbered."""
        kept, shard = np.unique(self.column("shard")[numbers], return_inverse=True)
        blocks = self.blocks.take(number_array(numbers)).set_column(
            0, BLOCK_FIELDS.field("shard"), number_array(shard.astype(np.int32))
        )
        return Index(self.suffix, self.block_bytes, self.shards.take(number_array(kept)), blocks)


def make_index(suffix: str, block_bytes: int, scans: Sequence[tuple[Entry, Scan]]) -> Index:
    """The index of scanned shards."""
    shards = value_table(
        [
            [entry.path for entry, _ in scans],
            [entry.size for entry, _ in scans],
            [entry.etag for entry, _ in scans],
            [scan.schema for _, scan in scans],
            [scan.checksum for _, scan in scans],
        ],
        SHARD_FIELDS,
    )
    blocks = [(place, block) for place, (_, scan) in enumerate(scans) for block in scan.blocks]
    lineage = [numbers for _, scan in scans for numbers in scan.lineage or ((),) * len(scan.blocks)]
    rounds = [scan.round for _, scan in scans for _ in scan.blocks]
    return Index(suffix, block_bytes, shards, blocks_table(blocks, lineage, rounds))


def blocks_table(
    blocks: Sequence[tuple[int, Block]],
    lineage: Sequence[Sequence[int]] | None = None,
    rounds: Sequence[int] | None = None,
) -> pa.Table:
    """Blocks, each with the number of its shard."""
    columns = [
        [shard for shard, _ in blocks],
        *([getattr(block, name) for _, block in blocks] for name in BLOCK_VALUES),
        lineage if lineage is not None else [[]] * len(blocks),
        rounds if rounds is not None else [NO_ROUND] * len(blocks),
    ]
    return value_table(columns, BLOCK_FIELDS)


def whole_shards(index: Index) -> Index:
    """The same shards, each as one block."""
    first = np.searchsorted(index.column("shard"), np.arange(index.shards.num_rows))
    sums = {name: np.add.reduceat(index.column(name), first) for name in ("records", "footprint")}
    exact = np.logical_and.reduceat(index.column("exact"), first)
    scans = [
        (entry, Scan((Block(0, entry.size, records, footprint, sure),), schema))
        for entry, records, footprint, sure, schema in zip(
            index.entries,
            sums["records"].tolist(),
            sums["footprint"].tolist(),
            exact.tolist(),
            index.shards.column("schema").to_pylist(),
            strict=True,
        )
    ]
    return make_index(index.suffix, index.block_bytes, scans)


def joined(index: Index, order: npt.NDArray[np.int64], first: npt.NDArray[np.int64]) -> Index:
    """Blocks in this order, of which runs that follow each other in a shard, and begin here, become one block each."""
    blocks = index.blocks.take(number_array(order[first]))
    if len(first) == len(order):
        return replace(index, blocks=blocks)
    for name in ("length", "records", "footprint"):
        blocks = with_column(blocks, name, number_array(np.add.reduceat(index.column(name)[order], first)))
    checksums = index.blocks.column("checksum").take(number_array(order)).to_pylist()
    lengths, bounds = index.column("length")[order].tolist(), [*first.tolist(), len(order)]
    parts = [Checksum.join(lengths[slice(*bound)], checksums[slice(*bound)]) for bound in pairwise(bounds)]
    exact = np.logical_and.reduceat(index.column("exact")[order], first).tolist()
    made = value_table([exact, parts], pa.schema([BLOCK_FIELDS.field("exact"), BLOCK_FIELDS.field("checksum")]))
    blocks = with_column(blocks, "exact", made.column("exact"))
    return replace(index, blocks=with_column(blocks, "checksum", made.column("checksum")))


def matches(index: Index, source: Source) -> bool:
    """Whether an index describes exactly these shards, unchanged."""
    return index.entries == list(source.entries)


def of_index(source: Source, index: Index) -> Source:
    """The source with the shards of an index alone, and what the listing knows of them beyond it."""
    listed = {entry: entry for entry in source.entries}
    return replace(source, entries=tuple(listed.get(entry, entry) for entry in index.entries))


def select(index: Index, source: Source) -> Index | None:
    """The part of an index that describes these shards, or None if one is missing or has changed."""
    if index.suffix != source.format.suffix:
        return None
    place = {entry: number for number, entry in enumerate(index.entries)}
    wanted = [place.get(entry, -1) for entry in source.entries]
    return None if -1 in wanted else _part(index, np.array(wanted, np.int64))


def merge(known: Index | None, new: Index) -> Index:
    """The new index, and what an older one of the same kind knows of other shards in the folder."""
    if known is None or (known.suffix, known.block_bytes) != (new.suffix, new.block_bytes):
        return new
    other = without(known, set(new.shards.column("path").to_pylist()))
    moved = new.column("shard") + other.shards.num_rows
    shard = number_array(np.concatenate([other.column("shard"), moved]).astype(np.int32))
    shards = pa.concat_tables([other.shards, new.shards])
    blocks = pa.concat_tables([other.blocks, new.blocks]).set_column(0, BLOCK_FIELDS.field("shard"), shard)
    both = Index(new.suffix, new.block_bytes, shards, blocks)
    return _part(both, np.argsort(np.array(shards.column("path").to_pylist(), object), kind="stable"))


def without(index: Index, paths: set[str]) -> Index:
    """The index without some shards."""
    kept = [number for number, path in enumerate(index.shards.column("path").to_pylist()) if path not in paths]
    return _part(index, np.array(kept, np.int64))


def with_entries(index: Index, entries: Sequence[Entry]) -> Index:
    """The index of the same shards as they are listed now."""
    fields = pa.schema([SHARD_FIELDS.field("size"), SHARD_FIELDS.field("etag")])
    now = value_table([[entry.size for entry in entries], [entry.etag for entry in entries]], fields)
    shards = with_column(index.shards, "size", now.column("size"))
    return replace(index, shards=with_column(shards, "etag", now.column("etag")))


def with_replaced(index: Index, entries: Sequence[Entry]) -> Index:
    """The index of whole shards, of which some were replaced by others; how many records these hold is not known."""
    changed = np.array([old != new for old, new in zip(index.entries, entries, strict=True)])[index.column("shard")]
    sizes = np.array([entry.size for entry in entries], np.int64)[index.column("shard")]
    lengths, records = np.where(changed, sizes, index.column("length")), np.where(changed, 0, index.column("records"))
    blocks = with_column(index.blocks, "length", number_array(lengths))
    blocks = with_column(blocks, "records", number_array(records))
    return replace(with_entries(index, entries), blocks=blocks)


def with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The same table, with other values in one of its columns."""
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), values)


def _part(index: Index, shards: npt.NDArray[np.int64]) -> Index:
    """Some shards of an index, in the given order, with their blocks."""
    number = np.full(index.shards.num_rows, -1, np.int64)
    number[shards] = np.arange(len(shards))
    new = number[index.column("shard")]
    rows = np.argsort(new, kind="stable")[(new < 0).sum() :]
    blocks = index.blocks.take(number_array(rows)).set_column(
        0, BLOCK_FIELDS.field("shard"), number_array(new[rows].astype(np.int32))
    )
    return Index(index.suffix, index.block_bytes, index.shards.take(number_array(shards)), blocks)
