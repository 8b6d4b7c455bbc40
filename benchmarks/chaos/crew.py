"""Worker processes that carry out trials, one each at a time. Each is a group of its own with all that it begins, which
ends with the one that began it; one that hangs or dies is replaced, and its trial has failed."""

import multiprocessing
import os
import shutil
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from benchmarks.chaos import attacks
from benchmarks.chaos.leash import guard, hold
from benchmarks.chaos.places import Bucket, Folder, RayCluster, Server
from benchmarks.chaos.runs import BrokenPromiseError
from benchmarks.chaos.scene import Scene, Span, VoidError
from benchmarks.chaos.trial import Kind, Result, Trial

TRIAL_SECONDS = 900
"""After which the worker itself hangs."""
_ATTEMPTS = 5
_COUNTS = {Kind.ONE: 1, Kind.TWO: 2, Kind.THREE: 3}


class Worker:
    """Carries out trials, with a server and a cluster of its own, begun when first needed."""

    def __init__(self, root: Path) -> None:
        self._root, self._own, self._stack = root, root / f"worker-{os.getpid()}", ExitStack()
        self._stack.callback(shutil.rmtree, self._own, ignore_errors=True)
        os.environ["XDG_CACHE_HOME"] = str(self._own / "cache")
        self._spans: dict[tuple[object, ...], Span] = {}
        self._server: Server | None = None
        self._cluster: RayCluster | None = None

    def close(self) -> None:
        self._stack.close()

    def carry_out(self, trial: Trial) -> Result:
        """What became of a trial; the folder of one that failed is kept."""
        began, folder = time.monotonic(), self._root / f"trial-{trial.number}"
        runs = blows = 0
        problem = "void at every attempt"
        for attempt in range(_ATTEMPTS):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            scene = self._scene(trial, folder, attempt)
            try:
                self._attack(scene)
                problem = ""
            except VoidError:
                continue
            except BrokenPromiseError as error:
                problem = str(error)
            except Exception as error:
                problem = f"the harness itself failed: {error!r}"
                (folder / "trace").write_text(traceback.format_exc())
            finally:
                scene.end_all()
                runs, blows = runs + len(scene.runs), blows + scene.blows
            break
        if not problem:
            shutil.rmtree(folder)
        return Result(trial.number, runs, blows, time.monotonic() - began, problem)

    def _scene(self, trial: Trial, folder: Path, attempt: int) -> Scene:
        place = Folder(folder)
        chance = trial.chances(f"attempt {attempt}")
        if trial.kind is Kind.SERVER:
            return Scene(trial, folder, Bucket(self._serving(), f"{trial.number}-{attempt}"), chance)
        if trial.kind.is_ray:
            return Scene(trial, folder, place, chance, ["--engine", "ray", "--address", self._clustered().address])
        return Scene(trial, folder, place, chance)

    def _serving(self) -> Server:
        if self._server is None:
            self._server = Server(self._own / "server")
            self._stack.callback(self._server.kill)
        self._server.begin()
        return self._server

    def _clustered(self) -> RayCluster:
        if self._cluster is None:
            self._cluster = RayCluster()
            self._stack.callback(self._cluster.end)
        return self._cluster

    def _attack(self, scene: Scene) -> None:
        scene.prepare()
        span, kind = self._span(scene), scene.trial.kind
        if kind in _COUNTS:
            attacks.kill(scene, span, _COUNTS[kind])
        elif kind is Kind.STOP:
            attacks.stop(scene, span)
        elif kind is Kind.DISK:
            attacks.fail(scene, span)
        elif kind is Kind.SERVER:
            attacks.cut_off(scene, span, self._serving())
        elif kind is Kind.NODE:
            attacks.kill_node(scene, span, self._clustered())
        else:
            attacks.kill_driver(scene, span)

    def _span(self, scene: Scene) -> Span:
        """Measured once for each configuration."""
        trial = scene.trial
        where = type(scene.place).__name__, bool(scene.engine)
        key = (*where, trial.passes) if trial.kind.is_ray else (*where, trial.suffix, trial.in_place, trial.passes)
        if key not in self._spans:
            self._spans[key] = scene.measured()
        span = self._spans[key]
        if trial.kind is Kind.DISK and not span.calls:
            span = self._spans[key] = Span(span.begins, span.ends, scene.counted())
        return span


def _work(parent: int, root: Path, pipe: Connection) -> None:
    """A process of the crew: trials come in, results go out, until the pipe is closed."""
    hold(parent)
    os.setpgid(0, 0)
    worker = Worker(root)
    with suppress(EOFError):
        while True:
            pipe.send(worker.carry_out(pipe.recv()))
    worker.close()


class Member:
    """A process of the crew, seen from outside."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._begin()

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self._process = context.Process(target=_work, args=(os.getpid(), self._root, other))
        self._process.start()
        other.close()
        self._group = self._process.pid or 0
        self._guard = guard(self._group)
        self.trial: Trial | None = None
        self._since = time.monotonic()

    def give(self, trial: Trial) -> None:
        self.trial, self._since = trial, time.monotonic()
        self.pipe.send(trial)

    def result(self) -> Result | None:
        """Of its trial, if there is one by now."""
        trial, seconds = self.trial, time.monotonic() - self._since
        if trial is None or (not self.pipe.poll() and seconds < TRIAL_SECONDS):
            return None
        self.trial = None
        if self.pipe.poll():
            with suppress(EOFError, ConnectionError):
                result: Result = self.pipe.recv()
                return result
        self.kill()
        self._begin()
        return Result(trial.number, 0, 0, seconds, "the harness itself died, or hung")

    def kill(self) -> None:
        """And all that it has begun."""
        if self._guard.poll() is None:
            self._guard.communicate()
        self._process.kill()
        self._process.join()

    def leave(self) -> None:
        """Let it stop its servers."""
        self.pipe.close()
        self._process.join(30)
        self.kill()


def carry_out(trials: Sequence[Trial], root: Path, jobs: int, seconds: float) -> Iterator[Result]:
    """All trials, so many at a time, as they end; after so many seconds none is begun. Those with Ray are done by one
    member, which has the cluster."""
    end = time.monotonic() + seconds
    waiting = {True: [trial for trial in trials if trial.kind.is_ray], False: [t for t in trials if not t.kind.is_ray]}
    crew = [Member(root) for _ in range(max(1, min(jobs, len(trials))))]
    try:
        while any(waiting.values()) or any(member.trial for member in crew):
            if time.monotonic() > end:
                waiting = {True: [], False: []}
            for member in crew:
                if member.trial is None and (queue := _queue(waiting, member is crew[0])):
                    member.give(queue.pop(0))
            busy = {member.pipe: member for member in crew if member.trial}
            wait(list(busy), timeout=1.0)
            for result in (member.result() for member in busy.values()):
                if result is not None:
                    yield result
        for member in crew:
            member.leave()
    finally:
        for member in crew:
            member.kill()


def _queue(waiting: dict[bool, list[Trial]], has_cluster: bool) -> list[Trial]:
    """The member with the cluster begins with what only it can do."""
    return waiting[True] if has_cluster and waiting[True] else waiting[False]
