"""Shuffles that die, or fail, at a chosen call of the operating system.

As a program (``python -m tests.faults``) it kills real processes by SIGKILL, one for each moment, and has others go on.
It forks them, and never shuffles itself: a process that has begun threads of pyarrow must not fork.
"""

import gc
import importlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.chaos import census
from benchmarks.chaos.census import Records
from benchmarks.chaos.places import Folder
from benchmarks.chaos.strikes import Strike, striking

from corgi2.offline.report import Report
from corgi2.offline.run import shuffle
from tests.sources import DyingError, content, write_source

_CHILD_SECONDS = 60
_CALLS_BETWEEN = 60
"""A run that goes on dies again within so many calls."""
_MODULES = ("numpy.random", "pandas", "pyarrow.compute", "pyarrow.pandas_compat")
"""What a shuffle loads late. Loaded before a fork it is loaded once."""


@dataclass(frozen=True, slots=True)
class Case:
    """A small shuffle: of ``in`` to ``out``, or of ``out`` in place, which begins as a copy of ``in``."""

    root: Path
    suffix: str = ".jsonl"
    in_place: bool = False
    passes: int = 1
    workers: int = 2
    shards: int = 6
    holdout: str = ""
    """What is held out: record, shard, or nothing."""
    range_size: int | None = None

    @property
    def aside(self) -> Path:
        return self.root / "val"

    @property
    def source(self) -> Path:
        return self.root / "in"

    @property
    def target(self) -> Path:
        return self.root / "out"

    def prepare(self) -> None:
        write_source(self.source, self.suffix, [20] * self.shards)

    def reset(self) -> None:
        """As it was before the first run. Plans hold paths and times, so the copy has the same of both."""
        shutil.rmtree(self.aside, ignore_errors=True)
        shutil.rmtree(self.target, ignore_errors=True)
        if self.in_place:
            shutil.copytree(self.source, self.target)

    def run(self) -> Report:
        places = (self.target,) if self.in_place else (self.source, self.target)
        options: dict[str, Any] = {"in_place": self.in_place, "passes": self.passes, "workers": self.workers}
        options["range_size"] = self.range_size
        if self.holdout:
            options |= {"holdout": 0.2, "holdout_by": self.holdout, "holdout_to": self.aside}
        return shuffle(*places, buffer_blocks=2, **options)

    def content(self) -> dict[str, bytes]:
        """Of both targets."""
        held = content(self.aside) if self.holdout else {}
        return content(self.target) | {f"val/{path}": data for path, data in held.items()}

    @property
    def is_finished(self) -> bool:
        return (self.target / ".corgi2" / f"c{int(self.in_place)}" / "done").exists()

    def leftovers(self) -> list[str]:
        """What was being written when a process died."""
        return [str(path) for folder in (self.target, self.aside) for path in folder.rglob("*.corgi2-tmp")]

    def as_argument(self, **options: int) -> str:
        return json.dumps({"case": asdict(self) | {"root": str(self.root)}, **options})


def records(folder: Path) -> Records:
    """The records of all shards in a folder."""
    return census.records({path.name: path.read_bytes() for path in folder.glob("data-*")})


def surviving(case: Case) -> Records:
    """The records that a shuffle in place still has, wherever it was stopped."""
    first = [path.name for path in case.source.iterdir()]
    place = Folder(case.root)
    return census.surviving(place.files(), first, 1, case.passes, place.files("aside"))


class Meeting:
    """At one call of a run, a second one begins and comes so many calls far, while all threads of the first wait."""

    def __init__(self, case: Case, moment: int, length: int) -> None:
        self._case, self._moment, self._length = case, moment, length
        self._calls, self._others = itertools.count(), itertools.count()
        self._first: set[int | None] = set()
        self._over = threading.Event()
        self.has_begun = self.is_late = False

    def __call__(self, _name: str, call: Callable[[], Any], _arguments: tuple[Any, ...]) -> Any:
        if self.has_begun and not self._over.is_set():
            if threading.get_ident() in self._first:
                self._over.wait(_CHILD_SECONDS)
            elif next(self._others) >= self._length:
                raise DyingError
        elif not self.has_begun and next(self._calls) == self._moment:
            self._meet()
        return call()

    def _meet(self) -> None:
        self._first = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        self.has_begun, self.is_late = True, self._case.is_finished
        try:
            self._case.run()
        except DyingError:
            pass
        finally:
            self._over.set()


def _dying(moment: int) -> Strike:
    """Even moments lie before a call, odd ones behind it."""
    calls = itertools.count()

    def strike(_name: str, call: Callable[[], Any], _arguments: tuple[Any, ...]) -> Any:
        number = next(calls)
        if 2 * number == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return call()
        finally:  # some calls may fail, such as to remove what was renamed
            if 2 * number + 1 == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    return strike


def _forked(work: Callable[[], object]) -> int:
    """The exit code of a process that does some work: minus the signal, if one has killed it."""
    pid = os.fork()
    if not pid:
        signal.alarm(_CHILD_SECONDS)
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _is_killed(case: Case, moment: int) -> bool:
    """Whether a run was killed at a moment; False if it was finished before."""

    def work() -> None:
        with striking(_dying(moment)):
            case.run()

    code = _forked(work)
    assert code in (0, -signal.SIGKILL), f"moment {moment}: exit code {code}"
    return code != 0


def _undisturbed(case: Case) -> dict[str, bytes]:
    case.reset()
    assert _forked(case.run) == 0
    return case.content()


def kill_everywhere(case: Case, stride: int, deaths: int) -> list[int]:
    """Kill runs at one moment after the other, some again and again, and have them finished; how often each died."""
    expected, everything, chance = _undisturbed(case), records(case.source), random.Random(0)
    kills: list[int] = []
    for moment in itertools.count(0, stride):
        case.reset()
        killed = [_is_killed(case, moment)]
        while len(killed) < deaths and killed[-1] and not case.is_finished:
            killed.append(_is_killed(case, chance.randrange(2 * _CALLS_BETWEEN)))
        if not killed[0]:
            return kills
        if case.in_place:
            assert surviving(case) == everything, f"killed at {moment}, records are lost or doubled"
        _go_on(case)
        assert case.content() == expected, f"killed at {moment}, it ends otherwise"
        kills.append(sum(killed))
    raise AssertionError("unreachable")


def _go_on(case: Case) -> None:
    if case.in_place and case.is_finished:  # all that was left was to say so; the same command would begin anew
        return
    assert _forked(case.run) == 0, "it does not go on"
    assert case.leftovers() == []


def _no_flush(fd: Any) -> None:
    """The system survives whatever is killed here, and what it was told with it."""


def main() -> None:
    request = json.loads(sys.argv[1])
    fields = request.pop("case")
    for name in _MODULES:
        importlib.import_module(name)
    gc.freeze()  # children share what they never touch
    gc.disable()
    os.fsync = _no_flush
    print(json.dumps(kill_everywhere(Case(**fields | {"root": Path(fields["root"])}), **request)))


if __name__ == "__main__":
    main()
