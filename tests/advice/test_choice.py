"""What is recommended: never what something else beats, always what can be run, and what a disk would do."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import corgi2
from corgi2 import theory
from corgi2.advice import plan, probe
from corgi2.advice.choice import FELT, is_as_good, tier
from corgi2.advice.command import folder_beside, option_words, shuffle_command
from corgi2.advice.methods import Kind, Method
from corgi2.advice.prices import NOTHING, load_prices
from corgi2.advice.recommendation import Advice, advise
from corgi2.advice.situation import Means, Shape
from corgi2.cli import program  # noqa: F401 - which knows all commands
from corgi2.cli.root import cli
from corgi2.dataset.source import find_source
from corgi2.offline import Settings, plan_shuffle, run_shuffle
from corgi2.theory import Blocks, Rounds, long_run
from tests.conftest import S3
from tests.patching import patch_everywhere
from tests.shards import parquet_of
from tests.sources import SUFFIXES, write_source, write_tars


def _burden(method: Method) -> tuple[float, ...]:
    return method.way.passes, method.requests, method.cost_usd, method.hours


@st.composite
def situations(draw: st.DrawFn) -> tuple[Shape, Means]:
    blocks, b = draw(st.integers(1, 3000)), draw(st.integers(2, 5000))
    size = blocks * draw(st.integers(1_000, 200_000_000))
    share = draw(st.floats(0, 1))
    shape = Shape(
        records=blocks * b,
        bytes=size,
        shards=max(1, blocks // draw(st.integers(1, 8))),
        blocks=blocks,
        footprint=size,
        h_D=share * b,
        is_local=draw(st.booleans()),
        has_ranges=draw(st.booleans()),
    )
    block = size // blocks
    means = Means(
        buffer=max(1_000_000, block * draw(st.integers(1, 200))),
        online_buffer=max(1_000_000, block * draw(st.integers(2, 200))),
        epochs=draw(st.integers(1, 100)),
        nodes=draw(st.integers(1, 16)),
        prices=draw(st.sampled_from([NOTHING, load_prices("aws")])),
        bandwidth=draw(st.floats(1e6, 1e10)),
        latency=draw(st.floats(0, 0.1)),
        node_price=draw(st.sampled_from([None, 1.0, 100.0])),
    )
    return shape, means


@given(situations())
def test_what_is_recommended_is_never_beaten(situation: tuple[Shape, Means]) -> None:
    """Nothing that corgi2 runs takes at most its passes, requests, money and time, less of one, and mixes as well."""
    advice = advise(*situation)
    best = advice.recommended
    for other in advice.methods:
        if other.way.kind.is_reference or other is best:
            continue
        no_more = all(theirs <= own for theirs, own in zip(_burden(other), _burden(best), strict=True))
        assert not (no_more and _burden(other) != _burden(best) and is_as_good(other, best)), other.name
    assert (
        not best.way.kind.is_reference or len([each for each in advice.methods if not each.way.kind.is_reference]) == 0
    )
    assert all(method.R >= 0 and method.R_full >= 0 for method in advice.methods)


def test_one_pass_with_even_picks_wins_over_two_passes_where_both_do() -> None:
    """However small the data, so that hours tie when they are rounded."""
    shape = Shape(1200, 1_200_000, 24, 24, 1_200_000, 50.0, is_local=True)
    means = Means(300_000, 400_000, 10, 1, NOTHING, 1e9, 1e-4)
    advice = advise(shape, means)
    two = [method for method in advice.methods if method.way.passes == 2]
    assert {tier(method) for method in two} == {0}
    assert (advice.recommended.way.passes, advice.recommended.way.picks) == (1, "even")


def test_ranges_are_chosen_where_one_pass_is_too_little_and_two_move_everything_twice() -> None:
    """1 TB in 64 MB blocks, 8 GB offline and 2 GB online: n_off·k·n_on ≥ N > n_off·n_on."""
    shape = Shape(10**7, 10**12, 16_000, 16_000, 10**12, 600.0)
    advice = advise(shape, Means(8 * 10**9, 2 * 10**9, 10, 1, load_prices("aws"), 5e8, 0.03))
    best, two = (
        advice.recommended,
        next(method for method in advice.methods if method.name == "Corgi², 2 passes, even picks"),
    )
    assert best.name == "Corgi², ranges of 4.0 MB in rounds, even picks"
    assert best.command == "corgi2 shuffle SRC DST --buffer 8GB --range-size 4MB"
    mixed = Rounds(shape.theory, 128, 16)
    assert pytest.approx((mixed.h, mixed.window(best.window))) == (best.h, best.H)
    assert best.felt <= 1.05
    assert best.offline_bytes == 3 * 10**12 < two.offline_bytes, "one reading for the index, one pass"
    assert best.offline_reads == 16_000 + 16 * 16_000
    assert best.offline_writes == 16_000
    many = advise(shape, Means(8 * 10**9, 2 * 10**9, 10, 4, load_prices("aws"), 5e8, 0.03))
    assert all(method.way.range_bytes is None for method in many.methods)
    assert any("ranges in rounds is left out" in note for note in many.notes)


def test_blocks_of_a_finer_index_need_no_pass_where_they_do() -> None:
    """128 blocks of 64 MB, half of them in the window: those of 1 MB are as many classes as there are."""
    shape = Shape(128_000, 128 * 64 * 10**6, 128, 128, 128 * 64 * 10**6, 64.0)
    means = Means(8 * 10**9, 2 * 10**9, 2, 1, load_prices("aws"), 5e8, 0.03)
    advice = advise(shape, means)
    pile, fine = (
        next(each for each in advice.methods if each.name == name)
        for name in ("CorgiPile", "CorgiPile, blocks of 1.0 MB")
    )
    assert advice.recommended == fine
    assert fine.command == "corgi2 index SRC --block-size 1MB"
    assert pytest.approx(theory.window_random(Blocks(128 * 64, 1_000 / 64, fine.h), fine.window)) == fine.H
    assert (fine.offline_reads, fine.online_requests) == (128, 2 * 128 * 64)
    assert fine.felt < 2 < pile.felt
    assert advice.as_text().count("corgi2 index") == 1
    slow = advise(shape, replace(means, latency=0.5))
    assert slow.recommended.way.kind is not Kind.CORGIPILE


def test_ranges_are_no_way_where_blocks_are_small_compressed_or_few() -> None:
    means = Means(8 * 10**9, 2 * 10**9, 10, 1, NOTHING, 5e8, 0.03)
    large = Shape(10**7, 10**12, 16_000, 16_000, 10**12, 600.0)
    for shape in (
        replace(large, bytes=10**10, footprint=10**10),
        replace(large, reads_records=False, has_ranges=False),
        replace(large, records=10**4, bytes=10**9, footprint=10**9, shards=16, blocks=16),
    ):
        assert all(method.way.range_bytes is None for method in advise(shape, means).methods)


def test_what_no_loss_was_seen_at_is_that_of_random_windows() -> None:
    assert long_run(5.0, 1000, 1e9, 1000) == pytest.approx(FELT, abs=0.1)


def test_what_is_felt_over_time_decides() -> None:
    """One pass with even picks has H = 3.9 where R is 2.0: good enough, though twice H would not be."""
    shape = Shape(1024 * 64, 1024 * 64_000, 1024, 1024, 1024 * 64_000, 64.0)
    means = Means(16 * 64_000, 32 * 64_000, 10, 1, load_prices("aws"), 5e8, 0.03)
    even = next(each for each in advise(shape, means).methods if each.name == "Corgi², 1 pass, even picks")
    assert pytest.approx((3.89, 2.04), abs=0.05) == (even.H, even.R)


def _data(folder: Path, kind: str) -> str:
    if kind == "tar":
        write_tars(folder, 24, 20)
    elif kind == "parquet":
        folder.mkdir()
        for shard in range(24):
            table = pa.table({"x": ["y" * 200] * 60, "cls": [shard % 10] * 60})
            (folder / f"part-{shard:02d}.parquet").write_bytes(parquet_of(table, row_group_size=30))
    else:
        folder.mkdir()
        for shard in range(24):
            lines = [json.dumps({"cls": shard % 10, "x": "y" * 900}) for _ in range(60)]
            (folder / f"part-{shard:02d}.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder)


@pytest.mark.parametrize("kind", ["tar", "parquet", "jsonl"])
@pytest.mark.parametrize("nodes", [1, 3])
def test_every_command_of_a_plan_runs_as_it_is(kind: str, nodes: int, tmp_path: Path) -> None:
    source = _data(tmp_path / "in", kind)
    advice = plan(source, label="cls", buffer="2MB", online_buffer="1MB", nodes=nodes, latency=30, bandwidth="1GB")
    commands = [method.command for method in advice.methods if method.command]
    assert len(commands) >= 4
    for command in commands:
        assert ("--engine ray --address auto" in command) == (nodes > 1)
        result = CliRunner().invoke(cli, [*_words(command), "--dry-run", "--json"])
        assert result.exit_code == 0, result.output
        said = json.loads(result.stdout)
        method = next(each for each in advice.methods if each.command == command)
        own = {
            "reads": method.offline_reads,
            "writes": method.offline_writes,
            "groups": method.groups,
            "n": method.n,
            "shards": method.objects,
        }
        assert said.items() >= own.items()


def _words(command: str) -> list[str]:
    """As a shell splits them."""
    script = 'printf "%s\\0" ' + command
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    name, *words = done.stdout.rstrip("\0").split("\0")
    assert name == "corgi2"
    return words


def test_options_are_in_the_command_and_secrets_are_not(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tars(tmp_path / "in", 6, 20)
    store = s3.store()
    for path in sorted((tmp_path / "in").iterdir()):
        store.publish(path.name, [path.read_bytes()])
    advice = plan(s3.url, label="cls", buffer="200KB", online_buffer="150KB", src_options=s3.options, prices="aws")
    command = next(method.command for method in reversed(advice.methods) if method.command)
    assert (
        str(s3.options["secret_access_key"]) not in advice.as_text() + json.dumps(advice.as_json()) + advice.as_page()
    )
    for name in ("access_key_id", "secret_access_key"):
        monkeypatch.setenv(name.upper(), str(s3.options[name]))
    result = CliRunner().invoke(cli, [*_words(command), "--dry-run", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["target"] == f"{s3.url}-mixed"


@pytest.mark.parametrize(
    ("typed", "url", "target"),
    [
        ("data/train", "/w/data/train", "data/train-mixed"),
        ("data/train/", "/w/data/train", "data/train-mixed"),
        (".", "/w/data", "/w/data-mixed"),
        ("data/train-*.tar", "/w/data", "/w/data-train-mixed"),
        ("data/train-{000000..000146}.tar", "/w/data", "/w/data-train-mixed"),
        ("data/*.tar", "/w/data", "/w/data-mixed"),
        ("s3://bucket/a/b", "s3://bucket/a/b", "s3://bucket/a/b-mixed"),
        ("s3://bucket", "s3://bucket", None),
    ],
)
def test_a_target_lies_beside_the_source(typed: str, url: str, target: str | None) -> None:
    assert folder_beside(typed, url) == target


def test_words_are_quoted_for_a_shell() -> None:
    means = Means(
        10**9, 10**9, 1, 1, NOTHING, 1, 0, options=option_words({"endpoint": "http://a b", "anonymous": True})
    )
    command = shuffle_command("it's/*.tar", "a b", means, {"passes": "2"})
    words = _words(command)
    assert words[:3] == ["shuffle", "it's/*.tar", "a b"]
    assert "endpoint=http://a b" in words
    assert "anonymous=true" in words


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_plan_a_dry_run_and_a_shuffle_count_alike_on_a_disk(suffix: str, passes: int, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [200] * 12)  # so large that the padding of a tar counts for little
    corgi2.index(tmp_path / "in")
    buffer = 900_000 if ".tar" in suffix else 150_000
    job = plan_shuffle(tmp_path / "in", tmp_path / "out", Settings(buffer_bytes=buffer, passes=passes))
    assert len(job.first.groups) > 1
    _check_alike(plan(tmp_path / "in", buffer=buffer, prices="aws"), job, passes)


def _check_alike(advice: Advice, job: Any, passes: int) -> None:
    said = job.as_json()
    method = next(
        each for each in advice.methods if each.name == f"Corgi², {'1 pass' if passes == 1 else '2 passes'}, even picks"
    )
    report = run_shuffle(job)
    planned = (method.groups, method.n, method.offline_reads, method.offline_writes, method.objects)
    assert planned == tuple(said[name] for name in ("groups", "n", "reads", "writes", "shards"))
    assert planned == (report.groups, report.n, report.reads, report.writes, report.shards)


PART = 5 * 1024 * 1024


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("suffix", [".tar", ".jsonl", ".parquet"])
def test_a_plan_a_dry_run_and_a_shuffle_count_alike_in_parts(
    suffix: str, passes: int, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of several parts, counted at the store."""
    patch_everywhere(monkeypatch, "corgi2.stores", PART_BYTES=PART, _LEAST_PART_BYTES=PART)
    store, folder = s3.store(), s3.folder
    for shard in range(6):
        store.publish(f"part-{shard}{suffix}", [_large(suffix, shard)])
    options, buffer = s3.options, 40_000_000
    settings = Settings(buffer_bytes=buffer, passes=passes)
    s3.folder = f"{folder}-mixed"
    advice = plan(f"s3://{s3.bucket}/{folder}", buffer=buffer, src_options=options, latency=1, bandwidth="1GB")
    job = plan_shuffle(f"s3://{s3.bucket}/{folder}", s3.url, settings, options, options)
    s3.proxy.seen.clear()
    _check_alike(advice, job, passes)
    moved = [path for method, path in s3.proxy.seen if method in ("PUT", "POST") and suffix in path]
    assert len(moved) == job.as_json()["writes"]


