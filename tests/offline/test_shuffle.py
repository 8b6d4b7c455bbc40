"""The offline shuffle: the same records, mixed, in the same format, the same bytes wherever it was stopped."""

import io
import itertools
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corgi2.dataset.estimate import forecast
from corgi2.dataset.index_file import open_index
from corgi2.dataset.source import find_source
from corgi2.errors import SourceError, StoreError
from corgi2.offline import outline
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.run import shuffle
from corgi2.offline.settings import Settings
from corgi2.order.groups import cut_groups
from corgi2.proof.comparison import verify
from corgi2.quality import inspect
from corgi2.records.arena import Arena
from corgi2.records.shard import Piece
from corgi2.stores.local import LocalStore
from tests.conftest import S3
from tests.shards import records_of
from tests.sources import SUFFIXES, DyingError, content, write_source


def footprint(folder: Path) -> int:
    planned = plan_shuffle(folder, folder.parent / "nowhere", Settings(10**12))
    return int(planned.index.column("footprint").sum())


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.floats(0.01, 1.5), st.integers(0, 99))
def test_groups_hold_every_block_once_and_fit_the_buffer(sizes: list[int], share: float, seed: int) -> None:
    capacity = max(max(sizes), int(sum(sizes) * share))
    groups = cut_groups(np.array(sizes), capacity, (seed,))
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(sizes)))
    assert all(sum(sizes[block] for block in group) <= capacity for group in groups)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


def test_a_block_that_does_not_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="takes 30 B in memory, more than the buffer of 20 B"):
        cut_groups(np.array([10, 30]), 20, (0,))


