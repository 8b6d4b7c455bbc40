"""A node's disk as a cache: every byte once, never beyond the limit, and never in the way."""

import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import corgi2
from corgi2.caching import place, reading, room
from corgi2.caching.locks import locked, try_lock, unlock
from corgi2.caching.room import PART, Room, entry_bytes
from corgi2.cli import cli
from corgi2.errors import StoreError
from tests.conftest import S3
from tests.fault_proxy import Fault
from tests.sources import SUFFIXES, write_source


def _loader(source: Any, cache: Path, **more: Any) -> corgi2.Loader:
    return corgi2.Loader(source, buffer="4MB", batch_size=16, cache_dir=cache, **more)


def _texts(loader: corgi2.Loader) -> Counter[Any]:
    return Counter(text for batch in loader for text in next(iter(batch.values())))


def _reads(loader: corgi2.Loader) -> int:
    return loader.catalog.source.store.requests.reads


def _bytes(cache: Path) -> int:
    """Of all entries, none of which changes its name meanwhile. A file without room goes at any time, empty."""
    with locked(cache / "room", 30):
        return sum(entry_bytes(path) for path in cache.glob("*/*") if path.name != "about")


def _upload(folder: Path, server: S3) -> None:
    for path in sorted(folder.iterdir()):
        server.store().publish(path.name, [path.read_bytes()])
    corgi2.index(server.url, src_options=server.options)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_byte_is_fetched_once_and_the_second_epoch_asks_for_nothing(suffix: str, s3: S3, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [30] * 8)
    _upload(tmp_path / "in", s3)
    plain = [str(batch) for batch in corgi2.Loader(tmp_path / "in", buffer="4MB", batch_size=16)]
    loader = _loader(s3.url, tmp_path / "cache", src_options=s3.options)
    first = [str(batch) for batch in loader]
    assert [text.replace(s3.url, "") for text in first] == [text.replace(str(tmp_path / "in"), "") for text in plain]
    seen = len(s3.proxy.seen)
    assert sum(_texts(loader).values()) == 240
    again = _loader(s3.url, tmp_path / "cache", src_options=s3.options)
    opened = len(s3.proxy.seen)
    assert [str(batch) for batch in again] == first
    assert len(s3.proxy.seen) == opened
    assert not any(path.endswith(suffix) for _, path in s3.proxy.seen[seen:] if "list" not in path)


def test_blocks_larger_than_a_request_are_entries_too(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [3000] * 4)
    corgi2.index(tmp_path / "in", block_size="100KB")
    loader = _loader(tmp_path / "in", tmp_path / "cache")
    first = _texts(loader)
    reads = _reads(loader)
    assert _texts(loader) == first
    assert _reads(loader) == reads
    assert corgi2.cache(tmp_path / "cache").data[0].entries == loader.catalog.index.blocks.num_rows


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_a_full_cache_keeps_what_it_has_and_answers_as_large_a_share_of_the_reads(share: float, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 40)
    size = sum(path.stat().st_size + 16 for path in (tmp_path / "in").iterdir())
    loader = _loader(tmp_path / "in", tmp_path / "cache", cache_size=int(share * size) + 200)
    before = _reads(loader)
    _texts(loader)
    first = _reads(loader)
    assert first - before == 40
    assert _bytes(tmp_path / "cache") <= share * size + 200
    for _ in range(2):
        _texts(loader)
    assert _reads(loader) - first == 2 * 40 * (1 - share)


PROGRAM = """
import sys, json, corgi2
uri, cache, size, rank, ranks, options = sys.argv[1:]
loader = corgi2.Loader(uri, buffer="4MB", batch_size=4, cache_dir=cache, cache_size=size, rank=int(rank),
                       world_size=int(ranks), tail="keep", src_options=json.loads(options))
print("open", flush=True)
for batch in loader:
    print(json.dumps([text.decode() if isinstance(text, bytes) else text for text in batch["t"]]), flush=True)
"""


def _start(uri: Any, cache: Path, size: str, rank: int, ranks: int, options: dict[str, Any]) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", PROGRAM, str(uri), str(cache), size, str(rank), str(ranks), json.dumps(options)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def _yielded(process: "subprocess.Popen[str]") -> list[str]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return [text for line in out.splitlines()[1:] for text in json.loads(line)]


def test_four_readers_of_a_node_fetch_every_byte_once_together(s3: S3, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 10)
    _upload(tmp_path / "in", s3)
    s3.proxy.seen.clear()
    s3.proxy.inject_randomly(Fault("latency", seconds=0.05), 1.0, seed=0)
    ranks = [_start(s3.url, tmp_path / "cache", "10MB", rank, 4, s3.options) for rank in range(4)]
    texts = Counter(text for process in ranks for text in _yielded(process))
    assert texts == _texts(corgi2.Loader(tmp_path / "in", buffer="4MB", batch_size=16))
    fetched = Counter(path for method, path in s3.proxy.seen if method == "GET" and path.endswith(".jsonl"))
    assert set(fetched.values()) == {1}
    assert len(fetched) == 10


