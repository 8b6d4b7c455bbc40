"""Benchmarks use corgi2 from the inside, so they break when it changes: each is tried in a tiny form."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import decode, foundation, network, online, pieces, scale, workers
from benchmarks.programs import Program, run

pytestmark = pytest.mark.slow


def test_the_driver_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "N", 8)
    seconds, peak = scale._driver(200)
    assert seconds > 0
    assert peak > 0


@pytest.mark.parametrize("make", [foundation._binary_rows, foundation._numeric_rows, foundation._worded_rows])
def test_all_kinds_of_parquet_are_read(make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foundation, "FILES", 2)
    with ThreadPoolExecutor(2) as pool:
        pair = foundation._measure_files(tmp_path, lambda seed: make(seed).slice(0, 5000), pool)  # type: ignore[operator]
    assert pair.ratio > 0


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_the_first_batch_and_a_buffer_are_timed_in_turn(kind: str, tmp_path: Path) -> None:
    size = replace(online.SIZES[0], records=400)
    source = tmp_path / "data"
    source.mkdir()
    {"tar": online.make_tar, "parquet": online.make_parquet}[kind](source, size)
    options = {"buffer_bytes": 60_000_000, "records": size.records, "batch": 4, "laps": ["first", "buffer"]}
    timed = run(Program("both", sys.executable, online._OURS + online._OPEN, online._TAKE_TURNS), source, options)
    assert timed.lap("first").seconds > 0
    assert timed.lap("buffer").seconds > 0


@pytest.mark.parametrize("script", [workers.BATCHES, workers.COLLATES])
def test_batches_of_workers_are_counted_and_the_parents_work_is_timed(script: str, tmp_path: Path) -> None:
    size = replace(online.SIZES[0], records=400, batch=40)
    online.make_tar(tmp_path, size)
    options = workers.options_for(size, 1, tmp_path)
    assert run(Program("ours", sys.executable, script, workers.COUNT), tmp_path, options).lap("parent").seconds > 0


def test_jpegs_are_decoded_in_workers_in_threads_and_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "IMAGES", 20)
    monkeypatch.setattr(decode, "SHARDS", 2)
    assert [result.ratio > 0 for result in decode.measure(tmp_path, 1)] == [True, True]


def test_loader_first_batch_and_offline_pass_are_measured_against_raw_requests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(network, "KINDS", (network.Kind(".tar", 4, 6), network.Kind(".parquet", 4, 6)))
    monkeypatch.setattr(network, "WORKERS", (0, 1))
    monkeypatch.setattr(network, "BUFFER", "4MB")
    network.main(["--rounds", "1", "--offline-buffer", "2MB"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| tar") or "parquet" in line]
    assert len(rows) == 2 * 2 * 4, "two kinds, directly and behind the link; two loaders, a first batch, a pass"


def test_pieces_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "SHARD_BYTES", 10_000_000)
    tiny = list(pieces.measure_tiny(tmp_path, 40, 1))
    ranges = list(pieces.measure_ranges(tmp_path, 20_000_000, 1))
    assert [result.ratio > 0 for result in (*tiny, *ranges)] == [True] * 5
    assert ranges[1].what.endswith("MB of tar, ranges of 4000 KB: speed against whole blocks")