@settings(max_examples=40)
@given(
    suffix=st.sampled_from(SUFFIXES),
    counts=st.lists(st.integers(1, 30), min_size=2, max_size=9),
    share=st.floats(0.2, 1.2),
    seed=st.integers(0, 5),
)
def test_the_output_holds_exactly_the_input(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, counts: list[int], share: float, seed: int
) -> None:
    root = tmp_path_factory.mktemp("run")
    write_source(root / "in", suffix, counts)
    largest = int(plan_shuffle(root / "in", root / "x", Settings(10**12)).index.column("footprint").max())
    buffer = max(largest, int(footprint(root / "in") * share)) * 2
    report = shuffle(root / "in", root / "out", buffer=buffer, seed=seed, force=True)
    assert report.records == sum(counts)
    assert verify(root / "in", root / "out").same
    assert inspect(root / "out").damage == ()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_command_gives_the_same_bytes_whatever_the_workers(suffix: str, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [20, 31, 7, 20, 20, 20])
    for name, workers in (("a", 1), ("b", 7)):
        shuffle(tmp_path / "in", tmp_path / name, buffer=footprint(tmp_path / "in") // 2, workers=workers)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    shuffle(tmp_path / "in", tmp_path / "c", buffer=footprint(tmp_path / "in") // 2, seed=1)
    assert content(tmp_path / "a") != content(tmp_path / "c")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_new_shard_is_mixed_from_all_blocks_of_its_group(suffix: str, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [100] * 8)
    report = shuffle(tmp_path / "in", tmp_path / "out", buffer=footprint(tmp_path / "in") // 2)
    source = find_source(tmp_path / "out")
    assert suffix == ".parquet" or (report.groups, report.n) == (2, 4)
    for number in range(len(source.entries)):
        shard = source.shard(number)
        group = source.format.read([Piece(shard, 0, shard.size)], Arena(1 << 22), decoding=True)
        texts = list(map(str, source.format.decoder(group, "").samples(np.arange(group.records))))
        origins = Counter(re.search(r"(\d) \d+ x*['\"]", text)[1] for text in texts)  # type: ignore[index]
        assert len(origins) == (4 if suffix != ".parquet" else 8)
        assert max(origins.values()) < 60  # of 100, at least 12 and at most 25 are expected of each


def test_groups_write_equally_many_shards_and_the_index_knows_their_group(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [30] * 10)
    report = shuffle(tmp_path / "in", tmp_path / "out", buffer=footprint(tmp_path / "in") // 3)
    source = find_source(tmp_path / "out")
    index = open_index(source)
    assert index is not None
    lineage = [group for (group,) in index.blocks.column("lineage").to_pylist()]
    assert len(set(Counter(lineage).values())) == 1
    assert set(lineage) == set(range(report.groups))
    pieces = index.pieces(source, range(len(lineage)))
    origins: dict[int, set[str]] = {}
    for group, piece in zip(lineage, pieces, strict=True):
        for record in records_of(source.format.read([piece], Arena(1 << 20))):
            with tarfile.open(fileobj=io.BytesIO(record)) as archive:
                (member,) = archive
                text = archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            origins.setdefault(group, set()).add(text.split()[0])
    assert sum(map(len, origins.values())) == 10  # each source shard went into one group


def test_equal_keys_are_never_neighbours(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [12] * 12)
    shuffle(tmp_path / "in", tmp_path / "out", buffer="1GB")
    for path in (tmp_path / "out").glob("*.tar"):
        with tarfile.open(path) as archive:
            names = archive.getnames()
        assert all(one != other for one, other in itertools.pairwise(names))


def test_a_group_that_turns_out_too_large_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_source(tmp_path / "in", ".jsonl.zst", [30] * 8)
    real = forecast

    def too_small(*arguments: Any) -> Any:
        guess = real(*arguments)
        index = guess.index
        place = index.blocks.schema.get_field_index("footprint")
        field = index.blocks.schema.field(place)
        quarter = index.blocks.set_column(place, field, pa.array(index.column("footprint") // 4))
        return replace(guess, index=replace(index, blocks=quarter))

    buffer = footprint(tmp_path / "in") // 3
    monkeypatch.setattr(outline, "forecast", too_small)
    for name in ("a", "b"):
        report = shuffle(tmp_path / "in", tmp_path / name, buffer=buffer)
    assert report.groups == 1
    assert verify(tmp_path / "in", tmp_path / "a").same
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_started_again_when_complete_it_writes_nothing_new(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 4)
    shuffle(tmp_path / "in", tmp_path / "out", buffer="1GB")
    before = content(tmp_path / "out")
    report = shuffle(tmp_path / "in", tmp_path / "out", buffer="1GB")
    assert report.resumed_groups == report.groups
    assert content(tmp_path / "out") == before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_shards_published_again_with_the_same_bytes_are_complete_and_others_are_not(
    suffix: str, tmp_path: Path
) -> None:
    """As a second run leaves them that was killed after the first had finished."""
    write_source(tmp_path / "in", suffix, [20] * 4)
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2)
    before = content(tmp_path / "out")
    late, *_ = sorted((tmp_path / "out").glob(f"*{suffix}"))
    os.utime(late, ns=(5, 5))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = LocalStore(str(tmp_path / "out"))._written("x", [])
    with left as (temporary, _):
        name = temporary.name.replace(f"-{os.getpid()}-", f"-{dead.pid}-")
    (tmp_path / "out" / name).write_text("half")
    for _ in range(2):
        assert shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2).was_complete
    assert verify(tmp_path / "out", quick=True).same
    assert not list((tmp_path / "out").glob(".*-tmp"))
    assert content(tmp_path / "out") == before
    data = bytearray(late.read_bytes())
    data[len(data) // 2] ^= 1
    late.write_bytes(data)
    assert f"{late.name}: has changed since the shuffle was finished" in _refusal(
        tmp_path / "in", tmp_path / "out", buffer_blocks=2
    )


STEPS = ("publish", "create", "readinto", "list", "head")


@pytest.mark.parametrize("error", [DyingError, StoreError])
def test_stopped_at_any_call_of_a_store_it_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 6)
    buffer = footprint(tmp_path / "in") // 3
    shuffle(tmp_path / "in", tmp_path / "whole", buffer=buffer)
    calls = itertools.count()
    limit = 0

    def dying(name: str) -> Any:
        real = getattr(LocalStore, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) == limit:
                raise error("stopped")
            return real(*arguments, **options)

        return call

    for name in STEPS:
        monkeypatch.setattr(LocalStore, name, dying(name))
    for limit in itertools.count():
        calls = itertools.count()
        target = tmp_path / f"out-{limit}"
        try:
            shuffle(tmp_path / "in", target, buffer=buffer, workers=1)
        except error:
            pass
        else:
            break
        calls = itertools.count(1_000_000)
        shuffle(tmp_path / "in", target, buffer=buffer)
        assert content(target) == content(tmp_path / "whole")
    assert limit > 20


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [300] * 12)
    buffer = footprint(tmp_path / "in") // 4
    shuffle(tmp_path / "in", tmp_path / "whole", buffer=buffer)
    expected = content(tmp_path / "whole")
    command = [sys.executable, "-m", "corgi2", "shuffle", str(tmp_path / "in"), "TARGET", "--buffer", str(buffer)]
    for moment in range(12):
        command[5] = str(tmp_path / f"out-{moment}")
        kills = 0
        while True:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            time.sleep(0.35 + 0.05 * ((moment * 7 + kills * 3) % 12))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            if process.returncode == 0 or kills == 3:
                break
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        assert content(Path(command[5])) == expected


def test_two_runs_of_one_plan_may_interleave(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [200] * 12)
    buffer = footprint(tmp_path / "in") // 5
    shuffle(tmp_path / "in", tmp_path / "whole", buffer=buffer)
    command = [
        sys.executable,
        "-m",
        "corgi2",
        "shuffle",
        str(tmp_path / "in"),
        str(tmp_path / "out"),
        "--buffer",
        str(buffer),
    ]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    for run in runs:
        _, problem = run.communicate()
        assert run.returncode == 0, problem
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert verify(tmp_path / "in", tmp_path / "out").same


def _refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(SourceError) as caught:
        shuffle(*arguments, **options)
    return str(caught.value)


def test_other_parameters_a_changed_source_and_foreign_files_are_refused(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 4)
    shuffle(tmp_path / "in", tmp_path / "out", buffer="1GB")
    before = content(tmp_path / "out")
    assert "with seed=0, not seed=1" in _refusal(tmp_path / "in", tmp_path / "out", buffer="1GB", seed=1)
    assert "with buffer='1000MB', not buffer=2000" in _refusal(tmp_path / "in", tmp_path / "out", buffer=2000)
    (tmp_path / "in" / "data-9999.jsonl").write_text('{"new": 1}\n')
    assert "data-9999.jsonl: is new since" in _refusal(tmp_path / "in", tmp_path / "out", buffer="1GB")
    (tmp_path / "in" / "data-9999.jsonl").unlink()
    os.utime(tmp_path / "in" / "data-0001.jsonl", ns=(5, 5))
    assert "data-0001.jsonl: has changed since" in _refusal(tmp_path / "in", tmp_path / "out", buffer="1GB")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    assert "is not empty (1 file, such as thesis.txt)" in _refusal(tmp_path / "in", tmp_path / "other")
    assert "lies in the source" in _refusal(tmp_path / "in", tmp_path / "in" / "out")
    assert content(tmp_path / "out") == before


def test_a_buffer_that_is_too_small_names_one_that_would_do(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl.zst", [2000] * 2)
    problem = _refusal(tmp_path / "in", tmp_path / "out", buffer="10KB")
    assert "more than the buffer of 10.0 KB; buffer='1MB' would do" in problem
    assert not (tmp_path / "out").exists()


def test_a_damaged_shard_stops_the_run_with_its_name_and_offset(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 4)
    (tmp_path / "in" / "data-0002.tar").write_bytes(b"junk" * 300)
    with pytest.raises(Exception, match=r"data-0002\.tar: at byte 0: not a tar archive"):
        shuffle(tmp_path / "in", tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.tar"))


def test_an_unfinished_shuffle_is_no_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 4)
    monkeypatch.setattr("corgi2.offline.shuffle_run.finish", lambda *_: (_ for _ in ()).throw(DyingError()))
    with pytest.raises(DyingError):
        shuffle(tmp_path / "in", tmp_path / "out", buffer="1GB")
    for typed in (tmp_path / "out", tmp_path / "out" / "*.jsonl", next((tmp_path / "out").glob("*.jsonl"))):
        with pytest.raises(SourceError, match="is not finished; run its command again"):
            find_source(typed)


def test_from_disk_to_s3_and_back_gives_the_same_bytes_with_one_read_and_one_write_a_block(
    s3: S3, tmp_path: Path
) -> None:
    write_source(tmp_path / "in", ".tar", [20] * 6)
    buffer = footprint(tmp_path / "in") // 2
    shuffle(tmp_path / "in", tmp_path / "local", buffer=buffer)
    report = shuffle(tmp_path / "in", s3.url, buffer=buffer, dst_options=s3.options)
    store = s3.store()
    for entry in store.list():
        if not entry.path.startswith(".corgi2/"):
            data = bytearray(entry.size)
            store.readinto(entry, 0, memoryview(data))
            assert bytes(data) == (tmp_path / "local" / entry.path).read_bytes()
    beside = 6 + report.groups  # the source's blocks, plan, the plan once more, lock, index, sums, and a marker a group
    assert s3.proxy.requests().writes == report.shards + beside
    assert (report.reads, report.writes) == (report.blocks, report.shards)
    assert verify(tmp_path / "in", s3.url, dst_options=s3.options).same