def _large(suffix: str, shard: int) -> bytes:
    """About 12 MB."""
    body = os.urandom(9_000).hex()[:12_000]
    if suffix == ".tar":
        from tests.shards import tar_of

        return tar_of([(f"{shard}-{n:04d}.txt", f"{n} {body}".encode()) for n in range(1_000)])
    if suffix == ".jsonl":
        return "".join(json.dumps({"n": n, "x": body}) + "\n" for n in range(1_000)).encode()
    rows = [os.urandom(6_000).hex() for _ in range(1_000)]
    return parquet_of(pa.table({"x": rows}), row_group_size=250, use_dictionary=False, compression="none")


def test_a_disk_is_read_past_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = find_source(write_tars(tmp_path / "in", 3, 20))
    found = probe.probe(source)
    assert "past the page cache" in found.how or "in memory" in found.how
    monkeypatch.setattr("corgi2.stores.direct._set_direct", lambda *_: False)
    warm = probe.probe(source)  # what was written just now
    assert (warm.bandwidth, warm.latency) == (probe.DISK_BANDWIDTH, probe.DISK_LATENCY)
    assert "in memory" in warm.how
    monkeypatch.setattr("corgi2.stores.direct._is_cached", lambda *_: False)
    assert "measured" in probe.probe(source).how
    advice = plan(tmp_path / "in", buffer="1MB")
    assert advice.means.how in advice.as_text()


