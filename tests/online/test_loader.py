"""The online half: every example once an epoch, in an order that lasts, from any place on, whoever reads."""

import itertools
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corgi2
from corgi2.dataset.blocks import open_catalog
from corgi2.dataset.index_file import save_index
from corgi2.dataset.scan import index_source
from corgi2.dataset.source import find_source
from corgi2.errors import ShardError, SourceError
from corgi2.online.buffers import Filled
from corgi2.online.feed import Feed
from corgi2.online.loader import Loader
from corgi2.online.place import Cursor, Place
from corgi2.online.portions import portions
from corgi2.order.dealing import Deal
from tests.conftest import S3
from tests.fault_proxy import Fault
from tests.shards import ARROW, parquet_of, tar_of
from tests.sources import SUFFIXES, write_source


@contextmanager
def _source(suffix: str, counts: list[int]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        write_source(Path(folder, "in"), suffix, counts)
        yield Path(folder, "in")


def _text(sample: dict[str, Any]) -> str:
    text = sample["txt"].decode() if "txt" in sample else sample["t"]
    return " ".join(text.split()[:2])


def _texts(batch: dict[str, Any]) -> list[str]:
    values = [text.decode() for text in batch["txt"]] if "txt" in batch else batch["t"]
    return [" ".join(text.split()[:2]) for text in values]


def _every(counts: list[int]) -> list[str]:
    return [f"{shard} {number}" for shard, count in enumerate(counts) for number in range(count)]


def _of_all(uri: Path, ranks: int, workers: int, batch_size: int | None = None, **options: Any) -> list[list[Any]]:
    """What each reader of each rank gives in an epoch."""
    feeds = [Feed(uri, rank=rank, world_size=ranks, batch_size=batch_size, **options) for rank in range(ranks)]
    return [list(feed.read(Cursor(Place(0)), worker, workers)) for feed in feeds for worker in range(workers)]


COUNTS = st.lists(st.integers(1, 30), min_size=1, max_size=12)


@settings(max_examples=40)
@given(st.sampled_from(SUFFIXES), COUNTS, st.integers(1, 5), st.integers(1, 9), st.integers(0, 99))
def test_an_epoch_gives_every_example_once(
    suffix: str, counts: list[int], blocks: int, batch_size: int, seed: int
) -> None:
    with _source(suffix, counts) as source:
        loader = Loader(source, buffer_blocks=blocks, seed=seed)
        assert sorted(map(_text, loader)) == sorted(_every(counts))
        assert len(loader) == sum(counts)
        batches = Loader(source, buffer_blocks=blocks, seed=seed, batch_size=batch_size)
        got = [_texts(batch) for batch in batches]
        assert sorted(text for batch in got for text in batch) == sorted(_every(counts))
        assert len(got) == len(batches)
        assert all(len(batch) == batch_size for batch in got[:-1])


@settings(max_examples=40)
@given(
    st.sampled_from(SUFFIXES),
    COUNTS,
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 4),
    st.none() | st.integers(1, 7),
    st.sampled_from(["drop", "repeat", "keep"]),
)
def test_ranks_and_workers_are_disjoint_and_equally_long(
    suffix: str, counts: list[int], ranks: int, workers: int, blocks: int, batch_size: int | None, tail: str
) -> None:
    if tail == "drop" and sum(counts) < ranks:
        return
    with _source(suffix, counts) as source:
        options: dict[str, Any] = {"buffer_blocks": blocks, "tail": tail}
        readers = _of_all(source, ranks, workers, batch_size, **options)
        lengths = np.array([len(items) for items in readers]).reshape(ranks, workers)
        texts = [
            text
            for items in readers
            for item in items
            for text in ([_text(item)] if batch_size is None else _texts(item))
        ]
        times = Counter(texts)
        assert set(times) <= set(_every(counts))
        if tail == "keep":
            assert sorted(texts) == sorted(_every(counts))
        else:
            assert (lengths == lengths[0]).all()
        if tail == "drop":
            assert max(times.values()) == 1
            assert sum(counts) - len(texts) < ranks
        if tail == "repeat":
            assert len(times) == sum(counts)
            assert len(texts) - sum(counts) < ranks
        for rank in range(ranks):
            feed = Feed(source, rank=rank, world_size=ranks, batch_size=batch_size, **options)
            assert feed.items() == lengths[rank].sum()


