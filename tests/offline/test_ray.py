"""On a cluster of several nodes, whatever of it dies, a shuffle gives the bytes that it gives alone."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import corgi2
from corgi2.errors import ShardError, SourceError, TooLargeError
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.settings import Settings
from tests.sources import enough_for, write_tars, write_uneven

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # listen on 127.0.0.1 only
ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore")]
NODE: dict[str, Any] = {
    "num_cpus": 2,
    "memory": 2_000_000_000,
    "object_store_memory": 100_000_000,
    "node_ip_address": "127.0.0.1",
}
MEMORY = 1_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        assert made.address.startswith("127.0.0.1:")
        made.add_node(**NODE)
        ray.init(address=made.address, logging_level=logging.ERROR, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()  # type: ignore[no-untyped-call]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Sixty tars of one class each."""
    return write_tars(tmp_path / "in", 60, 10)


def _shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.tar"))}


def _markers(folder: Path, generation: int = 0) -> int:
    return len(list((folder / ".corgi2" / f"c{generation}" / "pass-1" / "groups").glob("[0-9]*")))


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("choices", [{}, {"passes": 2}, {"range_size": 8_000}], ids=str)
def test_a_cluster_writes_the_bytes_that_one_process_writes(
    choices: dict[str, Any], source: Path, tmp_path: Path
) -> None:
    ways: dict[str, dict[str, Any]] = {"here": {}, "there": {"engine": "ray", "tasks": 2}}
    reports = {
        name: corgi2.shuffle(source, tmp_path / name, buffer=MEMORY, buffer_blocks=6, **choices, **way)
        for name, way in ways.items()
    }
    assert _shards(tmp_path / "here") == _shards(tmp_path / "there")
    assert corgi2.verify(source, tmp_path / "there").same
    settings = Settings(MEMORY, buffer_blocks=6, passes=choices.get("passes", 1), range_bytes=choices.get("range_size"))
    foreseen = plan_shuffle(source, tmp_path / "none", settings).foresight
    for report in reports.values():
        assert (report.reads, report.writes) == (foreseen.reads, foreseen.writes)
    again = corgi2.shuffle(source, tmp_path / "there", buffer=MEMORY, buffer_blocks=6, **choices, engine="ray")
    assert again.was_complete


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("kind", ["record", "shard"])
def test_a_cluster_holds_out_what_one_process_holds_out(
    kind: Literal["record", "shard"], in_place: bool, source: Path, tmp_path: Path
) -> None:
    for name, way in {"here": {}, "there": {"engine": "ray", "tasks": 2}}.items():
        places = [write_tars(tmp_path / name, 60, 10)] if in_place else [source, tmp_path / name]
        held: dict[str, Any] = {"holdout": 0.1, "holdout_by": kind, "holdout_to": tmp_path / f"val-{name}", **way}
        corgi2.shuffle(*places, in_place=in_place, buffer=MEMORY, buffer_blocks=6, **held)
    for folder in ("", "val-"):
        assert _shards(tmp_path / f"{folder}here") == _shards(tmp_path / f"{folder}there")
    assert corgi2.verify(source, tmp_path / "there", holdout=tmp_path / "val-there").same


@pytest.mark.usefixtures("cluster")
def test_in_place_on_a_cluster_loses_nothing(source: Path, tmp_path: Path) -> None:
    copy = write_tars(tmp_path / "copy", 60, 10)
    corgi2.shuffle(source, in_place=True, buffer=MEMORY, buffer_blocks=6)
    corgi2.shuffle(copy, in_place=True, buffer=MEMORY, buffer_blocks=6, engine="ray")
    assert _shards(source) == _shards(copy)
    assert corgi2.verify(copy).same


@pytest.mark.usefixtures("cluster")
def test_a_block_that_does_not_fit_a_task_names_the_buffer_that_does(tmp_path: Path) -> None:
    for name in ("in", "out"):
        write_uneven(tmp_path / name, ".jsonl.zst")
    with pytest.raises(TooLargeError, match=r"data-3\.jsonl\.zst") as caught:
        corgi2.shuffle(tmp_path / "out", in_place=True, buffer="7MB", engine="ray", passes=2)
    corgi2.shuffle(tmp_path / "out", in_place=True, buffer=enough_for(caught.value), engine="ray", passes=2)
    assert corgi2.verify(tmp_path / "in", tmp_path / "out").same


def _when(reached: Callable[[], bool], act: Callable[[], object]) -> threading.Thread:
    def wait() -> None:
        while not reached():
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("in_place", [False, True])
def test_a_node_that_dies_costs_its_groups_and_nothing_else(
    in_place: bool, cluster: Any, source: Path, tmp_path: Path
) -> None:
    alone = write_tars(tmp_path / "alone", 60, 10)
    where = None if in_place else tmp_path / "there"
    target = source if in_place else tmp_path / "there"
    doomed = cluster.add_node(**NODE)
    killer = _when(
        lambda: _markers(target, int(in_place)) >= 4, lambda: cluster.remove_node(doomed, allow_graceful=False)
    )
    options: dict[str, Any] = {"buffer": MEMORY, "buffer_blocks": 2, "in_place": in_place}
    corgi2.shuffle(source, where, engine="ray", tasks=2, **options)
    killer.join(60)
    assert not killer.is_alive()
    corgi2.shuffle(alone, None if in_place else tmp_path / "here", **options)
    assert _shards(target) == _shards(alone if in_place else tmp_path / "here")
    assert corgi2.verify(target).same


