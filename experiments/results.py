"""A result: its numbers as JSON and its picture as SVG, side by side, with the command that made them in both."""

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from corgi2.extras import needing

with needing("experiments", "an experiment"):
    import matplotlib as mpl
    from matplotlib.figure import Figure

FOLDER = Path("docs/results")
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6bb1")
"""Those of Okabe and Ito, which people with any colour vision tell apart; violet is for yellow, too light for lines."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h", "p", "d")


def style(number: int) -> dict[str, Any]:
    """Of one line among many: no two share both colour and marker."""
    return {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)]}


def parser(about: str | None, seeds: int | None = None) -> argparse.ArgumentParser:
    """What most experiments may be asked: how many seeds, and where the results go."""
    asked = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, default=FOLDER, help="where the results go  [default: docs/results]")
    if seeds is not None:
        asked.add_argument("--seeds", type=int, default=seeds, help=f"how many  [default: {seeds}]")
    return asked


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def machine() -> dict[str, Any]:
    """Its size, by which seconds are to be read."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"processors": os.cpu_count(), "memory_gb": round(memory / 1e9)}


def publish(
    name: str, command: str, numbers: Mapping[str, Any], draw: Callable[[], Figure] | None = None, folder: Path = FOLDER
) -> None:
    """Write both files, the picture only if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"command": command, "machine": machine()} | dict(numbers)
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if draw is not None:
        settings: dict[Any, Any] = {
            "svg.hashsalt": name,  # the same file for the same numbers
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
        }
        with mpl.rc_context(settings):
            figure = draw()
            figure.supxlabel(command, x=0.01, ha="left", fontsize=7, color="#666666", family="monospace")
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, facecolor="white", dpi=110)
    print(f"{folder / name}.json" + (f" and {name}.svg" if draw else ""))
