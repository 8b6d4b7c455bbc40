"""verify without the source: it holds after every kind of shuffle, and denies, with the right words, all that is not
what the shuffle wrote."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import corgi2
from corgi2.cli.root import cli
from corgi2.dataset.index_file import load_index, save_index
from corgi2.dataset.index_tables import with_column
from corgi2.dataset.scan import index_source
from corgi2.dataset.sealing import VERSION, seal
from corgi2.dataset.source import find_source
from corgi2.errors import Corgi2Error, ShardError, SourceError
from corgi2.offline.plan_file import commit_plan
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.run import run_shuffle, shuffle
from corgi2.offline.settings import Settings
from corgi2.proof.audit import Audit
from corgi2.proof.comparison import verify
from corgi2.records.arrays import number_array
from corgi2.stores.opening import open_store
from tests.shards import opened
from tests.sources import SUFFIXES, write_source


def _shuffled(root: Path, suffix: str = ".jsonl") -> Path:
    write_source(root / "in", suffix, [20] * 6)
    shuffle(root / "in", root / "out", buffer_blocks=3)
    return root / "out"


def _problems(folder: Path, quick: bool = False) -> str:
    found = verify(folder, quick=quick)
    assert isinstance(found, Audit)
    assert not found.same
    return found.as_text()


def _flip(path: Path, at: int) -> None:
    """One bit, with the file's time as before: what a failing disk does."""
    data, status = bytearray(path.read_bytes()), path.stat()
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("place", [0, 0.3, 0.6, 1])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_flipped_bit_is_found_wherever_it_is(suffix: str, place: float, tmp_path: Path) -> None:
    out = _shuffled(tmp_path, suffix)
    assert verify(out).same
    path = out / f"data-000002{suffix}"
    _flip(path, int(place * (path.stat().st_size - 1)))
    text = _problems(out)
    assert text.startswith("NOT what the shuffle wrote: 1 problem\naltered: ")
    assert str(path) in text
    assert "is not what was written" in text


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_extra_and_cut_shards_are_named(suffix: str, tmp_path: Path) -> None:
    out = _shuffled(tmp_path, suffix)
    paths = sorted(out.glob(f"*{suffix}"))
    paths[1].rename(out / f"other{suffix}")
    paths[2].write_bytes(paths[2].read_bytes()[:-10])
    for quick in (False, True):
        text = _problems(out, quick)
        assert f"missing: {paths[1]}" in text
        assert f"extra: {out}/other{suffix} was not written by the shuffle" in text
        assert f"altered: {paths[2]} has {paths[2].stat().st_size} bytes, not {paths[2].stat().st_size + 10}" in text


def test_a_shard_swapped_for_one_of_equal_size_is_found_by_its_content_and_quickly_by_its_time(tmp_path: Path) -> None:
    out = _shuffled(tmp_path)
    path = out / "data-000000.jsonl"
    path.write_bytes(path.read_bytes().replace(b"x", b"y"))
    assert "is not what was written" in _problems(out)
    assert f"altered: {path} was written after the shuffle, or copied" in _problems(out, quick=True)


def _change_marker(out: Path, change: Callable[[dict[str, dict[str, int]]], None]) -> None:
    path = out / ".corgi2" / "c0" / "pass-1" / "groups" / "000001"
    marker = opened(path)
    change(marker)
    path.write_bytes(seal(json.dumps(marker).encode()))


def test_sums_that_do_not_add_up_are_denied(tmp_path: Path) -> None:
    out = _shuffled(tmp_path)
    _change_marker(out, lambda marker: marker["input"].update(low=marker["input"]["low"] + 1))
    for quick in (False, True):
        text = _problems(out, quick)
        assert "group 1 of pass 1 wrote other records than it read" in text
        assert "the markers of pass 1 do not add up to what was noted at the end" in text


def test_a_missing_marker_is_denied(tmp_path: Path) -> None:
    out = _shuffled(tmp_path)
    (out / ".corgi2" / "c0" / "pass-1" / "groups" / "000001").unlink()
    text = _problems(out)
    assert "groups/000001: is missing" in text
    assert "the markers of pass 1 do not add up" in text


WAYS: dict[str, dict[str, Any]] = {
    "copying": {"passes": 2},
    "in place": {"in_place": True},
    "in place, restored": {"in_place": True},
    "two generations": {},
    "three generations": {},
    "one that was discarded": {},
}


