"""The attack finds what is broken, and finds nothing. ``make chaos`` attacks thirty times as often."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from benchmarks.chaos import __main__ as program
from benchmarks.chaos.census import make_shards, records
from benchmarks.chaos.leash import leashed
from benchmarks.chaos.places import Folder
from benchmarks.chaos.runs import BrokenPromiseError, check_words
from benchmarks.chaos.scene import Scene
from benchmarks.chaos.trial import SUFFIXES, Kind, Result, Trial, chosen

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_attack_finds_nothing() -> None:
    """As much as two minutes allow. Ray's share is in offline/test_ray.py. CI attacks with the same seed every time."""
    words = ["--trials", "40", "--s3", "2", "--ray", "0", "--seconds", "100"]
    seed = ["--seed", "0"] if os.environ.get("CI") else []
    command = [sys.executable, "-m", "benchmarks.chaos", *words, *seed]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=290)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all | 0 |" not in done.stdout


def test_every_kind_of_attack_meets_every_format_and_way() -> None:
    met = {(trial.kind, trial.suffix, trial.in_place, trial.passes) for trial in (Trial(5, n) for n in range(1000))}
    assert met == set(product(Kind, SUFFIXES, (False, True), (1, 2)))


def test_a_number_is_the_same_trial_whatever_else_is_tried() -> None:
    everything, some = chosen(3, 100, None, None), chosen(3, 60, 2, 0)
    assert {trial.number for trial in some} < {trial.number for trial in everything}
    assert sum(trial.kind is Kind.SERVER for trial in some) == 2
    assert not any(trial.kind.is_ray for trial in some)
    assert make_shards(".tar", some[7].chances("data")) == make_shards(".tar", Trial(3, some[7].number).chances("data"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_all_records_differ_and_are_the_same_in_every_format(suffix: str) -> None:
    found = records(make_shards(suffix, Trial(0, 0).chances()))
    assert set(found.values()) == {1}
    assert found.total() > 100


def _finished(root: Path, in_place: bool) -> Scene:
    """A trial that was not disturbed."""
    trial = next(trial for trial in chosen(0, 100, 0, 0) if trial.in_place == in_place and trial.passes == 1)
    scene = Scene(trial, root, Folder(root), trial.chances())
    scene.prepare()
    scene.launch().end([0])
    return scene


@pytest.mark.parametrize("in_place", [False, True], ids=["copying", "in place"])
def test_a_shard_that_is_lost_left_over_or_altered_is_found(in_place: bool, tmp_path: Path) -> None:
    scene = _finished(tmp_path, in_place)
    scene.conclude()
    shard = next((tmp_path / "out").glob("data-*"))
    data = shard.read_bytes()
    altered = bytes([data[0] ^ 1, *data[1:]])
    for path, body in ((shard, None), (shard, altered), (shard.with_name(f"more{shard.name}"), data)):
        if body is None:
            path.unlink()
        else:
            path.write_bytes(body)
        with pytest.raises(BrokenPromiseError, match="shards|exit code 3"):
            scene.conclude()
        shard.write_bytes(data)


def test_temporary_files_that_stay_are_found(tmp_path: Path) -> None:
    scene = _finished(tmp_path, in_place=False)
    (tmp_path / "out" / ".corgi2" / ".00-elsewhere-1.corgi2-tmp").touch()
    with pytest.raises(BrokenPromiseError, match="temporary files are left"):
        scene.conclude()


def test_records_that_are_lost_or_repeated_are_found_when_all_is_quiet(tmp_path: Path) -> None:
    scene = _finished(tmp_path, in_place=True)
    scene.check_quiet()
    old = next(iter(scene.source))
    (tmp_path / "out" / old).write_bytes(scene.source[old])
    scene.check_quiet()  # it waits to be deleted
    shard = next((tmp_path / "out").glob("data-c1-*"))
    shard.unlink()
    with pytest.raises(BrokenPromiseError, match="records were lost"):
        scene.check_quiet()


def test_a_failure_is_named_with_its_folder_and_the_command_that_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [Result(11, 3, 2, 1.0), Result(12, 3, 2, 1.0, "shards differ")]
    monkeypatch.setattr(program, "carry_out", lambda *_: iter(results))
    monkeypatch.setattr(sys, "argv", ["chaos", "--seed", "7", "--folder", str(tmp_path)])
    assert program.main() == 1
    words = capsys.readouterr().out
    assert f"shards differ\n    kept in {tmp_path}/seed-7/trial-12\n" in words
    assert "    again: python -m benchmarks.chaos --seed 7 --only 12\n" in words
    assert "| all | 2 | 6 | 4 | 1 | 2 |" in words
    results.pop()
    assert program.main() == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Traceback (most recent call last):\n", 1),
        ("corgi2: [Errno 28] No space left on device: '/x'\n", 1),
        (f"corgi2: {os.strerror(errno.ENOSPC)}\n", 1),
        ("warning: something\n", 0),
        ("", 3),
    ],
)
def test_words_that_help_nobody_are_found(text: str, code: int) -> None:
    with pytest.raises(BrokenPromiseError):
        check_words("run", text, code)
    check_words("run", f"corgi2: /x/y: {os.strerror(errno.ENOSPC)}\n", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no such thing elsewhere")
def test_what_is_on_the_leash_ends_with_whoever_began_it(tmp_path: Path) -> None:
    sleeper = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    words = leashed([sys.executable, "-c", sleeper])
    parent = subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.run({words!r})"])
    _until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    parent.kill()
    parent.wait()
    _until(lambda: not _is_running(pid))


def test_a_group_ends_with_whoever_guards_it(tmp_path: Path) -> None:
    """Also what was begun by processes that have ended."""
    inner = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    outer = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {inner!r}])"
    first = subprocess.Popen([sys.executable, "-c", outer], process_group=0)
    _until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
    first.wait()
    pid = int((tmp_path / "pid").read_text())
    watching = f"from benchmarks.chaos.leash import guard; import time; guard({first.pid}); print(1, flush=True)"
    parent = subprocess.Popen([sys.executable, "-c", f"{watching}; time.sleep(600)"], cwd=ROOT, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout
        parent.stdout.readline()
        assert _is_running(pid)
        parent.kill()
    _until(lambda: not _is_running(pid))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)
