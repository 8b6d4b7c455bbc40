"""What is done to a shuffle, for each kind of trial."""

import errno
import random
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.chaos import census
from benchmarks.chaos.places import RayCluster, Server
from benchmarks.chaos.runs import Event, Run, play
from benchmarks.chaos.scene import Scene, Span, VoidError

_KILLED = 0.75
"""The chance that a run beside the first is killed, too."""
_DOWN_SECONDS = 2.0
"""A server is away for so long at the most, and as long as it takes to begin."""


def kill(scene: Scene, span: Span, count: int) -> None:
    """So many runs at once; the first is always killed, the others mostly, each at its own moment."""
    chance = scene.chance
    for _ in range(chance.randint(1, 4)):
        runs: dict[int, Run] = {}
        events: list[Event] = []
        for number in range(count):
            starts = chance.uniform(0, 0.3 * (span.ends - span.begins)) if number else 0.0
            events.append((starts, partial(_begin, scene, runs, number)))
            if not number or chance.random() < _KILLED:
                events.append((starts + span.moment(chance), partial(_kill_one, scene, runs, number)))
        play(events)
        _quiet(scene, [*runs.values()], [0] if count == 1 else _beside_others(scene))
        _check_alone(scene, count)
        if scene.is_finished():
            break
    scene.conclude()


def _begin(scene: Scene, runs: dict[int, Run], number: int) -> None:
    runs[number] = scene.launch()


def _kill_one(scene: Scene, runs: Mapping[int, Run], number: int) -> None:
    _kill(scene, runs[number])


def _kill(scene: Scene, run: Run) -> None:
    scene.blow(run.kill())


def _beside_others(scene: Scene) -> list[int]:
    """How a run may end that another has overtaken: where something is consumed, with a line that says so."""
    consumes = scene.trial.in_place or scene.trial.passes > 1
    return [0, 3] if consumes else [0]


def _quiet(scene: Scene, runs: Sequence[Run], codes: Sequence[int]) -> None:
    for run in runs:
        run.end(codes)
    scene.check_quiet()


def _check_alone(scene: Scene, count: int) -> None:
    """In place, a run that is held up while another finishes and a third begins anew may write shards that were
    consumed meanwhile, as docs/shuffle.md says."""
    if scene.trial.in_place and count > 1 and census.generation(scene.place.files(), True) > 1:
        raise VoidError


def stop(scene: Scene, span: Span) -> None:
    """One run sleeps; another ends, or dies, meanwhile; then the first wakes up, and ends, or dies."""
    chance = scene.chance
    for _ in range(chance.randint(1, 2)):
        sleeper = scene.launch()
        play([(span.moment(chance), lambda: None)])
        scene.blow(sleeper.stop())
        others = [_other(scene, span, chance)] if chance.random() < 0.8 else []
        for other in others:
            other.end(_beside_others(scene))
        sleeper.go_on()
        if chance.random() < 0.3:
            play([(chance.uniform(0, span.ends - span.begins), partial(_kill, scene, sleeper))])
        _quiet(scene, [sleeper], _beside_others(scene))
        if scene.is_finished():
            break
    scene.conclude()


def _other(scene: Scene, span: Span, chance: random.Random) -> Run:
    run = scene.launch()
    if chance.random() < 0.5:
        play([(span.moment(chance), partial(_kill, scene, run))])
    return run


def fail(scene: Scene, span: Span) -> None:
    """The disk is full from some call on, or fails once."""
    chance = scene.chance
    for _ in range(chance.randint(1, 4)):
        number = chance.choice((errno.ENOSPC, errno.EIO))
        report = scene.root / f"calls-{len(scene.runs):02d}"
        run = scene.launch([str(report), str(number), str(chance.randrange(span.calls))])
        if chance.random() < 0.2:
            play([(span.moment(chance), partial(_kill, scene, run))])
        _quiet(scene, [run], [0, 3])
        scene.blow(report.exists() and len(report.read_text().split()) > 1)
        if scene.is_finished():
            break
    scene.conclude()


def cut_off(scene: Scene, span: Span, server: Server) -> None:
    """The server is killed under a run, and comes back; at times the run is killed, too."""
    chance = scene.chance
    for _ in range(chance.randint(1, 2)):
        run = scene.launch()
        play([(span.moment(chance), server.kill)])
        scene.blow(run.is_alive)
        if chance.random() < 0.3:
            play([(chance.uniform(0, 1), partial(_kill, scene, run))])
        play([(chance.uniform(0, _DOWN_SECONDS), server.begin)])
        _quiet(scene, [run], [0, 3])
        if scene.is_finished():
            break
    scene.conclude()


def kill_node(scene: Scene, span: Span, cluster: RayCluster) -> None:
    """A node dies under its groups, and others make them: the run itself ends well."""
    cluster.grow()
    run = scene.launch()
    play([(scene.chance.uniform(span.begins, span.ends), cluster.kill_node)])
    scene.blow(run.is_alive)
    _quiet(scene, [run], [0])
    scene.conclude(engine=scene.chance.random() < 0.3)


def kill_driver(scene: Scene, span: Span) -> None:
    """What the driver has begun may go on for a moment; the command is given again, on the cluster or here."""
    chance = scene.chance
    for _ in range(chance.randint(1, 2)):
        run = scene.launch()
        play([(chance.uniform(span.begins, span.ends), partial(_kill, scene, run))])
        run.end([0])
        if scene.is_finished():
            break
    scene.conclude(engine=chance.random() < 0.6)