@pytest.mark.parametrize("buffer", ["600KB", "150KB"])
def test_data_that_corgi2_has_shuffled_needs_nothing_more(buffer: str, tmp_path: Path) -> None:
    source = write_tars(tmp_path / "in", 40, 25)
    corgi2.shuffle(source, tmp_path / "out", buffer="600KB", passes=2)
    for label in ((), ("cls",)):
        advice = plan(tmp_path / "out", label=label, buffer=buffer, online_buffer=buffer)
        assert "corgi2 has already mixed" in advice.why
        assert advice.recommended.way.kind is Kind.CORGIPILE


def test_shuffled_data_that_is_not_what_it_should_be_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_tars(tmp_path / "in", 40, 25)
    corgi2.shuffle(source, tmp_path / "out", buffer_blocks=20, buffer="1GB")
    assert not plan(tmp_path / "out", label="cls", buffer="1MB").shape.contradiction
    monkeypatch.setattr("corgi2.advice.shape._CLEARLY", 0.1)
    advice = plan(tmp_path / "out", label="cls", buffer="1MB", online_buffer="200KB")
    assert "should have left" in " ".join(advice.notes)


def test_money_is_told_apart_and_adds_up() -> None:
    shape = Shape(1_300_000_000, 27 * 10**12, 27_000, 27_000, 27 * 10**12, 4e4)
    prices = load_prices("aws")
    means = Means(64 * 10**9, 4 * 10**9, 90, 8, prices, 500e6, 0.03, node_price=2.0, traffic_price=0.02)
    for method in advise(shape, means).methods:
        money = method.money
        scan = 27e12 / 500e6 / 3600 if method.way.kind is Kind.CORGIPILE and method.way.cut_bytes else 0.0
        assert money.machines == pytest.approx(2.0 * (8 * (method.offline_hours - scan) + scan)), "one node scans"
        read = method.online_bytes + method.offline_bytes / (2 if method.way.passes else 1)
        if method.way.kind is not Kind.SHUFFLE_ONCE:
            assert money.traffic == pytest.approx(read / 1e9 * 0.02)
        assert money.storage == pytest.approx(method.extra_bytes / 1e9 * 0.023)
        assert money.total == pytest.approx(money.requests + money.storage + money.traffic + (money.machines or 0))
        assert method.usd_per_tb == pytest.approx(money.total / 27)
    text = advise(shape, means).as_text()
    assert all(word in text for word in ("$ requests", "month", "traffic", "machines", "total", "per TB"))
    assert "not counted: the machines that train" in text
    assert "not counted: the machines that shuffle" in advise(shape, replace(means, node_price=None)).as_text()
    assert max(map(len, text.splitlines()[5:32])) <= 170


