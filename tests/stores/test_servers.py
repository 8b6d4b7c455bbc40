"""On real S3 servers everything works as on a disk, to the same bytes, through faults, with few requests."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import corgi2
from corgi2.dataset.index_file import save_index
from corgi2.dataset.scan import index_source
from corgi2.dataset.source import find_source
from corgi2.errors import ChangedError, Corgi2Error, SourceError
from corgi2.offline.plan_file import commit_plan
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.settings import Settings
from corgi2.quality import inspect
from corgi2.stores.opening import open_store
from corgi2.stores.remote import RemoteStore
from corgi2.stores.store import Entry, Store, read_object, read_path
from tests.conftest import S3, SECRET
from tests.fault_proxy import Fault
from tests.sources import SUFFIXES, write_source

pytestmark = pytest.mark.slow


def _upload(folder: Path, store: Store) -> None:
    for path in sorted(folder.iterdir()):
        store.publish(path.name, [path.read_bytes()])


def _shards(store: Store) -> dict[str, bytes]:
    found = {}
    for entry in store.list():
        if not entry.path.startswith(".corgi2/"):
            body = bytearray(entry.size)
            store.readinto(entry, 0, memoryview(body))
            found[entry.path] = bytes(body)
    return found


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _at(server: S3, name: str) -> tuple[str, Store]:
    url = f"{server.url}/{name}"
    return url, open_store(url, server.options)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_command_does_the_same_there_as_here(suffix: str, weed: S3, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [30, 20, 40, 10, 30, 20])
    options: dict[str, Any] = {"buffer": "1MB", "buffer_blocks": 3}
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", **options)
    (there, raw), (mixed, out) = _at(weed, "raw"), _at(weed, "mixed")
    _upload(tmp_path / "in", raw)
    both: dict[str, Any] = {"src_options": weed.options, "dst_options": weed.options}
    corgi2.shuffle(there, mixed, **options, **both)
    assert _shards(out) == _files(tmp_path / "out")
    assert corgi2.verify(there, mixed, **both).same
    assert corgi2.verify(tmp_path / "in", mixed, dst_options=weed.options).same
    assert corgi2.verify(mixed, src_options=weed.options).same
    assert corgi2.inspect(mixed, src_options=weed.options).records == 150
    here, away = (
        [str(sample) for sample in corgi2.Loader(place, buffer="10MB", src_options=extra)]
        for place, extra in ((tmp_path / "out", None), (mixed, weed.options))
    )
    assert [text.replace(mixed, "") for text in away] == [text.replace(str(tmp_path / "out"), "") for text in here]
    corgi2.shuffle(tmp_path / "in", in_place=True, **options)
    corgi2.shuffle(there, in_place=True, src_options=weed.options, **options)
    assert _shards(raw) == _files(tmp_path / "in")
    assert corgi2.verify(there, src_options=weed.options).same


def test_requests_at_the_server_are_two_a_block_offline_and_one_online(weed: S3, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 12)
    (there, raw), (mixed, _) = _at(weed, "raw"), _at(weed, "mixed")
    _upload(tmp_path / "in", raw)
    weed.proxy.seen.clear()
    corgi2.shuffle(there, mixed, buffer="1MB", buffer_blocks=4, src_options=weed.options, dst_options=weed.options)
    data = [(method, path) for method, path in weed.proxy.seen if ".corgi2" not in path and path.endswith(".tar")]
    assert sorted(method for method, _ in data) == ["GET"] * 12 + ["PUT"] * 12
    beside = [(method, path) for method, path in weed.proxy.seen if "/.corgi2/" in path and method in ("GET", "PUT")]
    assert (
        sum(method == "PUT" for method, _ in beside) == 6 + 3
    )  # source, plan twice, lock, index, sums; a marker a group
    loader = corgi2.Loader(mixed, buffer="1MB", batch_size=16, src_options=weed.options)
    for epoch in range(2):
        weed.proxy.seen.clear()
        assert sum(len(batch["txt"]) for batch in loader) == 240
        assert [method for method, _ in weed.proxy.seen] == ["GET"] * 12, epoch


def test_only_one_of_many_creates(weed: S3) -> None:
    _, store = _at(weed, "claims")
    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(lambda n: store.create("claim", b"%d" % n), range(12)))
    assert won.count(True) == 1
    assert bytes(read_path(store, "claim") or b"") == b"%d" % won.index(True)


FAULTS = {
    "503": Fault("status", 503),
    "reset": Fault("reset"),
    "truncate": Fault("truncate"),
    "latency": Fault("latency", seconds=0.02),
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("in_place", [False, True])
def test_faults_change_nothing_but_the_time_it_takes(kind: str, in_place: bool, weed: S3, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 12)
    there, raw = _at(weed, "raw")
    mixed, out = (there, raw) if in_place else _at(weed, "mixed")
    _upload(tmp_path / "in", raw)
    weed.proxy.inject_randomly(FAULTS[kind], 0.3, seed=1)
    options: dict[str, Any] = {"buffer": "1MB", "buffer_blocks": 4, "in_place": in_place}
    _until_done(there, None if in_place else mixed, options, weed)
    weed.proxy.inject_randomly(FAULTS[kind], 0.0, seed=1)
    corgi2.shuffle(tmp_path / "in", None if in_place else tmp_path / "out", **options)
    assert _shards(out) == _files(tmp_path / ("in" if in_place else "out"))
    assert corgi2.verify(mixed, src_options=weed.options).same


def _until_done(there: str, mixed: str | None, options: dict[str, Any], weed: S3) -> None:
    """Give the same command until it ends well; each error is one line of ours."""
    for _ in range(20):
        try:
            corgi2.shuffle(
                there, mixed, src_options=weed.options, dst_options=weed.options if mixed else None, **options
            )
            return
        except Corgi2Error as error:
            assert "\n" not in str(error)
    raise AssertionError("it never ended")


@pytest.mark.parametrize("in_place", [False, True])
def test_killed_it_goes_on(in_place: bool, weed: S3, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 20)
    there, raw = _at(weed, "raw")
    mixed, out = (there, raw) if in_place else _at(weed, "mixed")
    _upload(tmp_path / "in", raw)
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    keys["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{weed.proxy.port}"
    where = ["--in-place"] if in_place else [mixed]
    command = [sys.executable, "-m", "corgi2", "shuffle", there, *where, "--buffer", "1MB", "--buffer-blocks", "2"]
    weed.proxy.inject_randomly(Fault("latency", seconds=0.05), 1.0, seed=0)
    for wanted in (2, 5, 8):
        process = subprocess.Popen(command, env=os.environ | keys, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and sum("/groups/" in path for _, path in list(weed.proxy.seen)) < 4 * wanted:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, env=os.environ | keys, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    options: dict[str, Any] = {"buffer": "1MB", "buffer_blocks": 2, "in_place": in_place}
    corgi2.shuffle(tmp_path / "in", None if in_place else tmp_path / "out", **options)
    assert _shards(out) == _files(tmp_path / ("in" if in_place else "out"))
    assert corgi2.verify(mixed, src_options=weed.options).same


def test_secrets_are_in_nothing_that_is_kept(weed: S3, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 4)
    mixed, out = _at(weed, "mixed")
    report = corgi2.shuffle(tmp_path / "in", mixed, buffer="1MB", dst_options=weed.options)
    kept = b"".join(bytes(body) for body in map(_body(out), out.list()))
    assert SECRET.encode() not in kept
    assert SECRET not in json.dumps(report.as_json()) + repr(out) + repr(report)


def _body(store: Store) -> Any:
    def read(entry: Any) -> bytes:
        body = bytearray(entry.size)
        store.readinto(entry, 0, memoryview(body))
        return bytes(body)

    return read


def test_requests_in_flight_are_bounded(weed: S3, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 24)
    there, raw = _at(weed, "raw")
    _upload(tmp_path / "in", raw)
    weed.proxy.inject_randomly(Fault("latency", seconds=0.05), 1.0, seed=0)
    weed.proxy.most_at_once = 0
    corgi2.shuffle(there, tmp_path / "out", buffer="1MB", workers=3, src_options=weed.options)
    assert weed.proxy.most_at_once == 3


def test_a_server_that_ignores_conditions_gives_the_same_bytes(juice: S3, tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 12)
    assert juice.store().create("condition", b"1") == juice.store().create("condition", b"2") is True
    options: dict[str, Any] = {"buffer": "1MB", "buffer_blocks": 4}
    corgi2.shuffle(tmp_path / "in", tmp_path / "out", **options)
    mixed, out = _at(juice, "one")
    runs = [
        threading.Thread(
            target=corgi2.shuffle, args=(tmp_path / "in", mixed), kwargs={**options, "dst_options": juice.options}
        )
        for _ in range(3)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert _shards(out) == _files(tmp_path / "out")
    assert corgi2.verify(mixed, src_options=juice.options).same


def test_there_a_shard_that_changes_is_known_by_its_time(juice: S3) -> None:
    """It has no etags."""
    _, raw = _at(juice, "times")
    raw.publish("a.tar", [b"12345"])
    (entry,) = raw.list()
    assert read_object(raw, entry) == b"12345"
    time.sleep(1.1)  # of which answers tell whole seconds
    raw.publish("a.tar", [b"54321"])
    with pytest.raises(ChangedError, match=r"a\.tar: has changed since it was listed"):
        read_object(raw, entry)


@pytest.mark.parametrize("suffix", [".tar", ".parquet"])
@pytest.mark.parametrize("command", ["shuffle", "index", "inspect", "verify", "loader"])
def test_a_shard_that_is_replaced_in_mid_run_by_one_of_its_size_is_named(
    command: str, suffix: str, weed: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "in", suffix, [20] * 3)
    there, raw = _at(weed, "in")
    _upload(tmp_path / "in", raw)
    if command == "loader":
        save_index(raw, index_source(find_source(there, weed.options)))
    name, real, calls = f"data-0001{suffix}", RemoteStore.readinto, list[int]()
    other = (tmp_path / "in" / name).read_bytes().replace(b"1 0", b"7 0")

    def readinto(store: RemoteStore, entry: Entry, start: int, buffer: memoryview, ranges: int = 1) -> None:
        if entry.path == name and not calls:
            calls.append(1)
            raw.publish(name, [other])
        real(store, entry, start, buffer, ranges)

    monkeypatch.setattr(RemoteStore, "readinto", readinto)
    with pytest.raises(ChangedError, match=f"{name}: has changed since it was listed"):
        _do(command, there, tmp_path, weed.options)


def _do(command: str, there: str, folder: Path, options: Any) -> object:
    if command == "shuffle":
        return corgi2.shuffle(there, folder / "out", buffer="1MB", src_options=options)
    if command == "verify":
        return corgi2.verify(there, folder / "in", src_options=options)
    if command == "loader":
        return list(corgi2.Loader(there, batch_size=5, buffer="1MB", src_options=options))
    if command == "inspect":
        return inspect(there, src_options=options)
    return index_source(find_source(there, options))


@pytest.mark.parametrize("late", [False, True])
def test_there_two_plans_at_once_do_not_both_delete(late: bool, juice: S3, tmp_path: Path) -> None:
    """The second replaces the first one's plan, after the first has read it back; early, or when a group was made."""
    from corgi2.offline.run import run_shuffle

    write_source(tmp_path / "in", ".tar", [20] * 12)
    there, raw = _at(juice, f"two-{late}")
    _upload(tmp_path / "in", raw)
    first, second = (
        plan_shuffle(there, None, Settings(10**6, buffer_blocks=4, in_place=True, seed=seed), juice.options)
        for seed in (1, 2)
    )
    commit_plan(first)
    first = replace(first, is_begun=True)
    if late:
        with pytest.raises(SourceError, match="was replaced by another plan"):
            _run_with(first, lambda: commit_plan(second), run_shuffle)
    else:
        commit_plan(second)
        with pytest.raises(SourceError, match="was replaced by another plan"):
            run_shuffle(first)
        run_shuffle(second)
        assert corgi2.verify(tmp_path / "in", there, dst_options=juice.options).same
        return
    with pytest.raises(SourceError, match="was made by another plan"):
        run_shuffle(second)
    kept = [entry.path for entry in raw.list() if entry.path.startswith("data-0")]
    assert len(kept) >= 8


def _run_with(planned: Any, meanwhile: Any, run: Any) -> None:
    """Run a planned; when its first marker is there, something else happens."""
    from corgi2.offline.journal import Journal

    write, calls = Journal.write_marker, list[int]()

    def writing(journal: Journal, *arguments: Any, **options: Any) -> None:
        write(journal, *arguments, **options)
        if not calls:
            calls.append(1)
            meanwhile()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "write_marker", writing)
        run(planned)
