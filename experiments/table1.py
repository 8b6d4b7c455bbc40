"""Table 1: requests of every method, counted at the store, against the formulas.

``python -m experiments.table1``

Shards are written and read in a folder; what is counted are requests for shards. The plan, one marker a group and the
index come on top (docs/shuffle.md).
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corgi2
from corgi2 import theory
from corgi2.dataset.source import find_source
from corgi2.order.simulate import Layout, random_access
from corgi2.stores.local import LocalStore
from corgi2.stores.store import PART_BYTES, Entry
from experiments.examples import made_up, write_shards
from experiments.results import parser, publish

BLOCKS, EXAMPLES, BUFFER, EPOCHS, RANGES = 40, 25, 5, 3, 5
_RECORD, _END = 4 * 512, bytes(1024)
"""A header and a small body each for an image and its class; what ends a tar."""


@dataclass(slots=True)
class Count:
    requests: int = 0


@contextmanager
def counted() -> Iterator[Count]:
    """Requests for shards of local stores, those between two passes too; not for plans, markers and indexes."""
    count, readinto, publish_ = Count(), LocalStore.readinto, LocalStore.publish
    together = LocalStore.publish_together

    def reading(store: LocalStore, entry: Entry, start: int, buffer: memoryview) -> None:
        count.requests += entry.path.endswith(".tar")
        readinto(store, entry, start, buffer)

    def publishing(store: LocalStore, path: str, pieces: Any, part_bytes: int = PART_BYTES) -> Any:
        count.requests += path.endswith(".tar")
        return publish_(store, path, pieces, part_bytes)

    def publishing_together(store: LocalStore, files: Any) -> Any:
        found = together(store, files)
        count.requests += sum(entry.path.endswith(".tar") for entry in found)
        return found

    patched: Any = LocalStore
    patched.readinto, patched.publish, patched.publish_together = reading, publishing, publishing_together
    try:
        yield count
    finally:
        patched.readinto, patched.publish, patched.publish_together = readinto, publish_, together


def _train(folder: Path) -> int:
    corgi2.Loader(folder, buffer_blocks=BUFFER)  # the index is made once
    with counted() as count:
        for epoch in range(EPOCHS):
            given = sum(1 for _ in corgi2.Loader(folder, buffer_blocks=BUFFER, epoch=epoch))
            if given != BLOCKS * EXAMPLES:
                raise ValueError(f"an epoch gave {given} examples")
    return count.requests


def _mix(source: Path, target: Path, passes: int = 1, range_size: int | None = None) -> int:
    if range_size is not None:
        corgi2.index(source, block_size=range_size)  # made once, before anything is counted
    with counted() as count:
        corgi2.shuffle(source, target, buffer="1GB", buffer_blocks=BUFFER, passes=passes, range_size=range_size)
    return count.requests


def _access(folder: Path, epoch: int) -> tuple[int, list[bytes]]:
    """Every example alone, in random order."""
    source, found = find_source(folder), []
    with counted() as count:
        for number in random_access(Layout(BLOCKS, EXAMPLES, BUFFER), 0, epoch).tolist():
            shard, record = divmod(number, EXAMPLES)
            body = bytearray(_RECORD)
            source.shard(shard).readinto(record * _RECORD, memoryview(body))
            found.append(bytes(body))
    return count.requests, found


def _shuffle_once(folder: Path, target: Path) -> int:
    """Every example alone, in random order, written as shards."""
    reads, records = _access(folder, 0)
    with counted() as count:
        for shard in range(BLOCKS):
            pieces = [*records[shard * EXAMPLES : (shard + 1) * EXAMPLES], _END]
            LocalStore(str(target)).publish(f"once-{shard:06d}.tar", pieces)
    if not corgi2.verify(folder, target).same:
        raise ValueError("shuffling once lost a record")
    return reads + count.requests


def rows() -> list[dict[str, Any]]:
    total = BLOCKS * EXAMPLES
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        source = root / "in"
        write_shards(made_up(10, total // 10, (1, 4, 4)), source, EXAMPLES)
        found = [
            (
                "random access",
                0,
                sum(_access(source, epoch)[0] for epoch in range(EPOCHS)),
                theory.requests_random_access(total, EPOCHS),
            ),
            (
                "shuffle once",
                _shuffle_once(source, root / "once"),
                _train(root / "once"),
                theory.requests_shuffle_once(total, BLOCKS, EPOCHS),
            ),
            ("CorgiPile", 0, _train(source), theory.requests_corgipile(BLOCKS, EPOCHS)),
        ]
        for passes in (1, 2):
            target = root / f"mixed-{passes}"
            offline = _mix(source, target, passes)
            expected = theory.requests_corgi2(BLOCKS, BLOCKS, EPOCHS, passes)
            found.append((f"Corgi², {'1 pass' if passes == 1 else '2 passes'}", offline, _train(target), expected))
        offline = _mix(source, root / "rounds", range_size=EXAMPLES // RANGES * _RECORD)
        expected = theory.requests_rounds(BLOCKS, RANGES, BLOCKS, EPOCHS)
        found.append((f"Corgi², ranges of 1/{RANGES} in rounds", offline, _train(root / "rounds"), expected))
    return [
        {
            "method": name,
            "offline": {"counted": offline, "formula": expected.offline},
            "online": {"counted": reads, "formula": expected.online},
        }
        for name, offline, reads, expected in found
    ]


def main(arguments: list[str] | None = None) -> None:
    asks = parser(__doc__)
    asked = asks.parse_args(arguments)
    numbers = {"blocks": BLOCKS, "examples": EXAMPLES, "buffer": BUFFER, "epochs": EPOCHS, "rows": rows()}
    publish("table1", "python -m experiments.table1", numbers, folder=asked.out)


if __name__ == "__main__":
    main()