@pytest.mark.slow
def test_killed_in_mid_fetch_the_cache_stays_valid_and_within_its_limit(s3: S3, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 24)
    _upload(tmp_path / "in", s3)
    want = _texts(corgi2.Loader(tmp_path / "in", buffer="4MB", batch_size=16))
    size = sum(path.stat().st_size for path in (tmp_path / "in").iterdir())
    limit, cache = size // 2, tmp_path / "cache"
    s3.proxy.inject_randomly(Fault("latency", seconds=0.1), 1.0, seed=0)
    for blow in range(4):
        ranks = [_start(s3.url, cache, str(limit), rank, 3, s3.options) for rank in range(3)]
        for process in ranks:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
        time.sleep(0.05 * (blow + 1))
        taken = _bytes(cache)
        for process in ranks:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert max(taken, _bytes(cache)) <= limit
    s3.proxy.inject_randomly(Fault("latency", seconds=0.1), 0.0, seed=0)
    for _ in range(2):
        ranks = [_start(s3.url, cache, str(limit), rank, 3, s3.options) for rank in range(3)]
        assert Counter(text for process in ranks for text in _yielded(process)) == want
        assert _bytes(cache) <= limit
    assert corgi2.cache(cache, clear=True).bytes == 0
    assert list(cache.glob("*/*")) == []


def test_what_a_killed_process_left_is_taken_over_or_swept(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 8)
    size = sum(path.stat().st_size + 16 for path in (tmp_path / "in").iterdir())
    loader = _loader(tmp_path / "in", tmp_path / "cache", cache_size=size)
    _texts(loader)
    (folder,) = (tmp_path / "cache").glob("?" * 32)
    for number, path in enumerate(sorted(folder.glob("?" * 32))):
        if number % 2:
            path.rename(path.with_name(path.name + PART))  # allocated and counted, but never written
        else:
            path.rename(path.with_name(f"{number:032x}{PART}"))  # the same, of what nobody asks for any more
    before = _reads(loader)
    assert sum(_texts(loader).values()) == 240
    assert _reads(loader) - before == 8
    assert _bytes(tmp_path / "cache") <= size
    assert sum(_texts(loader).values()) == 240
    assert _reads(loader) - before == 8
    assert not list(folder.glob(f"*{PART}"))


def test_a_damaged_entry_is_fetched_again_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 4)
    loader = _loader(tmp_path / "in", tmp_path / "cache")
    want, before = _texts(loader), _reads(loader)
    entries = sorted((tmp_path / "cache").glob(f"*/{'?' * 32}"))
    data = bytearray(entries[0].read_bytes())
    data[len(data) // 2] ^= 1
    entries[0].write_bytes(data)
    entries[1].write_bytes(b"short")
    with caplog.at_level(logging.WARNING):
        assert _texts(loader) == want
    assert sum("damaged" in record.message for record in caplog.records) == 2
    assert _reads(loader) - before == 2
    assert _texts(loader) == want
    assert _reads(loader) - before == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite"])
def test_a_disk_that_fails_is_one_warning(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 4)
    loader = _loader(tmp_path / "in", tmp_path / "cache")

    def fails(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, call, fails)
        assert sum(_texts(loader).values()) == 120
    assert [record.message for record in caplog.records if "cache" in record.message] == [
        f"the cache in {tmp_path / 'cache'} is not used any more: {os.strerror(number)}"
    ]
    assert sum(_texts(_loader(tmp_path / "in", tmp_path / "cache")).values()) == 120


def test_a_disk_with_less_room_than_was_asked_for_is_not_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 4)
    real = os.statvfs

    def nearly_full(path: Any) -> os.statvfs_result:
        values = list(real(path))
        values[3] = values[4] = 0
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", nearly_full)
    loader = _loader(tmp_path / "in", tmp_path / "cache", cache_size="10GB")
    for _ in range(2):
        assert sum(_texts(loader).values()) == 120
    assert _bytes(tmp_path / "cache") == 0