@settings(max_examples=60)
@given(
    st.sampled_from([".tar", ".parquet", ".jsonl.zst"]),
    COUNTS,
    st.integers(1, 4),
    st.none() | st.integers(1, 7),
    st.booleans(),
    st.floats(0, 1),
)
def test_resumed_equals_uninterrupted(
    suffix: str, counts: list[int], blocks: int, batch_size: int | None, shuffle: bool, part: float
) -> None:
    with _source(suffix, counts) as source:
        options: dict[str, Any] = {"buffer_blocks": blocks, "batch_size": batch_size, "shuffle": shuffle, "epoch": 2}
        loader = Loader(source, **options)
        whole = [json.dumps(_plain(item)) for item in loader]
        cut = int(part * len(whole))
        before = iter(loader)
        loader.set_epoch(2)
        before = iter(loader)
        got = [json.dumps(_plain(next(before))) for _ in range(cut)]
        state = json.loads(json.dumps(loader.state_dict()))
        fresh = Loader(source, **options)
        fresh.load_state_dict(state)
        got += [json.dumps(_plain(item)) for item in fresh]
        assert got == whole
        after = Loader(source, **options | {"epoch": 3})
        assert [json.dumps(_plain(item)) for item in fresh] == [json.dumps(_plain(item)) for item in after]


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value).astype(str).tolist() for name, value in item.items()}


