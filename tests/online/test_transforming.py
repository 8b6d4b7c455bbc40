"""Transforms in threads: the same items, in the same order, with the same state, whatever the threads do."""

import itertools
import os
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from corgi2 import Loader
from corgi2.errors import ShardError
from corgi2.torch import CorgiDataset
from tests.sources import write_source

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
]
COUNTS = [13, 7, 20, 9, 12]
THREADS = 3


def _loader(folder: Path, **options: Any) -> Loader:
    settings: dict[str, Any] = {"buffer_blocks": 2, "transform": repr, "transform_threads": THREADS}
    return Loader(folder, **settings | options)


@pytest.fixture(params=[".tar", ".parquet", ".jsonl"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    write_source(tmp_path / "in", request.param, COUNTS)
    return tmp_path / "in"


@pytest.mark.parametrize("batch_size", [None, 5])
def test_items_come_in_order_and_their_states_are_those_of_one_thread(batch_size: int | None, source: Path) -> None:
    alone, threaded = (_loader(source, batch_size=batch_size, transform_threads=threads) for threads in (0, THREADS))
    for _ in range(2):
        for expected, found in zip(alone, threaded, strict=True):
            assert found == expected
            assert threaded.state_dict() == alone.state_dict()


@pytest.mark.parametrize("cut", [0, 1, 7, 12])
def test_resumed_equals_uninterrupted_though_threads_were_ahead(cut: int, source: Path) -> None:
    whole = list(_loader(source, batch_size=5))
    first, second = _loader(source, batch_size=5), _loader(source, batch_size=5)
    begun = list(itertools.islice(iter(first), cut))
    second.load_state_dict(first.state_dict())
    assert begun + list(second) == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_have_threads_of_their_own_and_exact_states(workers: int, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".parquet", COUNTS)

    def loader() -> Any:
        dataset = CorgiDataset(tmp_path / "in", buffer_blocks=2, batch_size=5, transform=repr, transform_threads=2)
        return StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    whole, begun, resumed = list(loader()), loader(), loader()
    assert len(whole) == 13
    first = list(itertools.islice(begun, 4))
    resumed.load_state_dict(begun.state_dict())
    assert first + list(resumed) == whole


class Meeting:
    """A transform that returns when so many calls are under way, and counts the most that there ever were."""

    def __init__(self, calls: int) -> None:
        self.barrier, self.lock, self.at_once, self.most = threading.Barrier(calls, timeout=20), threading.Lock(), 0, 0

    def __call__(self, item: Any) -> Any:
        with self.lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        self.barrier.wait()
        with self.lock:
            self.at_once -= 1
        return item


def test_so_many_threads_are_at_work_at_once_and_no_more(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [6] * 4)
    meeting = Meeting(THREADS)
    assert len(list(_loader(tmp_path / "in", transform=meeting))) == 24
    assert meeting.most == THREADS


def test_no_more_than_a_few_items_are_ahead(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [30] * 4)
    seen: list[int] = []
    items = iter(_loader(tmp_path / "in", transform=lambda _: seen.append(1)))
    for given in range(1, 50):
        next(items)
        assert len(seen) <= given + 2 * THREADS
    items.close()


def _failing(words: str) -> Callable[[Any], Any]:
    def transform(item: Any) -> Any:
        if words in repr(item):
            raise ValueError("not an image")
        return item

    return transform


@pytest.mark.parametrize("threads", [0, THREADS])
@pytest.mark.parametrize("batch_size", [None, 5])
def test_an_error_names_the_shard_and_the_example_and_comes_in_its_turn(
    batch_size: int | None, threads: int, source: Path
) -> None:
    plain = list(_loader(source, transform=None, batch_size=batch_size))
    turn = next(number for number, item in enumerate(plain) if "2 11" in repr(item))
    items = iter(_loader(source, transform=_failing("2 11"), batch_size=batch_size, transform_threads=threads))
    assert [repr(item) for item in itertools.islice(items, turn)] == [repr(item) for item in plain[:turn]]
    with pytest.raises(ValueError, match="not an image") as failure:
        next(items)
    note, *more = failure.value.__notes__
    suffix = next(source.iterdir()).suffix
    if batch_size is None:
        place = "record 1 of the block at byte " if suffix == ".parquet" else "record 11 of the block at byte 0"
        assert f"data-0002{suffix}: {place}" in note
        assert ("key" in note) == (suffix == ".tar")
    else:
        assert note.startswith("in the transform of a batch of 5 examples, the last of which is ")
    assert ["transform gets the columns of a batch" in text for text in more] == [True] * (batch_size is not None)
    assert list(items) == []


def test_an_error_of_a_worker_is_named_as_well(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", COUNTS)
    dataset = CorgiDataset(tmp_path / "in", buffer_blocks=2, transform=_failing("2 11"), transform_threads=2)
    with pytest.raises(ValueError, match=r"in the transform of .*data-0002.tar: record 11 .*key '0011'") as failure:
        list(DataLoader(dataset, batch_size=None, num_workers=1))
    traceback.clear_frames(failure.tb)


def test_items_before_a_damaged_shard_come_before_its_error(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [5, 5, 5])
    Loader(tmp_path / "in")
    path = sorted((tmp_path / "in").iterdir())[2]
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"{", b"[", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    found: list[Any] = []
    with pytest.raises(ShardError):
        found.extend(iter(_loader(tmp_path / "in", buffer_blocks=1, shuffle=False)))
    assert len(found) == 10


@pytest.mark.parametrize("way", ["dropped", "closed", "ended"])
def test_an_iteration_that_is_over_leaves_no_thread(way: str, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [30] * 4)
    before = threading.active_count()
    calls: list[int] = []
    items = iter(_loader(tmp_path / "in", transform=lambda _: (calls.append(1), time.sleep(0.001))))  # type: ignore[func-returns-value]
    for _ in itertools.islice(items, None if way == "ended" else 5):
        pass
    if way == "closed":
        items.close()
        assert threading.active_count() <= before
    del items
    deadline = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
    assert way == "ended" or len(calls) <= 5 + 3 * THREADS


def test_a_number_of_threads_is_a_whole_number(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [5])
    with pytest.raises(ValueError, match="transform_threads must be at least 0"):
        _loader(tmp_path / "in", transform_threads=-1)
