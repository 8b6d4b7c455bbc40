"""Files of this machine: whole or not at all, whatever fails."""

import errno
import fcntl
import itertools
import mmap
import os
import pickle
import random
import re
import resource
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corgi2.errors import StoreError
from corgi2.records.shard import SLAB_BYTES, Buffer
from corgi2.stores import direct
from corgi2.stores.local import LocalStore
from corgi2.stores.opening import open_store
from corgi2.stores.store import Entry, read_object
from tests.patching import patch_everywhere


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _script(code: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


_PAGE = mmap.PAGESIZE


@pytest.mark.parametrize("fault", ["none", "no direct files", "other alignment", "short writes"])
@given(sizes=st.lists(st.integers(0, 5 * _PAGE) | st.integers(0, 5).map(_PAGE.__mul__), max_size=6))
def test_files_of_any_size_come_out_whole_whether_the_disk_takes_them_directly_or_not(
    tmp_path_factory: pytest.TempPathFactory, fault: str, sizes: list[int]
) -> None:
    store = LocalStore(str(tmp_path_factory.getbasetemp() / "direct"))
    memory = memoryview(mmap.mmap(-1, max(1, sum(sizes))))  # which begins a page
    memory[:] = random.Random(0).randbytes(len(memory))
    ends = list(itertools.accumulate(sizes, initial=0))
    pieces: list[Buffer] = [memory[start:stop] for start, stop in itertools.pairwise(ends)]
    with pytest.MonkeyPatch.context() as patch:
        patch_everywhere(patch, "corgi2.stores", SLAB_BYTES=2 * _PAGE)
        if fault == "no direct files":
            patch.setattr(fcntl, "fcntl", _refusing_flags(fcntl.fcntl))
        elif fault != "none":
            patch.setattr(os, "write", _grudging(os.write, whole=fault == "other alignment"))
        assert store.publish("a.tar", pieces).size == sum(sizes)
    assert Path(store.url, "a.tar").read_bytes() == memory[: sum(sizes)]


def _refusing_flags(real: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(fd: int, command: int, *arguments: int) -> Any:
        if command == fcntl.F_SETFL:
            raise OSError(errno.EINVAL, "no")
        return real(fd, command, *arguments)

    return refuse


def _grudging(real: Callable[[int, Any], int], whole: bool) -> Callable[[int, Any], int]:
    """A disk that takes no direct write at all, or only an odd part of each."""

    def write(fd: int, data: memoryview) -> int:
        is_direct = fcntl.fcntl(fd, fcntl.F_GETFL) & getattr(os, "O_DIRECT", 0)
        if is_direct and whole:
            raise OSError(errno.EINVAL, "no")
        if is_direct:
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~is_direct)
        return real(fd, data[: max(1, len(data) // 3)] if is_direct else data)

    return write


@pytest.mark.skipif(sys.platform != "linux", reason="only there")
def test_large_files_go_past_the_page_cache_but_for_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, real = [], os.write

    def write(fd: int, data: memoryview) -> int:
        written.append((len(data), bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)))
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    with (tmp_path / "probe").open("wb") as probe:
        can = direct._set_direct(probe.fileno(), True)
    slab = SLAB_BYTES
    LocalStore(str(tmp_path)).publish("a.tar", [bytes(slab + 5), bytes(2 * slab)])
    assert written == [(slab, can)] * 3 + [(5, False)]


def test_a_listing_is_recursive_and_ordered_as_in_a_bucket(tmp_path: Path) -> None:
    paths = ["a/b.tar", "a-b.tar", "a.tar", "a/b/c.tar", "Z.tar", "é.tar"]
    remote, local = open_store("memory://listing/x"), LocalStore(str(tmp_path))
    for path in paths:
        local.publish(path, [b"1"])
        remote.publish(path, [b"1"])
    assert [entry.path for entry in local.list()] == [entry.path for entry in remote.list()] == sorted(paths)
    assert [entry.path for entry in local.list("a")] == [entry.path for entry in remote.list("a")]
    assert local.list("none") == remote.list("none") == []


def test_head_and_list_agree(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    entry = store.publish("a/b.tar", [b"12", b"3"])
    assert store.list() == [entry] == [store.head("a/b.tar")]
    assert (entry.path, entry.size, bytes(read_object(store, entry))) == ("a/b.tar", 3, b"123")
    assert store.head("a") is None
    assert store.head("c") is None
    assert store.head("a/b.tar/c") is None


def test_a_published_file_replaces_the_old_one_and_its_etag(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    old, new = store.publish("a.tar", [b"old"]), store.publish("a.tar", [b"newer"])
    assert old.etag != new.etag
    assert (tmp_path / "a.tar").read_bytes() == b"newer"


def test_only_one_of_many_creates(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: store.create("claim", b"%d" % n), range(32)))
    assert won.count(True) == 1
    assert (tmp_path / "claim").read_bytes() == b"%d" % won.index(True)
    assert _files(tmp_path) == ["claim"]


def test_a_deleted_file_may_be_deleted_again(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.publish("a.tar", [b"1"])
    store.delete("a.tar")
    store.delete("a.tar")
    assert store.list() == []


def test_every_request_is_counted(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    entry = store.publish("a.tar", [b"1"])
    store.create("b", b"")
    read_object(store, entry)
    store.head("a.tar")
    store.list()
    store.delete("b")
    counted = store.requests
    assert (counted.lists, counted.reads, counted.writes, counted.deletes) == (2, 1, 2, 1)


def test_a_file_that_shrank_is_an_error_that_names_the_byte(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    entry = store.publish("a.tar", [b"12345"])
    with pytest.raises(StoreError, match=r"a\.tar: ends at byte 5, expected 8"):
        store.readinto(entry, 3, memoryview(bytearray(5)))


def test_a_missing_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=re.escape(f"{tmp_path}/a.tar: has disappeared since it was listed;")):
        LocalStore(str(tmp_path)).readinto(Entry("a.tar", 5, ""), 0, memoryview(bytearray(5)))


def test_links_are_followed_and_a_loop_of_links_ends(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "data"))
    LocalStore(str(tmp_path)).publish("elsewhere/a.tar", [b"1"])
    store.publish("b.tar", [b"1"])
    (tmp_path / "data" / "sub").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "up").symlink_to(tmp_path / "data")
    assert [entry.path for entry in store.list()] == ["b.tar", "sub/a.tar"]


def test_a_link_to_nothing_is_not_lost_in_silence(tmp_path: Path) -> None:
    (tmp_path / "a.tar").symlink_to(tmp_path / "gone.tar")
    with pytest.raises(StoreError, match=r"a\.tar: is a link to nothing; remove it"):
        LocalStore(str(tmp_path)).list()


def test_the_longest_name_that_the_disk_allows_can_be_published(tmp_path: Path) -> None:
    name = "a" * 251 + ".tar"
    assert LocalStore(str(tmp_path)).publish(name, [b"1"]).path == name


def test_errors_of_whoever_makes_the_pieces_come_out_as_they_are(tmp_path: Path) -> None:
    mine = OSError("mine")

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise mine

    with pytest.raises(OSError, match="mine") as caught:
        LocalStore(str(tmp_path)).publish("a/b.tar", pieces())
    assert caught.value is mine
    assert _files(tmp_path) == []


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_publish_leaves_nothing_that_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    store = LocalStore(str(tmp_path))
    store.publish("a.tar", [b"old"])

    def fail(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(StoreError, match=re.escape(f"{tmp_path}/a.tar: {os.strerror(code)}")):
        store.publish("a.tar", [b"new"])
    assert _files(tmp_path) == ["a.tar"]
    assert (tmp_path / "a.tar").read_bytes() == b"old"


def test_a_write_that_the_disk_cuts_short_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    LocalStore(str(tmp_path)).publish("a.tar", [bytes(range(256))])
    assert (tmp_path / "a.tar").read_bytes() == bytes(range(256))


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if os.getuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        store = LocalStore(str(tmp_path))
        with pytest.raises(StoreError, match=r"big\.tar: No space left on device"):
            store.publish("big.tar", [bytes(300_000)] * 8)
        assert _files(tmp_path) == []
        assert store.publish("small.tar", [bytes(300_000)]).size == 300_000
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_file_size_limit_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    code = """
    import signal, sys
    from corgi2.stores.local import LocalStore
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        LocalStore(sys.argv[1]).publish("a.tar", [bytes(300_000)] * 8)
    except Exception as error:
        print(error)
    """
    limits = (1_000_000, 1_000_000)
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)  # noqa: E731
    shown = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=True)
    assert shown.stdout == f"{tmp_path}/a.tar: File too large\n"
    assert _files(tmp_path) == []


def test_a_publisher_that_is_killed_leaves_nothing_that_is_listed(tmp_path: Path) -> None:
    code = """
    import sys
    from corgi2.stores.local import LocalStore
    def pieces():
        yield bytes(100_000)
        print("half", flush=True)
        sys.stdin.read()
    LocalStore(sys.argv[1]).publish("a.tar", pieces())
    """
    with _script(code, str(tmp_path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        process.send_signal(signal.SIGKILL)
    store = LocalStore(str(tmp_path))
    assert len(_files(tmp_path)) == 1
    assert store.list() == []
    entry = store.publish("a.tar", [b"whole"])
    assert store.list() == [entry]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    code = """
    import sys
    from corgi2.stores.local import LocalStore
    for n in range(1, 120):
        LocalStore(sys.argv[1]).publish("a.tar", [b"%03d" % n] * n)
    """
    seen = set()
    with _script(code, str(tmp_path)) as process:
        while process.poll() is None:
            if (tmp_path / "a.tar").exists():
                data = (tmp_path / "a.tar").read_bytes()
                assert data == data[:3] * int(data[:3])
                seen.add(len(data))
    assert len(seen) > 3


def test_what_is_published_is_flushed_before_it_is_renamed_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(fd: int) -> None:
        calls.append("flush folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "flush file")
        fsync(fd)

    def record_replace(old: Path, new: Path) -> None:
        calls.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    LocalStore(str(tmp_path)).publish("a.tar", [b"1"])
    assert calls == ["flush file", "rename", "flush folder"]


def test_a_folder_that_may_not_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoreError, match=re.escape(f"{tmp_path}: Permission denied")):
        LocalStore(str(tmp_path)).list()


def test_a_store_pickles(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    entry = store.publish("a.tar", [b"1"])
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301
    assert copy.list() == [entry]
    assert pickle.loads(pickle.dumps(entry)) == Entry("a.tar", 1, entry.etag)  # noqa: S301