@settings(max_examples=60)
@given(st.data(), st.sampled_from([".tar", ".parquet"]), st.lists(st.integers(1, 30), min_size=3, max_size=12))
def test_resumed_on_other_worlds_the_epoch_gives_every_example_once(
    data: st.DataObject, suffix: str, counts: list[int]
) -> None:
    with _source(suffix, counts) as source:
        state: dict[str, Any] | None = None
        texts: list[str] = []
        batch_size = data.draw(st.none() | st.integers(1, 5))
        changes = data.draw(st.integers(1, 3))
        for change in range(changes + 1):
            ranks, workers, blocks = (data.draw(st.integers(1, 3)) for _ in range(3))
            feeds = [
                Feed(source, rank=rank, world_size=ranks, buffer_blocks=blocks, batch_size=batch_size, tail="keep")
                for rank in range(ranks)
            ]
            start = Place(5) if state is None else feeds[0].place_of(state)
            readers = [list(feed.read(Cursor(start), worker, workers)) for feed in feeds for worker in range(workers)]
            turns = max(map(len, readers)) * workers
            taken = data.draw(st.integers(0, turns)) if change < changes else turns
            for number, items in enumerate(readers):
                role = number % workers
                own = items[: -(-max(0, taken - role) // workers)]
                texts += [text for item in own for text in ([_text(item)] if batch_size is None else _texts(item))]
            state = json.loads(
                json.dumps(feeds[0].state(feeds[0].place_after(start, taken, batch_size or 1, workers), workers))
            )
        assert sorted(texts) == sorted(_every(counts))


def test_the_epoch_advances_by_itself_and_orders_differ(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 6)
    loader = Loader(tmp_path / "in", buffer_blocks=3, seed=1)
    orders = [[_text(sample) for sample in loader] for _ in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    loader.set_epoch(1)
    assert [_text(sample) for sample in loader] == orders[1]
    other = Loader(tmp_path / "in", buffer_blocks=3, seed=2)
    assert [_text(sample) for sample in other] != orders[0]


def test_the_order_lasts(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [4, 3, 5])
    loader = Loader(tmp_path / "in", buffer_blocks=2, seed=3, epoch=1)
    assert [_text(sample) for sample in loader] == GOLDEN


GOLDEN = ["2 0", "2 4", "1 1", "2 3", "2 2", "1 2", "1 0", "2 1", "0 0", "0 2", "0 3", "0 1"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_without_shuffling_the_stored_order_comes_out(suffix: str, tmp_path: Path) -> None:
    counts = [7, 1, 12, 5]
    write_source(tmp_path / "in", suffix, counts)
    assert [_text(sample) for sample in Loader(tmp_path / "in", shuffle=False, buffer_blocks=2)] == _every(counts)


def test_every_block_is_read_once_an_epoch_and_one_buffer_before_the_first_batch(tmp_path: Path, s3: S3) -> None:
    write_source(tmp_path / "in", ".tar", [10] * 12)
    corgi2.shuffle(tmp_path / "in", s3.url, dst_options=s3.options, buffer=10**8, shard_records=10)
    loader = Loader(s3.url, src_options=s3.options, buffer_blocks=3, batch_size=10)
    before = loader.catalog.source.store.requests.reads
    items = iter(loader)
    next(items)
    assert loader.catalog.source.store.requests.reads - before <= 2 * 3, "the first buffer, and the one ahead"
    list(items)
    assert loader.catalog.source.store.requests.reads - before == 12


def test_local_and_s3_give_the_same_order(tmp_path: Path, s3: S3) -> None:
    write_source(tmp_path / "in", ".tar", [10] * 5)
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", buffer=10**8, shard_records=10)
    store = s3.store()
    for path in sorted((tmp_path / "out").rglob("*")):
        if path.suffix == ".tar":
            store.publish(path.name, [path.read_bytes()])
    local, remote = Loader(tmp_path / "out", buffer_blocks=2), None
    with pytest.raises(SourceError, match="corgi2 index s3://"):
        Loader(s3.url, src_options=s3.options, buffer_blocks=2)
    save_index(store, index_source(find_source(s3.url, s3.options)))
    remote = Loader(s3.url, src_options=s3.options, buffer_blocks=2, picks="random")
    local = Loader(tmp_path / "out", buffer_blocks=2, picks="random")
    assert [sample["txt"] for sample in remote] == [sample["txt"] for sample in local]


def test_a_remote_folder_without_an_index_works_at_once_when_epochs_repeat(tmp_path: Path, s3: S3) -> None:
    write_source(tmp_path / "in", ".jsonl", [10] * 6)
    store = s3.store()
    for path in sorted((tmp_path / "in").iterdir()):
        store.publish(path.name, [path.read_bytes()])
    loader = Loader(s3.url, src_options=s3.options, buffer_blocks=2, batch_size=7, repeat=True)
    with pytest.raises(TypeError):
        len(loader)
    items, got, states = iter(loader), list[list[str]](), list[str]()
    for _ in range(30):
        got.append(_texts(next(items)))
        states.append(json.dumps(loader.state_dict()))
    texts = [text for batch in got for text in batch]
    for epoch in range(3):
        assert sorted(texts[60 * epoch : 60 * epoch + 60]) == sorted(_every([10] * 6))
    again = Loader(s3.url, src_options=s3.options, buffer_blocks=2, batch_size=7, repeat=True)
    again.load_state_dict(json.loads(states[11]))
    rest = iter(again)
    assert [_texts(next(rest)) for _ in range(18)] == got[12:]
    whole = iter(Loader(s3.url, src_options=s3.options, batch_size=7, repeat=True, drop_last=True))
    assert {len(_texts(next(whole))) for _ in range(20)} == {7}


@pytest.mark.parametrize("batch_size", [None, 4])
def test_repeated_epochs_go_on_and_resume(tmp_path: Path, batch_size: int | None) -> None:
    write_source(tmp_path / "in", ".tar", [5, 6, 7])
    loader = Loader(tmp_path / "in", buffer_blocks=2, batch_size=batch_size, repeat=True)
    items, got, states = iter(loader), [], []
    for _ in range(40):
        got.append(json.dumps(_plain(next(items))))
        states.append(loader.state_dict())
    for cut in (3, 17, 25):
        again = Loader(tmp_path / "in", buffer_blocks=2, batch_size=batch_size, repeat=True)
        again.load_state_dict(states[cut])
        rest = iter(again)
        assert [json.dumps(_plain(next(rest))) for _ in range(39 - cut)] == got[cut + 1 :]


def test_batches_are_arrays_of_numbers_and_lists_of_all_else(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    table = pa.table(
        {
            "n": pa.array(range(10), pa.int32()),
            "x": pa.array([0.5, None] * 5, pa.float64()),
            "flag": [True, False] * 5,
            "text": [f"t{n}" for n in range(10)],
            "vector": pa.array([[n, n + 1] for n in range(10)], pa.list_(pa.float32(), 2)),
            "list": [[1]] * 10,
        }
    )
    (tmp_path / "in" / "a.parquet").write_bytes(parquet_of(table))
    (batch,) = Loader(tmp_path / "in", batch_size=10, shuffle=False)
    assert batch["n"].dtype == np.int32
    assert batch["n"].tolist() == list(range(10))
    assert batch["n"].flags.writeable
    assert np.isnan(batch["x"][1::2]).all()
    assert batch["flag"].dtype == bool
    assert batch["text"] == table["text"].to_pylist()
    assert batch["vector"].shape == (10, 2)
    assert batch["list"] == [[1]] * 10
    (arrow,) = Loader(tmp_path / "in", batch_size=10, shuffle=False, batch_format="arrow")
    assert arrow.equals(table)


def test_integers_with_nulls_are_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(parquet_of(pa.table({"n": [1, None]})))
    with pytest.raises(SourceError, match="'n' of int64 has nulls.*batch_format=.arrow."):
        list(Loader(tmp_path / "in", batch_size=2))


def test_a_transform_gets_samples_or_batches(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [5])
    assert sorted(Loader(tmp_path / "in", transform=_text)) == sorted(_every([5]))
    assert sorted(next(iter(Loader(tmp_path / "in", transform=_texts, batch_size=5)))) == sorted(_every([5]))


def test_a_loader_in_mid_epoch_can_be_sent_and_goes_on_elsewhere(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 4)
    loader = Loader(tmp_path / "in", buffer_blocks=2)
    samples = iter(loader)
    before = [next(samples) for _ in range(7)]
    sent = pickle.loads(pickle.dumps(loader))  # noqa: S301
    assert sent.state_dict() == loader.state_dict()
    sent.load_state_dict(sent.state_dict())
    assert before + list(sent) == list(Loader(tmp_path / "in", buffer_blocks=2))


def test_a_state_of_other_data_or_another_order_is_refused(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [5, 5])
    write_source(tmp_path / "other", ".tar", [5, 6])
    state = Loader(tmp_path / "in").state_dict()
    with pytest.raises(SourceError, match="other data"):
        Loader(tmp_path / "other").load_state_dict(state)
    with pytest.raises(SourceError, match="seed=0, not 1"):
        Loader(tmp_path / "in", seed=1).load_state_dict(state)
    with pytest.raises(SourceError, match="not a state"):
        Loader(tmp_path / "in").load_state_dict({})


def test_a_shard_that_is_damaged_or_gone_is_named(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [5, 5, 5])
    loader = Loader(tmp_path / "in", buffer_blocks=1)
    path = tmp_path / "in" / "data-0001.tar"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    stat = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(ShardError, match="data-0001.tar"):
        list(loader)
    path.unlink()
    with pytest.raises(corgi2.Corgi2Error, match="data-0001.tar"):
        list(loader)


def test_a_buffer_that_is_too_small_names_one_that_would_do(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b'{"t": "%s"}\n' % (b"x" * 1_000_000) * 4)
    with pytest.raises(SourceError, match=r"buffer='(\d+)MB' would do") as refusal:
        Loader(tmp_path / "in", buffer="2MB")
    enough = str(refusal.value).split("buffer='")[2].split("'")[0]
    assert len(list(Loader(tmp_path / "in", buffer=enough))) == 4


def test_too_few_records_for_the_ranks_are_refused(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [3])
    with pytest.raises(SourceError, match="3 records are too few for 4 ranks.*tail='repeat'"):
        list(Loader(tmp_path / "in", rank=0, world_size=4))
    assert [len(list(Loader(tmp_path / "in", rank=rank, world_size=4, tail="keep"))) for rank in range(4)] == [
        1,
        1,
        1,
        0,
    ]


def test_leaving_a_loop_early_ends_its_threads(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [5] * 20)
    before = threading.active_count()
    for _ in Loader(tmp_path / "in", buffer_blocks=2):
        break
    deadline = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


@pytest.mark.parametrize("used", [0, 1, 30, 100])
def test_closing_an_iteration_waits_for_its_threads(used: int, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [5] * 20)
    before = threading.active_count()
    items = iter(Loader(tmp_path / "in", buffer_blocks=2))
    assert len(list(itertools.islice(items, used))) == used
    items.close()
    assert threading.active_count() <= before
    assert list(items) == []


_COLLECTED = """
import gc, sys, threading
from corgi2 import Loader
from corgi2.online import buffers
from corgi2.stores.local import LocalStore
from concurrent.futures import thread as pools

folder, where = sys.argv[1:]
gc.disable()
lock, reading, go, done = threading.Lock(), threading.Event(), threading.Event(), threading.Event()
armed = []

def collect():
    if armed and armed.pop():
        reading.set()
        go.wait()
        gc.collect()
        done.set()

def collecting(real, name):
    def call(*arguments, **options):
        if threading.current_thread().name.startswith(name):
            collect()
        return real(*arguments, **options)
    return call

def locked(real):
    def call(*arguments):
        if armed:
            reading.set()
            go.wait()
        with lock:
            real(*arguments)
    return call

if where == "a reader":
    LocalStore.readinto = collecting(LocalStore.readinto, "corgi2-read")
elif where == "the one ahead":
    buffers._filled = collecting(buffers._filled, "corgi2-ahead")
elif where == "a pool's own lock":
    pools._WorkItem.__init__ = collecting(pools._WorkItem.__init__, "corgi2-ahead")
else:
    LocalStore.readinto = locked(LocalStore.readinto)
items = iter(Loader(folder, buffer_blocks=2, batch_size=1))
next(items)
armed.append(True)
next(items)  # from here on the next buffer is read
assert reading.wait(20)
if where == "under a lock, dropped":
    with lock:
        go.set()
        del items
else:
    items = [items]
    items.append(items)
    with lock:
        del items
        go.set()
        gc.collect() if where == "under a lock, collected" else None
assert where.startswith("under a lock") or done.wait(20)
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join(20)
        assert not thread.is_alive()
print("well", len(list(Loader(folder, buffer_blocks=2))))
"""


@pytest.mark.parametrize("suffix", [".tar", ".parquet"])
@pytest.mark.parametrize(
    "where",
    ["a reader", "the one ahead", "a pool's own lock", "under a lock, dropped", "under a lock, collected"],
)
def test_an_iteration_may_be_collected_wherever_whatever_is_held(where: str, suffix: str, tmp_path: Path) -> None:
    """In its own threads, under their locks, under one that they need: nobody waits there."""
    write_source(tmp_path / "in", suffix, [5] * 20)
    command = [sys.executable, "-c", _COLLECTED, str(tmp_path / "in"), where]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("well 100\n", "", 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"picks": "some"}, "picks must be one of"),
        ({"tail": "cut"}, "tail must be one of"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"buffer": "many"}, "many"),
        ({"rank": 2, "world_size": 2}, "rank must be one of 0 to"),
        ({"rank": 2}, "together"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [3])
    with pytest.raises((ValueError, SourceError), match=words):
        Loader(tmp_path / "in", **options)


def test_after_resuming_only_the_current_buffer_is_read_before_the_first_batch(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [10] * 24)
    loader = Loader(tmp_path / "in", buffer_blocks=3, batch_size=10)
    items = iter(loader)
    for _ in range(13):
        next(items)
    state = loader.state_dict()
    items.close()
    again = Loader(tmp_path / "in", buffer_blocks=3, batch_size=10)
    again.load_state_dict(state)
    before = again.catalog.source.store.requests.reads
    rest = iter(again)
    next(rest)
    assert again.catalog.source.store.requests.reads - before == 3
    assert sum(1 for _ in rest) == 24 - 14


def test_a_store_that_fails_for_a_while_is_asked_again(tmp_path: Path, s3: S3) -> None:
    write_source(tmp_path / "in", ".tar", [10] * 12)
    corgi2.shuffle(tmp_path / "in", s3.url, dst_options=s3.options, buffer=10**8, shard_records=10)
    loader = Loader(s3.url, src_options=s3.options, buffer_blocks=3)
    undisturbed = [sample["txt"] for sample in loader]
    loader.set_epoch(0)
    for fault in (Fault("status"), Fault("reset"), Fault("truncate")):
        s3.proxy.inject(fault, times=2)
    assert [sample["txt"] for sample in loader] == undisturbed


def test_an_unfinished_shuffle_is_no_data_set(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [10] * 4)
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", buffer="1GB")
    (tmp_path / "out" / ".corgi2" / "c0" / "done").unlink()
    with pytest.raises(SourceError, match="not finished"):
        Loader(tmp_path / "out")


def test_more_readers_than_blocks_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_source(tmp_path / "in", ".tar", [10] * 2)
    with caplog.at_level("WARNING", logger="corgi2"):
        assert len(list(Loader(tmp_path / "in", rank=0, world_size=5))) == 4
    assert "5 readers share 2 blocks by records" in caplog.text


def test_a_folder_is_counted_once_and_the_cache_knows_it_then(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [10] * 4)
    first = Loader(tmp_path / "in")
    assert first.catalog.source.store.requests.reads >= 4
    second = Loader(tmp_path / "in")
    assert second.catalog.source.store.requests.reads == 0
    assert [_text(sample) for sample in second] == [_text(sample) for sample in first]


def test_a_cache_that_cannot_be_written_to_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_source(tmp_path / "in", ".jsonl", [10] * 4)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with caplog.at_level("WARNING", logger="corgi2"):
        assert len(list(Loader(tmp_path / "in"))) == 40
    assert "cannot be kept in" in caplog.text


def test_the_first_batch_waits_for_no_other() -> None:
    taken: list[int] = []

    def take(rows: Any) -> Any:
        taken.append(len(rows))
        return rows

    filled = Filled(cast(Deal, None), 1000, 10, take)
    buffers = [(filled, np.arange(1000), 0), (filled, np.arange(1000), 0)]
    parts = [some.shared[some.start : some.start + some.size] for some in portions(iter(buffers), 32, np.concatenate)]
    assert taken[:2] == [32, 1000 // 32 * 32 - 32]
    assert np.concatenate(parts).tolist() == [*range(1000)] * 2
    assert {len(some) for some in parts[:-1]} == {32}


def _copied(source: Path, target: Path) -> Path:
    """With other times, as most copies have."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for path in target.rglob("*"):
        os.utime(path, (1, 1))
    return target


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_copy_of_shuffled_data_is_read_in_the_order_of_the_original(suffix: str, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [20] * 12)
    corgi2.shuffle(tmp_path / "in", tmp_path / "mixed", buffer_blocks=4)
    copy = _copied(tmp_path / "mixed", tmp_path / "copy")
    orders = [[_text(sample) for sample in Loader(uri, buffer_blocks=3)] for uri in (tmp_path / "mixed", copy)]
    assert orders[0] == orders[1]
    assert sorted(orders[1]) == sorted(_every([20] * 12))
    catalogs = [open_catalog(uri, None, needs_counts=True) for uri in (tmp_path / "mixed", copy)]
    assert catalogs[0].lineage is not None
    assert np.array_equal(catalogs[0].lineage, cast(Any, catalogs[1].lineage))


def test_a_copy_with_a_shard_of_other_bytes_is_scanned_and_has_no_lineage(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 12)
    corgi2.shuffle(tmp_path / "in", tmp_path / "mixed", buffer_blocks=4)
    copy = _copied(tmp_path / "mixed", tmp_path / "copy")
    shard = sorted(copy.glob("*.jsonl"))[5]
    lines = shard.read_text().splitlines(keepends=True)
    shard.write_text("".join(reversed(lines)))
    assert open_catalog(copy, None, needs_counts=True).lineage is None
    assert sorted(_text(sample) for sample in Loader(copy)) == sorted(_every([20] * 12))


@pytest.mark.parametrize("suffix", [".jsonl", ".tar"])
def test_a_batch_has_what_its_own_records_have_wherever_reading_begins(suffix: str, tmp_path: Path) -> None:
    """Several batches are decoded at once; a rare part of one is no part of the others."""
    records = [{"a": n, "rare": n} if n % 17 == 3 else {"a": n} for n in range(96)]
    if suffix == ".jsonl":
        data = "".join(json.dumps(record) + "\n" for record in records).encode()
    else:
        data = tar_of([(f"{n:03}.{name}", b"%d" % n) for n, record in enumerate(records) for name in record])
    (tmp_path / f"x{suffix}").write_bytes(data)
    whole = list(Loader(tmp_path, batch_size=8, buffer_blocks=1))
    assert all(("rare" in batch) == any(int(n) % 17 == 3 for n in batch["a"]) for batch in whole)
    for cut in range(1, len(whole)):
        loader = Loader(tmp_path, batch_size=8, buffer_blocks=1)
        items = iter(loader)
        for _ in range(cut):
            next(items)
        again = Loader(tmp_path, batch_size=8, buffer_blocks=1)
        again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert list(again) == whole[cut:]


@pytest.mark.skipif(ARROW < 26, reason="before 26, Arrow writes no lists of one length of which some are missing")
def test_lists_of_one_length_are_matrices_in_every_batch(tmp_path: Path) -> None:
    rows = [None if n == 5 else [n, n + 0.5] for n in range(20)]
    for name, kind in (("floats", pa.float32()), ("whole", pa.int32())):
        (tmp_path / name).mkdir()
        values = pa.array(rows if kind == pa.float32() else [row and [int(n) for n in row] for row in rows])
        table = pa.table({"v": values.cast(pa.list_(kind, 2))})
        (tmp_path / name / "x.parquet").write_bytes(parquet_of(table))
    batches = list(Loader(tmp_path / "floats", batch_size=4, shuffle=False))
    assert {(type(batch["v"]), batch["v"].dtype, batch["v"].shape) for batch in batches} == {
        (np.ndarray, np.dtype(np.float32), (4, 2))
    }
    found = np.concatenate([batch["v"] for batch in batches])
    assert np.isnan(found[5]).all()
    assert found[6:].tolist() == rows[6:]
    with pytest.raises(SourceError, match="the column 'v' of .* has nulls, which an array cannot hold"):
        list(Loader(tmp_path / "whole", batch_size=4))


def test_a_line_that_is_no_json_is_named_by_its_shard_and_byte(tmp_path: Path) -> None:
    good = b'{"t": 1}\n'
    for shard in range(4):
        (tmp_path / f"{shard}.jsonl").write_bytes(good * 5 + (b'{"t": nope}\n' if shard == 2 else good) + good * 3)
    for batch_size in (None, 2):
        with pytest.raises(ShardError, match="nope") as caught:
            list(Loader(tmp_path, batch_size=batch_size))
        assert caught.value.shard == f"{tmp_path}/2.jsonl"
        assert caught.value.offset == 5 * len(good)


@pytest.mark.parametrize(
    "settings_",
    [
        {"seed": np.int64(3), "batch_size": np.int32(4), "buffer_blocks": np.int64(2), "epoch": np.int64(1)},
        {"rank": np.int64(0), "world_size": np.int64(1), "shuffle": np.bool_(True), "drop_last": np.bool_(False)},
    ],
    ids=["orders", "worlds"],
)
def test_numbers_of_numpy_give_states_that_are_json(settings_: dict[str, Any], tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [5, 5])
    loader = Loader(tmp_path / "in", **settings_)
    next(iter(loader))
    plain = Loader(tmp_path / "in", **{name: value.item() for name, value in settings_.items()})
    plain.load_state_dict(json.loads(json.dumps(loader.state_dict())))


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": None}, {"batch_size": 2.5}, {"buffer_blocks": 0}], ids=str)
def test_settings_that_cannot_be_are_refused_at_once(wrong: dict[str, Any], tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [5])
    (name,) = wrong
    with pytest.raises(ValueError, match=f"^{name} must be "):
        Loader(tmp_path / "in", **wrong)


@pytest.mark.parametrize("state", [None, [], {"corgi2": 1}, {"corgi2": 1, "data": "", "rules": {}}], ids=str)
def test_what_is_no_state_is_refused(state: Any, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [5])
    with pytest.raises(SourceError, match="this is not a state of a corgi2 loader"):
        Loader(tmp_path / "in").load_state_dict(state)


_LEFT = """
import sys, time
import torch.utils.data
from corgi2 import Loader
from corgi2.stores.local import LocalStore

real = LocalStore.readinto
def slow(self, entry, start, buffer):
    if entry.path.endswith(".jsonl"):
        time.sleep(0.05)
        print("read", flush=True)
    real(self, entry, start, buffer)
LocalStore.readinto = slow
loader = Loader(sys.argv[1], buffer_blocks=50, batch_size=10)
items = iter(loader)
next(items), next(items)
print("end", flush=True)
"""


def test_a_process_that_ends_in_mid_epoch_reads_no_more_and_says_nothing(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write_source(tmp_path / "in", ".jsonl", [5] * 200)
    Loader(tmp_path / "in")
    done = subprocess.run(
        [sys.executable, "-c", _LEFT, str(tmp_path / "in")], check=True, capture_output=True, text=True
    )
    assert not done.stderr
    assert done.stdout.rpartition("end")[2].count("read") <= 2 * 8  # those under way


def test_a_rank_is_taken_from_jax_once_its_processes_have_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_source(tmp_path / "in", ".jsonl", [10] * 4)
    met, process = [False], [0]
    jax = SimpleNamespace(
        distributed=SimpleNamespace(is_initialized=lambda: met[0]),
        process_index=lambda: process[0],
        process_count=lambda: 2,
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    assert Loader(tmp_path / "in").world_size == 1
    met[0] = True
    parts, states = [], []
    for process[0] in range(2):
        loader = Loader(tmp_path / "in", batch_size=5)
        parts.append([text for batch in loader for text in batch["t"]])
        states.append(loader.state_dict())
    assert len(set(parts[0] + parts[1])) == len(parts[0] + parts[1]) == 40
    assert states[0] == states[1]
