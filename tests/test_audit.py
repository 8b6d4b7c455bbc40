"""verify without the source: it holds after every kind of shuffle, and denies, with the right words, all that is not
what the shuffle wrote."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from corgi2.audit import Audit
from corgi2.errors import SourceError
from corgi2.offline import shuffle
from corgi2.verdict import verify
from tests.test_offline import SUFFIXES, write_source


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
        assert f"extra: {out}/other{suffix} is not in the index" in text
        assert f"altered: {paths[2]} has {paths[2].stat().st_size} bytes, not {paths[2].stat().st_size + 10}" in text


def test_a_shard_swapped_for_one_of_equal_size_is_found_by_its_content_and_quickly_by_its_time(tmp_path: Path) -> None:
    out = _shuffled(tmp_path)
    path = out / "data-000000.jsonl"
    path.write_bytes(path.read_bytes().replace(b"x", b"y"))
    assert "is not what was written" in _problems(out)
    assert f"altered: {path} was written after the shuffle, or copied" in _problems(out, quick=True)


def _change_marker(out: Path, change: Callable[[dict[str, dict[str, int]]], None]) -> None:
    path = out / ".corgi2" / "c0" / "pass-1" / "groups" / "000001"
    marker = json.loads(path.read_text())
    change(marker)
    path.write_text(json.dumps(marker))


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
    assert "the markers of pass 1 do not add up" in _problems(out)


def test_without_an_index_or_a_shuffle_it_says_what_to_do(tmp_path: Path) -> None:
    write_source(tmp_path / "in", ".jsonl", [20] * 3)
    with pytest.raises(SourceError, match="has no index to be compared with; name the source, too"):
        verify(tmp_path / "in")
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
