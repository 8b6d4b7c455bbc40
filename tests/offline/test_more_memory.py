"""A block that turns out larger than its plan's buffer names the buffer that would do, and the same command resumes
with it: to what the plan gives, whoever has made which group with how much memory."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from corgi2 import budget
from corgi2.errors import SourceError, TooLargeError
from corgi2.offline.plan_file import commit_plan
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.run import shuffle
from corgi2.offline.settings import Settings
from corgi2.proof.comparison import verify
from tests.sources import SUFFIXES, content, enough_for, underestimated, write_source, write_uneven

CORGI2 = [sys.executable, "-m", "corgi2"]


def _begun(root: Path, suffix: str, patch: pytest.MonkeyPatch, **choices: Any) -> tuple[tuple[Path, ...], int]:
    """A plan for shards of which one takes four times as much as the others, and three times its buffer, which it has;
    where it goes, and the buffer."""
    write_source(root / "in", suffix, [200] * 5 + [800] + [200] * 3)
    if choices["in_place"]:
        shutil.copytree(root / "in", root / "out")
    footprints = plan_shuffle(root / "in", root / "x", Settings(10**12, skip_bad=True)).index.column("footprint")
    buffer, in_place = int(footprints.max() / 3), choices["in_place"]
    places = (root / "out",) if in_place else (root / "in", root / "out")
    with patch.context() as context:
        underestimated(context)
        commit_plan(plan_shuffle(places[0], None if in_place else places[-1], Settings(buffer, **choices)))
    return places, buffer


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("in_place", [False, True], ids=["copying", "in place"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_block_that_does_not_fit_names_the_buffer_that_does_and_the_plan_goes_on_with_it(
    suffix: str, in_place: bool, passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the same bytes, whether the plan's own buffer or the larger one made the groups that fit both."""
    choices: dict[str, Any] = {
        "in_place": in_place,
        "passes": passes,
        "skip_bad": not in_place,
    }  # both mix whole shards
    places, buffer = _begun(tmp_path / "stopped", suffix, monkeypatch, **choices)
    with pytest.raises(TooLargeError, match="more in memory than the buffer of .* holds") as caught:
        shuffle(*places, **choices, buffer=buffer)
    assert caught.value.shard.endswith(f"data-0005{suffix}")
    enough = enough_for(caught.value)
    with pytest.raises(SourceError, match="holds a shuffle with buffer="):
        shuffle(*places, **choices, buffer=buffer - 1)
    report = shuffle(*places, **choices, buffer=enough)
    assert (report.records, report.skipped, report.buffer_bytes) == (2400, (), enough)
    assert verify(tmp_path / "stopped" / "in", places[-1]).same
    assert verify(places[-1]).same
    others, _ = _begun(tmp_path / "at once", suffix, monkeypatch, **choices)
    shuffle(*others, **choices, buffer=3 * enough)
    assert _shards(others[-1]) == _shards(places[-1])
    if not in_place:
        assert shuffle(*places, **choices, buffer=enough).was_complete
        assert shuffle(*places, **choices, buffer=buffer).was_complete
        with pytest.raises(SourceError, match="it is finished"):
            shuffle(*places, **choices, buffer=2 * enough)


def _shards(folder: Path) -> dict[str, bytes]:
    return {path: data for path, data in content(folder).items() if not path.startswith(".corgi2")}


def _corgi2(*words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*CORGI2, *map(str, words)], capture_output=True, text=True, check=False, timeout=250)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("suffix", [".jsonl.zst", ".parquet"])
def test_the_command_line_says_what_to_give_and_that_ends_well_killed_and_beside_another(
    suffix: str, passes: int, tmp_path: Path
) -> None:
    for name in ("in", "out"):
        write_uneven(tmp_path / name, suffix)
    words = ["shuffle", tmp_path / "out", "--in-place", "--passes", passes, "--json", "--force", "--buffer"]
    failed = _corgi2(*words, "7MB")
    assert failed.returncode == 3, failed.stderr
    problem = json.loads(failed.stderr.splitlines()[-1])
    assert (problem["kind"], problem["shard"]) == ("memory", f"{tmp_path}/out/data-3{suffix}")
    enough = f"{enough_for(problem['hint']) // 1_000_000}MB"
    killed = subprocess.Popen([*CORGI2, *map(str, words), enough], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    time.sleep(1.2)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    both = [subprocess.Popen([*CORGI2, *map(str, words), buffer], stderr=subprocess.PIPE) for buffer in ("7MB", enough)]
    said = [run.communicate(timeout=250)[1].decode() for run in both]
    assert both[1].returncode == 0, said
    assert both[0].returncode in (0, 3), said
    assert verify(tmp_path / "in", tmp_path / "out").same
    assert verify(tmp_path / "out").same


def test_a_row_that_is_too_large_to_be_written_names_the_buffer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_source(tmp_path / "in", ".parquet", [100] * 4)
    monkeypatch.setattr(budget, "_BESIDE_BYTES", 0)
    with pytest.raises(SourceError, match="to be written") as caught:
        shuffle(tmp_path / "in", tmp_path / "out", buffer=40_000)
    monkeypatch.setattr(budget, "_BESIDE_BYTES", 0)
    shuffle(tmp_path / "in", tmp_path / "out", buffer=enough_for(caught.value))
    assert verify(tmp_path / "in", tmp_path / "out").same


@pytest.mark.parametrize("size", [1, 1000, 15_000_000, 15_000_001, 10**9, 10**11 + 7])
def test_the_buffer_that_is_named_is_the_smallest_that_does(size: int) -> None:
    enough = budget.buffer_to_write(size)
    assert budget.written_bytes(max(0, enough)) >= size
    assert budget.arena_bytes(max(0, budget.buffer_to_hold(size))) >= size
    assert enough < 1000 or budget.written_bytes(enough - 1000) < size
