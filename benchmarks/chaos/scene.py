"""One trial's shuffle: its data, the command that is given again and again, and what must be true when all is quiet."""

import errno
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import corgi2
from benchmarks.chaos import census
from benchmarks.chaos.places import Folder, Place
from benchmarks.chaos.runs import RUN_SECONDS, BrokenPromiseError, Run, start
from benchmarks.chaos.trial import Trial

BUFFER = 16_000_000
_HELD = 0.15
"""The share that is held out, where anything is."""
_EARLY = 0.125
"""The share of moments that may lie before anything is written, when a process mostly loads its modules."""
_PROJECT = Path(__file__).parents[2]


class VoidError(Exception):
    """The trial says nothing: a run began the next shuffle in place while another was still at the one before."""


@dataclass(frozen=True, slots=True)
class Span:
    """An undisturbed run: seconds until it has written its plan, and to its end; its calls of the system."""

    begins: float
    ends: float
    calls: int = 0

    def moment(self, chance: random.Random) -> float:
        first = 0.0 if chance.random() < _EARLY else 0.9 * self.begins
        return chance.uniform(first, self.ends)


@dataclass(slots=True)
class Scene:
    """What a trial works on."""

    trial: Trial
    root: Path
    place: Place
    chance: random.Random
    engine: Sequence[str] = ()
    source: dict[str, bytes] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    blows: int = 0
    _expected: dict[int, dict[str, bytes]] = field(default_factory=dict)
    _held: dict[str, bytes] = field(default_factory=dict)
    _options: dict[str, int] = field(default_factory=dict)

    def prepare(self) -> None:
        """The same data and options for every attempt at a trial."""
        data = self.trial.chances("data")
        self.source = census.make_shards(self.trial.suffix, data)
        self._options = {
            "buffer_blocks": data.randint(2, 5),
            "seed": data.randrange(100),
            "workers": data.randint(1, 4),
        }
        if self.trial.range_bytes is not None:
            self._options["range_size"] = self.trial.range_bytes
        self.reset()

    def reset(self) -> None:
        if self.trial.in_place:
            self.place.put({}, self.source)
        else:
            self.place.put(self.source, {})

    @property
    def command(self) -> list[str]:
        """What follows ``corgi2``."""
        trial, place = self.trial, self.place
        where = [place.target, "--in-place"] if trial.in_place else [place.source, place.target]
        options: dict[str, Any] = {"buffer": BUFFER, "passes": trial.passes, **self._options}
        if self.engine:
            options["workers"] = 1
        options |= self._holdout(place)
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        return ["shuffle", *where, *words]

    def _holdout(self, place: Place) -> dict[str, Any]:
        by = self.trial.holdout
        return {"holdout": _HELD, "holdout_by": by, "holdout_to": place.aside} if by else {}

    def launch(self, fault: Sequence[str] = (), engine: bool = True) -> Run:
        """Give the command once more."""
        program = ["benchmarks.chaos.failing", *fault] if fault else ["corgi2"]
        words = [sys.executable, "-m", *program, *self.command, *(self.engine if engine else ())]
        paths = [str(_PROJECT), str(_PROJECT / "src")]
        settings = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        settings |= {"PYTHONPATH": os.pathsep.join(paths), "XDG_CACHE_HOME": str(self.root / "cache")}
        run = start(words, settings | dict(self.place.environment), self.root / f"run-{len(self.runs):02d}.stderr")
        self.runs.append(run)
        return run

    def blow(self, struck: bool) -> None:
        """Count what was done to a run, if it was still there."""
        self.blows += struck

    def end_all(self) -> None:
        """Whatever happens, nothing goes on behind a trial."""
        for run in self.runs:
            run.kill()
            run.process.wait()

    def measured(self) -> Span:
        """An undisturbed run, by a process of its own; then all is as before."""
        self.reset()
        run = self.launch()
        begins = _until(lambda: self.place.has(f"{census.KEPT}c{int(self.trial.in_place)}/plan") or not run.is_alive)
        ends = begins + _until(lambda: not run.is_alive)
        run.end([0])
        self.reset()
        return Span(begins, ends)

    def counted(self) -> int:
        """The calls that an undisturbed run makes."""
        self.reset()
        self.launch([str(self.root / "calls"), str(errno.EIO), str(10**9)]).end([0])
        self.reset()
        return int((self.root / "calls").read_text().split()[0])

    def is_finished(self) -> bool:
        """Whether the latest shuffle is done. In place, the same command would begin another."""
        files = self.place.files()
        return census.is_done(files, census.generation(files, self.trial.in_place))

    def expected(self, generation: int) -> dict[str, bytes]:
        """The shards after so many undisturbed shuffles in place; 0 are those of the source, or of the one copy."""
        if not self._expected:
            self._expected[0] = self._copied() if not self.trial.in_place else self.source
        while generation not in self._expected:
            self._expected[len(self._expected)] = self._mixed_again()
        return self._expected[generation]

    def _mixed_again(self) -> dict[str, bytes]:
        place = Folder(self.root / "alone")
        if len(self._expected) == 1:
            place.put({}, self.source)
        if self.trial.holdout and len(self._expected) > 1:
            raise BrokenPromiseError("a second shuffle in place has begun, though something is held out already")
        self._shuffle(place.target, None, place)
        self._held = census.shards(place.files("aside"))
        return census.shards(place.files())

    def _copied(self) -> dict[str, bytes]:
        place = Folder(self.root / "alone")
        place.put(self.source, {})
        self._shuffle(place.source, place.target, place)
        self._held = census.shards(place.files("aside"))
        return census.shards(place.files())

    def _shuffle(self, source: str, target: str | None, place: Place) -> None:
        """Here, in this process."""
        options: dict[str, Any] = {"buffer": BUFFER, "passes": self.trial.passes, **self._options}
        options |= self._holdout(place)
        corgi2.shuffle(source, target, in_place=target is None, **options)

    def check_quiet(self) -> None:
        """While no run is at work: no record is lost or repeated."""
        files, aside = self.place.files(), self.place.files("aside")
        everything = census.records(self.source)
        run = census.generation(files, self.trial.in_place)
        if not self.trial.in_place:
            paths = set(census.marked(files, run, self.trial.passes))
            found = census.records({path: data for path, data in files.items() if path in paths})
            held = census.held_out(files, run, aside)
            _check({*held} <= {*aside}, "a shard that was held out, and has a marker, is gone")
            found += census.records({path: aside[path] for path in held})
            _check(found <= everything and paths <= {*files}, "a shard with a marker is gone, or holds other records")
            return
        first = self.expected(max(0, run - 1))
        found = census.surviving(files, first, run, self.trial.passes, aside)
        lost, extra = (everything - found).total(), (found - everything).total()
        _check(found == everything, f"when all was quiet, {lost} records were lost and {extra} repeated")

    def conclude(self, engine: bool = True) -> None:
        """Give the command once more, undisturbed, unless that would begin anew; then everything is as if nothing had
        happened."""
        if not self.trial.in_place or not self.is_finished():
            self.launch(engine=engine).end([0])
            left = [path for path in (*self.place.files(), *self.place.files("aside")) if census.is_temporary(path)]
            _check(not left, f"temporary files are left: {left[:3]}")
        self._check_target()
        if not self.trial.in_place:
            _check(self.place.files("source") == self.source, "the source is not what it was")
        self._verify()

    def _check_target(self) -> None:
        files = self.place.files()
        found, run = census.shards(files), census.generation(files, self.trial.in_place)
        expected = self.expected(run)
        _check(census.is_done(files, run), "it is not done")
        names = sorted(found.keys() ^ expected.keys())
        _check(not names, f"shards are missing, or left over: {names[:5]}")
        other = sorted(path for path in found if found[path] != expected[path])
        _check(not other, f"shards differ from those of an undisturbed run: {other[:5]}")
        held = census.shards(self.place.files("aside"))
        _check(held == self._held, "what was held out differs from that of an undisturbed run")

    def _verify(self) -> None:
        """As ``corgi2 verify DST`` and ``corgi2 verify SRC DST`` do it."""
        alone = corgi2.verify(self.place.target, src_options=self.place.options)
        _check(alone.same, f"verify DST: {alone.as_text()[:500]}")
        original = Folder(self.root / "original")
        original.put(self.source, {})
        held = self.place.aside if self.trial.holdout else None
        both = corgi2.verify(original.source, self.place.target, dst_options=self.place.options, holdout=held)
        _check(both.same, f"verify SRC DST VAL: {both.as_text()[:500]}")
        if held:
            alone = corgi2.verify(held, src_options=self.place.options)
            _check(alone.same, f"verify VAL: {alone.as_text()[:500]}")


def _check(is_so: bool, problem: str) -> None:
    if not is_so:
        raise BrokenPromiseError(problem)


def _until(is_so: Callable[[], bool]) -> float:
    """The seconds until something is so."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > RUN_SECONDS:
            raise BrokenPromiseError(f"nothing was planned after {RUN_SECONDS} s")
        time.sleep(0.001)
    return time.monotonic() - began