def test_nobody_waits_for_ever_for_a_process_that_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "WAIT_SECONDS", 0.1)
    write_source(tmp_path / "in", ".jsonl", [30] * 2)
    loader = _loader(tmp_path / "in", tmp_path / "cache")
    want = _texts(loader)
    entry, other = sorted((tmp_path / "cache").glob(f"*/{'?' * 32}"))
    part = entry.rename(entry.with_name(entry.name + PART))
    fd = try_lock(part)
    assert fd is not None
    assert _texts(loader) == want
    unlock(fd)
    assert sorted(part.parent.glob("?" * 32)) == [other]
    assert _texts(loader) == want
    assert sorted(part.parent.glob("?" * 32)) == [entry, other]


def test_other_data_sets_make_room_the_longest_unused_first_but_not_those_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_AGAIN_SECONDS", 0.0)
    for name in "abc":
        write_source(tmp_path / name, ".jsonl", [30] * 4)
    size = sum(path.stat().st_size + 16 for path in (tmp_path / "a").iterdir())
    cache, limit = tmp_path / "cache", 2 * size
    assert len(_yielded(_start(tmp_path / "a", cache, str(limit), 0, 1, {}))) == 120
    old = corgi2.cache(cache)
    assert [data.in_use for data in old.data] == [False]
    second = _loader(tmp_path / "b", cache, cache_size=limit)
    _texts(second)
    assert corgi2.cache(cache).bytes == 2 * size
    third = _loader(tmp_path / "c", cache, cache_size=limit)
    _texts(third)
    held = {Path(data.url).name: data for data in corgi2.cache(cache).data}
    assert held.keys() == {"b", "c"}
    assert all(data.bytes == size and data.in_use for data in held.values())
    assert _bytes(cache) <= limit


def test_no_entry_changes_its_name_while_all_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was listed by its old name, and looked at by then, would not be counted, and the limit exceeded."""
    monkeypatch.setattr(room, "WAIT_SECONDS", 0.05)
    folder, name = tmp_path / ("0" * 32), "1" * 32
    folder.mkdir()
    part = folder / f"{name}{PART}"
    part.write_bytes(bytes(100))
    held = Room(tmp_path, 150)
    with locked(tmp_path / "room", 1), pytest.raises(TimeoutError):
        held.publish(part, folder / name)
    assert part.exists()
    held.publish(part, folder / name)
    assert [path.name for path in folder.iterdir()] == [name]


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "cache" in record.message]


def test_a_limit_below_a_block_keeps_nothing_and_removes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "ab":
        write_source(tmp_path / name, ".jsonl", [30] * 4)
    assert len(_yielded(_start(tmp_path / "a", tmp_path / "cache", "1GB", 0, 1, {}))) == 120
    before = corgi2.cache(tmp_path / "cache")
    loader = _loader(tmp_path / "b", tmp_path / "cache", cache_size=100)
    for _ in range(2):
        assert sum(_texts(loader).values()) == 120
    held = {Path(data.url).name: data.bytes for data in corgi2.cache(tmp_path / "cache").data}
    assert held == {"a": before.bytes, "b": 0}, "what nobody uses makes room for nothing that could not be kept"
    assert [text for text in _warnings(caplog) if "is less than a block of" in text] == _warnings(caplog)[:1]


def test_a_data_set_that_a_stopped_process_has_locked_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reading, "WAIT_SECONDS", 0.1)
    write_source(tmp_path / "in", ".jsonl", [30] * 8)
    assert len(_yielded(_start(tmp_path / "in", tmp_path / "cache", "1GB", 0, 1, {}))) == 240
    (about,) = (tmp_path / "cache").glob("*/about")
    fd = try_lock(about)
    assert fd is not None
    loader = _loader(tmp_path / "in", tmp_path / "cache")
    waited = list[float]()
    monkeypatch.setattr("corgi2.caching.reading.time.sleep", waited.append)
    assert sum(_texts(loader).values()) == 240
    assert waited == []
    assert len(_warnings(caplog)) == 1
    unlock(fd)


@pytest.mark.parametrize("gone", ["all", "data", "counter"])
def test_a_cache_that_vanishes_in_mid_run_is_at_most_one_warning(
    gone: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 8)
    want = _texts(corgi2.Loader(tmp_path / "in", buffer="4MB", batch_size=16))
    loader = _loader(tmp_path / "in", tmp_path / "cache", buffer_blocks=1)
    batches = iter(loader)
    found = Counter(next(batches)["t"])
    for path in [tmp_path / "cache"] if gone == "all" else [*(tmp_path / "cache").glob("?" * 32)]:
        (tmp_path / "cache" / "room").unlink() if gone == "counter" else shutil.rmtree(path)
    for batch in batches:
        found.update(batch["t"])
    assert found == want
    assert len(_warnings(caplog)) == (0 if gone == "counter" else 1)
    assert _texts(loader) == want


def test_a_cache_of_which_nothing_may_be_written_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a file system that is mounted read-only, or in a folder of another user."""
    write_source(tmp_path / "in", ".jsonl", [30] * 4)
    _texts(_loader(tmp_path / "in", tmp_path / "cache"))
    real = os.open

    def read_only(path: Any, flags: int, *mode: Any, **others: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY) and str(path).startswith(str(tmp_path / "cache")):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *mode, **others)

    monkeypatch.setattr(os, "open", read_only)
    loader = _loader(tmp_path / "in", tmp_path / "cache")
    assert sum(_texts(loader).values()) == 120
    assert len(_warnings(caplog)) == 1
    assert "Read-only file system" in _warnings(caplog)[0]


