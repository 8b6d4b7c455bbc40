"""A shuffle that is killed, fails, is interrupted or meets another one ends with the bytes of an undisturbed one."""

import errno
import itertools
import json
import logging
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from benchmarks.chaos.strikes import Failing, striking

from corgi2.dataset.sealing import seal
from corgi2.errors import Corgi2Error, SourceError, StoreError
from corgi2.host import HOST
from corgi2.offline.journal import Journal
from corgi2.offline.plan_file import commit_plan
from corgi2.offline.planning import plan_shuffle
from corgi2.offline.run import shuffle
from corgi2.offline.settings import Settings
from corgi2.proof.comparison import verify
from corgi2.stores.local import LocalStore
from corgi2.stores.store import Entry
from tests.faults import Case, Meeting, records, surviving
from tests.sources import DyingError, content, write_source

CORGI2 = [sys.executable, "-m", "corgi2"]
WAYS = [
    pytest.param(
        {"in_place": in_place, "passes": passes}, id=f"{'in place' if in_place else 'copying'}, {passes} passes"
    )
    for in_place, passes in itertools.product((False, True), (1, 2))
]


def _kill_everywhere(case: Case, stride: int = 1, deaths: int = 1) -> list[int]:
    """In a process of its own, which may fork; how often each run was killed."""
    case.prepare()
    command = [sys.executable, "-m", "tests.faults", case.as_argument(stride=stride, deaths=deaths)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    kills: list[int] = json.loads(done.stdout)
    return kills


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True], ids=["copying", "in place"])
def test_killed_before_and_after_every_call_it_goes_on_to_the_same_bytes(in_place: bool, tmp_path: Path) -> None:
    assert len(_kill_everywhere(Case(tmp_path, in_place=in_place, shards=4))) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True], ids=["copying", "in place"])
@pytest.mark.parametrize(("suffix", "passes", "workers"), [(".jsonl", 2, 4), (".tar", 1, 1)])
def test_killed_at_some_calls_it_goes_on_whatever_the_format_and_the_passes(
    suffix: str, passes: int, workers: int, in_place: bool, tmp_path: Path
) -> None:
    case = Case(tmp_path, suffix, in_place, passes, workers)
    assert len(_kill_everywhere(case, stride=19)) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("holdout", ["record", "shard"])
@pytest.mark.parametrize("way", WAYS)
def test_killed_at_some_calls_both_targets_go_on(way: dict[str, Any], holdout: str, tmp_path: Path) -> None:
    assert len(_kill_everywhere(Case(tmp_path, **way, shards=5, holdout=holdout), stride=23)) >= 8


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "holdout"), [(".tar", ""), (".jsonl", "record"), (".parquet", "")])
def test_killed_at_some_calls_ranges_in_rounds_go_on(suffix: str, holdout: str, tmp_path: Path) -> None:
    case = Case(tmp_path, suffix, shards=5, holdout=holdout, range_size=500 if suffix != ".tar" else 6_000)
    assert len(_kill_everywhere(case, stride=23)) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_killed_again_and_again_it_goes_on_to_the_same_bytes(way: dict[str, Any], tmp_path: Path) -> None:
    kills = _kill_everywhere(Case(tmp_path, **way), stride=29, deaths=3)
    assert max(kills) == 3


def _command(case: Case) -> list[str]:
    """The command line that does what `Case.run` does."""
    places = [str(case.target), "--in-place"] if case.in_place else [str(case.source), str(case.target)]
    return [*CORGI2, "shuffle", *places, "--buffer-blocks", "2", "--passes", str(case.passes)]


