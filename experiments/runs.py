"""Runs that may be cut off: each is a file of its own, in ``.data/runs``. Several processes may share the work."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corgi2.host import is_alive
from experiments.data import SHARDS
from experiments.results import machine

RUNS = SHARDS / "runs"
Run = dict[str, Any]


def once(experiment: str, name: str, make: Callable[[], Run], folder: Path = RUNS) -> Run | None:
    """Make a run and keep it, unless it is kept, or in the making elsewhere: then it is None. The name of an
    experiment says all that its runs have in common, so that others never mix with them."""
    file = folder / experiment / f"{name}.json"
    claim = file.with_suffix(".running")
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() or not _claimed(claim):
        return None
    try:
        if file.exists():  # finished by somebody else in the meantime
            return None
        found = {**(made := make()), "machine": made.get("machine", machine())}
        _publish(file, json.dumps(found, ensure_ascii=False))
    finally:
        claim.unlink(missing_ok=True)
    return found


def kept(experiment: str, folder: Path = RUNS) -> list[Run]:
    """All runs that were finished. One with a slash in its name lies in a folder."""
    return [json.loads(file.read_text()) for file in sorted((folder / experiment).rglob("*.json"))]


def _publish(file: Path, text: str) -> None:
    partial = _written(file.parent, text)
    partial.replace(file)


def _written(folder: Path, text: str) -> Path:
    """A file that nobody else has."""
    handle, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "w") as stream:
        stream.write(text)
    return Path(name)


def _claimed(claim: Path) -> bool:
    """Whether this run is ours: nobody who is alive has it. A claim appears with its owner in it."""
    ours = _written(claim.parent, str(os.getpid()))
    try:
        for _ in range(2):
            try:
                claim.hardlink_to(ours)
                return True
            except FileExistsError:
                if is_alive(_owner(claim)):
                    print(f"{claim.stem}: left to process {_owner(claim)}", flush=True)
                    return False
                claim.unlink(missing_ok=True)
        return False
    finally:
        ours.unlink()


def _owner(claim: Path) -> int:
    """Ours, if the claim has just gone: then whoever had it lived."""
    try:
        return int(claim.read_text())
    except FileNotFoundError:
        return os.getpid()
