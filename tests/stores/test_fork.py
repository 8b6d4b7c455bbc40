"""Stores in child processes, forked or spawned, before or after the first use. Each test is a process of its own."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conftest import S3

PRELUDE = """
import json, multiprocessing, os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from corgi2.stores.opening import open_store
from corgi2.stores.store import read_object

store = open_store(sys.argv[1], json.loads(sys.argv[2]))

def read():
    return bytes(read_object(store, store.head("a.tar")))

def forked(work):
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return pid

def joined(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def expect(data):
    assert data == b"12345", data
"""


def _run(folder: Path, s3: S3, code: str) -> str:
    script = folder / "script.py"
    body = textwrap.indent(textwrap.dedent(code), "    ")
    script.write_text(f"{PRELUDE}\nif __name__ == '__main__':\n{body}")
    command = [sys.executable, str(script), s3.url, json.dumps(s3.options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0) as run:
        try:
            shown, _ = run.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            raise
    assert run.returncode == 0, shown
    return shown


@pytest.fixture
def shard(s3: S3) -> S3:
    s3.raw("PUT", "/train/a.tar", b"12345")
    return s3


def test_a_fork_before_the_first_use_works(shard: S3, tmp_path: Path) -> None:
    _run(tmp_path, shard, "assert joined(forked(lambda: expect(read()))) == 0; expect(read())")


def test_a_fork_after_use_works_and_the_parent_goes_on(shard: S3, tmp_path: Path) -> None:
    code = """
    expect(read())
    children = [forked(lambda: expect(read())) for _ in range(3)]
    expect(read())
    assert [joined(pid) for pid in children] == [0, 0, 0]
    expect(read())
    """
    _run(tmp_path, shard, code)


def test_a_fork_of_a_fork_works(shard: S3, tmp_path: Path) -> None:
    code = """
    def deeper(depth):
        expect(read())
        assert depth == 0 or joined(forked(lambda: deeper(depth - 1))) == 0
    deeper(3)
    """
    _run(tmp_path, shard, code)


def test_all_operations_work_in_a_forked_process(shard: S3, tmp_path: Path) -> None:
    code = """
    from corgi2 import stores
    stores.PART_BYTES = stores.remote.PART_BYTES = 5 << 20
    def work():
        assert store.create("claim", b"1") and not store.create("claim", b"1")
        entry = store.publish("b.tar", [bytes(3 << 20)] * 5, 5 << 20)
        assert len(read_object(store, entry)) == 15 << 20
        store.delete("claim")
        assert [entry.path for entry in store.list()] == ["a.tar", "b.tar"]
    expect(read())
    assert joined(forked(work)) == 0
    """
    _run(tmp_path, shard, code)


def test_threads_of_a_forked_process_may_all_begin_at_once(shard: S3, tmp_path: Path) -> None:
    code = """
    def work():
        begin = threading.Barrier(8)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: (begin.wait(), expect(read())), range(8)))
    work()
    assert [joined(forked(work)) for _ in range(3)] == [0, 0, 0]
    """
    _run(tmp_path, shard, code)


def test_a_fork_while_other_threads_read_does_not_hang(shard: S3, tmp_path: Path) -> None:
    code = """
    stop = threading.Event()
    def keep_reading():
        while not stop.is_set():
            expect(read())
    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(keep_reading) for _ in range(4)]
        codes = [joined(forked(lambda: expect(read()))) for _ in range(8)]
        stop.set()
        [reader.result() for reader in readers]
    assert codes == [0] * 8
    """
    _run(tmp_path, shard, code)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_used_store_is_sent_to_workers(shard: S3, tmp_path: Path, method: str) -> None:
    code = f"""
    expect(read())
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        assert pool.map(store.head, ["a.tar", "none"]) == [store.head("a.tar"), None]
    """
    _run(tmp_path, shard, code)


def test_a_parent_that_used_obstore_by_itself_does_not_hang_its_children(shard: S3, tmp_path: Path) -> None:
    code = """
    import obstore, obstore.store
    import corgi2.stores.remote
    obstore.put(obstore.store.MemoryStore(), "x", b"1")
    assert joined(forked(lambda: expect(read()))) == 0
    """
    _run(tmp_path, shard, code)


def test_memory_in_a_forked_process_is_refused_in_one_line(shard: S3, tmp_path: Path) -> None:
    code = """
    store = open_store("memory://here/train")
    store.publish("a.tar", [b"1"])
    assert joined(forked(store.list)) == 1
    assert joined(forked(lambda: open_store("memory://other/train").publish("a.tar", [b"1"]))) == 0
    """
    assert _run(tmp_path, shard, code).startswith("StoreError('memory://here: is not available in a forked process")


def test_a_child_leaves_no_file_and_no_descriptor_behind(shard: S3, tmp_path: Path) -> None:
    code = """
    def work():
        before = set(os.listdir("/proc/self/fd"))
        expect(read())
        links = [os.readlink(f"/proc/self/fd/{fd}") for fd in set(os.listdir("/proc/self/fd")) - before
                 if os.path.exists(f"/proc/self/fd/{fd}")]
        assert not [link for link in links if "obstore" in link], links
    expect(read())
    assert joined(forked(work)) == 0
    """
    _run(tmp_path, shard, code)
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