def _wait_for(case: Case, pattern: str, count: int = 1) -> None:
    """Until so many files of the journal are there."""
    end = time.monotonic() + 60
    while len(list((case.target / ".corgi2" / f"c{int(case.in_place)}").glob(pattern))) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def _started(command: list[str]) -> "subprocess.Popen[str]":
    """It heeds interrupts, even if these tests run in the background of a shell, where all are told not to."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=_heed_interrupts)


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def _no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no power fails, nobody sees whether the disk was waited for."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def _problem(case: Case, fault: Failing) -> str | None:
    """What a run says that meets a fault, if it says anything. It may raise nothing but a StoreError."""
    with striking(fault):
        try:
            case.run()
        except StoreError as error:
            return str(error)
    return None


@pytest.mark.usefixtures("_no_flush")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("way", WAYS)
def test_failing_at_any_call_it_says_so_loses_nothing_and_goes_on(
    way: dict[str, Any], number: int, tmp_path: Path
) -> None:
    _fail_everywhere(Case(tmp_path, **way, shards=4), number, 1 if way["passes"] == 1 else 5)


@pytest.mark.usefixtures("_no_flush")
@pytest.mark.parametrize("holdout", ["record", "shard"])
@pytest.mark.parametrize("way", WAYS)
def test_failing_at_some_calls_both_targets_go_on(way: dict[str, Any], holdout: str, tmp_path: Path) -> None:
    _fail_everywhere(Case(tmp_path, **way, shards=5, holdout=holdout), errno.EIO, 13)


def _fail_everywhere(case: Case, number: int, stride: int) -> None:
    case.prepare()
    case.reset()
    case.run()
    expected, everything = case.content(), records(case.source)
    for moment in itertools.count(0, stride):
        case.reset()
        fault = Failing(number, moment)
        problem = _problem(case, fault)
        if not fault.struck:
            break
        fault.check(problem, case.root)
        assert not case.in_place or surviving(case) == everything
        if not (case.in_place and case.is_finished):
            case.run()
        assert case.content() == expected
    assert moment > 40


@pytest.fixture(scope="module")
def much(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 MB in 160 shards: work for a second or more."""
    folder = tmp_path_factory.mktemp("much")
    for shard in range(160):
        lines = (f'{{"t": "{shard} {n} {"x" * 980}"}}\n' for n in range(375))
        (folder / f"data-{shard:04d}.jsonl").write_text("".join(lines))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("markers", [1, 30])
@pytest.mark.parametrize("in_place", [False, True], ids=["copying", "in place"])
def test_interrupted_it_ends_at_once_and_names_the_command_that_goes_on(
    in_place: bool, markers: int, much: Path, tmp_path: Path
) -> None:
    case = Case(tmp_path, in_place=in_place)
    case.source.symlink_to(much)
    case.reset()
    process = _started(_command(case))
    _wait_for(case, "pass-1/groups/[0-9]*", markers)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=60)
    assert time.monotonic() - started < 2
    assert process.returncode == 130
    (line,) = words.splitlines()
    program, *arguments = shlex.split(line.partition("To resume: ")[2])
    assert (program, arguments) == ("corgi2", _command(case)[3:])
    subprocess.run([*CORGI2, *arguments], check=True, stdout=subprocess.DEVNULL)
    assert verify(much, case.target).same
    assert case.leftovers() == []


def _begun(root: Path) -> Journal:
    """The journal of a shuffle that was planned, and stopped there."""
    write_source(root / "in", ".jsonl", [20] * 4)
    planned = plan_shuffle(root / "in", root / "out", Settings(buffer_blocks=2))
    commit_plan(planned)
    return planned.journal