@pytest.mark.usefixtures("cluster")
def test_a_worker_that_is_killed_is_replaced(source: Path, tmp_path: Path) -> None:
    """As the system does it when memory runs out."""
    target, killed = tmp_path / "there", list[int]()
    killer = _when(lambda: _markers(target) >= 3, lambda: killed.extend(_kill_workers()))
    corgi2.shuffle(source, target, buffer=MEMORY, buffer_blocks=2, engine="ray", tasks=2)
    killer.join(60)
    assert killed
    assert corgi2.verify(source, target).same


def _kill_workers() -> list[int]:
    """All that are making a group."""
    found: list[int] = []
    while not found:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                is_worker = path.read_bytes().startswith(b"ray::_make")
            except OSError:  # it has ended
                continue
            if is_worker:
                os.kill(int(path.parent.name), signal.SIGKILL)
                found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("in_place", [False, True])
def test_when_the_driver_dies_the_same_command_goes_on(
    in_place: bool, cluster: Any, source: Path, tmp_path: Path
) -> None:
    target = source if in_place else tmp_path / "there"
    where = ["--in-place"] if in_place else [str(target)]
    engine = ["--engine", "ray", "--address", cluster.address]
    command = [
        sys.executable,
        "-m",
        "corgi2",
        "shuffle",
        str(source),
        *where,
        "--buffer",
        "1MB",
        "--buffer-blocks",
        "2",
    ]
    process = subprocess.Popen([*command, *engine], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    killer = _when(lambda: _markers(target, int(in_place)) >= 4, lambda: os.kill(process.pid, signal.SIGKILL))
    assert process.wait(120) == -signal.SIGKILL
    killer.join(60)
    assert _markers(target, int(in_place)) < 30
    done = subprocess.run([*command, *engine], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert corgi2.verify(target).same
    if not in_place:
        assert corgi2.verify(source, target).same
        corgi2.shuffle(source, tmp_path / "here", buffer=MEMORY, buffer_blocks=2)
        assert _shards(target) == _shards(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.parametrize("is_joined", [True, False], ids=["a cluster", "Ray of its own"])
def test_told_to_end_it_does_and_names_the_command_that_goes_on(
    is_joined: bool, cluster: Any, source: Path, tmp_path: Path
) -> None:
    """Ray has handlers of its own for SIGTERM, which say nothing."""
    words = ["shuffle", str(source), str(tmp_path / "there"), "--buffer", "1MB", "--buffer-blocks", "2"]
    words += ["--engine", "ray", *(["--address", cluster.address] if is_joined else [])]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    pipe, command = subprocess.PIPE, [sys.executable, "-m", "corgi2", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=pipe, text=True, env=environment)
    killer = _when(lambda: _markers(tmp_path / "there") >= 2, process.terminate)
    _, said = process.communicate(timeout=250)
    killer.join(60)
    assert (process.returncode, said.splitlines()[-1]) == (
        143,
        f"corgi2: stopped; nothing is lost. To resume: corgi2 {' '.join(words)}",
    )
    assert subprocess.run(command, capture_output=True, timeout=250, env=environment).returncode == 0
    assert corgi2.verify(source, tmp_path / "there").same


@pytest.mark.usefixtures("cluster")
def test_a_damaged_shard_is_named_as_it_is_here(source: Path, tmp_path: Path) -> None:
    shard = source / "train-0007.tar"
    data = bytearray(shard.read_bytes())
    data[5] ^= 1
    shard.write_bytes(data)
    with pytest.raises(ShardError, match=r"train-0007.tar: at byte 0: .*checksum"):
        corgi2.shuffle(source, tmp_path / "there", buffer=MEMORY, buffer_blocks=6, engine="ray")
    report = corgi2.shuffle(source, tmp_path / "there", buffer=MEMORY, buffer_blocks=6, engine="ray", skip_bad=True)
    assert len(report.skipped) == 1
    assert report.records == 590


@pytest.mark.usefixtures("cluster")
def test_a_buffer_that_no_node_has_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no node of the cluster offers more than"):
        corgi2.shuffle(source, tmp_path / "there", buffer="4GB", engine="ray")


def test_a_cluster_that_is_not_there_is_one_line(source: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "corgi2", "shuffle", str(source), str(tmp_path / "there"), "--buffer", "1MB"]
    done = subprocess.run([*command, "--address", "127.0.0.1:1"], capture_output=True, text=True)
    assert (done.returncode, "give --engine ray" in done.stderr) == (2, True)
    words = [*command, "--engine", "ray", "--address", "127.0.0.1:1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == 3
    assert "corgi2: no Ray cluster at 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_where_no_cluster_is_found_the_command_that_starts_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``auto``, Ray looks for any cluster of this machine, and finds those of other tests."""

    def nowhere(*_: object, **__: object) -> None:
        raise ConnectionError("Could not find any running Ray instance")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", nowhere)
    from corgi2.offline.engines.ray import RayEngine

    with (
        pytest.raises(SourceError, match=r"start one \(ray start --head\), or give no address="),
        RayEngine(1, 1, "auto").running(),
    ):
        pass