def test_machines_and_traffic_have_names_and_dates() -> None:
    numbers = {"records": 10**9, "bytes": "27TB", "shards": 27_000, "buffer": "64GB"}
    advice = plan(**numbers, node_price="r7i.4xlarge", traffic_price="internet")  # type: ignore[arg-type]
    assert (advice.means.node_price, advice.means.traffic_price) == (1.0584, 0.09)
    assert "r7i.4xlarge, EC2 on demand, Linux, us-east-1 2025-06-01" in advice.as_text()
    assert plan(**numbers, node_price="E16s_v5").means.node_price == 1.008  # type: ignore[arg-type]
    for argument in ("node_price", "traffic_price"):
        with pytest.raises(ValueError, match=f"{argument}=gold: give a number of dollars"):
            plan(**numbers, **{argument: "gold"})  # type: ignore[arg-type]


def test_the_table_fits_and_tells_the_objects() -> None:
    words = ["plan", "--records", "1.3e9", "--bytes", "27TB", "--shards", "27000", "--h-d", "4e4", "--buffer", "64GB"]
    more = ["--online-buffer", "4GB", "--nodes", "8", "--epochs", "90", "--node-price", "r7i.4xlarge"]
    done = subprocess.run([sys.executable, "-m", "corgi2", *words, *more], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    tables = [line for line in lines if line[:2] in ("> ", "  ") and "corgi2" not in line and "then" not in line]
    assert max(map(len, tables)) <= 160
    assert "27K × 1.0 GB" in next(line for line in lines if line.startswith(">"))
    assert "corgi2 shuffle SRC DST --buffer 64GB --block-size 38MB --engine ray --address auto" in done.stdout
