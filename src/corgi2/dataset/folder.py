"""What corgi2 keeps next to the data, in ``.corgi2/``: the one place that knows its layout."""

import re
from collections.abc import Iterable

CORGI_FOLDER = ".corgi2"
"""The folder that corgi2 keeps next to the data. No reader takes it for data, including corgi2 itself."""

INDEX_PATH = f"{CORGI_FOLDER}/index"
"""Where the blocks of a data set are kept."""

PLAN_NAME, DONE_NAME = "plan", "done"
"""In a shuffle's own folder: what it writes first, and last."""

_GENERATION = re.compile(r"c\d+-$")
"""Of a shuffle in place, in the names of its shards."""

_RUN = re.compile(rf"{re.escape(CORGI_FOLDER)}/c(\d+)/(\w+)")


def run_folder(generation: int) -> str:
    """Where a shuffle keeps its plan and its markers: 0 for one into this folder, from 1 on for those in place."""
    return f"{CORGI_FOLDER}/c{generation}"


def runs(paths: Iterable[str]) -> dict[int, bool]:
    """The shuffles that left their plan among these paths, by generation, and whether each is finished."""
    names = [(int(match[1]), match[2]) for path in paths if (match := _RUN.fullmatch(path))]
    return {run: (run, DONE_NAME) in names for run, name in sorted(names) if name == PLAN_NAME}


def unnumbered(start: str) -> str:
    """What names begin with, before their number, and before the generation of a shuffle in place: ``train-``."""
    return _GENERATION.sub("", start.rstrip("0123456789"))
