"""One group: whoever reads has ended before anybody else may write where it did."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import corgi2
from corgi2.budget import Crew
from corgi2.errors import StoreError
from corgi2.formats import pipe
from corgi2.offline import parts
from corgi2.offline.threads import Threads
from corgi2.order import drawing
from corgi2.order.permutations import Indices, permutation
from corgi2.records.arena import Arena
from corgi2.records.group import Group, gather
from corgi2.records.hashing import Digest, digest
from corgi2.records.shard import Buffer
from corgi2.stores.local import LocalStore
from corgi2.stores.store import Entry
from tests.sources import write_source


def test_when_a_map_raises_no_task_is_at_work_any_more() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def task(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01 * number)
        with lock:
            running -= 1
        if number == 1:
            raise ValueError("the second")
        return number

    with Threads(Crew(4, 1, 4)) as threads:
        assert threads.map(task, [2, 0, 3]) == [2, 0, 3]
        with pytest.raises(ValueError, match="the second"):
            threads.map(task, range(12))
        assert running == 0
        assert most > 1


def test_a_failed_upload_frees_no_memory_that_is_still_being_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for shard in range(3):
        table = pa.table({"id": range(400 * shard, 400 * shard + 400)})
        pq.write_table(table, tmp_path / "in" / f"{shard}.parquet", row_group_size=100)
    clear, gathering, cleared = Arena.clear, threading.Lock(), []

    def slow(group: Group, order: Indices) -> Iterator[pa.Table]:
        with gathering:
            time.sleep(0.1)
            yield from gather(group, order)

    def clearing(arena: Arena, *most: int) -> None:
        cleared.append(gathering.locked())
        clear(arena, *most)

    def failing(store: LocalStore, path: str, pieces: Iterable[Buffer], part_bytes: int = 0) -> Entry:
        if path.endswith(".parquet") and ".corgi2" not in path:
            assert len(next(iter(pieces))), "of the first block, while the next is gathered"
            raise StoreError("no space")
        return publish(store, path, pieces, part_bytes)

    publish = LocalStore.publish
    monkeypatch.setattr(pipe, "SLAB_BYTES", 64)
    monkeypatch.setattr(parts, "gather", slow)
    monkeypatch.setattr(Arena, "clear", clearing)
    monkeypatch.setattr(LocalStore, "publish", failing)
    with pytest.raises(StoreError, match="no space"):
        corgi2.shuffle(tmp_path / "in", tmp_path / "out", buffer="100MB", buffer_blocks=4)
    assert cleared
    assert not any(cleared)


def test_when_reading_ends_early_nothing_is_hashed_any_more() -> None:
    table, running = pa.table({"id": range(10)}), threading.Semaphore(0)

    def slow(table: pa.Table) -> Digest:
        running.release()
        time.sleep(0.1)
        assert running.acquire(blocking=False)
        return digest(table, 0)

    with Threads(Crew(1, 1, 1)) as threads:
        hashing = parts.Hashing(threads.hashers, slow)
        with hashing:
            hashing.see(table)
        assert hashing.total() == digest(table, 0)
        for _ in range(20):
            hashing.see(table)
        running.acquire()
        running.release()
        with pytest.raises(ValueError, match="damaged"), hashing:
            raise ValueError("damaged")
        assert not running.acquire(blocking=False)


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_shard_spoils_no_other(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The damage is found at once, while the others are still being read, slowly, into memory that is used again."""
    write_source(tmp_path / "in", ".tar", [40] * 6)
    write_source(tmp_path / "good", ".tar", [40] * 6)
    bad = tmp_path / "in" / "data-0002.tar"
    bad.write_bytes(bad.read_bytes()[:9000])
    (tmp_path / "good" / "data-0002.tar").unlink()
    read = LocalStore.readinto

    seen: set[str] = set()

    def slow(self: LocalStore, entry: Entry, start: int, buffer: memoryview) -> None:
        path = entry.path
        shard, is_first = path.endswith(".tar"), path not in seen
        seen.add(path)
        time.sleep(0.4 if shard and is_first and sum(name.endswith(".tar") for name in list(seen)) > 4 else 0)
        read(self, entry, start, buffer)

    def late(count: int, key: Sequence[int]) -> Indices:
        time.sleep(0.6)  # between reading and gathering
        return permutation(count, key)

    monkeypatch.setattr(LocalStore, "readinto", slow)
    monkeypatch.setattr(drawing, "permutation", late)
    report = corgi2.shuffle(tmp_path / "in", tmp_path / "out", buffer="100MB", skip_bad=True, seed=seed)
    monkeypatch.undo()
    assert len(report.skipped) == 1
    assert "data-0002.tar" in report.skipped[0].shard
    assert corgi2.verify(tmp_path / "good", tmp_path / "out").same
    again = corgi2.shuffle(tmp_path / "in", tmp_path / "out", buffer="100MB", skip_bad=True, seed=seed)
    assert again.was_complete
    assert again.skipped == report.skipped
    assert "left out: " in corgi2.verify(tmp_path / "out").as_text()