def _kept(root: Path, way: str) -> Path:
    """A finished shuffle that has kept all kinds of files."""
    write_source(root / "in", ".jsonl", [20] * 6)
    if way in ("copying", "two generations", "three generations"):
        shuffle(root / "in", root / "out", buffer_blocks=3, passes=2)
        for _ in range({"two generations": 1, "three generations": 2}.get(way, 0)):
            shuffle(root / "out", in_place=True, buffer_blocks=3)
        return root / "out"
    if way == "one that was discarded":
        commit_plan(plan_shuffle(root / "in", None, Settings(buffer_blocks=2, in_place=True)))
        shuffle(root / "in", in_place=True, buffer_blocks=3, restart=True)
        return root / "in"
    if way == "in place, restored":
        bad = root / "in" / "data-0003.jsonl"
        sound = bad.read_bytes()
        bad.write_bytes(sound[:-10])
        with pytest.raises(ShardError):
            shuffle(root / "in", in_place=True, buffer_blocks=3)
        bad.write_bytes(sound)
    shuffle(root / "in", in_place=True, buffer_blocks=3)
    return root / "in"


def _files(out: Path) -> list[Path]:
    return sorted(path for path in (out / ".corgi2").rglob("*") if path.is_file())


@pytest.mark.parametrize("way", WAYS)
def test_damage_to_any_file_of_ours_is_found_and_named(way: str, tmp_path: Path) -> None:
    out = _kept(tmp_path, way)
    kinds = {path.name.split("-")[0] for path in _files(out)}
    assert kinds >= {"index", "plan", "source", "done", "000000"} | ({"fate"} if way != "copying" else set())
    assert ("replaced" in kinds) == (way == "in place, restored")
    assert verify(out).notes == ()
    for path in _files(out):
        sound = path.read_bytes()
        damages = [
            sound[:-1],
            sound[: len(sound) // 2],
            b"",
            b"corgi2 1 0\n{}",
            sound.replace(b"corgi2 %d " % VERSION, b"corgi2 %d " % (VERSION + 1)),
        ]
        places = {0, 7, 9, 30, len(sound) // 2, len(sound) - 1}
        damages += [_bit_flipped(sound, at) for at in sorted(places)]
        for data in damages:
            path.write_bytes(data)
            for quick in (False, True):
                assert str(path) in _problems(out, quick), (path, data[:80])
        path.unlink()
        for quick in (False, True):
            if not _is_last_of_a_discarded_one(path):  # which is as if it had never been
                assert str(path.relative_to(out)) in _denial(out, quick)
        path.write_bytes(sound)
    assert verify(out).same


def _is_last_of_a_discarded_one(path: Path) -> bool:
    return path.name == "fate" and not any(path.parent.iterdir())


def _denial(out: Path, quick: bool) -> str:
    """What verify says instead of yes; without the sums at the end, a shuffle is not finished, and no data set."""
    try:
        return _problems(out, quick)
    except SourceError as error:
        return str(error)


def _bit_flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_what_a_killed_run_leaves_before_its_plan_is_named_and_no_problem(tmp_path: Path) -> None:
    out = _kept(tmp_path, "in place")
    (out / ".corgi2" / "c2").mkdir()
    for name in ("source-0123456789abcdef", "lock"):
        (out / ".corgi2" / "c2" / name).write_bytes(b"anything")
    assert verify(out).same
    assert "not covered: 2 files in .corgi2/, such as .corgi2/c2/lock" in verify(out).as_text()


@pytest.mark.parametrize("way", WAYS)
def test_damage_to_any_file_of_ours_is_one_line_to_every_command(way: str, tmp_path: Path) -> None:
    out = _kept(tmp_path, way)
    again = [str(out), "--in-place"] if way != "copying" else [str(tmp_path / "in"), str(out), "--passes", "2"]
    commands = [["inspect", str(out)], ["shuffle", *again, "--buffer-blocks", "3", "--dry-run"]]
    for path in _files(out):
        sound = path.read_bytes()
        path.write_bytes(_bit_flipped(sound, len(sound) // 2))
        for command in commands:
            ran = CliRunner().invoke(cli, command)
            assert ran.exception is None or isinstance(ran.exception, SystemExit | Corgi2Error), (path, ran.exception)
            assert "\n" not in str(ran.exception)
        path.write_bytes(sound)


@pytest.mark.parametrize("way", ["copying", "in place"])
def test_an_added_shard_is_denied_indexed_or_not(way: str, tmp_path: Path) -> None:
    out = _kept(tmp_path, way)
    (out / "data-extra.jsonl").write_text('{"t": "added"}\n')
    for quick in (False, True):
        assert f"extra: {out}/data-extra.jsonl was not written by the shuffle" in _problems(out, quick)
    subprocess.run([sys.executable, "-m", "corgi2", "index", str(out)], check=True, capture_output=True)
    for quick in (False, True):
        assert f"extra: {out}/data-extra.jsonl was not written by the shuffle" in _problems(out, quick)
    glob = "data-0*.jsonl" if way == "copying" else "data-c1-*.jsonl"
    assert verify(out / glob).same


def test_an_index_that_tells_otherwise_than_the_shards_is_denied(tmp_path: Path) -> None:
    out = _shuffled(tmp_path)
    store = open_store(str(out))
    index = load_index(store)
    assert index is not None
    for name, change in (("records", 1), ("start", 1), ("length", -1)):
        values = index.column(name).copy()
        values[2] += change
        save_index(store, replace(index, blocks=with_column(index.blocks, name, number_array(values))))
        assert f"altered: {out}/data-000002.jsonl: " in _problems(out)
    save_index(store, index)
    assert verify(out).same


def test_a_data_set_that_was_indexed_in_other_blocks_still_holds(tmp_path: Path) -> None:
    out = _shuffled(tmp_path, ".tar")
    (out / ".corgi2" / "index").unlink()
    source = find_source(out)
    save_index(source.store, index_source(source, block_bytes=5_000))
    assert verify(out).same


def test_shuffles_in_place_of_parts_of_a_folder_are_all_proven(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 8)
    for number in range(4):
        (tmp_path / "in" / f"data-000{number}.jsonl").rename(tmp_path / "in" / f"other-000{number}.jsonl")
    for glob in ("data-*.jsonl", "other-*.jsonl", "data-*.jsonl"):
        shuffle(str(tmp_path / "in" / glob), in_place=True, buffer_blocks=2)
    assert verify(tmp_path / "in").same
    shard = next((tmp_path / "in").glob("other-c2-*.jsonl"))
    shard.write_bytes(shard.read_bytes().replace(b"x", b"y"))
    assert str(shard) in _problems(tmp_path / "in")


def test_what_the_proof_does_not_cover_is_named(tmp_path: Path) -> None:
    out = _shuffled(tmp_path)
    assert verify(out).as_text() == "120 records in 6 shards: each is there exactly once, and unaltered"
    (out / ".corgi2" / "c0" / "notes").write_text("mine")
    assert verify(out).same
    assert "not covered: 1 file in .corgi2/, such as .corgi2/c0/notes" in verify(out).as_text()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_shard_depends_on_the_key_and_whoever_comes_second_takes_the_firsts(suffix: str, tmp_path: Path) -> None:
    write_source(tmp_path / "in", suffix, [20] * 6)
    late = plan_shuffle(tmp_path / "in", tmp_path / "b", Settings(buffer_blocks=3))
    early = commit_plan(plan_shuffle(tmp_path / "in", tmp_path / "b", Settings(buffer_blocks=3)))
    assert late.plan.key != early.plan.key
    assert commit_plan(late).plan == early.plan
    run_shuffle(late)
    shuffle(tmp_path / "in", tmp_path / "a", buffer_blocks=3)
    for path in (tmp_path / "a").glob(f"*{suffix}"):
        assert (tmp_path / "b" / path.name).read_bytes() == path.read_bytes()
    keys = {opened(tmp_path / name / ".corgi2" / "c0" / "plan")["key"] for name in ("a", "b")}
    assert len(keys) == 2
    assert early.plan.key in keys
    assert verify(tmp_path / "b").same


def test_what_was_never_shuffled_is_not_compared_indexed_or_not_and_the_way_out_names_it_as_it_was_named(
    tmp_path: Path,
) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 3)
    for named in (tmp_path / "in", tmp_path / "in" / "data-*.jsonl") * 2:
        with pytest.raises(SourceError, match="nothing was shuffled here") as caught:
            verify(named)
        assert str(caught.value).endswith(f"corgi2 verify SRC {shlex.quote(str(named))}")
        corgi2.index(tmp_path / "in")


def test_quick_goes_without_the_source(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 3)
    out = tmp_path / "out"
    shuffle(tmp_path / "in", out)
    with pytest.raises(ValueError, match="leave out the source"):
        verify(tmp_path / "in", out, quick=True)


def test_a_copy_of_shuffled_data_holds_but_not_quickly(tmp_path: Path) -> None:
    out = _shuffled(tmp_path)
    shutil.copytree(out, tmp_path / "copy", copy_function=shutil.copy)
    assert verify(tmp_path / "copy").same
    assert "was written after the shuffle, or copied" in _problems(tmp_path / "copy", quick=True)


def test_neither_another_run_nor_another_index_hides_what_was_altered(tmp_path: Path) -> None:
    out = _shuffled(tmp_path, ".tar")
    path = out / "data-000001.tar"
    _flip(path, path.read_bytes().index(b"x" * 9))
    os.utime(path, ns=(1, 1))
    with pytest.raises(SourceError, match=r"data-000001\.tar: has changed since the shuffle was finished"):
        shuffle(tmp_path / "in", out, buffer_blocks=3)
    assert "altered" in verify(out, quick=True).as_text()
    subprocess.run([sys.executable, "-m", "corgi2", "index", str(out)], check=True, capture_output=True)
    assert "indexed since the shuffle" in verify(out, quick=True).as_text()
    assert "data-000001.tar" in _problems(out)