def _warnings(root: Path, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(logging.WARNING):
        shuffle(root / "in", root / "out", buffer_blocks=2)
    assert verify(root / "in", root / "out").same
    return caplog.text


def test_a_run_while_another_works_says_so_and_completes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with _begun(tmp_path).lock() as other:
        assert other is None
        words = _warnings(tmp_path, caplog)
    assert f"{tmp_path / 'out'}: another run is at work there (process {os.getpid()} on {HOST}" in words


@pytest.mark.parametrize(("host", "warned"), [(HOST, False), ("elsewhere", True)], ids=["here", "elsewhere"])
def test_a_dead_process_of_this_machine_is_no_other_run_but_one_elsewhere_may_live(
    host: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    journal = _begun(tmp_path)
    lock = {"host": host, "pid": dead.pid, "since": "yesterday"}
    journal.store.publish(journal.lock_path, [seal(json.dumps(lock).encode())])
    assert ("another run is at work" in _warnings(tmp_path, caplog)) == warned
    assert journal.store.head(journal.lock_path) is None


@pytest.mark.slow
@pytest.mark.parametrize(("shards", "passes"), [(4, 1), (12, 1), (31, 1), (60, 1), (120, 1), (30, 2)])
def test_two_processes_in_place_at_once_end_like_one(shards: int, passes: int, tmp_path: Path) -> None:
    case = Case(tmp_path, in_place=True, passes=passes, shards=shards)
    case.prepare()
    case.reset()
    case.run()
    expected = _shards(case)
    for _ in range(8):
        case.reset()
        _run_two(case)
        assert verify(case.source, case.target).same
        if not (case.target / ".corgi2" / "c2").exists():
            break  # else the second began when the first had ended, and has shuffled once more
    assert _shards(case) == expected
    assert case.leftovers() == []


def _run_two(case: Case) -> None:
    """One of them at least completes; the other does, or says in clear words that it does not."""
    runs = [_started(_command(case)) for _ in range(2)]
    words = [run.communicate()[1] for run in runs]
    assert 0 in [run.returncode for run in runs], words
    assert {run.returncode for run in runs} <= {0, 3}
    assert all(line.startswith("corgi2: ") for text in words for line in text.splitlines()), words


@pytest.mark.usefixtures("_no_flush")
@pytest.mark.parametrize("way", WAYS)
def test_met_at_any_call_by_another_run_that_ends_or_dies_it_ends_like_one(way: dict[str, Any], tmp_path: Path) -> None:
    case = Case(tmp_path, **way, shards=4, workers=1)
    case.prepare()
    case.reset()
    case.run()
    expected, everything, chance = _shards(case), records(case.source), random.Random(0)
    for moment in itertools.count(0, 2 if case.passes == 1 else 5):
        case.reset()
        meeting = Meeting(case, moment, chance.choice([chance.randrange(150), 1_000_000]))
        with striking(meeting), suppress(DyingError):
            _run_or_say(case)
        if meeting.is_late or not meeting.has_begun:
            break
        if not case.is_finished:
            case.run()
        assert records(case.target) == everything
        assert _shards(case) == expected
    assert moment > 40


def _run_or_say(case: Case) -> None:
    """What was listed, and then gone, is no riddle."""
    try:
        case.run()
    except Corgi2Error as error:
        assert not re.search("No such file|Traceback", str(error)), error


def _shards(case: Case) -> dict[str, bytes]:
    """Without what lies between two passes: a run that was overtaken may leave some of it."""
    return {path: data for path, data in content(case.target).items() if not re.search(r"pass-\d+/\d+-", path)}


def test_a_run_that_is_refused_leaves_the_other_its_plan(tmp_path: Path) -> None:
    case = Case(tmp_path, in_place=True)
    case.prepare()
    case.reset()
    late = plan_shuffle(case.target, None, Settings(buffer_blocks=2, in_place=True, shard_records=10))
    commit_plan(plan_shuffle(case.target, None, Settings(buffer_blocks=2, in_place=True)))
    with pytest.raises(SourceError):
        commit_plan(late)
    case.run()
    assert records(case.target) == records(case.source)


def test_a_lock_that_goes_while_it_is_read_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, real = _begun(tmp_path), LocalStore.readinto

    def readinto(store: LocalStore, entry: Entry, start: int, buffer: memoryview) -> None:
        if entry.path == journal.lock_path:
            store.delete(entry.path)
        real(store, entry, start, buffer)

    journal.store.publish(journal.lock_path, [b"{}"])
    monkeypatch.setattr(LocalStore, "readinto", readinto)
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2)


def test_a_lock_that_goes_once_it_is_written_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _begun(tmp_path)
    real = os.replace

    def replace(temporary: Path | str, final: Path | str) -> None:
        real(temporary, final)
        if Path(final).name == "lock":
            Path(final).unlink()

    monkeypatch.setattr(os, "replace", replace)
    shuffle(tmp_path / "in", tmp_path / "out", buffer_blocks=2)