def test_a_shard_that_changed_is_not_read_from_the_cache(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 2)
    _texts(_loader(tmp_path / "in", tmp_path / "cache"))
    path = tmp_path / "in" / "data-0000.jsonl"
    path.write_bytes(path.read_bytes().replace(b"0 ", b"9 "))
    found = _texts(_loader(tmp_path / "in", tmp_path / "cache"))
    assert sum(text.startswith("9 ") for text in found) == 30


def test_a_cache_lies_in_a_folder_of_its_own_on_a_disk_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 2)
    with pytest.raises(StoreError, match="within the data set"):
        _loader(tmp_path / "in", tmp_path / "in" / "cache")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    with pytest.raises(StoreError, match="within the data set"):
        _loader(tmp_path / "in", tmp_path / "link" / "cache")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match="'thesis.tex', which is no part of a cache"):
        _loader(tmp_path / "in", tmp_path / "mine")
    with pytest.raises(StoreError, match="is not a cache"):
        corgi2.cache(tmp_path / "mine", clear=True)
    assert (tmp_path / "mine" / "thesis.tex").exists()
    for file in (tmp_path / "mine" / "thesis.tex", tmp_path / "mine" / "thesis.tex" / "below"):
        with pytest.raises(StoreError, match="name another cache_dir="):
            _loader(tmp_path / "in", file)
    monkeypatch.setattr(place, "file_system", lambda _: "fuse.juicefs")
    with pytest.raises(StoreError, match=r"network \(fuse.juicefs\)"):
        _loader(tmp_path / "in", tmp_path / "shared")
    with pytest.raises(ValueError, match="give cache_dir="):
        corgi2.Loader(tmp_path / "in", cache_size="1GB")


def test_kinds_of_file_systems_are_read_from_the_mounts(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"22 1 8:99 / / rw - ext4 /dev/sda rw\n23 1 {number} / /data rw,relatime shared:1 - nfs4 host:/x rw\n"
    )
    assert place.file_system(tmp_path, mounts) == "nfs4"
    assert place.file_system(tmp_path, tmp_path / "none") == ""


def test_the_command_shows_and_clears(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 4)
    cache = tmp_path / "cache"
    assert len(_yielded(_start(tmp_path / "in", cache, "1GB", 0, 1, {}))) == 120
    shown = CliRunner().invoke(cli, ["cache", str(cache)], catch_exceptions=False)
    assert f"4 ranges of {tmp_path / 'in'}" in shown.output
    cleared = CliRunner().invoke(cli, ["cache", str(cache), "--clear", "--json"], catch_exceptions=False)
    assert json.loads(cleared.output)["data"] == []
    assert json.loads(cleared.output)["removed_bytes"] > 0
    assert sum(_texts(_loader(tmp_path / "in", cache)).values()) == 120
    kept = CliRunner().invoke(cli, ["cache", str(cache)], catch_exceptions=False)
    assert "4 ranges" in kept.output


def test_a_counter_that_is_lost_or_damaged_is_counted_anew(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [30] * 8)
    size = sum(path.stat().st_size + 16 for path in (tmp_path / "in").iterdir())
    loader = _loader(tmp_path / "in", tmp_path / "cache", cache_size=size // 2)
    _texts(loader)
    for text in (b"", b"nonsense", None):
        counter = tmp_path / "cache" / "room"
        counter.unlink() if text is None else counter.write_bytes(text)
        _texts(_loader(tmp_path / "in", tmp_path / "cache", cache_size=size // 2))
        assert 0 < _bytes(tmp_path / "cache") <= size // 2


def test_a_cache_goes_with_its_loader_into_other_processes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from corgi2.torch import CorgiDataset

    write_source(tmp_path / "in", ".jsonl", [30] * 8)
    data = CorgiDataset(tmp_path / "in", buffer="4MB", batch_size=16, cache_dir=tmp_path / "cache")
    for context in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context=context)
        assert sum(len(batch["t"]) for batch in loader) == 240
    assert corgi2.cache(tmp_path / "cache").data[0].entries == 8
    assert Room(tmp_path / "cache", None).clear()[1] > 0  # this process uses it
