"""Runs that may be cut off: each is a file of its own, in ``.data/runs``. Several processes may share the work."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corgi2.process import is_alive
from experiments.data import SHARDS

RUNS = SHARDS / "runs"
Run = dict[str, Any]


def once(experiment: str, name: str, make: Callable[[], Run], folder: Path = RUNS) -> Run | None:
    """Make a run and keep it, unless it is kept, or in the making elsewhere: then it is None."""
    file = folder / experiment / f"{name}.json"
    claim = file.with_suffix(".running")
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() or not _claimed(claim):
        return None
    try:
        found = make()
        claim.write_text(json.dumps(found, ensure_ascii=False))
        claim.rename(file)
    finally:
        claim.unlink(missing_ok=True)
    return found


def kept(experiment: str, folder: Path = RUNS) -> list[Run]:
    """All runs that were finished."""
    return [json.loads(file.read_text()) for file in sorted((folder / experiment).glob("*.json"))]


def _claimed(claim: Path) -> bool:
    """Whether this run is ours: nobody who is alive has it."""
    try:
        with claim.open("x") as file:
            file.write(str(os.getpid()))
        return True
    except FileExistsError:
        owner = claim.read_text()
        if owner.isdigit() and is_alive(int(owner)):
            return False
        claim.unlink(missing_ok=True)
        return _claimed(claim)
