"""Published runs, back where runs are kept: so that a few more can be made and shown together with them.

``python -m experiments.restore`` writes those of ``docs/results`` into ``.data/runs``, but for those that are there.
"""

import argparse
import json
from pathlib import Path

from experiments import images, tables
from experiments.results import FOLDER
from experiments.runs import Run, once


def restore(name: str, key: str, folder: Path) -> int:
    """How many runs of an experiment were added."""
    file = folder / f"{name}.json"
    runs: list[Run] = json.loads(file.read_text())["runs"] if file.exists() else []
    return sum(once(key, _name(run), lambda run=run: run) is not None for run in runs)  # type: ignore[misc]


def _name(run: Run) -> str:
    """As the experiment named it."""
    kind = "H of " if "method" in run and "arm" not in run and "gaps" not in run else ""
    return f"{kind}{run.get('arm', run['method'])}, seed {run['seed']}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", type=Path, default=FOLDER, help="a folder of published results")
    asked = parser.parse_args(arguments)
    keys = {name: protocol.key for name, protocol in images.PROTOCOLS.items()}
    for name, key in (keys | {name: tables.key(name) for name in tables.PROBLEMS}).items():
        print(f"{name}: {restore(name, key, asked.source)} runs", flush=True)


if __name__ == "__main__":
    main()
